# bench_gemm puts libraries beside our kernels where they are installed; none of them is needed.
# (OpenMP only to say how many threads oneDNN may take, and where.)
pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas)
find_path(DNNL_INCLUDE_DIR dnnl.h)
find_library(DNNL_LIBRARY dnnl)
find_package(OpenMP QUIET COMPONENTS C)

weft_bench(bench_gemm SOURCES gemm.c gemm_table.c crew.c ${CMAKE_SOURCE_DIR}/cmd/weft/bench/bench_machine.c
           LINKS weft_kernels Threads::Threads m INSIDE cmd_weft)
if(OPENBLAS_FOUND)
  target_sources(bench_gemm PRIVATE gemm_blas.c)
  target_compile_definitions(bench_gemm PRIVATE WEFT_BENCH_OPENBLAS)
  target_link_libraries(bench_gemm PRIVATE PkgConfig::OPENBLAS)
endif()
# The interface of 3.0 differs.
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND OpenMP_C_FOUND)
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h DNNL_MAJOR REGEX "DNNL_VERSION_MAJOR +2")
endif()
if(DNNL_MAJOR)
  target_sources(bench_gemm PRIVATE gemm_dnnl.c)
  target_include_directories(bench_gemm SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
  target_compile_definitions(bench_gemm PRIVATE WEFT_BENCH_ONEDNN)
  target_link_libraries(bench_gemm PRIVATE ${DNNL_LIBRARY} OpenMP::OpenMP_C)
endif()
weft_bench(bench_ops SOURCES ops.c ${CMAKE_SOURCE_DIR}/cmd/weft/bench/bench_machine.c
           LINKS weft_engine weft_model weft_kernels Threads::Threads m INSIDE engine cmd_weft)
weft_bench(bench_order SOURCES order.c crew.c ${CMAKE_SOURCE_DIR}/cmd/weft/bench/bench_machine.c
           LINKS weft_kernels Threads::Threads m INSIDE cmd_weft)
weft_bench(bench_recurrent SOURCES recurrent.c ${CMAKE_SOURCE_DIR}/cmd/weft/bench/bench_machine.c
           LINKS weft_kernels Threads::Threads m INSIDE cmd_weft)
