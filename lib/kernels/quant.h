/* kernels/quant — how the types of 2 to 6 bits lie in a panel, and what their blocks hold in a
 * file.
 *
 * A group is what shares all scales: 32 columns, or a super-block of 256 of the K types. The code
 * of a weight is cut into its nibble, pair and single bit, lowest first: 2 bits are a pair, 3 a
 * pair and a single bit, 4 a nibble, 5 and 6 a nibble and one of the others. For the 16 features of
 * a panel a group holds, one array behind the other and each only where the type has it:
 *
 *   nibbles [group/32][4][16][4]     lines of 64 bytes. Low nibbles: quad j of the block of 32
 *                                    columns (columns 4j..4j+3 of each feature), high ones: j + 4
 *   pairs   [group/32][2][16][4]     bits 2j, 2j+1 of line h: quad 4h + j
 *   singles [group/32][16][4]        bit j of a byte: quad j
 *   scales  [group/sub][16]          f16; of the K types integers, signed in 3_K and 6_K
 *   mins    the same                 4_1, 5_1, 2_K, 4_K and 5_K
 *   zeros   [16]                     4_Z: a byte each
 *   super   [16] f16, [16] f16       of the K types: what scales, and mins, are multiplied by
 *
 * The weight is scale * (code - zero) + min; min is negative in the K types. 4_Z has a zero of its
 * own per group, from which its min follows: -scale * zero. The code of 4_NL is first looked up in
 * quant_nl. All products are exact in f32 (11 bits of super, up to 8 of scale,
 * up to 6 of code; 11 and 8), so only the last sum is rounded. Source: GGML's block formats; 4_Z is
 * ours, for GPTQ and AWQ: 32 columns of it are an f16 scale, the zero in a byte, and codes as in
 * 4_1. */
#ifndef WEFT_KERNELS_QUANT_H
#define WEFT_KERNELS_QUANT_H

#include "convert.h"
#include "kern_internal.h"

/* In the order of the kinds and of the sources. */
enum quant {
    QUANT_4_0,
    QUANT_4_1,
    QUANT_4_Z,
    QUANT_4_K,
    QUANT_5_K,
    QUANT_6_K,
    QUANT_2_K,
    QUANT_3_K,
    QUANT_5_1,
    QUANT_5_0,
    QUANT_4_NL,
    QUANT_COUNT,
};

/* All of them, for what is made once per type: QUANT_EACH(ONE) is ONE(q4_0, 4_0) ONE(q4_1, 4_1) ...
 */
#define QUANT_EACH(one)                                                                            \
    one(q4_0, 4_0) one(q4_1, 4_1) one(q4_z, 4_Z) one(q4_k, 4_K) one(q5_k, 5_K) one(q6_k, 6_K)      \
        one(q2_k, 2_K) one(q3_k, 3_K) one(q5_1, 5_1) one(q5_0, 5_0) one(q4_nl, 4_NL)

enum {
    QUANT_BLOCK = 32,                               /* columns whose activations share a scale */
    QUANT_SUPER = 256,                              /* columns of a super-block */
    QUANT_LINE = 4 * WEFT_PANEL,                    /* bytes of four columns */
    QUANT_LOW_BYTES = QUANT_BLOCK / 8 * QUANT_LINE, /* of one block */
    QUANT_SUBS_MAX = 16,
};

struct quant_layout {
    uint32_t group; /* columns */
    uint32_t sub;   /* columns that share a scale */
    uint32_t bits;  /* of a code */
    int32_t zero;   /* what the code of a zero weight is, where it is not stored as min */
    bool has_min, is_super;
    uint32_t src_bytes; /* of a group of one feature in a file */
    uint32_t at_pairs, at_singles, at_scales, at_mins, at_super, bytes; /* of a group of a panel */
};

/* bytes: whole lines for the K types, so that every line of a panel is aligned. */
static const struct quant_layout quant_layouts[QUANT_COUNT] = {
    [QUANT_4_0] = {32, 32, 4, 8, false, false, 18, 256, 256, 256, 288, 288, 288},
    [QUANT_4_1] = {32, 32, 4, 0, true, false, 20, 256, 256, 256, 288, 320, 320},
    [QUANT_4_Z] = {32, 32, 4, 0, true, false, 19, 256, 256, 256, 288, 304, 304},
    [QUANT_4_K] = {256, 32, 4, 0, true, true, 144, 2048, 2048, 2048, 2176, 2304, 2368},
    [QUANT_5_K] = {256, 32, 5, 0, true, true, 176, 2048, 2048, 2560, 2688, 2816, 2880},
    [QUANT_6_K] = {256, 16, 6, 32, false, true, 210, 2048, 3072, 3072, 3328, 3328, 3392},
    [QUANT_2_K] = {256, 16, 2, 0, true, true, 84, 0, 1024, 1024, 1280, 1536, 1600},
    [QUANT_3_K] = {256, 16, 3, 4, false, true, 110, 0, 1024, 1536, 1792, 1792, 1856},
    [QUANT_5_1] = {32, 32, 5, 0, true, false, 24, 256, 256, 320, 352, 384, 384},
    [QUANT_5_0] = {32, 32, 5, 16, false, false, 22, 256, 256, 320, 352, 352, 352},
    [QUANT_4_NL] = {32, 32, 4, 128, false, false, 18, 256, 256, 256, 288, 288, 288},
};

