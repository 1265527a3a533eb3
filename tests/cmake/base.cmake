foreach(name test_err test_check test_buf test_parse test_utf8 test_file test_cursor test_ring test_rand test_sampling
             test_cpu test_process test_cgroup test_numa test_step test_end test_dtype test_pooling)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c LINKS weft_base LABELS unit
            TIMEOUT 30)
endforeach()
weft_test(test_log SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_log.c
          LINKS weft_base PkgConfig::JANSSON LABELS unit TIMEOUT 30)
weft_test(test_actor SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_actor.c
          LINKS weft_common LABELS unit TIMEOUT 30)
weft_test(test_config SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_config.c
          LINKS weft_common LABELS unit TIMEOUT 30)
target_link_options(test_config PRIVATE -Wl,--wrap=asprintf)
weft_test(test_status SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_status.c
          LINKS weft_common LABELS unit TIMEOUT 30)
weft_fuzz(fuzz_parse RUNS 200000 LINKS weft_base)
