set(WEFT_PROTO_MESSAGES ${CMAKE_SOURCE_DIR}/tests/unit/proto_messages.c)
weft_test(test_proto SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_proto.c ${WEFT_PROTO_MESSAGES}
          LINKS weft_proto INSIDE proto LABELS unit TIMEOUT 20)
target_link_options(test_proto PRIVATE -Wl,--wrap=malloc)
weft_test(prop_proto SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_proto.c ${WEFT_PROTO_MESSAGES}
          LINKS weft_proto LABELS property TIMEOUT 60)
weft_fuzz(fuzz_proto RUNS 100000 LINKS weft_proto SOURCES ${WEFT_PROTO_MESSAGES})
# Real processes that are killed; one at a time, since it measures how soon a death is noticed.
weft_test(test_link SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_link.c LINKS weft_link ${NNG_LIBRARY} INSIDE link LABELS unit
          TIMEOUT 120)
target_link_options(test_link PRIVATE -Wl,--wrap=nng_stream_get_uint64)
set_tests_properties(test_link PROPERTIES RUN_SERIAL TRUE)
