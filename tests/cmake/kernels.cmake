foreach(name gemm attention lora_kernels ops pack peak quant quantise recurrent)
  weft_test(test_${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_${name}.c LINKS weft_kernels INSIDE kernels
            LABELS unit TIMEOUT 400) # gemm: 100 s alone, all tables of the CPU
endforeach()

# AMX's products, and attention, with a model of its instructions.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(model ${CMAKE_SOURCE_DIR}/tests/unit/gemm_amx_model.c)
  set(attention_model ${CMAKE_SOURCE_DIR}/tests/unit/attention_amx_model.c)
  set(rounded_model ${CMAKE_SOURCE_DIR}/tests/unit/gemm_rounded_model.c)
  set_source_files_properties(${model} ${attention_model} PROPERTIES COMPILE_OPTIONS "${WEFT_KERN_VNNI_FLAGS}")
  set_source_files_properties(${rounded_model} PROPERTIES COMPILE_OPTIONS
                              "${WEFT_KERN_VNNI_FLAGS};${WEFT_KERN_ROUND_FLAGS}")
  target_sources(test_attention PRIVATE ${attention_model})
  weft_test(test_gemm_amx SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_gemm_amx.c ${model} ${rounded_model} LINKS weft_kernels
            INSIDE kernels LABELS unit TIMEOUT 60)
endif()
