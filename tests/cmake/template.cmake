weft_test(test_template SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_template.c
                                ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c
          LINKS weft_template weft_model PkgConfig::JANSSON INSIDE model LABELS unit TIMEOUT 180)
weft_test(golden_templates SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_templates.c
          LINKS weft_template PkgConfig::JANSSON LABELS golden TIMEOUT 60)
weft_fuzz(fuzz_template RUNS 100000 LINKS weft_template weft_codec PkgConfig::JANSSON)
