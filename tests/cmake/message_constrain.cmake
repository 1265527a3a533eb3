weft_test(test_message_constrain SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_message_constrain.c
          LINKS weft_message weft_grammar PkgConfig::JANSSON LABELS unit TIMEOUT 60)
weft_test(prop_message SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_message.c
          LINKS weft_message weft_grammar PkgConfig::JANSSON INSIDE message LABELS property TIMEOUT 60)
