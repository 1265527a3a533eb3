/* kernels/gemm_codes_neon — the types of 2 to 6 bits, and Q8_0, taken apart in registers: a quarter
 * of a panel (4 features) and a block of 32 columns at a time, which are 8 registers of 4 columns. */
#ifndef WEFT_KERNELS_GEMM_CODES_NEON_H
#define WEFT_KERNELS_GEMM_CODES_NEON_H

#include "gemm_neon.h"
#include "quant.h"

enum { QUARTER_BYTES = 4 * LANES, CODE_ZERO = 128 };

/* Q8_0 in the same terms. */
static const struct quant_layout q8_layout = {.group = Q8_GROUP,
                                              .sub = Q8_GROUP,
                                              .bits = 8,
                                              .zero = CODE_ZERO,
                                              .at_scales = Q8_CODES,
                                              .bytes = Q8_BLOCK_BYTES};

static inline const struct quant_layout *layout_of(enum weft_dtype dtype) {
    return dtype == WEFT_DT_Q8_0 ? &q8_layout : &quant_layouts[dtype];
}

#define CODES_EACH(X) QUANT_EACH(X) X(q8_0, Q8_0)

/* Bytes by a constant, to the right where it is negative. */
ALWAYS_INLINE uint8x16_t shift(uint8x16_t x, int left) {
    return left >= 0 ? x << left : x >> -left;
}

/* bits | x & mask */
ALWAYS_INLINE uint8x16_t merge(uint8x16_t bits, uint8x16_t x, uint32_t mask) {
    return vorrq_u8(bits, vandq_u8(x, vdupq_n_u8((uint8_t)mask)));
}

ALWAYS_INLINE uint8x16_t load_line(const uint8_t *array, uint32_t line, uint32_t quarter) {
    return vld1q_u8(array + (size_t)line * QUANT_LINE + (size_t)quarter * QUARTER_BYTES);
}

/* Codes of quads j and j + 4. */
ALWAYS_INLINE uint8x16x2_t load_two_quads(const struct quant_layout *q, const uint8_t *group,
                                          uint32_t block, uint32_t quarter, uint32_t j) {
    uint8x16_t low = vdupq_n_u8(0), high = low;
    if (quant_has_nibbles(q)) {
        uint8x16_t both = load_line(group, block * 4 + j, quarter);
        low = vandq_u8(both, vdupq_n_u8(15));
        high = vshrq_n_u8(both, 4);
    }
    if (quant_has_pairs(q)) {
        const int bit = (int)quant_pair_bit(q), left = bit - 2 * (int)j;
        const uint8_t *pairs = group + q->at_pairs;
        low = merge(low, shift(load_line(pairs, block * 2, quarter), left), 3u << bit);
        high = merge(high, shift(load_line(pairs, block * 2 + 1, quarter), left), 3u << bit);
    }
    if (quant_has_singles(q)) {
        const int bit = (int)quant_single_bit(q), left = bit - (int)j;
        uint8x16_t bits = load_line(group + q->at_singles, block, quarter);
        low = merge(low, shift(bits, left), 1u << bit);
        high = merge(high, shift(bits, left - 4), 1u << bit);
    }
    return (uint8x16x2_t){{low, high}};
}

/* As they are stored, but looked up where they must be. `flip`: the highest bit is inverted where
 * their zero is 128, which makes them signed with a zero of 0. */
ALWAYS_INLINE void load_codes(const struct quant_layout *q, const uint8_t *group, uint32_t block,
                              uint32_t quarter, bool flip, uint8x16_t w[Q8_QUADS]) {
    const uint8x16_t high_bit = vdupq_n_u8(CODE_ZERO);
    if (q->bits == 8) {
        for (uint32_t quad = 0; quad < Q8_QUADS; quad++) {
            uint8x16_t codes = load_line(group, quad, quarter);
            w[quad] = flip ? veorq_u8(codes, high_bit) : codes;
        }
        return;
    }
    uint8x16_t table = vld1q_u8(quant_tables[q->table]);
    if (flip && q->zero == CODE_ZERO) table = veorq_u8(table, high_bit);
    for (uint32_t j = 0; j < Q8_QUADS / 2; j++) {
        uint8x16x2_t two = load_two_quads(q, group, block, quarter, j);
        const bool looked_up = quant_is_looked_up(q);
        w[j] = looked_up ? vqtbl1q_u8(table, two.val[0]) : two.val[0];
        w[j + Q8_QUADS / 2] = looked_up ? vqtbl1q_u8(table, two.val[1]) : two.val[1];
    }
}

