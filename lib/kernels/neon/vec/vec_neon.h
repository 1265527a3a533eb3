/* kernels/vec_neon — WEFT_PANEL floats as four registers. */
#ifndef WEFT_KERNELS_VEC_NEON_H
#define WEFT_KERNELS_VEC_NEON_H

#include <arm_neon.h>

#include "kern_internal.h"

enum { QUARTERS = WEFT_PANEL / 4 };
typedef struct {
    float32x4_t v[QUARTERS];
} vec;

static inline vec vec_zero(void) {
    const float32x4_t zero = vdupq_n_f32(0);
    return (vec){{zero, zero, zero, zero}};
}

static inline vec vec_read_any(const float *from) {
    return (vec){{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
}

static inline vec vec_read(const float *from) {
    return vec_read_any(from);
}

static inline void vec_write(vec v, float *to) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        vst1q_f32(to + (size_t)i * 4, v.v[i]);
    }
}

static inline vec vec_even(const uint8_t *pairs) {
    const uint32_t *words = (const void *)pairs;
    vec v;
    for (uint32_t i = 0; i < QUARTERS; i++) {
        v.v[i] = vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(words + (size_t)i * 4), 16));
    }
    return v;
}

static inline vec vec_odd(const uint8_t *pairs) {
    const uint32x4_t mask = vdupq_n_u32(0xffff0000u);
    const uint32_t *words = (const void *)pairs;
    vec v;
    for (uint32_t i = 0; i < QUARTERS; i++) {
        v.v[i] = vreinterpretq_f32_u32(vandq_u32(vld1q_u32(words + (size_t)i * 4), mask));
    }
    return v;
}

static inline vec vec_add_product(vec sum, float a, vec w) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        sum.v[i] = vfmaq_n_f32(sum.v[i], w.v[i], a);
    }
    return sum;
}

static inline vec vec_times(vec v, float scale) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        v.v[i] = vmulq_n_f32(v.v[i], scale);
    }
    return v;
}

static inline vec vec_plus(vec a, vec b) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        a.v[i] = vaddq_f32(a.v[i], b.v[i]);
    }
    return a;
}

static inline vec vec_minus(vec a, vec b) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        a.v[i] = vsubq_f32(a.v[i], b.v[i]);
    }
    return a;
}

#endif
