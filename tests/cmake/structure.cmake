# What the tree looks like, not what it does. In the release build alone: the flags of others differ in nothing that counts.
if(NOT WEFT_SANITIZE)
  add_test(NAME doors COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/structure/test_doors.py
           WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  weft_test_properties(doors 120 "structure" "")
endif()
