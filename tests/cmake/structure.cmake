# The shape of the tree. In the release build alone: the flags of other builds do not change it.
if(NOT WEFT_SANITIZE)
  add_test(NAME doors COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/structure/test_doors.py
           WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  weft_test_properties(doors 120 "structure" "")
  add_test(NAME structure COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/structure/structure.py)
  weft_test_properties(structure 60 "structure" "")
endif()
