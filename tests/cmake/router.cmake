foreach(name test_router_params test_router_error test_router_metrics test_router_msgpack
             test_router_http test_router_call test_router_core test_router_work
             test_router_pace)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c LINKS weft_router INSIDE router LABELS unit TIMEOUT 60)
endforeach()
weft_fuzz(fuzz_msgpack RUNS 100000 LINKS weft_router INSIDE router)
weft_fuzz(fuzz_request RUNS 20000 LINKS weft_router INSIDE router)
foreach(symbol malloc calloc realloc)
  target_link_options(test_router_call PRIVATE -Wl,--wrap=${symbol})
endforeach()
