/* Products of many rows of int8 activations with tdpbsud. */
#include "tiles_amx.h"

#include "gemm_int8_amx.h"

void wefti_kern_fill_gemm_int8_amx(struct weft_kern_table *table) {
    fill_int8(table);
}
