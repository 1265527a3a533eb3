# Starts the real scheduler and worker; alone on the machine, because it looks at their health.
weft_test(test_actors SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_actors.c
          LINKS weft_common weft_link weft_proto weft_base LABELS system TIMEOUT 120)
add_dependencies(test_actors weft-scheduler weft-worker)
set_tests_properties(test_actors PROPERTIES RUN_SERIAL TRUE)
weft_test(test_loading SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_loading.c
          LINKS weft_engine_config weft_alloc util LABELS unit TIMEOUT 30)
weft_test(test_memory_terms SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_memory_terms.c
          LINKS weft_engine_config weft_alloc LABELS unit TIMEOUT 30)
weft_test(test_expert_rows SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_expert_rows.c
                                   ${CMAKE_SOURCE_DIR}/cmd/worker/experts.c
          LINKS weft_proto weft_base INSIDE cmd_worker LABELS unit TIMEOUT 30)
foreach(symbol malloc calloc)
  target_link_options(test_expert_rows PRIVATE -Wl,--wrap=${symbol})
endforeach()
weft_test(test_remote SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_remote.c ${CMAKE_SOURCE_DIR}/cmd/worker/remote.c
          LINKS weft_engine weft_proto weft_base INSIDE cmd_worker LABELS unit TIMEOUT 30)
weft_test(test_lora_queue SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_lora_queue.c
                                  ${CMAKE_SOURCE_DIR}/cmd/worker/lora_queue.c
          LINKS weft_common weft_engine weft_collective weft_proto weft_base Threads::Threads INSIDE cmd_worker
          LABELS unit TIMEOUT 30)
weft_test(test_stepper SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_stepper.c ${CMAKE_SOURCE_DIR}/cmd/worker/stepper.c
                               ${CMAKE_SOURCE_DIR}/cmd/worker/group.c
          LINKS weft_common weft_engine weft_collective weft_proto weft_base weft_alloc Threads::Threads INSIDE cmd_worker
          LABELS unit TIMEOUT 60)
