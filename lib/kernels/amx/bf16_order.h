/* kernels/bf16_order — the sum that TDPBF16PS adds, in C (Intel's Software Developer's Manual, volume 2,
 * TDPBF16PS): of a tile's pairs the even products are one chain of fused multiply-adds, the odd ones
 * another; both are added, and their sum to what was there. Subnormal numbers, read or computed, are
 * zero. */
#ifndef WEFT_KERNELS_BF16_ORDER_H
#define WEFT_KERNELS_BF16_ORDER_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "convert.h"

static inline float bf16_flushed(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* sum + the products of `n_pairs` (up to 16) pairs of a row, [pair][2], by one column of a panel, whose
 * pairs are `b_stride` numbers apart. */
static inline float bf16_add_pairs(float sum, const uint16_t *a, const uint16_t *b, size_t b_stride,
                                   uint32_t n_pairs) {
    float parts[2] = {0, 0};
    for (size_t pair = 0; pair < n_pairs; pair++) {
        for (size_t i = 0; i < 2; i++) {
            float x = bf16_flushed(bf16_to_f32(a[pair * 2 + i]));
            float y = bf16_flushed(bf16_to_f32(b[pair * b_stride + i]));
            parts[i] = bf16_flushed(fmaf(x, y, parts[i]));
        }
    }
    return bf16_flushed(sum + bf16_flushed(parts[0] + parts[1]));
}

#endif
