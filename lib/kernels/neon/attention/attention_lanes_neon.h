/* kernels/attention_lanes_neon — what attention needs of NEON besides scores and values: loads, tiles turned
 * round, and codes of 15 bits. Such a code is 256 times one signed byte plus another, so that dot products of
 * bytes meet it: each of the two has sums of its own, exact, and they are joined at the end. */
#ifndef WEFT_KERNELS_ATTENTION_LANES_NEON_H
#define WEFT_KERNELS_ATTENTION_LANES_NEON_H

#include <arm_neon.h>

#include "attention_tile.h"

enum { LANES4 = 4, QUARTERS = ATTN_SUB / LANES4 };

ALWAYS_INLINE uint32x4_t load_words(const uint8_t *base, size_t word) {
    return vld1q_u32((const uint32_t *)(const void *)base + word);
}

ALWAYS_INLINE float32x4_t load4(const uint8_t *base, size_t at, enum attn_form form) {
    if (form == FORM_F32) return vld1q_f32((const float *)(const void *)base + at);
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(base + at * 2)));
}

ALWAYS_INLINE float32x4_t even_of(uint32x4_t pairs) {
    return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
}

ALWAYS_INLINE float32x4_t odd_of(uint32x4_t pairs) {
    return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
}

static inline void widen_f16(const uint8_t *codes, size_t n, float *out) {
    for (size_t i = 0; i < n; i += LANES4) {
        vst1q_f32(out + i, load4(codes, i, FORM_F16));
    }
}

/* Elements d..d+4 of 4 tokens: from[4][16] to to[4][stride]. */
ALWAYS_INLINE void transpose4(const float *from, float *to, size_t to_stride) {
    float32x4_t a[LANES4], b[LANES4];
    for (uint32_t i = 0; i < LANES4; i++) {
        a[i] = vld1q_f32(from + (size_t)i * ATTN_SUB);
    }
    for (uint32_t i = 0; i < 2; i++) {
        b[2 * i] = vzip1q_f32(a[i], a[i + 2]);
        b[2 * i + 1] = vzip2q_f32(a[i], a[i + 2]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        vst1q_f32(to + 2 * i * to_stride, vzip1q_f32(b[i], b[i + 2]));
        vst1q_f32(to + (2 * i + 1) * to_stride, vzip2q_f32(b[i], b[i + 2]));
    }
}

static inline void transpose(const float *from, uint32_t n, float *to) {
    uint32_t d = 0;
    for (; d + LANES4 <= n; d += LANES4) {
        for (uint32_t token = 0; token < ATTN_SUB; token += LANES4) {
            transpose4(from + (size_t)d * ATTN_SUB + token, to + (size_t)token * n + d, n);
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            to[(size_t)token * n + d] = from[(size_t)d * ATTN_SUB + token];
        }
    }
}

ALWAYS_INLINE float tile_max(const float p[ATTN_TILE]) {
    float32x4_t most = vld1q_f32(p);
    for (uint32_t j = LANES4; j < ATTN_TILE; j += LANES4) {
        most = vmaxnmq_f32(most, vld1q_f32(p + j));
    }
    return vmaxnmvq_f32(most);
}

/* Halves onto each other, down to one. */
ALWAYS_INLINE float tile_sum(const float p[ATTN_TILE]) {
    float32x4_t sums[ATTN_TILE / LANES4];
    for (uint32_t v = 0; v < ATTN_TILE / LANES4; v++) {
        sums[v] = vld1q_f32(p + (size_t)v * LANES4);
    }
    for (uint32_t width = ATTN_TILE / LANES4 / 2; width > 0; width /= 2) {
        for (uint32_t v = 0; v < width; v++) {
            sums[v] = vaddq_f32(sums[v], sums[v + width]);
        }
    }
    float32x2_t two = vadd_f32(vget_low_f32(sums[0]), vget_high_f32(sums[0]));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Where K has pairs of elements of 16 tokens, V has pairs of tokens. */
static inline void latent_pairs(const uint8_t *k, uint32_t n, uint8_t *v) {
    uint32_t d = 0;
    for (; d + 2 <= n; d += 2) {
        for (uint32_t token = 0; token < ATTN_SUB; token += 2 * LANES4) {
            const uint8_t *from = k + kv_k_at(2, token, d) * sizeof(uint16_t);
            uint32x4x2_t both = vld2q_u32((const void *)from); /* even tokens, odd tokens */
            uint16x8_t even = vreinterpretq_u16_u32(both.val[0]);
            uint16x8_t odd = vreinterpretq_u16_u32(both.val[1]);
            uint32x4_t first = vreinterpretq_u32_u16(vtrn1q_u16(even, odd));
            uint32x4_t second = vreinterpretq_u32_u16(vtrn2q_u16(even, odd));
            uint32x4_t low = vzip1q_u32(first, second), high = vzip2q_u32(first, second);
            uint32_t *to = (uint32_t *)(void *)v + (size_t)token / 2 * n + d;
            vst1_u32(to, vget_low_u32(low));
            vst1_u32(to + n, vget_high_u32(low));
            vst1_u32(to + 2 * (size_t)n, vget_low_u32(high));
            vst1_u32(to + 3 * (size_t)n, vget_high_u32(high));
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            memcpy(v + kv_v_at(2, n, token, d) * 2, k + kv_k_at(2, token, d) * 2, 2);
        }
    }
}

/* Where K has fours of elements of 16 tokens, V has fours of tokens: 4 x 4 bytes change places. */
static inline void latent_fours(const uint8_t *k, uint32_t n, uint8_t *v) {
    static const uint8_t by[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    uint32_t d = 0;
    for (; d + 4 <= n; d += 4) {
        for (uint32_t four = 0; four < ATTN_SUB / 4; four++) {
            uint8x16_t x = vld1q_u8(k + kv_k_at(4, four * 4, d));
            vst1q_u8(v + ((size_t)four * n + d) * 4, vqtbl1q_u8(x, vld1q_u8(by)));
        }
    }
    for (; d < n; d++) {
        for (uint32_t token = 0; token < ATTN_SUB; token++) {
            v[kv_v_at(4, n, token, d)] = k[kv_k_at(4, token, d)];
        }
    }
}

/* -------------------------------------------------------------------------------- codes ---- */

/* Codes of 16 numbers as words: of each four the high bytes, then the low ones, which are signed. */
ALWAYS_INLINE void split_codes(const float32x4_t x[4], float inverse, uint32_t *words) {
    int16x4_t high[4], low[4];
    for (uint32_t i = 0; i < 4; i++) {
        int32x4_t code = vcvtnq_s32_f32(vmulq_n_f32(x[i], inverse));
        int32x4_t h = vshrq_n_s32(vaddq_s32(code, vdupq_n_s32(128)), 8);
        high[i] = vmovn_s32(h);
        low[i] = vmovn_s32(vsubq_s32(code, vshlq_n_s32(h, 8)));
    }
    int8x16_t h = vcombine_s8(vmovn_s16(vcombine_s16(high[0], high[1])),
                              vmovn_s16(vcombine_s16(high[2], high[3])));
    int8x16_t l = vcombine_s8(vmovn_s16(vcombine_s16(low[0], low[1])),
                              vmovn_s16(vcombine_s16(low[2], low[3])));
    const uint32x4x2_t both = vzipq_u32(vreinterpretq_u32_s8(h), vreinterpretq_u32_s8(l));
    memcpy(words, both.val, sizeof both.val); /* weights take the place of the floats they are of */
}

static inline void fours_of(const float *x, uint32_t n, float inverse, uint32_t *words) {
    for (uint32_t i = 0; i < n; i += 16, x += 16) {
        const float32x4_t of16[4] = {vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8),
                                     vld1q_f32(x + 12)};
        split_codes(of16, inverse, words + i / 2);
    }
}

ALWAYS_INLINE float code_weights(const float *p, const float *scales, uint32_t *words) {
    enum { VECTORS = ATTN_TILE / LANES4 };
    float32x4_t w[VECTORS];
    uint32x4_t most = vdupq_n_u32(0);
    for (uint32_t i = 0; i < VECTORS; i++) {
        float32x4_t x = vld1q_f32(p + (size_t)i * LANES4);
        float32x4_t scaled = vmulq_f32(x, vld1q_f32(scales + (size_t)i * LANES4));
        uint32x4_t seen = vcgtzq_f32(x);
        w[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(scaled), seen));
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(w[i])));
    }
    const uint32_t max_bits = vmaxvq_u32(most);
    for (uint32_t i = 0; i < VECTORS; i += 4) {
        split_codes(w + i, code_inverse(max_bits), words + (size_t)i * LANES4 / 2);
    }
    return code_scale(max_bits);
}

