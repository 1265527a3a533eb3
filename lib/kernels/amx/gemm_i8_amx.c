/* Products of int8 with tdpbsud, but of few rows. */
#include "tiles_amx.h"

#include "gemm_i8_amx.h"

void wefti_kern_fill_gemm_i8_amx(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}
