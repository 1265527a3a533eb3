#include "gemm_i8_neon.h"
#include "gemm_q2_q8_neon.h"

void wefti_kern_fill_gemm_int8_neoni8mm(struct weft_kern_table *table) {
    fill_i8(table);
    fill_codes(table);
}