/* What the codes of 4_NL stand for: 128 more than GGML's, to be unsigned bytes. */
static const uint8_t quant_nl[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                     129, 141, 153, 166, 181, 197, 217, 241};

static inline bool quant_is_nl(const struct quant_layout *q) {
    return q->zero == 128;
}

/* Whether what stands in place of f16 mins are zeros. */
static inline bool quant_has_zeros(const struct quant_layout *q) {
    return q->has_min && !q->is_super && q->at_super - q->at_mins == WEFT_PANEL;
}

static inline bool quant_has_nibbles(const struct quant_layout *q) {
    return q->bits >= 4;
}

static inline bool quant_has_pairs(const struct quant_layout *q) {
    return q->bits < 4 || q->bits == 6;
}

static inline bool quant_has_singles(const struct quant_layout *q) {
    return q->bits == 3 || q->bits == 5;
}

/* Where in a code its pair begins, and its single bit. */
static inline uint32_t quant_pair_bit(const struct quant_layout *q) {
    return quant_has_nibbles(q) ? 4 : 0;
}

static inline uint32_t quant_single_bit(const struct quant_layout *q) {
    return q->bits - 1;
}

/* Of the integers of the K types. */
static inline bool quant_signed_scales(const struct quant_layout *q) {
    return q->is_super && !q->has_min;
}

/* -128 and -32 times a sum of activations (struct q8_row) lose so many bits to become -zero times
 * it. */
static inline int quant_offset_shift(const struct quant_layout *q) {
    return 7 - __builtin_ctz((unsigned)q->zero);
}

static inline int quant_halves_shift(const struct quant_layout *q) {
    return 5 - __builtin_ctz((unsigned)q->zero);
}

/* The type of a kind, which must be one of these. */
static inline enum quant quant_of(enum weft_gemm_kind kind) {
    WEFT_ASSERT(kind >= WEFT_GEMM_Q4_0_F32 && kind < WEFT_GEMM_KIND_COUNT);
    return (enum quant)((kind - WEFT_GEMM_Q4_0_F32) / 2);
}

static inline bool is_quant(enum weft_gemm_kind kind) {
    return kind >= WEFT_GEMM_Q4_0_F32 && kind < WEFT_GEMM_KIND_COUNT;
}

/* Code of column k (of the group) of feature i, looked up where it must be. */
static inline uint32_t quant_code(const struct quant_layout *q, const uint8_t *group, uint32_t k,
                                  uint32_t i) {
    uint32_t block = k / QUANT_BLOCK, quad = k % QUANT_BLOCK / 4, byte = i * 4 + k % 4, code = 0;
    if (quant_has_nibbles(q)) {
        uint32_t both = group[block * QUANT_LOW_BYTES + quad % 4 * QUANT_LINE + byte];
        code = quad < 4 ? both & 15u : both >> 4;
    }
    if (quant_has_pairs(q)) {
        uint32_t bits = group[q->at_pairs + (block * 2 + quad / 4) * QUANT_LINE + byte];
        code |= (bits >> quad % 4 * 2 & 3u) << quant_pair_bit(q);
    }
    if (quant_has_singles(q)) {
        uint32_t bits = group[q->at_singles + block * QUANT_LINE + byte];
        code |= (bits >> quad & 1u) << quant_single_bit(q);
    }
    return quant_is_nl(q) ? quant_nl[code] : code;
}

static inline float quant_f16(const uint8_t *at, uint32_t i) {
    uint16_t half;
    memcpy(&half, at + (size_t)i * 2, sizeof half);
    return f16_to_f32(half);
}

/* The integer scale of a K type. */
static inline float quant_int_scale(const struct quant_layout *q, uint8_t byte) {
    return (float)(quant_signed_scales(q) ? (int8_t)byte : byte);
}

static inline float quant_scale(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                                uint32_t i) {
    const uint8_t *scales = group + q->at_scales;
    if (!q->is_super) return quant_f16(scales, i);
    uint8_t byte = scales[sub * WEFT_PANEL + i];
    return quant_f16(group + q->at_super, i) * quant_int_scale(q, byte);
}

static inline float quant_min(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                              uint32_t i) {
    if (!q->has_min) return 0.0f;
    const uint8_t *mins = group + q->at_mins;
    if (quant_has_zeros(q)) return -(quant_scale(q, group, sub, i) * (float)mins[i]);
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
    uint8_t codes[QUANT_SUPER];                           /* as stored */
    uint8_t scales[QUANT_SUBS_MAX], mins[QUANT_SUBS_MAX]; /* of the K types */
    uint16_t scale, min; /* f16: super of the K types; 4_Z: min is the zero, a whole number */
};

/* The weight that a part of a group stands for. */
static inline float quant_part_weight(const struct quant_layout *q, const struct quant_parts *parts,
                                      uint32_t k) {
    uint32_t sub = k / q->sub, code = parts->codes[k];
    if (quant_is_nl(q)) code = quant_nl[code];
    float scale = f16_to_f32(parts->scale), min = f16_to_f32(parts->min);
    if (quant_has_zeros(q)) min = -(scale * (float)parts->min);
    if (q->is_super) {
        scale *= quant_int_scale(q, parts->scales[sub]);
        min = -(min * (float)parts->mins[sub]);
    }
    return fmaf(scale, (float)((int32_t)code - q->zero), min);
}

void wefti_quant_split(enum quant quant, const uint8_t *src, struct quant_parts *out);

#endif
