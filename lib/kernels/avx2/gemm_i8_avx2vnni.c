/* int8 weights and activations with vpdpbusd. */
#include "gemm_i8_avx2.h"

void wefti_kern_fill_gemm_i8_avx2vnni(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}
