set(WEFT_PROTO_MESSAGES ${CMAKE_SOURCE_DIR}/tests/unit/proto_messages.c)
weft_test(test_proto SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_proto.c ${WEFT_PROTO_MESSAGES}
          LINKS weft_proto INSIDE proto LABELS unit TIMEOUT 20)
target_link_options(test_proto PRIVATE -Wl,--wrap=malloc)
weft_test(prop_proto SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_proto.c ${WEFT_PROTO_MESSAGES}
          LINKS weft_proto LABELS property TIMEOUT 60)
weft_fuzz(fuzz_proto RUNS 100000 LINKS weft_proto SOURCES ${WEFT_PROTO_MESSAGES})
# Real processes that are killed; one at a time, since it measures how soon a death is noticed. The kinds of addresses
# share one code path: under a sanitizer the first one and the one with the most of nng in it will do.
weft_test(test_link SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_link.c ${CMAKE_SOURCE_DIR}/tests/unit/test_link_processes.c
                            ${CMAKE_SOURCE_DIR}/tests/unit/test_link_strangers.c ${CMAKE_SOURCE_DIR}/tests/unit/link_ends.c
          LINKS weft_link weft_link_certs ${NNG_LIBRARY} LABELS unit TIMEOUT 120 ARGS abstract)
foreach(symbol nng_aio_set_timeout nng_sleep_aio nng_stream_dialer_dial nng_stream_get_uint64 wefti_link_inbox_take
        wefti_link_user_of_tcp)
  target_link_options(test_link PRIVATE -Wl,--wrap=${symbol})
endforeach()
set_tests_properties(test_link PROPERTIES RUN_SERIAL TRUE)
foreach(transport ipc tcp tls)
  if(NOT WEFT_SANITIZE OR transport STREQUAL "tls")
    string(REPLACE tls tls+tcp url_scheme ${transport})
    add_test(NAME test_link_${transport} COMMAND test_link ${url_scheme} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    weft_test_properties(test_link_${transport} 120 unit "")
    set_tests_properties(test_link_${transport} PROPERTIES RUN_SERIAL TRUE)
  endif()
endforeach()
