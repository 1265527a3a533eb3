/* kernels/ops_quantise — activations in 8 bits and in bf16, a row at a time. As in ops_body.h the bits are
 * the same on every ISA, and only the order in which blocks are computed is an ISA's own. */
#ifndef WEFT_KERNELS_OPS_QUANTISE_H
#define WEFT_KERNELS_OPS_QUANTISE_H

#include <math.h>
#include <string.h>

#include "convert.h"
#include "exp_f32.h"
#include "kern_internal.h"

#define LANES 16u

/* `n` numbers that share a scale. Scale = max|x| / 127, codes to nearest even: no division per
 * element, and exact in any order, as the maximum is taken over bit patterns. A block with an
 * infinity or NaN yields NaN, not garbage. */
static inline void quantise_block(const float *x, uint32_t n, int8_t *codes, float *scale,
                                  int32_t *offset) {
    uint32_t max_bits = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t magnitude = f32_bits(x[i]) & 0x7fffffffu;
        max_bits = magnitude > max_bits ? magnitude : max_bits;
    }
    float max = f32_from_bits(max_bits);
    if (!(max >= Q8_TINY && max_bits < 0x7f800000u)) {
        memset(codes, 0, n);
        *scale = max < Q8_TINY ? 0.0f : NAN;
        *offset = 0;
        return;
    }
    float inverse = 127.0f / max;
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        /* The addition rounds to an integer, which is then in the low bits of the sum. */
        int32_t code = (int32_t)f32_bits(x[i] * inverse + EXP_ROUND) - (int32_t)f32_bits(EXP_ROUND);
        codes[i] = (int8_t)code;
        sum += code;
    }
    *scale = max / 127.0f;
    *offset = -128 * sum;
}

/* Sixteen lanes as one value. */
typedef float lanes16 __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef float lanes8 __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float lanes4 __attribute__((vector_size(LANES / 4 * sizeof(float))));

/* By lanes_sum's tree. */
static inline float lanes16_sum(lanes16 v) {
    lanes8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    lanes4 b =
        __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* Codes of 32 numbers, as floats, and how they fit: with the scale that is best for them, dot /
 * square, the squares of their errors sum to the numbers' squares less dot^2 / square. */
struct grid {
    lanes16 low, high;
    float dot, square;
};

static inline struct grid grid_of(lanes16 low, lanes16 high, float inverse) {
    struct grid g = {.low = (low * inverse + EXP_ROUND) - EXP_ROUND,
                     .high = (high * inverse + EXP_ROUND) - EXP_ROUND};
    g.dot = lanes16_sum(low * g.low + high * g.high);
    g.square = lanes16_sum(g.low * g.low + g.high * g.high);
    return g;
}

/* As quantise_block, but with the best of six grids: how well a grid fits 32 numbers is chance,
 * and the best of four has a twelfth less error than the first. (The KL divergence of fable-6m in
 * Q8_0, activations and all: four 3.29e-4, six 3.24e-4.) */
static inline void quantise_closely(const float *x, int8_t *codes, float *scale, int32_t *offset) {
    uint32_t max_bits = 0;
    for (uint32_t i = 0; i < Q8_GROUP; i++) {
        uint32_t magnitude = f32_bits(x[i]) & 0x7fffffffu;
        max_bits = magnitude > max_bits ? magnitude : max_bits;
    }
    float max = f32_from_bits(max_bits);
    if (!(max >= Q8_TINY && max_bits < 0x7f800000u)) {
        quantise_block(x, Q8_GROUP, codes, scale, offset);
        return;
    }
    float inverse = 1.0f / max, rounded[Q8_GROUP];
    lanes16 low = *(const lanes16 *)(const void *)x * inverse;
    lanes16 high = *(const lanes16 *)(const void *)(x + LANES) * inverse;
    struct grid best = grid_of(low, high, 127.0f);
    for (int levels = 126; levels > 121; levels--) {
        struct grid g = grid_of(low, high, (float)levels);
        if (g.dot * g.dot * best.square > best.dot * best.dot * g.square) best = g;
    }
    memcpy(rounded, &best.low, sizeof best.low);
    memcpy(rounded + LANES, &best.high, sizeof best.high);
    int32_t sum = 0;
    for (uint32_t i = 0; i < Q8_GROUP; i++) {
        int32_t code = (int32_t)rounded[i];
        codes[i] = (int8_t)code;
        sum += code;
    }
    *scale = max * (best.dot / best.square);
    *offset = -128 * sum;
}

#ifdef __AVX512F__
typedef int32_t ints16 __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4)));

/* b's lanes where `mask` has ones, else a's. (Functions that return vectors have another interface
 * where registers are short.) */
#define INTS_PICK(mask, a, b) (((mask) & (b)) | (~(mask) & (a)))
#define LANES_PICK(mask, a, b) ((lanes16)INTS_PICK(mask, (ints16)(a), (ints16)(b)))
#define LANES_ROUND(v, factor) (((v) * (factor) + EXP_ROUND) - EXP_ROUND)

