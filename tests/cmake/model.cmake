set(WEFT_MODEL_FILES ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c)
foreach(name test_model test_predictor test_gemma test_encoder_files test_rope test_safetensors test_gguf test_gguf_families test_gguf_scales test_gguf_split
             test_identity test_lora_reader test_model_families test_model_nomem test_model_pooling)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${WEFT_MODEL_FILES}
            LINKS weft_model INSIDE model LABELS unit TIMEOUT 60)
endforeach()
weft_test(test_model_settings SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_model_settings.c ${WEFT_MODEL_FILES}
          LINKS weft_model weft_engine INSIDE model LABELS unit TIMEOUT 300)
foreach(name test_parts test_join)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${WEFT_MODEL_FILES}
            LINKS weft_model weft_kernels INSIDE model LABELS unit TIMEOUT 60)
endforeach()
foreach(name fuzz_gguf fuzz_safetensors fuzz_config fuzz_packed fuzz_lora)
  weft_fuzz(${name} RUNS 100000 LINKS weft_model PkgConfig::XXHASH INSIDE model SOURCES ${WEFT_MODEL_FILES})
endforeach()

weft_fuzz(fuzz_folder RUNS 10000 LINKS weft_model PkgConfig::JANSSON INSIDE model
          SOURCES ${WEFT_MODEL_FILES} ${CMAKE_SOURCE_DIR}/tests/harness/model_sketch.c)

foreach(symbol malloc calloc realloc strdup strndup)
  target_link_options(test_model_nomem PRIVATE -Wl,--wrap=${symbol})
endforeach()
