/* kernels/vec_scalar — a `vec`, WEFT_PANEL floats, as plain C: this says what the same names of each
 * vec_<isa>.h do. vec_read wants a place aligned to 64 bytes; vec_read_any and vec_write do not.
 * vec_even and vec_odd widen every second of 32 bf16. Where an ISA has fused multiply-adds,
 * vec_add_product is one. */
#ifndef WEFT_KERNELS_VEC_SCALAR_H
#define WEFT_KERNELS_VEC_SCALAR_H

#include "convert.h"
#include "kern_internal.h"

typedef struct {
    float v[WEFT_PANEL];
} vec;

static inline vec vec_zero(void) {
    return (vec){{0}};
}

static inline vec vec_read_any(const float *from) {
    vec v;
    memcpy(v.v, from, sizeof v.v);
    return v;
}

static inline vec vec_read(const float *from) {
    return vec_read_any(from);
}

static inline void vec_write(vec v, float *to) {
    memcpy(to, v.v, sizeof v.v);
}

/* Every second of 32 bf16, from `first` on. By way of a copy: as it reads memory in strides gcc 12
 * also loads what comes after the last panel. */
static inline vec every_second(const uint8_t *pairs, uint32_t first) {
    uint16_t halves[2 * WEFT_PANEL];
    vec v;
    memcpy(halves, pairs, sizeof halves);
    for (uint32_t i = 0; i < WEFT_PANEL; i++)
        v.v[i] = bf16_to_f32(halves[2 * i + first]);
    return v;
}

static inline vec vec_even(const uint8_t *pairs) {
    return every_second(pairs, 0);
}

static inline vec vec_odd(const uint8_t *pairs) {
    return every_second(pairs, 1);
}

static inline vec vec_add_product(vec sum, float a, vec w) {
    for (uint32_t i = 0; i < WEFT_PANEL; i++)
        sum.v[i] += a * w.v[i];
    return sum;
}

static inline vec vec_times(vec v, float scale) {
    for (uint32_t i = 0; i < WEFT_PANEL; i++)
        v.v[i] *= scale;
    return v;
}

static inline vec vec_plus(vec a, vec b) {
    for (uint32_t i = 0; i < WEFT_PANEL; i++)
        a.v[i] += b.v[i];
    return a;
}

static inline vec vec_minus(vec a, vec b) {
    for (uint32_t i = 0; i < WEFT_PANEL; i++)
        a.v[i] -= b.v[i];
    return a;
}

#endif
