weft_bench(bench_tokenize SOURCES ${CMAKE_SOURCE_DIR}/bench/tokenize.c LINKS weft_tokenizer weft_model)
