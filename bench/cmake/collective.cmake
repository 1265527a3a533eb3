weft_bench(bench_collective SOURCES collective.c LINKS weft_collective)
