/* kernels/ops_recurrent — what recurrent layers need beside products and the scans of their states:
 * convolutions along tokens, and how fast states fade. Part of ops_body.h, by its rules. */
#ifndef WEFT_KERNELS_OPS_RECURRENT_H
#define WEFT_KERNELS_OPS_RECURRENT_H

#include "base/limits.h"
#include "exp_f32.h"
#include "kern_internal.h"

enum { CONV_CHUNK = 64 }; /* channels whose sums are under way together: in registers, or in L1 */

/* The input of `token` that tap `tap` meets: a row of the state where it came before the call. */
static inline const float *conv_input(const struct weft_kern_conv *args, uint32_t token,
                                      uint32_t tap) {
    uint32_t n_before = args->width - 1, at = token + tap;
    if (at < n_before) return args->state + (size_t)at * args->n_channels;
    return args->x + (at - n_before) * args->x_stride;
}

/* y of channels c..c + n of a token. */
static inline void conv_chunk(const struct weft_kern_conv *args, const float *const *inputs,
                              uint32_t c, uint32_t n, float *y) {
    float sum[CONV_CHUNK];
    for (uint32_t i = 0; i < n; i++) {
        sum[i] = args->bias ? args->bias[c + i] : 0.0f;
    }
    for (uint32_t tap = 0; tap < args->width; tap++) {
        const float *x = inputs[tap] + c, *w = args->taps + (size_t)tap * args->n_channels + c;
        for (uint32_t i = 0; i < n; i++) {
            sum[i] += x[i] * w[i];
        }
    }
    if (args->has_silu) {
        for (uint32_t i = 0; i < n; i++) {
            sum[i] = sum[i] / (1.0f + exp_f32(-sum[i]));
        }
    }
    memcpy(y + c, sum, n * sizeof *sum);
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
    for (uint32_t i = 0; i + 1 < args->width && args->is_first; i++) {
        float *row = args->state + (size_t)i * args->n_channels + c_begin;
        memset(row, 0, (c_end - c_begin) * sizeof *row);
    }
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        const float *inputs[WEFT_CONV_WIDTH_MAX];
        float *y = args->y + t * args->y_stride;
        for (uint32_t tap = 0; tap < args->width; tap++) {
            inputs[tap] = conv_input(args, t, tap);
        }
        uint32_t c = c_begin;
        for (; c + CONV_CHUNK <= c_end; c += CONV_CHUNK) {
            conv_chunk(args, inputs, c, CONV_CHUNK, y);
        }
        conv_chunk(args, inputs, c, c_end - c, y);
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

static void decay(const struct weft_kern_decay *args) {
    WEFT_ASSERT(args->dt_min <= args->dt_max);
    IVDEP
    for (uint32_t i = 0; i < args->n; i++) {
        float dt = softplus(args->x[i] + args->bias[i]);
        dt = dt < args->dt_min ? args->dt_min : dt; /* written so that NaN falls through */
        dt = dt > args->dt_max ? args->dt_max : dt;
        if (args->dt) args->dt[i] = dt;
        args->decay[i] = exp_f32(args->rate[i] * dt);
    }
}

#endif
