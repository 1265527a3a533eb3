/* kernels/quant — how the types of 2 to 6 bits lie in a panel, and what their blocks hold in a
 * file.
 *
 * A group is a block of the file: of 32 columns, of 64 (NVFP4), or a super-block of 256.
 * The code of a weight falls apart into its nibble, pair and single bit, lowest first: 2 bits are a
 * pair, 3 a pair and a single bit, 4 a nibble, 5 and 6 a nibble and one of the others. For the 16
 * features of a panel a group holds, one array after the other and each only where the type has it:
 *
 *   nibbles [group/32][4][16][4]     lines of 64 bytes. Low nibbles: quad j of the block of 32
 *                                    columns (columns 4j..4j+3 of each feature), high ones: j + 4
 *   pairs   [group/32][2][16][4]     bits 2j, 2j+1 of line h: quad 4h + j
 *   singles [group/32][16][4]        bit j of a byte: quad j
 *   scales  [group/sub][16]          by the type's form of scales, below
 *   mins    the same                 MINS: unsigned in super-blocks
 *   zeros   [16]                     ZEROS: a byte each
 *   super   [16] f16, or f32         of super-blocks: what scales are multiplied by; then [16] f16, mins
 *
 * The weight is scale * (code - zero) + min; min is negative in super-blocks. ZEROS: each group has
 * a zero of its own, from which its min follows: -scale * zero. The code of a type that has a table
 * is first looked up there. All products are exact in f32 (11 bits of super, up to 8 of scale, up to
 * 6 of code, or 6 and 8 of a looked-up one; 11 and 8), so only the last sum is rounded.
 *
 * Types whose file has indexes of whole points of a lattice (IQ1 to IQ3) lie here as the coordinates
 * of these points: a point of 8 columns and its signs would take longer to look up than memory to
 * bring what it stands for. Several of them have the same coordinates, and lie alike (QUANT_ALIKE).
 *
 * Source: GGML's block formats; MXFP4 is the Open Compute Project's. Q4_Z is ours, for GPTQ and AWQ: 32
 * columns of it are an f16 scale, the zero in a byte, and codes as in Q4_1. */
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

enum quant_added { QUANT_NONE, QUANT_MINS, QUANT_ZEROS };

/* What stands for a scale, for each feature:
 *   F16      f16
 *   ONE      nothing: super is the scale of all columns
 *   INTS     a whole number in a byte, signed where there are no mins, times super in f16
 *   INTS_F32 the same with super in f32: where a file's is a fraction of an f16
 *   E8M0     a power of two in a byte, halved, as the codes are twice e2m1's numbers
 *   UE4M3    4 bits of exponent and 3 of mantissa in a byte, halved, too
 *   UE4M3_F32  the same times super in f32, of 17 bits: products stay exact */
enum quant_scales {
    QUANT_F16,
    QUANT_ONE,
    QUANT_INTS,
    QUANT_INTS_F32,
    QUANT_E8M0,
    QUANT_UE4M3,
    QUANT_UE4M3_F32,
};

/* Tables of codes: X(NAME, the largest entry, entries). Entries are unsigned: by the type's zero more
 * than what they stand for. In all but IQ4 the highest bit of an index is a sign: of the number, or
 * in IQ1 of the eighth that is added to -1, 0 or 1. */
/* clang-format off */
#define QUANT_TABLES(X)                                                                            \
    X(IQ4,     241, 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241)       \
    X(IQ3_XXS, 126, 68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2)             \
    X(IQ3_S,    31, 17, 19, 21, 23, 25, 27, 29, 31, 15, 13, 11, 9, 7, 5, 3, 1)                     \
    X(IQ2,     107, 72, 89, 107, 64, 56, 39, 21, 64)                                               \
    X(IQ1,      25, 9, 17, 25, 16, 7, 15, 23, 16)                                                  \
    X(E2M1,     28, 16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4)
/* clang-format on */

#define QUANT_TABLE_ID(name, ...) QUANT_TABLE_##name,
enum quant_table { QUANT_TABLE_PLAIN, QUANT_TABLES(QUANT_TABLE_ID) QUANT_TABLE_COUNT };
#define QUANT_TABLE_MOST(name, most, ...) [QUANT_TABLE_##name] = (most),
static const uint8_t quant_mosts[QUANT_TABLE_COUNT] = {QUANT_TABLES(QUANT_TABLE_MOST)};
#define QUANT_TABLE_ROW(name, most, ...) [QUANT_TABLE_##name] = {__VA_ARGS__},
static const uint8_t quant_tables[QUANT_TABLE_COUNT][16] = {QUANT_TABLES(QUANT_TABLE_ROW)};

