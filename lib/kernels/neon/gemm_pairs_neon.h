/* kernels/gemm_pairs_neon — what products of small matrices (smmla, bfmmla) share: two rows by two
 * features, over two words of 4 bytes of each. A register holds two words of one row and of the next,
 * or of one feature and of the next; and of sums two features of one row, then of the next. */
#ifndef WEFT_KERNELS_GEMM_PAIRS_NEON_H
#define WEFT_KERNELS_GEMM_PAIRS_NEON_H

#include "gemm_neon.h"

enum {
    PAIRS = WEFT_PANEL / 2, /* of features */
    PART_PAIRS = PART_ROWS / 2,
    STEP_BYTES = PAIRS * 16, /* of weights: two words of each feature */
};

/* Words of four features, and the next words, to two pairs. */
ALWAYS_INLINE void store_pairs(uint8x16_t first, uint8x16_t second, uint8_t *out) {
    uint32x4_t a = vreinterpretq_u32_u8(first), b = vreinterpretq_u32_u8(second);
    vst1q_u8(out, vreinterpretq_u8_u32(vzip1q_u32(a, b)));
    vst1q_u8(out + 16, vreinterpretq_u8_u32(vzip2q_u32(a, b)));
}

/* Two words of up to 6 interleaved rows, as pairs of rows. */
ALWAYS_INLINE void load_row_pairs(const uint8_t *at, uint32_t rows, uint32x4_t a[PART_PAIRS]) {
    const uint32_t *first = (const void *)at, *second = first + MANY_ROWS;
    uint32x4_t x = vld1q_u32(first), y = vld1q_u32(second);
    a[0] = vzip1q_u32(x, y);
    if (rows > 2) a[1] = vzip2q_u32(x, y);
    if (rows > 4) {
        x = vcombine_u32(vld1_u32(first + LANES), vdup_n_u32(0));
        y = vcombine_u32(vld1_u32(second + LANES), vdup_n_u32(0));
        a[2] = vzip1q_u32(x, y);
    }
}

typedef float32x4_t pair_sums[PART_PAIRS][PAIRS];

ALWAYS_INLINE float32x4_t low_halves(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

ALWAYS_INLINE float32x4_t high_halves(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

/* Sums of rows that lie one after the other; the last may be alone. */
ALWAYS_INLINE void load_pair_sums(const float *acc, uint32_t rows, pair_sums sum) {
    for (uint32_t r = 0; r < rows; r += 2) {
        for (uint32_t v = 0; v < QUARTERS; v++) {
            const float *at = acc + (size_t)r * WEFT_PANEL + (size_t)v * LANES;
            float32x4_t even = vld1q_f32(at);
            float32x4_t odd = r + 1 < rows ? vld1q_f32(at + WEFT_PANEL) : vdupq_n_f32(0);
            sum[r / 2][2 * v] = low_halves(even, odd);
            sum[r / 2][2 * v + 1] = high_halves(even, odd);
        }
    }
}

ALWAYS_INLINE void store_pair_sums(pair_sums sum, uint32_t rows, float *acc) {
    for (uint32_t r = 0; r < rows; r += 2) {
        for (uint32_t v = 0; v < QUARTERS; v++) {
            float *at = acc + (size_t)r * WEFT_PANEL + (size_t)v * LANES;
            float32x4_t a = sum[r / 2][2 * v], b = sum[r / 2][2 * v + 1];
            vst1q_f32(at, low_halves(a, b));
            if (r + 1 < rows) vst1q_f32(at + WEFT_PANEL, high_halves(a, b));
        }
    }
}

/* Two floats, twice: of a pair of features. */
ALWAYS_INLINE float32x4_t load_twice(const float *two) {
    return vreinterpretq_f32_f64(vld1q_dup_f64((const void *)two));
}

#endif
