set(WEFT_TOKENIZER_FILES ${CMAKE_SOURCE_DIR}/tests/unit/tokenizer_files.c
                         ${CMAKE_SOURCE_DIR}/tests/unit/model_files.c)
foreach(name test_tokenizer_merging test_tokenizer_stages test_tokenizer_files test_tokenizer_gguf
             test_tokenizer_splits test_tokenizer_spm test_tokenizer_words test_tokenizer_work test_detok test_stop test_text_nomem)
  weft_test(${name} SOURCES ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${WEFT_TOKENIZER_FILES}
            LINKS weft_tokenizer weft_template weft_model weft_codec INSIDE model tokenizer LABELS unit TIMEOUT 180)
endforeach()
weft_test(golden_tokenizer SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_tokenizer.c
          LINKS weft_tokenizer LABELS golden TIMEOUT 60)
weft_test(golden_embed_ids SOURCES ${CMAKE_SOURCE_DIR}/tests/golden/golden_embed_ids.c
          LINKS weft_tokenizer LABELS golden TIMEOUT 60)
weft_fuzz(fuzz_tokenizer RUNS 5000 LINKS weft_tokenizer weft_model weft_codec INSIDE tokenizer model
          SOURCES ${WEFT_TOKENIZER_FILES})

foreach(symbol malloc calloc realloc)
  target_link_options(test_text_nomem PRIVATE -Wl,--wrap=${symbol})
endforeach()
foreach(symbol wefti_tok_trie_step wefti_tok_vocab_find wefti_tok_merges_find)
  target_link_options(test_tokenizer_work PRIVATE -Wl,--wrap=${symbol})
endforeach()
