/* The types of 2 to 6 bits with vpdpbusd. */
#include "gemm_q2_q6_avx2.h"

void wefti_kern_fill_gemm_q2_q6_avx2vnni(struct weft_kern_table *table) {
    fill_quant(table);
}
