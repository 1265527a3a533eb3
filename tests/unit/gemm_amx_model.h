/* The products of AMX with a model of its instructions: for a CPU that has AVX-512 with VNNI. */
#ifndef WEFT_TEST_GEMM_AMX_MODEL_H
#define WEFT_TEST_GEMM_AMX_MODEL_H

#include "kernels/kernels.h"

void fill_gemm_amx_model(struct weft_kern_table *table);
/* Those of bf16, and of blocks rounded to it: only where the CPU has AVX-512 with BF16 and VBMI. */
void fill_gemm_rounded_model(struct weft_kern_table *table);

#endif
