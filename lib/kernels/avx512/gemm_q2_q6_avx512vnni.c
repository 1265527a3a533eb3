/* The types of 4 to 6 bits with vpdpbusd. */
#include "gemm_q2_q6_avx512.h"

void wefti_kern_fill_gemm_q2_q6_avx512vnni(struct weft_kern_table *table) {
    fill_quant(table);
}

#define KERNEL_OF(name, ID, ...)                                                                   \
    case WEFT_GEMM_##ID:                                                                           \
        return kernel_##name();

struct tile_kernel wefti_kern_q2_q6_kernel_avx512vnni(enum weft_gemm_kind kind) {
    switch (kind) {
        QUANT_EACH(KERNEL_OF)
    default:
        weft_check_failed("a kind of 2 to 6 bits", __FILE__, __LINE__);
    }
}
