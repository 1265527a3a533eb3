/* kernels/quant — how the types of 4 to 6 bits lie in a panel, and what their blocks hold in a
 * file.
 *
 * A group is what shares all scales: 32 columns of 4_0 and 4_1, a super-block of 256 of the K
 * types. For the 16 features of a panel it holds, one array behind the other:
 *
 *   low     [group/32][4][16][4]  lines of 64 bytes. Low nibbles: quad j of the block of 32 columns
 *                                 (columns 4j..4j+3 of each feature), high nibbles: quad j + 4
 *   high    5_K [8][16][4]        bit j of a byte: bit 4 of quad j
 *           6_K [8][2][16][4]     bits 2j, 2j+1 of line h: bits 4, 5 of quad 4h + j
 *   scales  [group/sub][16]       f16; of the K types the integers of 6 bits (6_K: 8, signed)
 *   mins    the same              4_1, and 4_K and 5_K
 *   super   [16] f16, [16] f16    of the K types: what scales, and mins, are multiplied by
 *
 * The weight is scale * (code - zero) + min; min is negative in 4_K and 5_K. All products are exact
 * in f32 (11 bits of super, 6 or 8 of scale, up to 6 of code), so only the last sum is rounded.
 * Source: GGML's block formats. */
#ifndef WEFT_KERNELS_QUANT_H
#define WEFT_KERNELS_QUANT_H

#include "kernels/convert.h"
#include "kernels/kern_internal.h"

enum quant { QUANT_4_0, QUANT_4_1, QUANT_4_K, QUANT_5_K, QUANT_6_K, QUANT_COUNT };

enum {
    QUANT_BLOCK = 32,                               /* columns whose activations share a scale */
    QUANT_SUPER = 256,                              /* columns of a super-block */
    QUANT_LINE = 4 * WEFT_PANEL,                    /* bytes of four columns */
    QUANT_LOW_BYTES = QUANT_BLOCK / 8 * QUANT_LINE, /* of one block */
    QUANT_SUBS_MAX = 16,
};

struct quant_layout {
    uint32_t group;     /* columns */
    uint32_t sub;       /* columns that share a scale */
    uint32_t high_bits; /* 0, 1 or 2 */
    int32_t zero;       /* what the code of a zero weight is, where it is not stored as min */
    bool has_min, is_super;
    uint32_t src_bytes;                                    /* of a group of one feature in a file */
    uint32_t at_high, at_scales, at_mins, at_super, bytes; /* of a group of a panel */
};

/* bytes: whole lines for the K types, so that every line of a panel is aligned. */
static const struct quant_layout quant_layouts[QUANT_COUNT] = {
    [QUANT_4_0] = {32, 32, 0, 8, false, false, 18, 256, 256, 288, 288, 288},
    [QUANT_4_1] = {32, 32, 0, 0, true, false, 20, 256, 256, 288, 320, 320},
    [QUANT_4_K] = {256, 32, 0, 0, true, true, 144, 2048, 2048, 2176, 2304, 2368},
    [QUANT_5_K] = {256, 32, 1, 0, true, true, 176, 2048, 2560, 2688, 2816, 2880},
    [QUANT_6_K] = {256, 16, 2, 32, false, true, 210, 2048, 3072, 3328, 3328, 3392},
};

/* The type of a kind, which must be one of these. */
static inline enum quant quant_of(enum weft_gemm_kind kind) {
    WEFT_ASSERT(kind >= WEFT_GEMM_Q4_0_F32 && kind < WEFT_GEMM_KIND_COUNT);
    return (enum quant)((kind - WEFT_GEMM_Q4_0_F32) / 2);
}

static inline bool is_quant(enum weft_gemm_kind kind) {
    return kind >= WEFT_GEMM_Q4_0_F32 && kind < WEFT_GEMM_KIND_COUNT;
}

/* Code of column k (of the group) of feature i. */
static inline uint32_t quant_code(const struct quant_layout *q, const uint8_t *group, uint32_t k,
                                  uint32_t i) {
    uint32_t block = k / QUANT_BLOCK, quad = k % QUANT_BLOCK / 4, byte = i * 4 + k % 4;
    uint32_t low = group[block * QUANT_LOW_BYTES + quad % 4 * QUANT_LINE + byte];
    uint32_t code = quad < 4 ? low & 15u : low >> 4;
    const uint8_t *high = group + q->at_high;
    if (q->high_bits == 1) {
        uint32_t bits = high[block * QUANT_LINE + byte];
        code |= (bits >> quad & 1u) << 4;
    }
    if (q->high_bits == 2) {
        uint32_t bits = high[(block * 2 + quad / 4) * QUANT_LINE + byte];
        code |= (bits >> quad % 4 * 2 & 3u) << 4;
    }
    return code;
}

static inline float quant_f16(const uint8_t *at, uint32_t i) {
    uint16_t half;
    memcpy(&half, at + (size_t)i * 2, sizeof half);
    return f16_to_f32(half);
}

static inline float quant_scale(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                                uint32_t i) {
    const uint8_t *scales = group + q->at_scales;
    if (!q->is_super) return quant_f16(scales, i);
    uint8_t byte = scales[sub * WEFT_PANEL + i];
    return quant_f16(group + q->at_super, i) * (float)(q->high_bits == 2 ? (int8_t)byte : byte);
}

static inline float quant_min(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                              uint32_t i) {
    if (!q->has_min) return 0.0f;
    const uint8_t *mins = group + q->at_mins;
    if (!q->is_super) return quant_f16(mins, i);
    return -(quant_f16(group + q->at_super, WEFT_PANEL + i) * (float)mins[sub * WEFT_PANEL + i]);
}

static inline float quant_weight(const struct quant_layout *q, const uint8_t *group, uint32_t k,
                                 uint32_t i) {
    uint32_t sub = k / q->sub;
    int32_t code = (int32_t)quant_code(q, group, k, i) - q->zero;
    return fmaf(quant_scale(q, group, sub, i), (float)code, quant_min(q, group, sub, i));
}

/* A group of one feature, taken apart. */
struct quant_parts {
    uint8_t codes[QUANT_SUPER];
    uint8_t scales[QUANT_SUBS_MAX], mins[QUANT_SUBS_MAX]; /* of the K types */
    uint16_t scale, min; /* f16: of 4_0 and 4_1, and super of the K types */
};

void wefti_quant_split(enum quant quant, const uint8_t *src, struct quant_parts *out);

#endif
