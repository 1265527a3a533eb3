/* kernels/exp_f32 — the exponentials of every kernel, written so that compilers run them in lanes:
 * the same bits in every lane and tail. exp_f32 has no fused operations, so that every ISA agrees;
 * exp_falling has them, and attention of the vector ISAs uses it.
 *
 * exp(x) = 2^n * exp(r), n = round(x / ln 2), r = x - n ln 2 in two steps (the high part of ln 2
 * has 10 significant bits, so n times it is exact), exp(r) = 1 + r + r^2 q(r) with q of degree 4,
 * fitted at Chebyshev points over |r| <= ln 2 / 2: it is off by 1.1e-8 of exp(r), under a fifth of
 * 2^-24. With the roundings the result is within 2 ulp (tests/unit/test_ops.c). Results that would
 * be subnormal are 0. */
#ifndef WEFT_KERNELS_EXP_F32_H
#define WEFT_KERNELS_EXP_F32_H

#include <math.h>

#include "convert.h"

#define EXP_LOW (-87.33654f) /* ln 2^-126, rounded up */
#define EXP_HIGH 89.0f       /* the result is infinite from 88.72284 */
#define EXP_ROUND 0x1.8p23f  /* adding it leaves round(x) in the low bits of the sum */

/* -inf gives 0, +inf gives +inf, NaN gives NaN. */
static inline float exp_f32(float x) {
    float c = x > EXP_HIGH ? EXP_HIGH : x; /* written so that NaN falls through */
    c = c < EXP_LOW ? EXP_LOW : c;
    float shifted = c * 0x1.715476p0f + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = c - n * 0x1.63p-1f;
    r = r - n * -0x1.bd0106p-13f;
    float q = 0x1.6d1116p-10f;
    q = q * r + 0x1.120b7cp-7f;
    q = q * r + 0x1.55551ap-5f;
    q = q * r + 0x1.5554dcp-3f;
    q = q * r + 0.5f;
    float y = q * (r * r) + r + 1.0f;
    /* 2^n in two factors, as n may be 128. Unsigned: NaN leaves garbage here, and must not
     * overflow. */
    uint32_t biased = f32_bits(shifted) - f32_bits(EXP_ROUND) + 2 * 127;
    uint32_t half = biased >> 1;
    y = y * f32_from_bits(half << 23) * f32_from_bits((biased - half) << 23);
    return x < EXP_LOW ? 0.0f : y;
}

/* The same for x <= 0 in half the instructions where multiply-adds are fused: one factor is enough,
 * as 2^n is normal. For ISAs that have them. */
static inline float exp_falling(float x) {
    float c = x < EXP_LOW ? EXP_LOW : x;
    float shifted = fmaf(c, 0x1.715476p0f, EXP_ROUND), n = shifted - EXP_ROUND;
    float r = fmaf(n, -0x1.62e43p-1f, c);
    r = fmaf(n, 0x1.05c61p-29f, r);
    float q = 0x1.6d1116p-10f;
    q = fmaf(q, r, 0x1.120b7cp-7f);
    q = fmaf(q, r, 0x1.55551ap-5f);
    q = fmaf(q, r, 0x1.5554dcp-3f);
    q = fmaf(q, r, 0.5f);
    float y = fmaf(q * r, r, r) + 1.0f;
    uint32_t biased = f32_bits(shifted) - f32_bits(EXP_ROUND) + 127;
    y *= f32_from_bits(biased << 23);
    return x < EXP_LOW ? 0.0f : y;
}

/* tanh(x) = 1 - 2 / (exp(2x) + 1): off by some 1e-7, of 1 and not of the result. */
static inline float tanh_f32(float x) {
    return 1.0f - 2.0f / (exp_f32(2.0f * x) + 1.0f);
}

#endif
