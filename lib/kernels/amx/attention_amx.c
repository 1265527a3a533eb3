/* Attention: AVX-512, bf16 by tdpbf16ps, int8 by tdpbssd. */
#include "tiles_amx.h"

#include "attention_amx.h"

void wefti_kern_fill_attention_amx(struct weft_kern_table *table) {
    fill_attention(table);
}
