#include "gemm_amx_model.h"

#include "tiles_model.h"

#include "inside/kernels/amx/gemm_bf16_amx.h"
#include "inside/kernels/amx/gemm_i8_amx.h"

void fill_gemm_amx_model(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
    table->act_in_rows[WEFT_ACT_I8] = table->act_in_rows[WEFT_ACT_BF16] = true;
}
