#include "kern_internal.h"

enum { GROUP_ROWS = WEFTI_KERN_GROUP_ROWS_AVX512 };

#include "ops_body.h"

static void act_group_i8_in_rows(enum weft_gemm_kind kind, const struct weft_kern_act_part *part) {
    if (weft_kern_act_of(kind) == WEFT_ACT_I8)
        rows_i8(kind, part);
    else
        act_group(kind, part);
}

static void act_group_in_rows(enum weft_gemm_kind kind, const struct weft_kern_act_part *part) {
    if (weft_kern_act_of(kind) == WEFT_ACT_BF16)
        rows_bf16(kind, part);
    else
        act_group_i8_in_rows(kind, part);
}

void wefti_kern_fill_act_in_rows_avx512(struct weft_kern_table *table, bool bf16) {
    table->act_in_rows[WEFT_ACT_I8] = true;
    table->act_in_rows[WEFT_ACT_BF16] = bf16;
    table->act_group = bf16 ? act_group_in_rows : act_group_i8_in_rows;
}

void wefti_kern_fill_ops_avx512(struct weft_kern_table *table) {
    fill_ops(table);
}