/* The types that lie so: X(name, ID, columns that share a scale, bits of a code, the code of a zero
 * weight where no min says it, codes: PLAIN or a table, what is added, scales). A group is a block of
 * base/dtype.h's list; one of 256 columns is a super-block. Each row here needs split_<name>. */
/* clang-format off */
#define QUANT_EACH(X)                                                                              \
    X(q4_0,    Q4_0,    32, 4,   8, PLAIN,   NONE,  F16)                                           \
    X(q4_1,    Q4_1,    32, 4,   0, PLAIN,   MINS,  F16)                                           \
    X(q4_z,    Q4_Z,    32, 4,   0, PLAIN,   ZEROS, F16)                                           \
    X(q4_k,    Q4_K,    32, 4,   0, PLAIN,   MINS,  INTS)                                          \
    X(q5_k,    Q5_K,    32, 5,   0, PLAIN,   MINS,  INTS)                                          \
    X(q6_k,    Q6_K,    16, 6,  32, PLAIN,   NONE,  INTS)                                          \
    X(q2_k,    Q2_K,    16, 2,   0, PLAIN,   MINS,  INTS)                                          \
    X(q3_k,    Q3_K,    16, 3,   4, PLAIN,   NONE,  INTS)                                          \
    X(q5_1,    Q5_1,    32, 5,   0, PLAIN,   MINS,  F16)                                           \
    X(q5_0,    Q5_0,    32, 5,  16, PLAIN,   NONE,  F16)                                           \
    X(iq4_nl,  IQ4_NL,  32, 4, 128, IQ4,     NONE,  F16)                                           \
    X(iq4_xs,  IQ4_XS,  32, 4, 128, IQ4,     NONE,  INTS)                                          \
    X(iq3_s,   IQ3_S,   32, 4,  16, IQ3_S,   NONE,  INTS_F32)                                      \
    X(iq3_xxs, IQ3_XXS, 32, 4,  64, IQ3_XXS, NONE,  INTS_F32)                                      \
    X(iq2_s,   IQ2_S,   16, 3,  64, IQ2,     NONE,  INTS_F32)                                      \
    X(iq1_m,   IQ1_M,   16, 3,  16, IQ1,     NONE,  INTS_F32)                                      \
    X(tq2_0,   TQ2_0,   32, 2,   1, PLAIN,   NONE,  ONE)                                           \
    X(mxfp4,   MXFP4,   32, 4,  16, E2M1,    NONE,  E8M0)                                          \
    X(nvfp4,   NVFP4,   16, 4,  16, E2M1,    NONE,  UE4M3)                                         \
    X(nvfp4_s, NVFP4_S, 16, 4,  16, E2M1,    NONE,  UE4M3_F32)

/* Types that lie as one of those: X(name, ID, as which). They need a split_<name>, too. */
#define QUANT_ALIKE(X)                                                                             \
    X(iq2_xs,  IQ2_XS,  IQ2_S)                                                                     \
    X(iq2_xxs, IQ2_XXS, IQ2_S)                                                                     \
    X(iq1_s,   IQ1_S,   IQ1_M)                                                                     \
    X(tq1_0,   TQ1_0,   TQ2_0)
/* clang-format on */

