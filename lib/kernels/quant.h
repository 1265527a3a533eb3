/* kernels/quant — how the types of 2 to 6 bits lie in a panel, and what their blocks hold in a
 * file.
 *
 * A group is what shares all scales: a block of the file, of 32 columns, or a super-block of 256.
 * The code of a weight falls apart into its nibble, pair and single bit, lowest first: 2 bits are a
 * pair, 3 a pair and a single bit, 4 a nibble, 5 and 6 a nibble and one of the others. For the 16
 * features of a panel a group holds, one array after the other and each only where the type has it:
 *
 *   nibbles [group/32][4][16][4]     lines of 64 bytes. Low nibbles: quad j of the block of 32
 *                                    columns (columns 4j..4j+3 of each feature), high ones: j + 4
 *   pairs   [group/32][2][16][4]     bits 2j, 2j+1 of line h: quad 4h + j
 *   singles [group/32][16][4]        bit j of a byte: quad j
 *   scales  [group/sub][16]          f16; in super-blocks integers, signed where there are no mins
 *   mins    the same                 MINS: unsigned in super-blocks
 *   zeros   [16]                     ZEROS: a byte each
 *   super   [16] f16, [16] f16       of super-blocks: what scales, and mins, are multiplied by
 *
 * The weight is scale * (code - zero) + min; min is negative in super-blocks. ZEROS: each group has
 * a zero of its own, from which its min follows: -scale * zero. The code of a type with LOOKED_UP
 * codes is first looked up in quant_values. All products are exact in f32 (11 bits of super, up to
 * 8 of scale, up to 6 of code, or 6 and 8 of a looked-up one; 11 and 8), so only the last sum is
 * rounded. Source: GGML's block formats; Q4_Z is ours, for GPTQ and AWQ: 32 columns of it are an
 * f16 scale, the zero in a byte, and codes as in Q4_1. */
#ifndef WEFT_KERNELS_QUANT_H
#define WEFT_KERNELS_QUANT_H

#include "convert.h"
#include "kern_internal.h"

enum {
    QUANT_BLOCK = 32,                               /* columns whose activations share a scale */
    QUANT_SUPER = 256,                              /* columns of a super-block */
    QUANT_LINE = 4 * WEFT_PANEL,                    /* bytes of four columns */
    QUANT_LOW_BYTES = QUANT_BLOCK / 8 * QUANT_LINE, /* of one block */
    QUANT_SUBS_MAX = 16,
#define QUANT_GROUP(id, name, class, elems, ...) QUANT_GROUP_##id = (elems),
    WEFT_DTYPES(QUANT_GROUP) /* columns of a group of each type */
#undef QUANT_GROUP
};

enum quant_codes { QUANT_PLAIN, QUANT_LOOKED_UP };
enum quant_added { QUANT_NONE, QUANT_MINS, QUANT_ZEROS };

/* The types that lie so: X(name, ID, columns that share a scale, bits of a code, the code of a zero
 * weight where no min says it, codes, what is added). A group is a block of base/dtype.h's list;
 * one of 256 columns is a super-block. Each row here needs split_<name> in quant.c. */
/* clang-format off */
#define QUANT_EACH(X)                                                                              \
    X(q4_0,   Q4_0,   32, 4,   8, PLAIN,     NONE)                                                 \
    X(q4_1,   Q4_1,   32, 4,   0, PLAIN,     MINS)                                                 \
    X(q4_z,   Q4_Z,   32, 4,   0, PLAIN,     ZEROS)                                                \
    X(q4_k,   Q4_K,   32, 4,   0, PLAIN,     MINS)                                                 \
    X(q5_k,   Q5_K,   32, 5,   0, PLAIN,     MINS)                                                 \
    X(q6_k,   Q6_K,   16, 6,  32, PLAIN,     NONE)                                                 \
    X(q2_k,   Q2_K,   16, 2,   0, PLAIN,     MINS)                                                 \
    X(q3_k,   Q3_K,   16, 3,   4, PLAIN,     NONE)                                                 \
    X(q5_1,   Q5_1,   32, 5,   0, PLAIN,     MINS)                                                 \
    X(q5_0,   Q5_0,   32, 5,  16, PLAIN,     NONE)                                                 \
    X(iq4_nl, IQ4_NL, 32, 4, 128, LOOKED_UP, NONE)                                                 \
    X(iq4_xs, IQ4_XS, 32, 4, 128, LOOKED_UP, NONE)
