foreach(name gemm attention lora_kernels ops pack peak quantise)
  weft_test(test_${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_${name}.c LINKS weft_kernels INSIDE kernels
            LABELS unit TIMEOUT 240) # gemm: 25 s alone, all tables of the CPU
endforeach()
