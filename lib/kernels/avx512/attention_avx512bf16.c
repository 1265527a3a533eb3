/* Attention: AVX-512 with VNNI and BF16. */
#include "attention_avx512.h"

void wefti_kern_fill_attention_avx512bf16(struct weft_kern_table *table) {
    fill_attention(table);
}
