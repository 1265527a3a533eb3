/* kernels/gemm_i8_avx2 — int8 weights of one scale per feature, with int8 activations, for the
 * files with and without AVX-VNNI. Weights are stored as code + 128. */
#ifndef WEFT_KERNELS_GEMM_I8_AVX2_H
#define WEFT_KERNELS_GEMM_I8_AVX2_H

#include "gemm_dot_avx2.h"

/* One group of up to 256 columns: acc += dots * activation scale * weight scale. */
ALWAYS_INLINE void tile_i8(const struct tile *args, uint32_t rows, uint32_t panels,
                           uint32_t group_rows) {
    const struct tile t = *args;
    const uint32_t group = t.k_begin / I8_GROUP, n_words = i8_columns(t.k) / 4;
    const struct act_words codes = act_words_at(&t, group_rows, t.k_begin / 4);
    const struct act_words a_scales = act_words_at(&t, group_rows, n_words + group);
    const struct act_words offsets = act_words_at(&t, group_rows, n_words + i8_groups(t.k) + group);
    const size_t n_quads = i8_columns(t.count) / 4;
    /* A panel ends in its scales. */
    const size_t scales_at = (i8_columns(t.k) - (size_t)t.k_begin) * WEFT_PANEL;
    const uint32_t all = 2 * panels, halves = halves_at_once(rows, all, true);
    for (uint32_t h0 = 0; h0 < all; h0 += halves) {
        const uint8_t *w[HALVES_MAX];
        dot_sums dot;
        for (uint32_t h = 0; h < halves; h++) {
            w[h] = t.panels[(h0 + h) / 2] + (h0 + h) % 2 * sizeof(__m256i);
            for (uint32_t r = 0; r < rows; r++) {
                dot[r][h] = broadcast_word(offsets, r, 0);
            }
        }
        size_t q = 0;
        for (; q + RUN_QUADS <= n_quads; q += RUN_QUADS) {
            if (h0 == 0) prefetch_run(&t, panels, group_rows, q, q * I8_QUAD_BYTES);
            dot_bytes(w, halves, codes, rows, q, RUN_QUADS, dot);
            for (uint32_t h = 0; h < halves; h++) {
                w[h] += RUN_QUADS * I8_QUAD_BYTES;
            }
        }
        for (; q < n_quads; q++) {
            dot_bytes(w, halves, codes, rows, q, 1, dot);
            for (uint32_t h = 0; h < halves; h++) {
                w[h] += I8_QUAD_BYTES;
            }
        }
        for (uint32_t h = 0; h < halves; h++) {
            const uint8_t *scales = t.panels[(h0 + h) / 2] + scales_at;
            __m256 w_scale =
                _mm256_load_ps((const float *)(const void *)scales + (h0 + h) % 2 * HALF);
            for (uint32_t r = 0; r < rows; r++) {
                const size_t at = r * panels * WEFT_PANEL + (h0 + h) * HALF;
                __m256 by = _mm256_mul_ps(broadcast_f32(a_scales, r, 0), w_scale);
                __m256 exact = _mm256_cvtepi32_ps(dot[r][h]);
                _mm256_store_ps(t.acc + at,
                                _mm256_fmadd_ps(exact, by, _mm256_load_ps(t.from + at)));
            }
        }
    }
}

static void few_i8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_FEW(tile_i8, t, n_rows)
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
                                             TILES_DOT_AVX2(few_i8, many_i8)};

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_kernel, args, p_begin, p_end);
}

#endif