/* clang-format on */

struct quant_layout {
    uint32_t group;    /* columns; 0: the type does not lie so */
    uint32_t sub;      /* columns that share a scale */
    uint32_t bits;     /* of a code */
    int32_t zero;      /* what the code of a zero weight is, where it is not stored as min */
    bool is_looked_up; /* codes are indexes of quant_values */
    bool has_min;      /* or zeros, which are mins, too */
    bool has_zeros, is_super;
    uint32_t at_pairs, at_singles, at_scales, at_mins, at_super, bytes; /* of a group of a panel */
};

/* Where the arrays of a group begin, one after the other. */
#define QUANT_HAS_NIBBLES(bits) ((bits) >= 4)
#define QUANT_HAS_PAIRS(bits) ((bits) < 4 || (bits) == 6)
#define QUANT_HAS_SINGLES(bits) ((bits) == 3 || (bits) == 5)
#define QUANT_AT_PAIRS(group, bits) (QUANT_HAS_NIBBLES(bits) * (group) / 2 * WEFT_PANEL)
#define QUANT_AT_SINGLES(group, bits)                                                              \
    (QUANT_AT_PAIRS(group, bits) + QUANT_HAS_PAIRS(bits) * (group) / 4 * WEFT_PANEL)
#define QUANT_AT_SCALES(group, bits)                                                               \
    (QUANT_AT_SINGLES(group, bits) + QUANT_HAS_SINGLES(bits) * (group) / 8 * WEFT_PANEL)
#define QUANT_SCALES_BYTES(group, sub)                                                             \
    ((group) / (sub) * ((group) == QUANT_SUPER ? 1 : 2) * WEFT_PANEL)
#define QUANT_AT_MINS(group, sub, bits)                                                            \
    (QUANT_AT_SCALES(group, bits) + QUANT_SCALES_BYTES(group, sub))
#define QUANT_AT_SUPER(group, sub, bits, added)                                                    \
    (QUANT_AT_MINS(group, sub, bits) + ((added) == QUANT_MINS) * QUANT_SCALES_BYTES(group, sub) +  \
     ((added) == QUANT_ZEROS) * WEFT_PANEL)
/* Whole lines for super-blocks, so that every line of a panel is aligned. */
#define QUANT_BYTES(group, sub, bits, added)                                                       \
    ((group) < QUANT_SUPER ? QUANT_AT_SUPER(group, sub, bits, added)                               \
                           : (QUANT_AT_SUPER(group, sub, bits, added) +                            \
                              2 * WEFT_PANEL * (1 + ((added) != 0)) + 63) /                        \
                                 64 * 64)

