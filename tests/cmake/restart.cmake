weft_test(test_restart SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_restart.c LINKS weft_restart LABELS unit TIMEOUT 30)