/* The same less their zero: signed. */
ALWAYS_INLINE void load_signed(const struct quant_layout *q, const uint8_t *group, uint32_t block,
                               uint32_t quarter, uint8x16_t w[Q8_QUADS]) {
    load_codes(q, group, block, quarter, true, w);
    if (q->zero == 0 || q->zero == CODE_ZERO) return;
    for (uint32_t quad = 0; quad < Q8_QUADS; quad++) {
        w[quad] = vsubq_u8(w[quad], vdupq_n_u8((uint8_t)q->zero));
    }
}

ALWAYS_INLINE struct quarters widen_bytes(const uint8_t *at, bool is_signed) {
    uint8x16_t bytes = vld1q_u8(at);
    struct quarters out;
    if (is_signed) {
        int16x8_t low = vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(bytes)));
        int16x8_t high = vmovl_high_s8(vreinterpretq_s8_u8(bytes));
        out.v[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
        out.v[1] = vcvtq_f32_s32(vmovl_high_s16(low));
        out.v[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
        out.v[3] = vcvtq_f32_s32(vmovl_high_s16(high));
    } else {
        uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
        out.v[0] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(low)));
        out.v[1] = vcvtq_f32_u32(vmovl_high_u16(low));
        out.v[2] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(high)));
        out.v[3] = vcvtq_f32_u32(vmovl_high_u16(high));
    }
    return out;
}

/* quant_e8m0 and quant_ue4m3 of 16 features. */
ALWAYS_INLINE struct quarters e8m0_scales(const uint8_t *at) {
    struct quarters out;
    for (uint32_t i = 0; i < QUARTERS; i++) {
        const uint8_t *b = at + (size_t)i * LANES;
        const float scales[LANES] = {quant_e8m0(b[0]), quant_e8m0(b[1]), quant_e8m0(b[2]),
                                     quant_e8m0(b[3])};
        out.v[i] = vld1q_f32(scales);
    }
    return out;
}

ALWAYS_INLINE struct quarters ue4m3_scales(const uint8_t *at) {
    const uint8x16_t bytes = vld1q_u8(at);
    const uint16x8_t wide[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
    struct quarters out;
    for (uint32_t i = 0; i < 2; i++) {
        const float16x8_t half = vreinterpretq_f16_u16(vshlq_n_u16(wide[i], 7));
        out.v[(size_t)2 * i] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(half)), 128.0f);
        out.v[(size_t)2 * i + 1] = vmulq_n_f32(vcvt_high_f32_f16(half), 128.0f);
    }
    return out;
}

ALWAYS_INLINE struct quarters load_scale(const struct quant_layout *q, const uint8_t *group,
                                         uint32_t sub) {
    const uint8_t *scales = group + q->at_scales, *super = group + q->at_super;
    if (q->scales == QUANT_F16) return load_halves(scales);
    if (q->scales == QUANT_ONE) return load_halves(super);
    scales += (size_t)sub * WEFT_PANEL;
    if (q->scales == QUANT_E8M0) return e8m0_scales(scales);
    if (q->scales == QUANT_UE4M3) return ue4m3_scales(scales);
    struct quarters by = q->scales == QUANT_INTS
                             ? load_halves(super)
                             : load_quarters((const float *)(const void *)super);
    if (q->scales == QUANT_UE4M3_F32) return times(by, ue4m3_scales(scales));
    return times(by, widen_bytes(scales, quant_signed_scales(q)));
}

/* With its sign; of types that have one. */
ALWAYS_INLINE struct quarters load_min(const struct quant_layout *q, const uint8_t *group,
                                       uint32_t sub) {
    const uint8_t *mins = group + q->at_mins;
    if (!q->is_super && !q->has_zeros) return load_halves(mins);
    struct quarters min = q->has_zeros
                              ? times(load_scale(q, group, sub), widen_bytes(mins, false))
                              : times(load_halves(group + q->at_super + (size_t)WEFT_PANEL * 2),
                                      widen_bytes(mins + (size_t)sub * WEFT_PANEL, false));
    for (uint32_t i = 0; i < QUARTERS; i++) {
        min.v[i] = vnegq_f32(min.v[i]);
    }
    return min;
}

#endif
