/* Low-rank products: a panel is four registers, and four lanes are sixteen sums. */
#include "vec_neon.h"

enum { LANES = 4 };

#include "lora_body.h"

void wefti_kern_fill_lora_neon(struct weft_kern_table *table) {
    table->lora_shrink = lora_shrink;
    table->lora_expand = lora_expand;
}
