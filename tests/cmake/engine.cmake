set(ENG_DRIVE ${CMAKE_SOURCE_DIR}/tests/harness/eng_drive.c)
set(ENG_FIXTURES ${CMAKE_SOURCE_DIR}/tests/unit/engine_fixtures.c ${ENG_DRIVE})
set(ENG_GOLDENS ${CMAKE_SOURCE_DIR}/tests/golden/goldens.c ${ENG_DRIVE})
set(ENG_GROUP ${CMAKE_SOURCE_DIR}/tests/harness/eng_group.c)

weft_test(test_pool SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_pool.c
          LINKS weft_engine weft_model weft_kernels weft_alloc INSIDE engine LABELS unit TIMEOUT 60)
weft_test(test_ngram SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_ngram.c
          LINKS weft_engine weft_alloc INSIDE engine LABELS unit TIMEOUT 60)
weft_test(test_fit SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_fit.c
          LINKS weft_engine weft_alloc INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_kv_cache SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_kv_cache.c
          LINKS weft_engine weft_model weft_kernels weft_alloc INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_states SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_states.c
          LINKS weft_engine weft_kernels weft_alloc INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_plan_check SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_plan_check.c
          LINKS weft_engine weft_kernels weft_alloc INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_index SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_index.c
          LINKS weft_engine weft_kernels weft_alloc m INSIDE engine kernels LABELS unit TIMEOUT 60)
weft_test(test_attention_tasks SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_attention_tasks.c
          LINKS weft_engine weft_kernels weft_model weft_collective weft_alloc m INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_mixer SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_mixer.c
          LINKS weft_engine weft_kernels weft_alloc m INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_guides SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_guides.c
          LINKS weft_engine weft_tokenizer weft_alloc INSIDE engine LABELS unit TIMEOUT 120)
weft_test(test_sampler SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_sampler.c
          LINKS weft_engine weft_kernels weft_model weft_alloc INSIDE engine LABELS unit TIMEOUT 60)
weft_test(test_chain SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_chain.c
          LINKS weft_engine weft_kernels weft_model weft_alloc m INSIDE engine LABELS unit TIMEOUT 60)
weft_test(test_contrast SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_contrast.c
          LINKS weft_engine weft_alloc m INSIDE engine LABELS unit TIMEOUT 30)
weft_test(test_sampler_shared SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_sampler_shared.c
          LINKS weft_engine weft_kernels weft_model weft_alloc PkgConfig::JANSSON m INSIDE engine LABELS unit TIMEOUT 60)
weft_test(test_weights_plan SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_weights_plan.c ${ENG_FIXTURES}
          LINKS weft_engine weft_model weft_kernels PkgConfig::XXHASH weft_alloc INSIDE engine LABELS unit TIMEOUT 60)
weft_test(test_profile SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_profile.c ${ENG_FIXTURES}
          LINKS weft_engine weft_model weft_kernels weft_alloc LABELS unit TIMEOUT 60)
weft_test(test_placement SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_placement.c
                         ${CMAKE_SOURCE_DIR}/cmd/weft/serve/placement.c
          LINKS weft_base INSIDE cmd_weft LABELS unit TIMEOUT 60)
weft_test(test_bench_profile SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_bench_profile.c
                                     ${CMAKE_SOURCE_DIR}/cmd/weft/bench/bench_profile.c
          LINKS weft_engine weft_kernels weft_base m INSIDE cmd_weft LABELS unit TIMEOUT 60)
weft_test(golden_perplexity SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_perplexity.c ${ENG_DRIVE}
          LINKS weft_engine weft_model weft_kernels weft_tokenizer weft_template PkgConfig::JANSSON weft_alloc LABELS golden TIMEOUT 300)

weft_test(golden_guess SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_guess.c ${ENG_DRIVE}
          LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON weft_alloc LABELS golden TIMEOUT 300)