/* Rows v[i] and v[i + step], for all i of `n` without that bit, change places where they have the
 * other's: the even runs of `step` lanes of the second for the odd ones of the first. Done for all
 * steps below n it transposes blocks of n x n. */
#define SWAP_RUNS(v, n, step, ...)                                                                 \
    for (uint32_t i_ = 0; i_ < (n); i_++) {                                                        \
        if (i_ & (step)) continue;                                                                 \
        ints16 a_ = (v)[i_], b_ = (v)[i_ + (step)];                                                \
        (v)[i_] = __builtin_shufflevector(a_, b_, RUNS_EVEN_##step);                               \
        (v)[i_ + (step)] = __builtin_shufflevector(a_, b_, RUNS_ODD_##step);                       \
    }
#define RUNS_EVEN_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define RUNS_ODD_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define RUNS_EVEN_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define RUNS_ODD_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define RUNS_EVEN_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define RUNS_ODD_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define RUNS_EVEN_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define RUNS_ODD_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31

static inline void transpose_lanes(ints16 v[LANES]) {
    SWAP_RUNS(v, LANES, 1)
    SWAP_RUNS(v, LANES, 2)
    SWAP_RUNS(v, LANES, 4)
    SWAP_RUNS(v, LANES, 8)
}

/* grid_of for 16 blocks side by side; lane l of it is v[l], and that of its high half v[16 + l]. */
struct grids {
    lanes16 dot, square;
};

/* Adds lane l of two sums, or sets them. */
#define ADD_LANE(v, l, levels, dot_, square_, op)                                                  \
    {                                                                                              \
        lanes16 low_ = LANES_ROUND((v)[l], levels), high_ = LANES_ROUND((v)[LANES + (l)], levels); \
        dot_ op(v)[l] * low_ + (v)[LANES + (l)] * high_;                                           \
        square_ op low_ *low_ + high_ *high_;                                                      \
    }

/* By lanes16_sum's tree, in an order that keeps few sums at a time. */
static inline struct grids grids_of(const lanes16 v[Q8_GROUP], float levels) {
    struct grids quarter[2], all = {0};
    for (uint32_t odd = 0; odd < 2; odd++) {
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t l = odd + 2 * i;
            lanes16 dot, square, other_dot, other_square;
            ADD_LANE(v, l, levels, dot, square, =)
            ADD_LANE(v, l + 8, levels, dot, square, +=)
            ADD_LANE(v, l + 4, levels, other_dot, other_square, =)
            ADD_LANE(v, l + 12, levels, other_dot, other_square, +=)
            quarter[i] = (struct grids){dot + other_dot, square + other_square};
        }
        all.dot =
            odd ? all.dot + (quarter[0].dot + quarter[1].dot) : quarter[0].dot + quarter[1].dot;
        all.square = odd ? all.square + (quarter[0].square + quarter[1].square)
                         : quarter[0].square + quarter[1].square;
    }
    return all;
}

/* 16 blocks at once, a lane for each, to the bits of quantise_closely; false: one of them is zero or
 * has no scale. Alone, most of a block's time goes into sums across its lanes (Xeon, model 207: 2.5
 * ns a number, and 0.6 so; in registers of 8 lanes it takes longer than alone). */
static inline bool quantise_sixteen(const float *const x[LANES], int8_t *codes, float *scales,
                                    int32_t *offsets) {
    lanes16 v[Q8_GROUP];
    for (uint32_t half = 0; half < 2; half++) {
        ints16 *to = (ints16 *)v + half * LANES;
        for (uint32_t b = 0; b < LANES; b++) {
            memcpy(to + b, x[b] + half * LANES, sizeof *to);
        }
        transpose_lanes(to);
    }
    ints16 max_bits = {0}, bad;
    for (uint32_t e = 0; e < Q8_GROUP; e++) {
        ints16 magnitude = (ints16)v[e] & 0x7fffffff;
        max_bits = INTS_PICK(magnitude > max_bits, max_bits, magnitude);
    }
    bad = (max_bits < (int32_t)f32_bits(Q8_TINY)) | (max_bits >= 0x7f800000);
    for (uint32_t b = 0; b < LANES; b++) {
        if (bad[b]) return false;
    }
    const lanes16 max = (lanes16)max_bits, inverse = 1.0f / max;
    for (uint32_t e = 0; e < Q8_GROUP; e++) {
        v[e] *= inverse;
    }
    struct grids best = grids_of(v, 127.0f);
    lanes16 levels = 127.0f - (lanes16){0};
    for (int fewer = 126; fewer > 121; fewer--) {
        struct grids g = grids_of(v, (float)fewer);
        ints16 better = g.dot * g.dot * best.square > best.dot * best.dot * g.square;
        best.dot = LANES_PICK(better, best.dot, g.dot);
        best.square = LANES_PICK(better, best.square, g.square);
        levels = LANES_PICK(better, levels, (float)fewer - (lanes16){0});
    }
    ints16 words[Q8_QUADS], sum = {0};
    for (uint32_t quad = 0; quad < Q8_QUADS; quad++) {
        words[quad] = (ints16){0};
        for (uint32_t i = 0; i < 4; i++) { /* a code is in the low bits after rounding */
            ints16 code = (ints16)(v[quad * 4 + i] * levels + EXP_ROUND);
            sum += code - (int32_t)f32_bits(EXP_ROUND);
            words[quad] |= (code & 255) << (8 * i);
        }
    }
    SWAP_RUNS(words, Q8_QUADS, 1)
    SWAP_RUNS(words, Q8_QUADS, 2)
    SWAP_RUNS(words, Q8_QUADS, 4)
    for (uint32_t b = 0; b < Q8_QUADS; b++) { /* blocks b and b + 8 */
        memcpy(codes + (size_t)b * Q8_GROUP, &words[b], Q8_GROUP);
        memcpy(codes + (size_t)(b + Q8_QUADS) * Q8_GROUP, (const uint8_t *)&words[b] + Q8_GROUP,
               Q8_GROUP);
    }
    lanes16 scale = max * (best.dot / best.square);
    sum *= -128;
    memcpy(scales, &scale, sizeof scale);
    memcpy(offsets, &sum, sizeof sum);
    return true;
}
#endif

static inline void quantise_row(const float *x, uint32_t k, void *row) {
    int8_t *codes = row;
    float *scales = (void *)(codes + k);
    int32_t *offsets = (void *)(scales + k / Q8_GROUP);
    const uint32_t n_blocks = k / Q8_GROUP;
    for (uint32_t b = 0, end; b < n_blocks; b = end) {
        end = weft_min_u32(b + LANES, n_blocks);
        size_t at = (size_t)b * Q8_GROUP;
#ifdef __AVX512F__
        const float *blocks[LANES];
        for (uint32_t i = 0; i < LANES; i++) {
            blocks[i] = x + at + (size_t)i * Q8_GROUP;
        }
        if (end == b + LANES && quantise_sixteen(blocks, codes + at, scales + b, offsets + b))
            continue;
#endif
        for (; b < end; b++, at += Q8_GROUP) {
            quantise_closely(x + at, codes + at, scales + b, offsets + b);
        }
    }
}

/* Columns begin..end of a row of `k`, whole groups but for the row's last ones; `x` is at `begin`. */
static inline void quantise_columns_i8(const float *x, uint32_t k, uint32_t begin, uint32_t end,
                                       void *row) {
    int8_t *codes = row;
    float *scales = (void *)(codes + i8_columns(k));
    int32_t *offsets = (void *)(scales + i8_groups(k));
    for (uint32_t at = begin, n; at < end; at += n) {
        n = weft_min_u32(I8_GROUP, end - at);
        quantise_block(x + (at - begin), n, codes + at, scales + at / I8_GROUP,
                       offsets + at / I8_GROUP);
    }
    if (end == k) memset(codes + k, 0, i8_columns(k) - k);
}

static inline void quantise_row_i8(const float *x, uint32_t k, void *row) {
    quantise_columns_i8(x, k, 0, k, row);
}

/* What the types with mins, or with two scales in a block, need beside the codes. */
static inline void sum_blocks(const int8_t *codes, const float *scales, const int32_t *offsets,
                              uint32_t n_blocks, int32_t *halves, float *sums) {
    for (uint32_t b = 0; b < n_blocks; b++) {
        int32_t half = 0;
        for (uint32_t i = 0; i < Q8_GROUP / 2; i++) {
            half += codes[(size_t)b * Q8_GROUP + i];
        }
        halves[b] = -32 * half;
        int32_t whole = offsets[b] / -128;
        sums[b] = scales[b] * (float)whole;
    }
}

/* The end of a row, for the types that need it. */
static inline void sum_row(uint32_t k, void *row) {
    const int8_t *codes = row;
    const float *scales = (const void *)(codes + k);
    const int32_t *offsets = (const void *)(scales + k / Q8_GROUP);
    int32_t *halves = (int32_t *)(void *)((uint8_t *)row + k) + k / Q8_GROUP * 2;
    sum_blocks(codes, scales, offsets, k / Q8_GROUP, halves, (void *)(halves + k / Q8_GROUP));
}

static inline void narrow_row(bool f16, const float *x, uint32_t n, uint16_t *out) {
    if (f16) {
        IVDEP
        for (uint32_t i = 0; i < n; i++) {
            out[i] = f32_to_f16(x[i]);
        }
    } else {
        IVDEP
        for (uint32_t i = 0; i < n; i++) {
            out[i] = f32_to_bf16(x[i]);
        }
    }
}

#endif
