/* kernels/ops_body — everything but products and attention, written once in portable C and compiled
 * by each ops_<isa>.c with its own flags. No operation here gains from a fused multiply-add, so
 * none is used, and sums run in sixteen lanes joined by one tree: the bits are the same on every
 * ISA. The loops over LANES are what the compiler turns into vectors (ivdep: in-place use is
 * element by element). They index a pointer to their place: GCC 12 turns x[i + l] into gathers if
 * 32-bit indices may wrap around. */
#ifndef WEFT_KERNELS_OPS_BODY_H
#define WEFT_KERNELS_OPS_BODY_H

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "convert.h"
#include "exp_f32.h"
#include "kern_internal.h"

#define LANES 16u

#ifdef __clang__
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

/* Half of the lanes, where the compiler must not choose: GCC 12 turns the sum of squares below into
 * columns of 16 rows, which take four times as long. */
typedef float vector __attribute__((vector_size(LANES / 2 * sizeof(float))));

static inline float lanes_sum(float lanes[LANES]) {
    for (uint32_t width = LANES / 2; width > 0; width /= 2) {
        for (uint32_t l = 0; l < width; l++) {
            lanes[l] += lanes[l + width];
        }
    }
    return lanes[0];
}

static inline double lanes_sum_double(double lanes[LANES]) {
    for (uint32_t width = LANES / 2; width > 0; width /= 2) {
        for (uint32_t l = 0; l < width; l++) {
            lanes[l] += lanes[l + width];
        }
    }
    return lanes[0];
}

/* The sum of (x - shift)^2. */
static inline float sum_of_squares(const float *x, uint32_t n, float shift) {
    float lanes[LANES] = {0};
    uint32_t i = 0;
    vector low = {0}, high = {0};
    for (; i + LANES <= n; i += LANES) {
        vector a, b;
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + LANES / 2, sizeof b);
        a -= shift;
        b -= shift;
        low += a * a;
        high += b * b;
    }
    memcpy(lanes, &low, sizeof low);
    memcpy(lanes + LANES / 2, &high, sizeof high);
    for (uint32_t l = 0; i + l < n; l++) {
        lanes[l] += (x[i + l] - shift) * (x[i + l] - shift);
    }
    return lanes_sum(lanes);
}

static inline float sum_of(const float *x, uint32_t n) {
    float lanes[LANES] = {0};
    uint32_t i = 0;
    vector low = {0}, high = {0};
    for (; i + LANES <= n; i += LANES) {
        vector a, b;
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + LANES / 2, sizeof b);
        low += a;
        high += b;
    }
    memcpy(lanes, &low, sizeof low);
    memcpy(lanes + LANES / 2, &high, sizeof high);
    for (uint32_t l = 0; i + l < n; l++) {
        lanes[l] += x[i + l];
    }
    return lanes_sum(lanes);
}

static void rms_norm(const float *x, const float *w, float eps, uint32_t n, float *y) {
    WEFT_ASSERT(n > 0);
    float inverse = 1.0f / sqrtf(sum_of_squares(x, n, 0.0f) / (float)n + eps);
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = x[i] * inverse * w[i];
    }
}

static void layer_norm(const float *x, const float *w, const float *b, float eps, uint32_t n,
                       float *y) {
    WEFT_ASSERT(n > 0);
    float mean = sum_of(x, n) / (float)n;
    float inverse = 1.0f / sqrtf(sum_of_squares(x, n, mean) / (float)n + eps);
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) * inverse * w[i];
    }
    if (!b) return;
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] += b[i];
    }
}

/* Sums only: GCC 12 turns a difference beside a sum into vfmaddsub, -ffp-contract=off or not. */
static void rope(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos_sin,
                 bool interleaved) {
    WEFT_ASSERT(head_dim % 2 == 0);
    uint32_t half = head_dim / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        if (interleaved) {
            IVDEP
            for (uint32_t i = 0; i < half; i++) {
                float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
                float a = x[2 * i], b = x[2 * i + 1];
                x[2 * i] = a * c + b * -s;
                x[2 * i + 1] = a * s + b * c;
            }
        } else {
            IVDEP
            for (uint32_t i = 0; i < half; i++) {
                float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
                float a = x[i], b = x[half + i];
                x[i] = a * c + b * -s;
                x[half + i] = a * s + b * c;
            }
        }
    }
}

static void silu_mul(const float *gate, const float *up, uint32_t n, float *y) {
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
    }
}

/* (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)). */
static inline float gelu_tanh(float x) {
    const float sqrt_2_over_pi = 0x1.988454p-1f;
    float inner = sqrt_2_over_pi * (x + 0.044715f * (x * x) * x);
    return x / (1.0f + exp_f32(-2.0f * inner));
}

