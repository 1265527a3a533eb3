/* kernels/gemm_dot_neon — dot products of bytes: for the files without further instructions, with dot
 * products of four bytes (dotprod), and with products of small matrices (i8mm). Integers are exact, so
 * all give the same bits. */
#ifndef WEFT_KERNELS_GEMM_DOT_NEON_H
#define WEFT_KERNELS_GEMM_DOT_NEON_H

#include "gemm_codes_neon.h"
#include "gemm_pairs_neon.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
enum { MEETS_SIGNED = false };

/* sum + the products of four codes and four bytes of a lane, for four features. */
ALWAYS_INLINE int32x4_t dot_lane(int32x4_t sum, uint8x16_t w, int8x16_t a, uint32_t lane) {
    switch (lane) {
    case 0:
        return vusdotq_laneq_s32(sum, w, a, 0);
    case 1:
        return vusdotq_laneq_s32(sum, w, a, 1);
    case 2:
        return vusdotq_laneq_s32(sum, w, a, 2);
    default:
        return vusdotq_laneq_s32(sum, w, a, 3);
    }
}
#else
enum { MEETS_SIGNED = true }; /* codes that do not fit 7 bits are stored as if they were unsigned */
#ifdef __ARM_FEATURE_DOTPROD
ALWAYS_INLINE int32x4_t dot_lane(int32x4_t sum, uint8x16_t codes, int8x16_t a, uint32_t lane) {
    const int8x16_t w = vreinterpretq_s8_u8(codes);
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, w, a, 0);
    case 1:
        return vdotq_laneq_s32(sum, w, a, 1);
    case 2:
        return vdotq_laneq_s32(sum, w, a, 2);
    default:
        return vdotq_laneq_s32(sum, w, a, 3);
    }
}
#endif
#endif

/* Activations of up to 8 quads: of one row, four quads side by side (`by_row` false); or of one quad
 * each, four rows side by side, of which `row` counts. */
struct quads {
    const int8x16_t *a;
    bool by_row;
    uint32_t row;
};

#ifdef __ARM_FEATURE_DOTPROD
ALWAYS_INLINE int32x4_t dot_quads(int32x4_t sum, const uint8x16_t *w, struct quads acts,
                                  uint32_t begin, uint32_t end) {
    for (uint32_t q = begin; q < end; q++) {
        sum = dot_lane(sum, w[q], acts.a[acts.by_row ? q : q / LANES],
                       acts.by_row ? acts.row : q % LANES);
    }
    return sum;
}
#else
ALWAYS_INLINE int8x16_t spread_word(struct quads acts, uint32_t q) {
    int32x4_t a = vreinterpretq_s32_s8(acts.a[acts.by_row ? q : q / LANES]);
    switch (acts.by_row ? acts.row : q % LANES) {
    case 0:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(a, 0));
    case 1:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(a, 1));
    case 2:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(a, 2));
    default:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(a, 3));
    }
}

/* An even number of quads: 16 bits hold two products, of 128 * 127 at most. */
ALWAYS_INLINE int32x4_t dot_quads(int32x4_t sum, const uint8x16_t *codes, struct quads acts,
                                  uint32_t begin, uint32_t end) {
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (uint32_t q = begin; q < end; q += 2) {
        const int8x16_t w = vreinterpretq_s8_u8(codes[q]), a = spread_word(acts, q);
        const int8x16_t w2 = vreinterpretq_s8_u8(codes[q + 1]), a2 = spread_word(acts, q + 1);
        int16x8_t two = vmull_s8(vget_low_s8(w), vget_low_s8(a));
        low = vpadalq_s16(low, vmlal_s8(two, vget_low_s8(w2), vget_low_s8(a2)));
        two = vmull_high_s8(w, a);
        high = vpadalq_s16(high, vmlal_high_s8(two, w2, a2));
    }
    return vaddq_s32(sum, vpaddq_s32(low, high));
}
#endif

ALWAYS_INLINE int32_t int_at(struct act_words words, uint32_t row, size_t word) {
    return *(const int32_t *)act_word(words, row, word);
}

ALWAYS_INLINE float float_at(struct act_words words, uint32_t row, size_t word) {
    return *(const float *)act_word(words, row, word);
}

/* A word of interleaved rows, from row `first` on. */
ALWAYS_INLINE const uint8_t *many_word(const struct tile *t, uint32_t first, size_t word) {
    return t->act + (word * MANY_ROWS + first) * ACT_WORD;
}

ALWAYS_INLINE float32x4_t times_lane(float32x4_t x, float32x4_t by, uint32_t lane) {
    switch (lane) {
    case 0:
        return vmulq_laneq_f32(x, by, 0);
    case 1:
        return vmulq_laneq_f32(x, by, 1);
    case 2:
        return vmulq_laneq_f32(x, by, 2);
    default:
        return vmulq_laneq_f32(x, by, 3);
    }
}

/* Rows of a pair, each beside itself. */
ALWAYS_INLINE float32x4_t each_twice(float32x4_t rows, uint32_t pair) {
    return pair == 0 ? vzip1q_f32(rows, rows) : vzip2q_f32(rows, rows);
}

#endif
