/* kernels/gemm_q8_avx512 — int8 dot products, for the files with and without VNNI; integers are
 * exact, so both give the same bits. Weights are stored as code + 128: the unsigned operand that
 * vpdpbusd wants; dots begin at -128 times the sum of the activations' codes. */
#ifndef WEFT_KERNELS_GEMM_Q8_AVX512_H
#define WEFT_KERNELS_GEMM_Q8_AVX512_H

#include "gemm_avx512.h"

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

ALWAYS_INLINE void tile_q8(const struct tile *args, uint32_t rows, uint32_t panels,
                           uint32_t group_rows) {
    const struct tile t = *args;
    const size_t n_all = t.k / Q8_GROUP, first = t.k_begin / Q8_GROUP,
                 n_blocks = t.count / Q8_GROUP;
    const struct act_words codes = act_words_at(&t, group_rows, first * Q8_QUADS);
    const struct act_words scales = act_words_at(&t, group_rows, n_all * Q8_QUADS + first);
    const struct act_words offsets = act_words_at(&t, group_rows, n_all * (Q8_QUADS + 1) + first);
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t b = 0;
    do {
        __m512i dot[DOT_MANY_ROWS][TILE_PANELS_MAX];
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t p = 0; p < panels; p++) {
                dot[r][p] = broadcast_word(offsets, r, b);
            }
        }
#pragma GCC unroll 8
        for (size_t quad = 0; quad < Q8_QUADS; quad++) {
            __m512i w[TILE_PANELS_MAX];
            for (uint32_t p = 0; p < panels; p++) {
                w[p] = _mm512_loadu_si512(t.panels[p] + b * Q8_BLOCK_BYTES + quad * 64);
            }
            prefetch_either(&t, panels, group_rows, b * Q8_QUADS + quad,
                            b * Q8_BLOCK_BYTES + quad * 64);
            for (uint32_t r = 0; r < rows; r++) {
                __m512i a = broadcast_word(codes, r, b * Q8_QUADS + quad);
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
            __m512 scale = broadcast_f32(scales, r, b);
            for (uint32_t p = 0; p < panels; p++) {
                __m512 value = _mm512_cvtepi32_ps(dot[r][p]);
                sum[r][p] = _mm512_fmadd_ps(value, _mm512_mul_ps(scale, w_scale[p]), sum[r][p]);
            }
        }
    } while (++b < n_blocks);
    store_sums(&t, rows, panels, sum);
}

static inline void few_q8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_FEW(tile_q8, t, n_rows)
}

static inline void many_q8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_MANY(tile_q8, t, n_rows)
}

static const struct tile_kernel q8_kernel = {.kind = WEFT_GEMM_Q8_0,
                                             .group = Q8_GROUP,
                                             .group_bytes = Q8_BLOCK_BYTES,
                                             .step = 4,
                                             .per_word = 4,
                                             TILES_DOT_AVX512(few_q8, many_q8)};

static void gemm_q8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&q8_kernel, args, p_begin, p_end);
}

#endif
