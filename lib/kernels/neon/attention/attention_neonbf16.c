/* Attention: NEON with dot products of bytes and of bf16. */
#include "attention_neon.h"

void wefti_kern_fill_attention_neonbf16(struct weft_kern_table *table) {
    fill_attention(table);
}