/* sum + the products of four bytes each and the four of a word. */
#ifdef __ARM_FEATURE_DOTPROD
ALWAYS_INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t x, int8x16_t words, uint32_t lane) {
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, x, words, 0);
    case 1:
        return vdotq_laneq_s32(sum, x, words, 1);
    case 2:
        return vdotq_laneq_s32(sum, x, words, 2);
    default:
        return vdotq_laneq_s32(sum, x, words, 3);
    }
}
#else
ALWAYS_INLINE int8x16_t spread_word(int8x16_t words, uint32_t lane) {
    const int32x4_t w = vreinterpretq_s32_s8(words);
    switch (lane) {
    case 0:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(w, 0));
    case 1:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(w, 1));
    case 2:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(w, 2));
    default:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(w, 3));
    }
}

ALWAYS_INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t x, int8x16_t words, uint32_t lane) {
    const int8x16_t y = spread_word(words, lane);
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)));
    return vaddq_s32(sum, vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(x, y))));
}
#endif

/* Sums of both bytes of codes. */
struct code_sum {
    int32x4_t high, low;
};

ALWAYS_INLINE struct code_sum no_codes(void) {
    return (struct code_sum){vdupq_n_s32(0), vdupq_n_s32(0)};
}

ALWAYS_INLINE int32x4_t join_codes(struct code_sum sum) {
    return vaddq_s32(vshlq_n_s32(sum.high, 8), sum.low);
}

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define ATTN_HAS_PAIRS 1

/* sum + the products of pairs and the pair of a word. bfdot rounds its sums to odd, and takes what is
 * subnormal for zero: a little further off than f32, and by far less than bf16 is. */
ALWAYS_INLINE float32x4_t dot_pairs(float32x4_t sum, uint32x4_t x, uint32x4_t words,
                                    uint32_t lane) {
    const bfloat16x8_t pairs = vreinterpretq_bf16_u32(x), of4 = vreinterpretq_bf16_u32(words);
    switch (lane) {
    case 0:
        return vbfdotq_laneq_f32(sum, pairs, of4, 0);
    case 1:
        return vbfdotq_laneq_f32(sum, pairs, of4, 1);
    case 2:
        return vbfdotq_laneq_f32(sum, pairs, of4, 2);
    default:
        return vbfdotq_laneq_f32(sum, pairs, of4, 3);
    }
}
#else
#define ATTN_HAS_PAIRS 0
#endif

#endif