#define QUANT_LAYOUT(name, id, sub_, bits_, zero_, codes_, added_)                                 \
    [WEFT_DT_##id] = {                                                                             \
        .group = QUANT_GROUP_##id,                                                                 \
        .sub = (sub_),                                                                             \
        .bits = (bits_),                                                                           \
        .zero = (zero_),                                                                           \
        .is_looked_up = QUANT_##codes_ == QUANT_LOOKED_UP,                                         \
        .has_min = QUANT_##added_ != QUANT_NONE,                                                   \
        .has_zeros = QUANT_##added_ == QUANT_ZEROS,                                                \
        .is_super = QUANT_GROUP_##id == QUANT_SUPER,                                               \
        .at_pairs = QUANT_AT_PAIRS(QUANT_GROUP_##id, bits_),                                       \
        .at_singles = QUANT_AT_SINGLES(QUANT_GROUP_##id, bits_),                                   \
        .at_scales = QUANT_AT_SCALES(QUANT_GROUP_##id, bits_),                                     \
        .at_mins = QUANT_AT_MINS(QUANT_GROUP_##id, sub_, bits_),                                   \
        .at_super = QUANT_AT_SUPER(QUANT_GROUP_##id, sub_, bits_, QUANT_##added_),                 \
        .bytes = QUANT_BYTES(QUANT_GROUP_##id, sub_, bits_, QUANT_##added_),                       \
    },
static const struct quant_layout quant_layouts[WEFT_DT_COUNT] = {QUANT_EACH(QUANT_LAYOUT)};

/* What looked-up codes stand for: 128 more than GGML's, to be unsigned bytes. */
static const uint8_t quant_values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                         129, 141, 153, 166, 181, 197, 217, 241};

static inline bool quant_has_nibbles(const struct quant_layout *q) {
    return QUANT_HAS_NIBBLES(q->bits);
}

static inline bool quant_has_pairs(const struct quant_layout *q) {
    return QUANT_HAS_PAIRS(q->bits);
}

static inline bool quant_has_singles(const struct quant_layout *q) {
    return QUANT_HAS_SINGLES(q->bits);
}

/* Where in a code its pair begins, and its single bit. */
static inline uint32_t quant_pair_bit(const struct quant_layout *q) {
    return quant_has_nibbles(q) ? 4 : 0;
}

static inline uint32_t quant_single_bit(const struct quant_layout *q) {
    return q->bits - 1;
}

/* Whether the integer scales of super-blocks are signed. */
static inline bool quant_signed_scales(const struct quant_layout *q) {
    return q->is_super && !q->has_min;
}

/* -128 and -32 times a sum of activations (struct q8_row), shifted right by so many bits, are
 * -zero times it. */
static inline int quant_offset_shift(const struct quant_layout *q) {
    return 7 - __builtin_ctz((unsigned)q->zero);
}

static inline int quant_halves_shift(const struct quant_layout *q) {
    return 5 - __builtin_ctz((unsigned)q->zero);
}

static inline bool is_quant(enum weft_dtype dtype) {
    return quant_layouts[dtype].group > 0;
}

static inline const struct quant_layout *quant_layout_of(enum weft_dtype dtype) {
    WEFT_ASSERT(is_quant(dtype));
    return &quant_layouts[dtype];
}

/* Whether products read sums of activations (struct q8_row): for mins, or where halves of a block
 * have scales of their own. */
static inline bool quant_reads_sums(const struct quant_layout *q) {
    return q->has_min || q->sub < QUANT_BLOCK;
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
    return q->is_looked_up ? quant_values[code] : code;
}

static inline float quant_f16(const uint8_t *at, uint32_t i) {
    uint16_t half;
    memcpy(&half, at + (size_t)i * 2, sizeof half);
    return f16_to_f32(half);
}

/* The integer scale of a super-block. */
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
    if (q->has_zeros) return -(quant_scale(q, group, sub, i) * (float)mins[i]);
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
    uint8_t scales[QUANT_SUBS_MAX], mins[QUANT_SUBS_MAX]; /* of super-blocks */
    uint16_t scale, min; /* f16; of super-blocks what the others are multiplied by; Q4_Z: min is the
                            zero, a whole number */
};

/* The weight that a part of a group stands for. */
static inline float quant_part_weight(const struct quant_layout *q, const struct quant_parts *parts,
                                      uint32_t k) {
    uint32_t sub = k / q->sub, code = parts->codes[k];
    if (q->is_looked_up) code = quant_values[code];
    float scale = f16_to_f32(parts->scale), min = f16_to_f32(parts->min);
    if (q->has_zeros) min = -(scale * (float)parts->min);
    if (q->is_super) {
        scale *= quant_int_scale(q, parts->scales[sub]);
        min = -(min * (float)parts->mins[sub]);
    }
    return fmaf(scale, (float)((int32_t)code - q->zero), min);
}

/* Takes a group of one feature apart, as a file has it. */
void wefti_kern_quant_split(enum weft_dtype dtype, const uint8_t *src, struct quant_parts *out);

#endif
