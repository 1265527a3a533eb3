/* Attention: NEON as every aarch64 has it. */
#include "attention_neon.h"

void wefti_kern_fill_attention_neon(struct weft_kern_table *table) {
    fill_attention(table);
}
