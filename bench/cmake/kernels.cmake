weft_bench(bench_gemm SOURCES ${CMAKE_SOURCE_DIR}/bench/gemm.c
           ${CMAKE_SOURCE_DIR}/cmd/weft/bench_machine.c LINKS weft_kernels Threads::Threads)