static void gelu_mul(const float *gate, const float *up, uint32_t n, float *y) {
    if (!up) {
        IVDEP
        for (uint32_t i = 0; i < n; i++) {
            y[i] = gelu_tanh(gate[i]);
        }
        return;
    }
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = gelu_tanh(gate[i]) * up[i];
    }
}

/* exp(t^2) * erfc(t) / 2 for t >= 0, over k = 1 / (1 + 0.55 t): a polynomial through ten Chebyshev
 * points for t up to 9.5, off by less than 1e-8 of the result there; with the roundings by 3e-7. */
static inline float half_erfcx(float t) {
    float k = 1.0f / (1.0f + 0.55f * t);
    float p = 0x1.e6fba2p-6f;
    p = p * k + -0x1.6065d0p-3f;
    p = p * k + 0x1.98d1c0p-2f;
    p = p * k + -0x1.c065bcp-2f;
    p = p * k + 0x1.870c66p-3f;
    p = p * k + -0x1.aab184p-5f;
    p = p * k + 0x1.a3ebbep-4f;
    p = p * k + 0x1.086c56p-3f;
    p = p * k + 0x1.3e2faep-3f;
    p = p * k + 0x1.3dbc6cp-3f;
    return p * k;
}

/* (1 + erf(u)) / 2 = erfc(-u) / 2 loses no digits where it is small. */
static inline float gelu_erf(float x) {
    float t = fabsf(x) * 0x1.6a09e6p-1f, half = half_erfcx(t) * exp_f32(-(t * t));
    return x * (x < 0.0f ? half : 1.0f - half);
}

static void gelu_erf_mul(const float *gate, const float *up, uint32_t n, float *y) {
    if (!up) {
        IVDEP
        for (uint32_t i = 0; i < n; i++) {
            y[i] = gelu_erf(gate[i]);
        }
        return;
    }
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = gelu_erf(gate[i]) * up[i];
    }
}

static void soft_cap(float *x, uint32_t n, float cap) {
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        x[i] = cap * tanh_f32(x[i] / cap);
    }
}

static inline float greater(float a, float b) {
    return a > b ? a : b; /* never a NaN in a */
}

/* As many lanes as a chunk has elements: four vectors of 16 do not wait for each other. */
static inline float max_of(const float *x, uint32_t n) {
    float lanes[WEFT_CHUNK];
    for (uint32_t l = 0; l < WEFT_CHUNK; l++) {
        lanes[l] = -INFINITY;
    }
    uint32_t i = 0;
    for (; i + WEFT_CHUNK <= n; i += WEFT_CHUNK) {
        const float *at = x + i;
        for (uint32_t l = 0; l < WEFT_CHUNK; l++) {
            lanes[l] = greater(at[l], lanes[l]);
        }
    }
    for (; i < n; i++) {
        lanes[0] = greater(x[i], lanes[0]);
    }
    for (uint32_t width = WEFT_CHUNK / 2; width > 0; width /= 2) {
        for (uint32_t l = 0; l < width; l++) {
            lanes[l] = greater(lanes[l + width], lanes[l]);
        }
    }
    return lanes[0];
}

/* The sum of a chunk in 16 lanes. A chunk is longer than the lanes because GCC unrolls a loop of 16
 * and then fails to see the vectors. */
static inline double chunk_sum(const float e[WEFT_CHUNK]) {
    double lanes[LANES] = {0};
    for (uint32_t i = 0; i < WEFT_CHUNK; i += LANES) {
        const float *at = e + i;
        for (uint32_t l = 0; l < LANES; l++) {
            lanes[l] += (double)at[l];
        }
    }
    return lanes_sum_double(lanes);
}

static inline void exp_of_chunk(const float *x, float max, float temperature, float e[WEFT_CHUNK]) {
    IVDEP
    for (uint32_t i = 0; i < WEFT_CHUNK; i++) {
        e[i] = exp_f32((x[i] - max) / temperature);
    }
}

static double exp_parts(float *x, uint32_t n, float max, float temperature, double *sums) {
    WEFT_ASSERT(temperature > 0.0f);
    float last[WEFT_CHUNK];
    double sum = 0;
    uint32_t i = 0;
    for (; i + WEFT_CHUNK <= n; i += WEFT_CHUNK, sums++) {
        exp_of_chunk(x + i, max, temperature, x + i);
        *sums = chunk_sum(x + i);
        sum += *sums;
    }
    if (i < n) {
        for (uint32_t l = 0; l < WEFT_CHUNK; l++) {
            last[l] = -INFINITY;
        }
        memcpy(last, x + i, (n - i) * sizeof *last);
        exp_of_chunk(last, max, temperature, last);
        memcpy(x + i, last, (n - i) * sizeof *last);
        *sums = chunk_sum(last);
        sum += *sums;
    }
    return sum;
}

