/* Q8 weights and activations with vpdpbusd. */
#include "gemm_q8_avx512.h"

void wefti_kern_fill_gemm_q8_avx512vnni(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q8_0] = gemm_q8;
}
