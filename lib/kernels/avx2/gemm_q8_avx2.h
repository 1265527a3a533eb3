/* kernels/gemm_q8_avx2 — Q8 weights and activations, for the files with and without AVX-VNNI. */
#ifndef WEFT_KERNELS_GEMM_Q8_AVX2_H
#define WEFT_KERNELS_GEMM_Q8_AVX2_H

#include "gemm_quant_avx2.h"

ALWAYS_INLINE __m256 load_half_scales(const uint8_t *block, uint32_t half) {
    const __m128i *scales = (const void *)(block + Q8_CODES);
    return _mm256_cvtph_ps(_mm_loadu_si128(scales + half));
}

/* Dots begin at -128 times the sum of the activations' codes. The sums of f32 rest in memory. */
ALWAYS_INLINE void tile_q8(const struct tile *args, uint32_t rows, uint32_t panels,
                           uint32_t group_rows) {
    const struct tile t = *args;
    const size_t n_all = t.k / Q8_GROUP, first = t.k_begin / Q8_GROUP,
                 n_blocks = t.count / Q8_GROUP;
    const struct act_words codes = act_words_at(&t, group_rows, first * Q8_QUADS);
    const struct act_words scales = act_words_at(&t, group_rows, n_all * Q8_QUADS + first);
    const struct act_words offsets = act_words_at(&t, group_rows, n_all * (Q8_QUADS + 1) + first);
    const uint32_t all = 2 * panels, halves = halves_at_once(rows, all, true);
    const float *from = t.from;
    for (size_t b = 0; b < n_blocks; b++, from = t.acc) {
        prefetch_run(&t, panels, group_rows, b * Q8_QUADS, b * Q8_BLOCK_BYTES);
        for (uint32_t h0 = 0; h0 < all; h0 += halves) {
            const uint8_t *w[HALVES_MAX];
            dot_sums dot;
            for (uint32_t h = 0; h < halves; h++) {
                uint32_t at = h0 + h;
                w[h] = t.panels[at / 2] + b * Q8_BLOCK_BYTES + at % 2 * sizeof(__m256i);
                for (uint32_t r = 0; r < rows; r++) {
                    dot[r][h] =
                        group_rows > 1 ? start_at(&t, b, r) : biased(broadcast_word(offsets, r, b));
                }
            }
            dot_bytes(w, halves, codes, rows, b * Q8_QUADS, Q8_QUADS, dot);
            for (uint32_t h = 0; h < halves; h++) {
                uint32_t at = h0 + h;
                __m256 w_scale = load_half_scales(t.panels[at / 2] + b * Q8_BLOCK_BYTES, at % 2);
                for (uint32_t r = 0; r < rows; r++) {
                    const size_t to = r * panels * WEFT_PANEL + at * HALF;
                    __m256 sum = add_dot(_mm256_load_ps(from + to), dot[r][h], w_scale,
                                         bias_of(w_scale), broadcast_f32(scales, r, b));
                    _mm256_store_ps(t.acc + to, sum);
                }
            }
        }
    }
}

/* As one of the types of quant.h, but in a panel as kernels.h says. */
static const struct quant_layout q8_layout = {
    .group = Q8_GROUP, .sub = Q8_GROUP, .bits = 8, .zero = 128};

static inline void loosen_q8(const uint8_t *panel, uint32_t count, float *out) {
    uint8_t *block = (uint8_t *)out;
    for (uint32_t b = 0; b < count / Q8_GROUP; b++, panel += Q8_BLOCK_BYTES) {
        for (uint32_t i = 0; i < 2 * Q8_QUADS; i++) {
            put_words(&q8_layout, block, i / 2, i % 2, load_line(panel, i / 2, i % 2));
        }
        for (uint32_t h = 0; h < 2; h++) {
            put_scale(&q8_layout, block, 0, h, load_half_scales(panel, h));
        }
        block += loose_bytes(&q8_layout);
    }
}

static inline void start_q8(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                            int32_t *out) {
    start_quant(&q8_layout, act, k, first, n_blocks, out);
}

ALWAYS_INLINE void tile_q8_many(const struct tile *t, uint32_t rows, uint32_t panels,
                                uint32_t group_rows) {
    if (HAS_VNNI)
        tile_q8(t, rows, panels, group_rows);
    else
        tile_loose(t, &q8_layout, rows);
}

static inline void few_q8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_FEW(tile_q8, t, n_rows)
}

static inline void many_q8(const struct tile *t, uint32_t n_rows) {
    RUN_MANY(tile_q8_many, t, n_rows)
}

static void gemm_q8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    const struct tile_kernel kernel = {.kind = WEFT_GEMM_Q8_0,
                                       .group = Q8_GROUP,
                                       .group_bytes = Q8_BLOCK_BYTES,
                                       .step = HAS_VNNI ? 4 : Q8_GROUP / LOOSE_STEPS,
                                       .per_word = 4,
                                       .widen = HAS_VNNI ? NULL : loosen_q8,
                                       .start = start_q8,
                                       .n_starts = n_starts_of(&q8_layout),
                                       .wide_bytes = loose_bytes(&q8_layout),
                                       TILES_DOT_AVX2(few_q8, many_q8)};
    gemm_run(&kernel, args, p_begin, p_end);
}

#endif