static void chunk_max(const float *x, uint32_t n, float *maxima) {
    uint32_t i = 0;
    for (; i + WEFT_CHUNK <= n; i += WEFT_CHUNK) {
        *maxima++ = max_of(x + i, WEFT_CHUNK);
    }
    if (i < n) *maxima = max_of(x + i, n - i);
}

/* exp(x[0..count) - max), zeros after it, and their addition to the sums. */
static inline void exp_chunk(const float *x, uint32_t count, float max, float e[WEFT_CHUNK],
                             double sums[LANES]) {
    for (uint32_t i = 0; i < WEFT_CHUNK; i++) {
        e[i] = i < count ? x[i] - max : -INFINITY;
    }
    for (uint32_t i = 0; i < WEFT_CHUNK; i++) {
        e[i] = exp_f32(e[i]);
    }
    for (uint32_t i = 0; i < WEFT_CHUNK; i += LANES) {
        const float *at = e + i;
        for (uint32_t l = 0; l < LANES; l++) {
            sums[l] += (double)at[l];
        }
    }
}

static double log_sum_exp(const float *x, uint32_t n) {
    float max = max_of(x, n), e[WEFT_CHUNK], last[WEFT_CHUNK];
    double sums[LANES] = {0};
    uint32_t i = 0;
    for (; i + WEFT_CHUNK <= n; i += WEFT_CHUNK) {
        exp_chunk(x + i, WEFT_CHUNK, max, e, sums);
    }
    if (i < n) {
        memcpy(last, x + i, (n - i) * sizeof *last);
        exp_chunk(last, n - i, max, e, sums);
    }
    return (double)max + log(lanes_sum_double(sums));
}

