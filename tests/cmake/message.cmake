weft_test(test_message SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_message.c LINKS weft_message PkgConfig::JANSSON LABELS unit TIMEOUT 60)
weft_test(golden_toolcalls SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_toolcalls.c
          LINKS weft_message PkgConfig::JANSSON LABELS golden TIMEOUT 120)
# The same for outputs that the repository has.
add_test(NAME golden_toolcalls_made COMMAND golden_toolcalls ${CMAKE_SOURCE_DIR}/tests/data/toolcalls)
weft_test_properties(golden_toolcalls_made 120 golden "")
weft_fuzz(fuzz_message RUNS 30000 LINKS weft_message weft_base PkgConfig::JANSSON INSIDE message)
weft_test(test_message_nomem SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_message_nomem.c
          LINKS weft_message PkgConfig::JANSSON LABELS unit TIMEOUT 60)
foreach(symbol malloc calloc realloc)
  target_link_options(test_message_nomem PRIVATE -Wl,--wrap=${symbol})
endforeach()
