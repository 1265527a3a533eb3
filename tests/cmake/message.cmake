weft_test(golden_toolcalls SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_toolcalls.c
          LINKS weft_message PkgConfig::JANSSON LABELS golden TIMEOUT 120)