static uint32_t argmax(const float *x, uint32_t n) {
    WEFT_ASSERT(n > 0);
    float max = max_of(x, n);
    uint32_t i = 0;
    for (; i + WEFT_CHUNK <= n; i += WEFT_CHUNK) {
        const float *at = x + i;
        uint32_t hits = 0;
        for (uint32_t l = 0; l < WEFT_CHUNK; l++) {
            hits |= at[l] == max;
        }
        if (hits) break;
    }
    for (; i < n; i++) {
        if (x[i] == max) return i;
    }
    return 0; /* all are NaN */
}

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
static inline bool quantise_sixteen(const float *x, int8_t *codes, float *scales,
                                    int32_t *offsets) {
    lanes16 v[Q8_GROUP];
    for (uint32_t half = 0; half < 2; half++) {
        ints16 *to = (ints16 *)v + half * LANES;
        for (uint32_t b = 0; b < LANES; b++) {
            memcpy(to + b, x + (size_t)b * Q8_GROUP + half * LANES, sizeof *to);
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
        if (end == b + LANES && quantise_sixteen(x + at, codes + at, scales + b, offsets + b))
            continue;
#endif
        for (; b < end; b++, at += Q8_GROUP) {
            quantise_closely(x + at, codes + at, scales + b, offsets + b);
        }
    }
}

static inline void quantise_row_i8(const float *x, uint32_t k, void *row) {
    int8_t *codes = row;
    float *scales = (void *)(codes + i8_columns(k));
    int32_t *offsets = (void *)(scales + i8_groups(k));
    memset(codes + k, 0, i8_columns(k) - k);
    for (uint32_t g = 0; g < i8_groups(k); g++) {
        size_t at = (size_t)g * I8_GROUP;
        quantise_block(x + at, weft_min_u32(I8_GROUP, k - (uint32_t)at), codes + at, scales + g,
                       offsets + g);
    }
}

/* The end of a row, for the types that need it. */
static inline void sum_row(uint32_t k, void *row) {
    const int8_t *codes = row;
    const float *scales = (const void *)(codes + k);
    const int32_t *offsets = (const void *)(scales + k / Q8_GROUP);
    int32_t *halves = (int32_t *)(void *)((uint8_t *)row + k) + k / Q8_GROUP * 2;
    float *sums = (void *)(halves + k / Q8_GROUP);
    for (uint32_t b = 0; b < k / Q8_GROUP; b++) {
        int32_t half = 0;
        for (uint32_t i = 0; i < Q8_GROUP / 2; i++) {
            half += codes[(size_t)b * Q8_GROUP + i];
        }
        halves[b] = -32 * half;
        int32_t whole = offsets[b] / -128;
        sums[b] = scales[b] * (float)whole;
    }
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

static void act_convert(enum weft_gemm_kind kind, const float *src, size_t src_stride, uint32_t m,
                        uint32_t k, void *act, size_t act_row_bytes) {
    WEFT_ASSERT(act_row_bytes >= weft_kern_act_row_bytes(kind, k) && act_row_bytes % 64 == 0);
    WEFT_ASSERT(src_stride >= k || m <= 1);
    const enum weft_kern_act form = weft_kern_act_of(kind);
    for (uint32_t r = 0; r < m; r++) {
        const float *x = src + r * src_stride;
        void *row = (uint8_t *)act + r * act_row_bytes;
        if (form == WEFT_ACT_Q8 || form == WEFT_ACT_Q8_SUMS) {
            quantise_row(x, k, row);
            if (form == WEFT_ACT_Q8_SUMS) sum_row(k, row);
        } else if (form == WEFT_ACT_I8) {
            quantise_row_i8(x, k, row);
        } else if (form == WEFT_ACT_BF16) {
            uint16_t *codes = row;
            narrow_row(false, x, k, codes);
            if (k % 2 != 0) codes[k] = 0;
        } else {
            memcpy(row, x, (size_t)k * sizeof *x);
        }
    }
}

/* Elements of one token among those of a group: K's stand side by side by tokens, V's by
 * elements. */
#define SPREAD_K(out, values, n, unit, token)                                                      \
    for (uint32_t d_ = 0; d_ < (n); d_++) {                                                        \
        (out)[kv_k_at((unit), (token), d_)] = (values)[d_];                                        \
    }
#define SPREAD_V(out, values, n, unit, token)                                                      \
    for (uint32_t d_ = 0; d_ < (n); d_++) {                                                        \
        (out)[kv_v_at((unit), (n), (token), d_)] = (values)[d_];                                   \
    }

/* One kv head of a token: place `token` in the groups that begin at `k_group` and `v_group`, which
 * is NULL for a latent. */
static inline void write_head(const struct weft_kv_layer *kv, uint8_t *k_group, uint8_t *v_group,
                              uint32_t token, const float *k, const float *v) {
    const uint32_t head_dim = kv->head_dim, pairs = (head_dim + 1) / 2 * 2,
                   fours = (head_dim + 3) / 4 * 4;
    if (kv->dtype == WEFT_KV_F32) {
        SPREAD_K((float *)(void *)k_group, k, head_dim, 1, token)
        if (v_group) SPREAD_V((float *)(void *)v_group, v, head_dim, 1, token)
    } else if (kv->dtype == WEFT_KV_INT8) {
        int8_t codes[WEFT_KV_DIM_MAX + 3];
        int32_t offset;
        float *scales = (float *)(void *)(k_group + (size_t)fours * ATTN_SUB);
        quantise_block(k, head_dim, codes, scales + token, &offset);
        memset(codes + head_dim, 0, 3);
        SPREAD_K((int8_t *)k_group, codes, fours, 4, token)
        if (!v_group) return;
        scales = (float *)(void *)(v_group + (size_t)fours * ATTN_SUB);
        quantise_block(v, head_dim, codes, scales + token, &offset);
        SPREAD_V((int8_t *)v_group, codes, head_dim, 4, token)
    } else {
        uint16_t half[WEFT_KV_DIM_MAX + 1], *out = (uint16_t *)(void *)k_group;
        const bool is_f16 = kv->dtype == WEFT_KV_F16;
        narrow_row(is_f16, k, head_dim, half);
        half[head_dim] = 0;
        if (is_f16)
            SPREAD_K(out, half, head_dim, 1, token)
        else
            SPREAD_K(out, half, pairs, 2, token)
        if (!v_group) return;
        out = (uint16_t *)(void *)v_group;
        narrow_row(is_f16, v, head_dim, half);
        if (is_f16)
            SPREAD_V(out, half, head_dim, 1, token)
        else
            SPREAD_V(out, half, head_dim, 2, token)
    }
}

static void kv_write(const struct weft_kv_layer *kv, const uint32_t *block_table, uint32_t pos,
                     const float *k, const float *v) {
    check_kv_layer(kv);
    uint32_t block = block_table[pos / kv->block_size], token = pos % kv->block_size;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        size_t at = kv_group_at(kv, block, h, token), from = (size_t)h * kv->head_dim;
        uint8_t *v_group = kv->v ? (uint8_t *)kv->v + at : NULL;
        write_head(kv, (uint8_t *)kv->k + at, v_group, token % ATTN_SUB, k + from,
                   v_group ? v + from : NULL);
    }
}

static inline void fill_ops(struct weft_kern_table *table) {
    table->act_convert = act_convert;
    table->rms_norm = rms_norm;
    table->layer_norm = layer_norm;
    table->rope = rope;
    table->silu_mul = silu_mul;
    table->gelu_mul = gelu_mul;
    table->gelu_erf_mul = gelu_erf_mul;
    table->soft_cap = soft_cap;
    table->kv_write = kv_write;
    table->chunk_max = chunk_max;
    table->exp_parts = exp_parts;
    table->log_sum_exp = log_sum_exp;
    table->argmax = argmax;
}

#endif
