foreach(name test_api_access test_api_error test_api_http test_api_batches test_api_keys test_api_metrics test_api_multipart test_api_pace
             test_api_params test_api_recent test_api_state test_api_store)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c LINKS weft_api weft_codec INSIDE api LABELS unit
            TIMEOUT 60)
endforeach()
foreach(name test_api_call test_api_render test_api_kinds test_api_live test_api_page test_api_stats test_api_upstream test_api_bounds test_api_ids test_api_messages
             test_api_responses test_api_wishes test_api_pooled)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${CMAKE_SOURCE_DIR}/tests/unit/api_fixture.c
            LINKS weft_api weft_codec INSIDE api LABELS unit TIMEOUT 60)
endforeach()
target_link_libraries(test_api_bounds PRIVATE PkgConfig::ZLIB)
target_link_libraries(test_api_pooled PRIVATE m)
weft_test(test_api_schedulers SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_api_schedulers.c
                                      ${CMAKE_SOURCE_DIR}/tests/unit/api_fixture.c
          LINKS weft_api weft_codec INSIDE api LABELS unit TIMEOUT 60)
weft_test(test_api_cluster SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_api_cluster.c
          LINKS weft_api weft_codec INSIDE api LABELS unit TIMEOUT 60)
weft_test(sim_cluster SOURCES ${CMAKE_SOURCE_DIR}/tests/property/sim_cluster.c
          LINKS weft_api weft_traffic weft_base m INSIDE api LABELS property TIMEOUT 60)
weft_fuzz(fuzz_request RUNS 20000 LINKS weft_api weft_codec INSIDE api)
weft_fuzz(fuzz_batch RUNS 20000 LINKS weft_api)
weft_fuzz(fuzz_multipart RUNS 20000 LINKS weft_api)
foreach(symbol malloc calloc realloc)
  target_link_options(test_api_call PRIVATE -Wl,--wrap=${symbol})
endforeach()
