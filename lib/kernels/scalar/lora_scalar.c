/* Low-rank products, as they are defined: a lane at a time, K ascending. */
#include "vec_scalar.h"

enum { LANES = 2 };

#include "lora_body.h"

void wefti_kern_fill_lora_scalar(struct weft_kern_table *table) {
    table->lora_shrink = lora_shrink;
    table->lora_expand = lora_expand;
}
