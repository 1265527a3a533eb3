# Clusters with faults on a virtual clock; see tests/property/sim_faults.c.
set(faults ${CMAKE_SOURCE_DIR}/tests/property/faults)
set(actor ${CMAKE_SOURCE_DIR}/cmd/scheduler)
weft_test(sim_faults
          SOURCES ${CMAKE_SOURCE_DIR}/tests/property/sim_faults.c ${CMAKE_SOURCE_DIR}/tests/property/sim_worker.c
                  ${faults}/sim.c ${faults}/wire.c ${faults}/clients.c ${faults}/router.c ${faults}/scheduler.c ${faults}/worker.c
                  ${actor}/turn.c ${actor}/group.c ${actor}/routers.c ${actor}/adapters.c ${actor}/pending.c ${actor}/send.c ${actor}/sessions.c
                  ${CMAKE_SOURCE_DIR}/cmd/router/scheduler_link.c
          LINKS weft_api weft_codec weft_scheduler weft_common weft_link weft_link_config weft_proto weft_base m
          INSIDE api link router cmd_scheduler LABELS property TIMEOUT 120)
foreach(symbol clock_gettime weft_rand_seed weft_mem_resident_bytes)
  target_link_options(sim_faults PRIVATE -Wl,--wrap=${symbol})
endforeach()
foreach(run RANGE 2 4) # a hundred thousand faults in all
  add_test(NAME sim_faults_${run} COMMAND sim_faults WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  weft_test_properties(sim_faults_${run} 120 property "")
endforeach()
if(NOT WEFT_SANITIZE)
  add_test(NAME sim_faults_long COMMAND sim_faults --faults 1000000 WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  weft_test_properties(sim_faults_long 1200 property "")
endif()
