#include "gemm_amx_model.h"

#include "tiles_model.h"

#include "inside/kernels/amx/gemm_rounded_amx.h"

void fill_gemm_rounded_model(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
    table->act_in_rows[WEFT_ACT_BF16] = true;
    fill_rounded(table);
}
