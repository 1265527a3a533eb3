/* kernels/fp8_nf4 — weights whose codes stand for floats, with an f32 scale per group of columns:
 * FP8 (e4m3: 4 bits of exponent, 3 of mantissa, no infinities) and NF4 (16 quantiles of a normal
 * distribution; Dettmers et al. 2023, "QLoRA").
 *
 * A row of a source is group by group: the scale, then the codes. In NF4 the upper half of a
 * byte is the even column. A panel has, group by group, the scales [16] f32 of its features, then
 * the same bytes side by side: [group / per_byte][16]. Only e4m3's last group may be shorter.
 *
 * The weight is scale * value, rounded once. A group of e4m3 with a NaN among its codes gets the
 * scale NaN: all products of its feature are NaN either way. */
#ifndef WEFT_KERNELS_FP8_NF4_H
#define WEFT_KERNELS_FP8_NF4_H

#include "convert.h"
#include "kern_internal.h"

struct fp8_nf4 {
    uint32_t group, per_byte; /* columns */
};

enum { FP8_NF4_SCALES = WEFT_PANEL * 4 };

static const struct fp8_nf4 f8_layout = {F8_GROUP, 1}, nf4_layout = {NF4_GROUP, 2};

static const float nf4_values[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

static inline bool is_fp8_nf4(enum weft_dtype dtype) {
    return dtype == WEFT_DT_F8_E4M3 || dtype == WEFT_DT_NF4;
}

static inline const struct fp8_nf4 *fp8_nf4_of(enum weft_dtype dtype) {
    WEFT_ASSERT(is_fp8_nf4(dtype));
    return dtype == WEFT_DT_F8_E4M3 ? &f8_layout : &nf4_layout;
}

static inline size_t fp8_nf4_groups(const struct fp8_nf4 *c, uint32_t k) {
    WEFT_ASSERT(k % c->per_byte == 0 && (c == &f8_layout || k % c->group == 0));
    return ((size_t)k + c->group - 1) / c->group;
}

/* Bytes of `n_features` side by side: of a row (1), or of a panel before it is rounded up (16). */
static inline size_t fp8_nf4_bytes(const struct fp8_nf4 *c, uint32_t k, uint32_t n_features) {
    return (fp8_nf4_groups(c, k) * 4 + k / c->per_byte) * n_features;
}

/* Bytes of a whole group. */
static inline size_t fp8_nf4_group_bytes(const struct fp8_nf4 *c, uint32_t n_features) {
    return (size_t)(4 + c->group / c->per_byte) * n_features;
}

/* The bits of an f16 of e4m3's value, 256 times too small: the exponents' biases differ by 8. */
static inline float f8_value(uint8_t code) {
    if ((code & 0x7fu) == 0x7fu) return f32_from_bits(0x7fc00000u);
    uint32_t half = (uint32_t)(code & 0x80u) << 8 | (uint32_t)(code & 0x7fu) << 7;
    return f16_to_f32((uint16_t)half) * 256.0f;
}

/* The value of column k of a group whose bytes for one feature stand `stride` apart. */
static inline float fp8_nf4_value(const struct fp8_nf4 *c, const uint8_t *codes, size_t stride,
                                  uint32_t k) {
    uint8_t byte = codes[k / c->per_byte * stride];
    if (c->per_byte == 1) return f8_value(byte);
    return nf4_values[k % 2 ? byte & 15u : (uint32_t)byte >> 4];
}

/* Weight of column k, feature i of a panel. */
static inline float fp8_nf4_weight(const struct fp8_nf4 *c, const uint8_t *panel, uint32_t k,
                                   uint32_t i) {
    const uint8_t *group = panel + k / c->group * fp8_nf4_group_bytes(c, WEFT_PANEL);
    float scale;
    memcpy(&scale, group + (size_t)i * 4, sizeof scale);
    return scale * fp8_nf4_value(c, group + FP8_NF4_SCALES + i, WEFT_PANEL, k % c->group);
}

#endif
