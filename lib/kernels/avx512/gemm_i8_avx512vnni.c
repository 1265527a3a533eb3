/* int8 weights and activations with vpdpbusd. */
#include "gemm_i8_avx512.h"

void wefti_kern_fill_gemm_i8_avx512vnni(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}

struct tile_kernel wefti_kern_i8_kernel_avx512vnni(void) {
    return i8_kernel;
}
