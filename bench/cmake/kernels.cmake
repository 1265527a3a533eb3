weft_bench(bench_gemm SOURCES ${CMAKE_SOURCE_DIR}/bench/gemm.c ${CMAKE_SOURCE_DIR}/bench/machine.c
           LINKS weft_kernels Threads::Threads)
# The peak is that of fused multiply-adds: here the compiler may make them.
set_source_files_properties(${CMAKE_SOURCE_DIR}/bench/machine.c
                            PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=fast")
