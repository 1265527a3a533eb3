/* kernels/vec_avx512 — WEFT_PANEL floats as one register. */
#ifndef WEFT_KERNELS_VEC_AVX512_H
#define WEFT_KERNELS_VEC_AVX512_H

#include <immintrin.h>

#include "kern_internal.h"

typedef __m512 vec;

static inline vec vec_zero(void) {
    return _mm512_setzero_ps();
}

static inline vec vec_read(const float *from) {
    return _mm512_load_ps(from);
}

static inline vec vec_read_any(const float *from) {
    return _mm512_loadu_ps(from);
}

static inline void vec_write(vec v, float *to) {
    _mm512_storeu_ps(to, v);
}

static inline vec vec_even(const uint8_t *pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(pairs), 16));
}

static inline vec vec_odd(const uint8_t *pairs) {
    const __m512i mask = _mm512_set1_epi32((int)0xffff0000u);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(pairs), mask));
}

static inline vec vec_add_product(vec sum, float a, vec w) {
    return _mm512_fmadd_ps(_mm512_set1_ps(a), w, sum);
}

static inline vec vec_times(vec v, float scale) {
    return _mm512_mul_ps(v, _mm512_set1_ps(scale));
}

static inline vec vec_plus(vec a, vec b) {
    return _mm512_add_ps(a, b);
}

static inline vec vec_minus(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}

#endif
