/* kernels/gemm_q8_avx512 — int8 dot products, for the files with and without VNNI; integers are
 * exact, so both give the same bits. Weights are stored as code + 128: the unsigned operand that
 * vpdpbusd wants; dots begin at -128 times the sum of the activations' codes. */
#ifndef WEFT_KERNELS_GEMM_Q8_AVX512_H
#define WEFT_KERNELS_GEMM_Q8_AVX512_H

#include "gemm_dots_avx512.h"

ALWAYS_INLINE __m512 load_scales(const uint8_t *block) {
    return load_halves(block + Q8_CODES);
}

/* Few rows, which lie one after the other. */
ALWAYS_INLINE void tile_q8(const struct tile *args, uint32_t rows, uint32_t panels,
                           uint32_t group_rows) {
    const struct tile t = *args;
    const struct dot_acts acts = dot_acts_at(&t, group_rows);
    const size_t n_blocks = t.count / Q8_GROUP;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t b = 0;
    do {
        __m512i dot[FEW_ROWS][TILE_PANELS_MAX];
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t p = 0; p < panels; p++) {
                dot[r][p] = biased(broadcast_word(acts.offsets, r, b));
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
                __m512i a = broadcast_word(acts.codes, r, b * Q8_QUADS + quad);
                for (uint32_t p = 0; p < panels; p++) {
                    dot[r][p] = dot_quads(dot[r][p], w[p], a);
                }
            }
        }
        for (uint32_t p = 0; p < panels; p++) {
            __m512 scale = load_scales(t.panels[p] + b * Q8_BLOCK_BYTES), bias = bias_of(scale);
            for (uint32_t r = 0; r < rows; r++) {
                sum[r][p] =
                    add_dot(sum[r][p], dot[r][p], scale, bias, broadcast_f32(acts.scales, r, b));
            }
        }
    } while (++b < n_blocks);
    store_sums(&t, rows, panels, sum);
}

ALWAYS_INLINE void blocks_q8(const struct tile *t, uint32_t rows, uint32_t panels,
                             uint32_t group_rows) {
    (void)group_rows; /* always MANY_ROWS */
    tile_blocks(
        t, (struct dot_form){.block_bytes = Q8_BLOCK_BYTES, .quads = Q8_QUADS, .has_starts = true},
        rows, panels);
}

static inline void few_q8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_FEW(tile_q8, t, n_rows)
}

static inline void many_q8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_MANY(blocks_q8, t, n_rows)
}

/* Codes are taken where they are. */
static inline const uint8_t *unpack_q8(const uint8_t *panel, uint32_t count, uint8_t *codes,
                                       float *factors) {
    (void)codes;
    for (size_t b = 0; b < count / Q8_GROUP; b++, factors += (size_t)2 * WEFT_PANEL) {
        __m512 scale = load_scales(panel + b * Q8_BLOCK_BYTES);
        _mm512_store_ps(factors, scale);
        _mm512_store_ps(factors + WEFT_PANEL, bias_of(scale));
    }
    return panel;
}

static inline void start_q8(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                            int32_t *out) {
    start_blocks(act, k, first, n_blocks, 0, out);
}

static const struct tile_kernel q8_kernel = {.kind = WEFT_GEMM_Q8_0,
                                             .group = Q8_GROUP,
                                             .group_bytes = Q8_BLOCK_BYTES,
                                             .step = 4,
                                             .per_word = 4,
                                             TILES_DOT_AVX512(few_q8, many_q8),
                                             .unpack = unpack_q8,
                                             .start = start_q8,
                                             .n_starts = 1};

static void gemm_q8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&q8_kernel, args, p_begin, p_end);
}

#endif
