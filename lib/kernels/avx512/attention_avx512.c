/* Attention: AVX-512 as all have it. */
#include "attention_avx512.h"

void wefti_kern_fill_attention_avx512(struct weft_kern_table *table) {
    fill_attention(table);
}
