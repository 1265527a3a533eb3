/* kernels/vec_avx2 — WEFT_PANEL floats as two registers. */
#ifndef WEFT_KERNELS_VEC_AVX2_H
#define WEFT_KERNELS_VEC_AVX2_H

#include <immintrin.h>

#include "kern_internal.h"

typedef struct {
    __m256 low, high;
} vec;
enum { HALF = WEFT_PANEL / 2 };

static inline vec vec_zero(void) {
    return (vec){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline vec vec_read(const float *from) {
    return (vec){_mm256_load_ps(from), _mm256_load_ps(from + HALF)};
}

static inline vec vec_read_any(const float *from) {
    return (vec){_mm256_loadu_ps(from), _mm256_loadu_ps(from + HALF)};
}

static inline void vec_write(vec v, float *to) {
    _mm256_storeu_ps(to, v.low);
    _mm256_storeu_ps(to + HALF, v.high);
}

static inline vec vec_even(const uint8_t *pairs) {
    const __m256i *w = (const void *)pairs;
    return (vec){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_load_si256(w), 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_load_si256(w + 1), 16))};
}

static inline vec vec_odd(const uint8_t *pairs) {
    const __m256i *w = (const void *)pairs, mask = _mm256_set1_epi32((int)0xffff0000u);
    return (vec){_mm256_castsi256_ps(_mm256_and_si256(_mm256_load_si256(w), mask)),
                 _mm256_castsi256_ps(_mm256_and_si256(_mm256_load_si256(w + 1), mask))};
}

static inline vec vec_add_product(vec sum, float a, vec w) {
    const __m256 all = _mm256_set1_ps(a);
    return (vec){_mm256_fmadd_ps(all, w.low, sum.low), _mm256_fmadd_ps(all, w.high, sum.high)};
}

static inline vec vec_times(vec v, float scale) {
    const __m256 all = _mm256_set1_ps(scale);
    return (vec){_mm256_mul_ps(v.low, all), _mm256_mul_ps(v.high, all)};
}

static inline vec vec_plus(vec a, vec b) {
    return (vec){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

static inline vec vec_minus(vec a, vec b) {
    return (vec){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

#endif
