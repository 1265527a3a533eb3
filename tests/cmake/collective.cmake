set(COLL_CASES ${CMAKE_SOURCE_DIR}/tests/harness/coll_cases.c)
weft_test(test_collective SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_collective.c ${COLL_CASES}
          LINKS weft_collective Threads::Threads LABELS unit TIMEOUT 60)
if(WEFT_MPI)
  target_compile_definitions(test_collective PRIVATE WITH_MPI)
endif()
weft_test(prop_collective SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_collective.c
          LINKS weft_collective Threads::Threads LABELS property TIMEOUT 60)
