#include "gemm_amx_model.h"

#include "tiles_model.h"

#include "inside/kernels/amx/gemm_int8_amx.h"

void fill_gemm_amx_model(struct weft_kern_table *table) {
    fill_int8(table);
}
