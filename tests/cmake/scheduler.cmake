set(WEFT_SIM_WORKER ${CMAKE_SOURCE_DIR}/tests/property/sim_worker.c)

weft_test(test_kv_pool SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_kv_pool.c
          LINKS weft_paged_kv LABELS unit TIMEOUT 30)
weft_test(prop_kv_pool SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_kv_pool.c
          LINKS weft_paged_kv LABELS property TIMEOUT 60)
weft_test(prop_prefix_cache SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_prefix_cache.c
          LINKS weft_paged_kv LABELS property TIMEOUT 60)
weft_test(prop_checkpoints SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_checkpoints.c
          LINKS weft_paged_kv LABELS property TIMEOUT 60)
weft_test(sim_scheduler SOURCES ${CMAKE_SOURCE_DIR}/tests/property/sim_scheduler.c
                                ${CMAKE_SOURCE_DIR}/tests/property/sim_trace.c
                                ${CMAKE_SOURCE_DIR}/tests/property/sim_beams.c ${WEFT_SIM_WORKER}
          LINKS weft_scheduler weft_traffic INSIDE scheduler LABELS property TIMEOUT 120)
foreach(run RANGE 2 5) # ten million steps in all
  add_test(NAME sim_scheduler_${run} COMMAND sim_scheduler WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  weft_test_properties(sim_scheduler_${run} 120 property "")
endforeach()
weft_test(sim_prefix SOURCES ${CMAKE_SOURCE_DIR}/tests/property/sim_prefix.c
          LINKS weft_scheduler LABELS property TIMEOUT 60)
weft_test(test_sched_adapters SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_sched_adapters.c
          LINKS weft_scheduler LABELS unit TIMEOUT 30)
set(WEFT_SCHED_BENCH ${WEFT_SIM_WORKER} ${CMAKE_SOURCE_DIR}/tests/unit/sched_bench.c)
foreach(name test_scheduler test_scheduler_queue test_scheduler_choices test_scheduler_result
             test_scheduler_background test_scheduler_ration test_scheduler_suspects test_scheduler_groups test_scheduler_activity
             test_scheduler_nomem test_scheduler_windows test_scheduler_prefix test_scheduler_spill test_scheduler_grammar test_scheduler_pooling test_scheduler_contrast test_scheduler_whole test_scheduler_recurrent test_scheduler_checkpoints test_scheduler_guess test_scheduler_sessions test_scheduler_files test_scheduler_shift)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${WEFT_SCHED_BENCH}
            LINKS weft_scheduler LABELS unit TIMEOUT 60)
endforeach()

weft_test(test_scheduler_cost SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_scheduler_cost.c
          LINKS weft_scheduler LABELS unit TIMEOUT 30)

target_link_libraries(test_scheduler_nomem PRIVATE weft_alloc) # its counters
foreach(symbol malloc calloc realloc aligned_alloc)
  target_link_options(test_scheduler_nomem PRIVATE -Wl,--wrap=${symbol})
endforeach()

# On a virtual clock, at the cost of a real machine.
set(WEFT_SIM_MACHINE ${CMAKE_SOURCE_DIR}/tests/property/sim_machine.c)
foreach(name sim_fairness sim_oversubscribed)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/property/${name}.c ${WEFT_SIM_MACHINE}
            LINKS weft_scheduler m LABELS property TIMEOUT 120)
endforeach()
weft_test(sim_deadlines SOURCES ${CMAKE_SOURCE_DIR}/tests/property/sim_deadlines.c ${WEFT_SIM_MACHINE}
          LINKS weft_scheduler weft_traffic m LABELS property TIMEOUT 120)
weft_test(prop_scheduler SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_scheduler.c
          LINKS weft_scheduler LABELS property TIMEOUT 60)
weft_test(test_beam SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_beam.c LINKS weft_scheduler weft_base m INSIDE scheduler
          LABELS unit TIMEOUT 60)
