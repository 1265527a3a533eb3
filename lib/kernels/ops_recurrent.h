/* kernels/ops_recurrent — what recurrent layers need beside products and the scans of their states:
 * convolutions along tokens, and how fast states fade. Part of ops_body.h, by its rules. */
#ifndef WEFT_KERNELS_OPS_RECURRENT_H
#define WEFT_KERNELS_OPS_RECURRENT_H

#include "base/limits.h"
#include "exp_f32.h"
#include "kern_internal.h"

/* Channels whose sums are under way together, as vectors where the compiler must not choose: GCC 12
 * joins taps in pairs and computes those channel by channel. */
#ifdef __AVX512F__
enum { CONV_CHUNK = 64, CONV_VEC = 16 };
#else
enum { CONV_CHUNK = 64, CONV_VEC = 8 };
#endif
typedef float conv_vec __attribute__((vector_size(CONV_VEC * sizeof(float))));

/* The input of `token` that tap `tap` meets: a row of the state where it came before the call. */
static inline const float *conv_input(const struct weft_kern_conv *args, uint32_t token,
                                      uint32_t tap) {
    uint32_t n_before = args->width - 1, at = token + tap;
    if (at < n_before) return args->state + (size_t)at * args->n_channels;
    return args->x + (at - n_before) * args->x_stride;
}

/* The sums of CONV_CHUNK channels from `c` on. */
static inline void conv_sums(const struct weft_kern_conv *args, const float *const *inputs,
                             uint32_t c, float out[CONV_CHUNK]) {
    conv_vec sum[CONV_CHUNK / CONV_VEC] = {{0}};
    if (args->bias) memcpy(sum, args->bias + c, sizeof sum);
    for (uint32_t tap = 0; tap < args->width; tap++) {
        const float *x = inputs[tap] + c, *w = args->taps + (size_t)tap * args->n_channels + c;
        for (uint32_t i = 0; i < CONV_CHUNK / CONV_VEC; i++) {
            conv_vec a, b;
            memcpy(&a, x + (size_t)i * CONV_VEC, sizeof a);
            memcpy(&b, w + (size_t)i * CONV_VEC, sizeof b);
            sum[i] += a * b;
        }
    }
    memcpy(out, sum, sizeof sum);
}

/* The same of fewer. */
static inline void conv_last_sums(const struct weft_kern_conv *args, const float *const *inputs,
                                  uint32_t c, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i++) {
        out[i] = args->bias ? args->bias[c + i] : 0.0f;
        for (uint32_t tap = 0; tap < args->width; tap++) {
            out[i] += inputs[tap][c + i] * args->taps[(size_t)tap * args->n_channels + c + i];
        }
    }
}

static inline void conv_put(const float *sum, uint32_t n, bool has_silu, float *y) {
    if (!has_silu) {
        memcpy(y, sum, n * sizeof *y);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        y[i] = sum[i] / (1.0f + exp_f32(-sum[i]));
    }
}

static inline void conv_clear(const struct weft_kern_conv *args, uint32_t c, uint32_t n) {
    for (uint32_t i = 0; i + 1 < args->width; i++) {
        memset(args->state + (size_t)i * args->n_channels + c, 0, n * sizeof *args->state);
    }
}

/* The last inputs, of which a short call leaves some where they are, nearer to the beginning. */
static inline void conv_keep(const struct weft_kern_conv *args, uint32_t c, uint32_t n) {
    for (uint32_t i = 0; i + 1 < args->width; i++) {
        const float *from = conv_input(args, args->n_tokens, i) + c;
        memmove(args->state + (size_t)i * args->n_channels + c, from, n * sizeof *from);
    }
}

static void conv(const struct weft_kern_conv *args, uint32_t c_begin, uint32_t c_end) {
    WEFT_ASSERT(args->width >= 2 && args->width <= WEFT_CONV_WIDTH_MAX);
    WEFT_ASSERT(c_begin <= c_end && c_end <= args->n_channels);
    WEFT_ASSERT(args->n_tokens > 0 && args->x != args->y);
    if (args->is_first) conv_clear(args, c_begin, c_end - c_begin);
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        const float *inputs[WEFT_CONV_WIDTH_MAX];
        float *y = args->y + t * args->y_stride;
        for (uint32_t tap = 0; tap < args->width; tap++) {
            inputs[tap] = conv_input(args, t, tap);
        }
        float sum[CONV_CHUNK];
        uint32_t c = c_begin;
        for (; c + CONV_CHUNK <= c_end; c += CONV_CHUNK) {
            conv_sums(args, inputs, c, sum);
            conv_put(sum, CONV_CHUNK, args->has_silu, y + c);
        }
        conv_last_sums(args, inputs, c, c_end - c, sum);
        conv_put(sum, c_end - c, args->has_silu, y + c);
    }
    conv_keep(args, c_begin, c_end - c_begin);
}

/* ln(1 + e) for e in 0..1, as 2 artanh(s), s = e / (2 + e) <= 1/3: what is left out of the series is
 * below 1.5e-9 of the sum. */
static inline float log1p_f32(float e) {
    float s = e / (2.0f + e), z = s * s;
    float p = 1.0f / 15;
    p = p * z + 1.0f / 13;
    p = p * z + 1.0f / 11;
    p = p * z + 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    return 2.0f * (s + s * (z * p));
}

/* ln(1 + exp(x)), without overflow. */
static inline float softplus(float x) {
    return (x > 0.0f ? x : 0.0f) + log1p_f32(exp_f32(-fabsf(x)));
}

/* `decay` has dt first. */
static void decay(const struct weft_kern_decay *args) {
    const float dt_min = args->dt_min, dt_max = args->dt_max;
    WEFT_ASSERT(dt_min <= dt_max);
    IVDEP
    for (uint32_t i = 0; i < args->n; i++) {
        float dt = softplus(args->x[i] + args->bias[i]);
        dt = dt < dt_min ? dt_min : dt; /* written so that NaN falls through */
        args->decay[i] = dt > dt_max ? dt_max : dt;
    }
    if (args->dt) memcpy(args->dt, args->decay, args->n * sizeof *args->dt);
    IVDEP
    for (uint32_t i = 0; i < args->n; i++) {
        args->decay[i] = exp_f32(args->rate[i] * args->decay[i]);
    }
}

#endif
