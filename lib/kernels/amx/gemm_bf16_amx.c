/* Products of bf16, and of blocks rounded to it, with tdpbf16ps. */
#include "tiles_amx.h"

#include "gemm_rounded_amx.h"

void wefti_kern_fill_gemm_bf16_amx(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
    table->bf16_of_blocks = true;
    fill_rounded(table);
}
