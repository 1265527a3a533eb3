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
#include "ops_group.h"
#include "ops_quantise.h"
#include "ops_recurrent.h"

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

static void l2_norm(const float *x, float scale, float eps, uint32_t n, float *y) {
    WEFT_ASSERT(n > 0);
    float factor = scale / sqrtf(sum_of_squares(x, n, 0.0f) + eps);
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = x[i] * factor;
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

static void sigmoid_mul(const float *gate, const float *up, uint32_t n, float *y) {
    if (!up) {
        IVDEP
        for (uint32_t i = 0; i < n; i++) {
            y[i] = 1.0f / (1.0f + exp_f32(-gate[i]));
        }
        return;
    }
    IVDEP
    for (uint32_t i = 0; i < n; i++) {
        y[i] = up[i] / (1.0f + exp_f32(-gate[i]));
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
    table->act_group = act_group;
    table->rms_norm = rms_norm;
    table->layer_norm = layer_norm;
    table->l2_norm = l2_norm;
    table->rope = rope;
    table->silu_mul = silu_mul;
    table->sigmoid_mul = sigmoid_mul;
    table->gelu_mul = gelu_mul;
    table->gelu_erf_mul = gelu_erf_mul;
    table->soft_cap = soft_cap;
    table->conv = conv;
    table->decay = decay;
    table->kv_write = kv_write;
    table->chunk_max = chunk_max;
    table->exp_parts = exp_parts;
    table->log_sum_exp = log_sum_exp;
    table->argmax = argmax;
}

#endif
