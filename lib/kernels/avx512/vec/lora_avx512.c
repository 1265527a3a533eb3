/* Low-rank products: eight lanes are eight sums, and their weights and rows are read as they are met. */
#include "vec_avx512.h"

enum { LANES = 8 };

#include "lora_body.h"

void wefti_kern_fill_lora_avx512(struct weft_kern_table *table) {
    table->lora_shrink = lora_shrink;
    table->lora_expand = lora_expand;
}