add_test(NAME golden_guess_all COMMAND golden_guess all WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
weft_test_properties(golden_guess_all 600 golden "")

weft_test(golden_quant SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_quant.c ${ENG_GOLDENS}
          LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON weft_alloc INSIDE kernels LABELS golden TIMEOUT 60)

set(LORA_FILES ${CMAKE_SOURCE_DIR}/tests/harness/lora_files.c ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c)

weft_test(prop_folder SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_folder.c ${CMAKE_SOURCE_DIR}/tests/harness/model_sketch.c
                              ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c ${ENG_DRIVE}
          LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON weft_alloc INSIDE model LABELS property TIMEOUT 120)

# Without the kernels, which libFuzzer's compiler makes no vectors of.
weft_fuzz(fuzz_session RUNS 100000 SOURCES ${CMAKE_SOURCE_DIR}/lib/engine/runtime/session_head.c
          LINKS weft_base PkgConfig::XXHASH INSIDE engine)

# With them: mutated blindly alone.
if(NOT WEFT_SANITIZE STREQUAL "fuzzer")
  weft_fuzz(fuzz_plan RUNS 300 SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c
            LINKS weft_engine weft_model weft_kernels weft_alloc INSIDE model)
endif()

# The engine on each instruction set. Fewer rounds for the scalar one, which is slow.
function(engine_tests suffix env)
  foreach(name test_engine_plans test_engine_guess test_engine_steps test_engine_calibrate test_engine_open test_engine_pooling test_engine_contrast test_engine_shift test_session_file)
    weft_test(${name}${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${ENG_FIXTURES}
              LINKS weft_engine weft_model weft_kernels weft_alloc LABELS unit TIMEOUT 600 ARGS ${ARGN} ENV "${env}")
  endforeach()
  weft_test(test_engine_invariance${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_engine_invariance.c ${ENG_FIXTURES} ${LORA_FILES}
            LINKS weft_engine weft_model weft_kernels PkgConfig::XXHASH weft_alloc INSIDE model LABELS unit TIMEOUT 600 ARGS ${ARGN} ENV "${env}")
  weft_test(test_engine_packed${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_engine_packed.c
                                                ${ENG_FIXTURES}
            LINKS weft_engine weft_model weft_kernels weft_tokenizer weft_template PkgConfig::XXHASH weft_alloc LABELS unit TIMEOUT 600 ARGS ${ARGN}
            ENV "${env}")
  if(NOT WEFT_SANITIZE) # it counts what each thread allocates
    target_link_options(test_engine_steps${suffix} PRIVATE -Wl,--wrap=pthread_create)
  endif()
  weft_test(golden_logits${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_logits.c ${ENG_GROUP}
                                           ${ENG_GOLDENS}
            LINKS weft_engine weft_collective weft_model weft_kernels PkgConfig::JANSSON weft_alloc INSIDE kernels LABELS golden TIMEOUT 120 ENV "${env}")
  weft_test(golden_encoders${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_encoders.c ${ENG_GOLDENS}
            LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON m weft_alloc INSIDE kernels LABELS golden TIMEOUT 60 ENV "${env}")
  weft_test(test_engine_lora${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_engine_lora.c ${ENG_FIXTURES} ${LORA_FILES}
            LINKS weft_engine weft_model weft_kernels weft_alloc INSIDE model LABELS unit TIMEOUT 120 ARGS ${ARGN} ENV "${env}")
  weft_test(golden_lora${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_lora.c ${ENG_GOLDENS}
            LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON weft_alloc INSIDE kernels LABELS golden TIMEOUT 60 ENV "${env}")
  weft_test(golden_predictor${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_predictor.c ${ENG_GOLDENS}
            LINKS weft_engine weft_model weft_kernels weft_collective PkgConfig::JANSSON m weft_alloc INSIDE engine kernels LABELS golden TIMEOUT 60 ENV "${env}")
  weft_test(golden_contrast${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_contrast.c ${ENG_DRIVE}
            LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON weft_alloc LABELS golden TIMEOUT 120 ENV "${env}")
  weft_test(golden_embed${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_embed.c ${ENG_GOLDENS}
            LINKS weft_engine weft_model weft_kernels PkgConfig::JANSSON weft_alloc m INSIDE kernels LABELS golden TIMEOUT 120 ENV "${env}")
endfunction()
engine_tests("" "")
engine_tests(_avx2 "WEFT_ISA=avx2")
engine_tests(_scalar "WEFT_ISA=scalar" short)
# Where AMX is, the tests without a suffix take it.
file(STRINGS /proc/cpuinfo AMX_BF16 REGEX " amx_bf16( |$)" LIMIT_COUNT 1)
if(AMX_BF16)
  engine_tests(_avx512 "WEFT_ISA=avx512")
endif()
# Of all CPUs with AVX2 only some have AVX-VNNI.
file(STRINGS /proc/cpuinfo AVX_VNNI REGEX " avx_vnni( |$)" LIMIT_COUNT 1)
if(AVX_VNNI)
  engine_tests(_avx2vnni "WEFT_ISA=avx2vnni")
else()
  message(STATUS "No AVX-VNNI here: the engine's tests of avx2vnni are left out")
endif()

# Groups of engines. Fewer ranks and models for the scalar instruction set, and for ThreadSanitizer, which take ten times as
# long.
function(engine_group_test suffix env)
  weft_test(test_engine_tp${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_engine_tp.c ${ENG_GROUP} ${ENG_FIXTURES}
            LINKS weft_engine weft_collective weft_model weft_kernels PkgConfig::XXHASH weft_alloc LABELS unit TIMEOUT 600 ARGS ${ARGN}
            ENV "${env}")
  weft_test(test_engine_states${suffix} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_engine_states.c ${ENG_GROUP} ${ENG_FIXTURES}
            LINKS weft_engine weft_collective weft_model weft_kernels weft_alloc INSIDE engine LABELS unit TIMEOUT 600 ARGS ${ARGN}
            ENV "${env}")
endfunction()
if(WEFT_SANITIZE STREQUAL "thread")
  engine_group_test("" "" short)
else()
  engine_group_test("" "")
endif()
engine_group_test(_avx2 "WEFT_ISA=avx2")
weft_test(test_expert_load SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_expert_load.c ${ENG_GROUP} ${ENG_FIXTURES}
          LINKS weft_engine weft_collective weft_model weft_kernels weft_alloc INSIDE engine LABELS unit TIMEOUT 60)
weft_test(golden_logits_ranks SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_logits.c ${ENG_GROUP} ${ENG_GOLDENS}
          LINKS weft_engine weft_collective weft_model weft_kernels PkgConfig::JANSSON weft_alloc INSIDE kernels LABELS golden TIMEOUT 120 ARGS 2)
engine_group_test(_scalar "WEFT_ISA=scalar" short)
weft_fuzz(fuzz_sample RUNS 1000 SOURCES ${CMAKE_SOURCE_DIR}/cmd/weft/cases/sample_check.c ${CMAKE_SOURCE_DIR}/cmd/weft/cases/sample_file.c LINKS weft_base PkgConfig::JANSSON
          INSIDE cmd_weft)
