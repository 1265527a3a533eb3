/* Attention with AMX's tiles, by a model of its instructions: for a CPU that has AVX-512 with VNNI. */
#ifndef WEFT_TEST_ATTENTION_AMX_MODEL_H
#define WEFT_TEST_ATTENTION_AMX_MODEL_H

#include "kernels/kernels.h"

void fill_attention_amx_model(struct weft_kern_table *table);

#endif
