weft_test(test_grammar SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_grammar.c LINKS weft_grammar LABELS unit TIMEOUT 60)
weft_test(test_grammar_rules SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_grammar_rules.c LINKS weft_grammar LABELS unit TIMEOUT 60)
weft_test(test_grammar_schema SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_grammar_schema.c LINKS weft_grammar LABELS unit TIMEOUT 60)
weft_test(test_grammar_tags SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/test_grammar_tags.c LINKS weft_grammar LABELS unit TIMEOUT 60)
weft_test(prop_expr SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_expr.c LINKS weft_grammar INSIDE grammar LABELS property TIMEOUT 60)
weft_test(prop_masks SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_masks.c LINKS weft_grammar LABELS property TIMEOUT 60)
weft_test(prop_tags SOURCES ${CMAKE_SOURCE_DIR}/tests/property/prop_tags.c LINKS weft_grammar LABELS property TIMEOUT 60)
weft_test(golden_grammars SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_grammars.c
          LINKS weft_grammar weft_tokenizer PkgConfig::JANSSON LABELS golden TIMEOUT 120)
weft_test(golden_schemas SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_schemas.c
          LINKS weft_grammar weft_tokenizer PkgConfig::JANSSON LABELS golden TIMEOUT 120)
foreach(name fuzz_schema fuzz_regex fuzz_gbnf fuzz_lark fuzz_tags)
  weft_fuzz(${name} RUNS 10000 SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_grammar.c LINKS weft_grammar weft_base PkgConfig::JANSSON)
endforeach()
