/* Low-rank products: a panel is two registers, and four lanes are eight sums. */
#include "vec_avx2.h"

enum { LANES = 4 };

#include "lora_body.h"

void wefti_kern_fill_lora_avx2(struct weft_kern_table *table) {
    table->lora_shrink = lora_shrink;
    table->lora_expand = lora_expand;
}
