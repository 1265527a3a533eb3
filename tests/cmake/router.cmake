weft_test(test_router_work SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_router_work.c LINKS weft_router INSIDE router
          LABELS unit TIMEOUT 60)
weft_test(test_router_handover SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_router_handover.c LINKS weft_router INSIDE router
          LABELS unit TIMEOUT 60)
