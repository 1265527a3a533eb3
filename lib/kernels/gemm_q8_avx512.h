/* kernels/gemm_q8_avx512 — int8 dot products, for the files with and without VNNI; integers are
 * exact, so both give the same bits. Weights are stored as code + 128: the unsigned operand that
 * vpdpbusd wants; 128 times the sum of the activations' codes is taken off again. 6 rows x 2
 * panels: 12 integer and 12 float sums, 2 weights, 1 broadcast. */
#ifndef WEFT_KERNELS_GEMM_Q8_AVX512_H
#define WEFT_KERNELS_GEMM_Q8_AVX512_H

#include "kernels/gemm_avx512.h"

enum { Q8_FEW_ROWS = 2, Q8_FEW_PANELS = 4, Q8_MANY_ROWS = 6, Q8_MANY_PANELS = 2 };

/* Adds to 16 sums the products of 4 unsigned by 4 signed bytes each. */
ALWAYS_INLINE __m512i dot_quads(__m512i sum, __m512i w, __m512i a) {
#ifdef __AVX512VNNI__
    return _mm512_dpbusd_epi32(sum, w, a);
#else
    /* vpmaddubsw would saturate; even and odd bytes as 16-bit numbers do not. */
    __m512i w_even = _mm512_and_si512(w, _mm512_set1_epi16(0xff)), w_odd = _mm512_srli_epi16(w, 8);
    __m512i a_even = _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8), a_odd = _mm512_srai_epi16(a, 8);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(w_even, a_even));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w_odd, a_odd));
#endif
}

ALWAYS_INLINE __m512 load_scales(const uint8_t *block) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(block + Q8_CODES)));
}

ALWAYS_INLINE void tile_q8(const struct tile *args, uint32_t rows, uint32_t panels) {
    const struct tile t = *args;
    const size_t scales_at = t.k, offsets_at = (size_t)t.k + t.k / Q8_GROUP * 4;
    const uint8_t *codes = t.act + t.k_begin;
    const uint8_t *scales = t.act + scales_at + t.k_begin / Q8_GROUP * 4;
    const uint8_t *offsets = t.act + offsets_at + t.k_begin / Q8_GROUP * 4;
    const size_t n_blocks = t.count / Q8_GROUP;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t b = 0;
    do {
        __m512i dot[MANY_ROWS][TILE_PANELS_MAX];
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t p = 0; p < panels; p++) {
                dot[r][p] = _mm512_setzero_si512();
            }
        }
#pragma GCC unroll 8
        for (size_t quad = 0; quad < Q8_QUADS; quad++) {
            __m512i w[TILE_PANELS_MAX];
            for (uint32_t p = 0; p < panels; p++) {
                w[p] = _mm512_loadu_si512(t.panels[p] + b * Q8_BLOCK_BYTES + quad * 64);
            }
            if (rows > Q8_FEW_ROWS) prefetch_step(&t, panels, b * Q8_QUADS + quad);
            for (uint32_t r = 0; r < rows; r++) {
                const int32_t *row = (const void *)(codes + r * t.act_row_bytes);
                __m512i a = _mm512_set1_epi32(row[b * Q8_QUADS + quad]);
                for (uint32_t p = 0; p < panels; p++) {
                    dot[r][p] = dot_quads(dot[r][p], w[p], a);
                }
            }
        }
        __m512 w_scale[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w_scale[p] = load_scales(t.panels[p] + b * Q8_BLOCK_BYTES);
        }
        for (uint32_t r = 0; r < rows; r++) {
            const float *a_scale = (const void *)(scales + r * t.act_row_bytes);
            const int32_t *offset = (const void *)(offsets + r * t.act_row_bytes);
            __m512 scale = _mm512_set1_ps(a_scale[b]);
            __m512i off = _mm512_set1_epi32(offset[b]);
            for (uint32_t p = 0; p < panels; p++) {
                __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(dot[r][p], off));
                sum[r][p] = _mm512_fmadd_ps(value, _mm512_mul_ps(scale, w_scale[p]), sum[r][p]);
            }
        }
    } while (++b < n_blocks);
    store_sums(&t, rows, panels, sum);
}

static inline void few_q8(const struct tile *t, uint32_t n_rows) {
    switch (n_rows) {
        TILE_CASE(tile_q8, t, 1, Q8_FEW_PANELS);
        TILE_CASE(tile_q8, t, 2, Q8_FEW_PANELS);
    default:
        weft_check_failed("rows of a tile", __FILE__, __LINE__);
    }
}

static inline void many_q8(const struct tile *t, uint32_t n_rows) {
    switch (n_rows) {
        TILE_CASE(tile_q8, t, 3, Q8_MANY_PANELS);
        TILE_CASE(tile_q8, t, 4, Q8_MANY_PANELS);
        TILE_CASE(tile_q8, t, 5, Q8_MANY_PANELS);
        TILE_CASE(tile_q8, t, 6, Q8_MANY_PANELS);
    default:
        weft_check_failed("rows of a tile", __FILE__, __LINE__);
    }
}

static const struct tile_kernel q8_kernel = {.kind = WEFT_GEMM_Q8,
                                             .group = Q8_GROUP,
                                             .group_bytes = Q8_BLOCK_BYTES,
                                             .step = 4,
                                             .few_rows = Q8_FEW_ROWS,
                                             .few_panels = Q8_FEW_PANELS,
                                             .few = few_q8,
                                             .many_rows = Q8_MANY_ROWS,
                                             .many_panels = Q8_MANY_PANELS,
                                             .many = many_q8};

static void gemm_q8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&q8_kernel, args, p_begin, p_end);
}

#endif
