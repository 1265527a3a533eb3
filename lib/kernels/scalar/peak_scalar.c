/* Multiply-adds in plain C: a product, then a sum, in the widest vectors that every CPU of the
 * architecture has, which the compiler makes from loops. */
#include "peak.h"

typedef float vec_f32 __attribute__((vector_size(16)));
/* 16 bits are the widest integers that SSE2 multiplies in one instruction. */
typedef uint16_t vec_int __attribute__((vector_size(16)));

#define STEP(sum, a, b) ((sum) * (a) + (b))

PEAK_DEFINE(peak_f32, vec_f32, STEP, 4 * 2, ((vec_f32){0.5f, 0.5f, 0.5f, 0.5f}),
            ((vec_f32){1, 1, 1, 1}))
PEAK_DEFINE(peak_int8, vec_int, STEP, 8 * 2, ((vec_int){5, 5, 5, 5, 5, 5, 5, 5}),
            ((vec_int){1, 1, 1, 1, 1, 1, 1, 1}))

void wefti_kern_fill_peak_scalar(struct weft_kern_table *table) {
    table->peak[WEFT_PEAK_F32] = table->peak[WEFT_PEAK_BF16] = peak_f32;
    table->peak[WEFT_PEAK_INT8] = peak_int8;
}
