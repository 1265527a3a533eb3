weft_test(test_message_constrain SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_message_constrain.c
          LINKS weft_message weft_grammar PkgConfig::JANSSON LABELS unit TIMEOUT 60)
