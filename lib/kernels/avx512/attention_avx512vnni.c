/* Attention: AVX-512 with VNNI. */
#include "attention_avx512.h"

void wefti_kern_fill_attention_avx512vnni(struct weft_kern_table *table) {
    fill_attention(table);
}
