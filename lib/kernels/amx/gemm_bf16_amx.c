/* Products of bf16 with tdpbf16ps. */
#include "tiles_amx.h"

#include "gemm_bf16_amx.h"

void wefti_kern_fill_gemm_bf16_amx(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
}
