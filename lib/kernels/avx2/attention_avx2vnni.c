/* Attention: AVX2 with AVX-VNNI. */
#include "attention_avx2.h"

void wefti_kern_fill_attention_avx2vnni(struct weft_kern_table *table) {
    fill_attention(table);
}
