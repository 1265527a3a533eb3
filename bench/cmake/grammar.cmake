weft_bench(bench_grammar SOURCES grammar.c LINKS weft_grammar weft_tokenizer PkgConfig::JANSSON)
