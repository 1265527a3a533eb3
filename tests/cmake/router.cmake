foreach(name test_router_http test_router_work)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c LINKS weft_router INSIDE router LABELS unit TIMEOUT 60)
endforeach()
