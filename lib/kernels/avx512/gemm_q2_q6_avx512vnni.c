/* The types of 4 to 6 bits with vpdpbusd. */
#include "gemm_q2_q6_avx512.h"

void wefti_kern_fill_gemm_q2_q6_avx512vnni(struct weft_kern_table *table) {
    fill_quant(table);
}
