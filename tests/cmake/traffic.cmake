foreach(name test_traffic_arrivals test_traffic_body test_traffic_goal test_traffic_plot test_traffic_reply test_traffic_tally test_traffic_times
             test_traffic_trace test_traffic_workload)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c LINKS weft_traffic weft_base PkgConfig::JANSSON m LABELS unit TIMEOUT 30)
endforeach()
weft_fuzz(fuzz_traffic RUNS 50000 LINKS weft_traffic weft_base)
