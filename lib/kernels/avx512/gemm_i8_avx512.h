/* kernels/gemm_i8_avx512 — int8 weights of one scale per feature, for the files with and without
 * VNNI. A group of 256 columns is one run of dot products: 12 rows x 2 panels of integer sums stay
 * in registers, and meet the sums of f32, in memory, only between groups. Weights are stored as
 * code + 128, like those of Q8. */
#ifndef WEFT_KERNELS_GEMM_I8_AVX512_H
#define WEFT_KERNELS_GEMM_I8_AVX512_H

#include "gemm_avx512.h"

#ifdef __AVX512VNNI__
ALWAYS_INLINE __m512i dot_i8(__m512i sum, __m512i w, __m512i a) {
    return _mm512_dpbusd_epi32(sum, w, a);
}
#else
/* vpmaddubsw would saturate; even and odd bytes as 16-bit numbers do not. */
ALWAYS_INLINE __m512i dot_i8(__m512i sum, __m512i w, __m512i a) {
    __m512i w_even = _mm512_and_si512(w, _mm512_set1_epi16(0xff)), w_odd = _mm512_srli_epi16(w, 8);
    __m512i a_even = _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8), a_odd = _mm512_srai_epi16(a, 8);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(w_even, a_even));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w_odd, a_odd));
}
#endif

/* Sums that live across a loop have the type that the dot product uses inside: between two types of
 * vectors gcc 12 copies every register in every step. */
typedef int32_t lanes __attribute__((vector_size(64)));

/* One group of up to 256 columns: acc += dots * activation scale * weight scale. */
ALWAYS_INLINE void tile_i8(const struct tile *args, uint32_t rows, uint32_t panels,
                           uint32_t group_rows) {
    const struct tile t = *args;
    const uint32_t group = t.k_begin / I8_GROUP, n_words = i8_columns(t.k) / 4;
    const struct act_words codes = act_words_at(&t, group_rows, t.k_begin / 4);
    const struct act_words scales = act_words_at(&t, group_rows, n_words + group);
    const struct act_words offsets = act_words_at(&t, group_rows, n_words + i8_groups(t.k) + group);
    const size_t n_quads = i8_columns(t.count) / 4;
    lanes dot[MANY_ROWS][TILE_PANELS_MAX];
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            dot[r][p] = (lanes)broadcast_word(offsets, r, 0);
        }
    }
    size_t quad = 0;
    do {
        __m512i w[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w[p] = _mm512_load_si512(t.panels[p] + quad * I8_QUAD_BYTES);
        }
        prefetch_either(&t, panels, group_rows, quad, quad * I8_QUAD_BYTES);
        for (uint32_t r = 0; r < rows; r++) {
            __m512i a = broadcast_word(codes, r, quad);
            for (uint32_t p = 0; p < panels; p++) {
                dot[r][p] = (lanes)dot_i8((__m512i)dot[r][p], w[p], a);
            }
        }
    } while (++quad < n_quads);
    /* A panel ends in its scales. */
    const size_t scales_at = (i8_columns(t.k) - (size_t)t.k_begin) * WEFT_PANEL;
    __m512 w_scale[TILE_PANELS_MAX];
    for (uint32_t p = 0; p < panels; p++) {
        w_scale[p] = _mm512_load_ps((const void *)(t.panels[p] + scales_at));
    }
    for (uint32_t r = 0; r < rows; r++) {
        const __m512 a_scale = broadcast_f32(scales, r, 0);
        for (uint32_t p = 0; p < panels; p++) {
            const size_t at = (r * panels + p) * WEFT_PANEL;
            __m512 exact = _mm512_cvtepi32_ps((__m512i)dot[r][p]);
            __m512 sum = _mm512_fmadd_ps(exact, _mm512_mul_ps(a_scale, w_scale[p]),
                                         _mm512_load_ps(t.from + at));
            _mm512_store_ps(t.acc + at, sum);
        }
    }
}

static void few_i8(const struct tile *t, uint32_t n_rows) {
    RUN_FEW(tile_i8, t, n_rows, FEW_PANELS)
}

static void many_i8(const struct tile *t, uint32_t n_rows) {
    RUN_MANY(tile_i8, t, n_rows)
}

static const struct tile_kernel i8_kernel = {.kind = WEFT_GEMM_I8,
                                             .group = I8_GROUP,
                                             .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                             .step = 4,
                                             .chunk = I8_GROUP,
                                             .per_word = 4,
                                             TILES_AVX512(few_i8, many_i8)};

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_kernel, args, p_begin, p_end);
}

#endif
