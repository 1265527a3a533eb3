/* Attention: NEON with dot products of bytes. */
#include "attention_neon.h"

void wefti_kern_fill_attention_neondot(struct weft_kern_table *table) {
    fill_attention(table);
}