struct quant_layout {
    uint32_t group;         /* columns; 0: the type does not lie so */
    uint32_t sub;           /* columns that share a scale */
    uint32_t bits;          /* of a code */
    int32_t zero;           /* what the code of a zero weight is, where it is not stored as min */
    enum quant_table table; /* what codes are indexes of; PLAIN: they are numbers */
    enum quant_scales scales;
    bool has_min; /* or zeros, which are mins, too */
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
#define QUANT_SUPER_IS_F32(scales) ((scales) == QUANT_INTS_F32 || (scales) == QUANT_UE4M3_F32)
/* Bytes of what stands for a scale, of a feature; and of super, with that of mins. */
#define QUANT_SCALE_BYTES(scales) ((scales) == QUANT_F16 ? 2 : (scales) == QUANT_ONE ? 0 : 1)
#define QUANT_SUPER_BYTES(scales, added)                                                           \
    (QUANT_SUPER_IS_F32(scales)                        ? 4                                         \
     : (scales) == QUANT_INTS || (scales) == QUANT_ONE ? 2 * (1 + ((added) != QUANT_NONE))         \
                                                       : 0)
#define QUANT_SCALES_BYTES(group, sub, scales)                                                     \
    ((group) / (sub)*QUANT_SCALE_BYTES(scales) * WEFT_PANEL)
#define QUANT_AT_MINS(group, sub, bits, scales)                                                    \
    (QUANT_AT_SCALES(group, bits) + QUANT_SCALES_BYTES(group, sub, scales))
#define QUANT_AT_SUPER(group, sub, bits, added, scales)                                            \
    (QUANT_AT_MINS(group, sub, bits, scales) +                                                     \
     ((added) == QUANT_MINS) * QUANT_SCALES_BYTES(group, sub, scales) +                            \
     ((added) == QUANT_ZEROS) * WEFT_PANEL)
#define QUANT_END(group, sub, bits, added, scales)                                                 \
    (QUANT_AT_SUPER(group, sub, bits, added, scales) +                                             \
     QUANT_SUPER_BYTES(scales, added) * WEFT_PANEL)
/* Whole lines for super-blocks, so that every line of a panel is aligned. */
#define QUANT_BYTES(group, sub, bits, added, scales)                                               \
    ((group) < QUANT_SUPER ? QUANT_END(group, sub, bits, added, scales)                            \
                           : (QUANT_END(group, sub, bits, added, scales) + 63) / 64 * 64)

#define QUANT_LAYOUT(name, id, sub_, bits_, zero_, codes_, added_, scales_)                        \
    [WEFT_DT_##id] = {                                                                             \
        .group = QUANT_GROUP_##id,                                                                 \
        .sub = (sub_),                                                                             \
        .bits = (bits_),                                                                           \
        .zero = (zero_),                                                                           \
        .table = QUANT_TABLE_##codes_,                                                             \
        .scales = QUANT_##scales_,                                                                 \
        .has_min = QUANT_##added_ != QUANT_NONE,                                                   \
        .has_zeros = QUANT_##added_ == QUANT_ZEROS,                                                \
        .is_super = QUANT_SUPER_BYTES(QUANT_##scales_, QUANT_##added_) > 0,                        \
        .at_pairs = QUANT_AT_PAIRS(QUANT_GROUP_##id, bits_),                                       \
        .at_singles = QUANT_AT_SINGLES(QUANT_GROUP_##id, bits_),                                   \
        .at_scales = QUANT_AT_SCALES(QUANT_GROUP_##id, bits_),                                     \
        .at_mins = QUANT_AT_MINS(QUANT_GROUP_##id, sub_, bits_, QUANT_##scales_),                  \
        .at_super =                                                                                \
            QUANT_AT_SUPER(QUANT_GROUP_##id, sub_, bits_, QUANT_##added_, QUANT_##scales_),        \
        .bytes = QUANT_BYTES(QUANT_GROUP_##id, sub_, bits_, QUANT_##added_, QUANT_##scales_),      \
    },
static const struct quant_layout quant_layouts[WEFT_DT_COUNT] = {QUANT_EACH(QUANT_LAYOUT)};

static inline bool quant_is_looked_up(const struct quant_layout *q) {
    return q->table != QUANT_TABLE_PLAIN;
}

/* The largest code, as it is multiplied. */
static inline uint32_t quant_most(const struct quant_layout *q) {
    return quant_is_looked_up(q) ? quant_mosts[q->table] : (1u << q->bits) - 1;
}

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
 * -zero times it; below 0: to the left. */
static inline int quant_offset_shift(const struct quant_layout *q) {
    return 7 - __builtin_ctz((unsigned)q->zero);
}

static inline int quant_halves_shift(const struct quant_layout *q) {
    return 5 - __builtin_ctz((unsigned)q->zero);
}

/* The type of QUANT_EACH as which this one lies: another one or itself. */
static inline enum weft_dtype quant_lies_as(enum weft_dtype dtype) {
    switch (dtype) {
#define QUANT_AS(name, id, as)                                                                     \
    case WEFT_DT_##id:                                                                             \
        return WEFT_DT_##as;
        QUANT_ALIKE(QUANT_AS)
#undef QUANT_AS
    default:
        return dtype;
    }
}

static inline bool is_quant(enum weft_dtype dtype) {
    return quant_layouts[quant_lies_as(dtype)].group > 0;
}

static inline const struct quant_layout *quant_layout_of(enum weft_dtype dtype) {
    WEFT_ASSERT(is_quant(dtype));
    return &quant_layouts[quant_lies_as(dtype)];
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
    return quant_is_looked_up(q) ? quant_tables[q->table][code] : code;
}

static inline float quant_f16(const uint8_t *at, uint32_t i) {
    uint16_t half;
    memcpy(&half, at + (size_t)i * 2, sizeof half);
    return f16_to_f32(half);
}

static inline float quant_f32(const uint8_t *at, uint32_t i) {
    float value;
    memcpy(&value, at + (size_t)i * 4, sizeof value);
    return value;
}

/* 2^(byte - 128): subnormal for the first two bytes, and never infinite. */
static inline float quant_e8m0(uint8_t byte) {
    return f32_from_bits(byte < 2 ? 0x00200000u << byte : (uint32_t)(byte - 1) << 23);
}

/* As the bits of an f16 it would be 256 times too small. */
static inline float quant_ue4m3(uint8_t byte) {
    return f16_to_f32((uint16_t)(byte << 7)) * 128.0f;
}

/* The whole number of a super-block. */
static inline float quant_int_scale(const struct quant_layout *q, uint8_t byte) {
    return (float)(quant_signed_scales(q) ? (int8_t)byte : byte);
}

static inline float quant_scale(const struct quant_layout *q, const uint8_t *group, uint32_t sub,
                                uint32_t i) {
    const uint8_t *scales = group + q->at_scales + (size_t)sub * WEFT_PANEL;
    const uint8_t *super = group + q->at_super;
    switch (q->scales) {
    case QUANT_ONE:
        return quant_f16(super, i);
    case QUANT_INTS:
        return quant_f16(super, i) * quant_int_scale(q, scales[i]);
    case QUANT_INTS_F32:
        return quant_f32(super, i) * quant_int_scale(q, scales[i]);
    case QUANT_E8M0:
        return quant_e8m0(scales[i]);
    case QUANT_UE4M3:
        return quant_ue4m3(scales[i]);
    case QUANT_UE4M3_F32:
        return quant_f32(super, i) * quant_ue4m3(scales[i]);
    default: /* one scale in a group */
        return quant_f16(group + q->at_scales, i);
    }
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
    uint8_t scales[QUANT_SUBS_MAX], mins[QUANT_SUBS_MAX]; /* where they are bytes */
    uint16_t scale, min; /* f16; of super-blocks what the others are multiplied by; Q4_Z: min is the
                            zero, a whole number */
    float super;         /* where that is an f32: in place of `scale` */
};

static inline float quant_part_scale(const struct quant_layout *q, const struct quant_parts *parts,
                                     uint32_t sub) {
    const float scale = f16_to_f32(parts->scale);
    switch (q->scales) {
    case QUANT_INTS:
        return scale * quant_int_scale(q, parts->scales[sub]);
    case QUANT_INTS_F32:
        return parts->super * quant_int_scale(q, parts->scales[sub]);
    case QUANT_E8M0:
        return quant_e8m0(parts->scales[sub]);
    case QUANT_UE4M3:
        return quant_ue4m3(parts->scales[sub]);
    case QUANT_UE4M3_F32:
        return parts->super * quant_ue4m3(parts->scales[sub]);
    default:
        return scale;
    }
}

/* The weight that a part of a group stands for. */
static inline float quant_part_weight(const struct quant_layout *q, const struct quant_parts *parts,
                                      uint32_t k) {
    uint32_t sub = k / q->sub, code = parts->codes[k];
    if (quant_is_looked_up(q)) code = quant_tables[q->table][code];
    float scale = quant_part_scale(q, parts, sub), min = f16_to_f32(parts->min);
    if (q->has_zeros) min = -(scale * (float)parts->min);
    if (q->is_super) min = -(min * (float)parts->mins[sub]);
    return fmaf(scale, (float)((int32_t)code - q->zero), min);
}

/* Takes a group of one feature apart, as a file has it. */
void wefti_kern_quant_split(enum weft_dtype dtype, const uint8_t *src, struct quant_parts *out);

#endif
