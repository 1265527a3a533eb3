#include "attention_amx_model.h"

#include "tiles_model.h"

#include "inside/kernels/amx/attention_amx.h"

void fill_attention_amx_model(struct weft_kern_table *table) {
    fill_attention(table);
}
