weft_bench(bench_tokenize SOURCES ${CMAKE_SOURCE_DIR}/bench/tokenize.c LINKS weft_text weft_model)
