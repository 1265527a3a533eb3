/* kernels/gemm_avx512 — tile shapes for 32 vector registers, and what the AVX-512 tiles share.
 * 12 rows x 2 panels: 24 sums, 2 weights, 1 broadcast: per step 24 FMAs (12 cycles on two pipes)
 * face 14 loads (7 cycles). Up to 4 rows take 4 panels: 4 streams, and 4 chains at least to hide
 * latency. */
#ifndef WEFT_KERNELS_GEMM_AVX512_H
#define WEFT_KERNELS_GEMM_AVX512_H

#include <immintrin.h>

#include "gemm_body.h"

enum {
    FEW_ROWS = 4,
    FEW_PANELS = 4,
    MANY_ROWS = WEFTI_KERN_GROUP_ROWS_AVX512,
    MANY_PANELS = 2,
};

#define TILE_CASE(tile, args, rows, panels, group_rows)                                            \
    case rows:                                                                                     \
        tile(args, rows, panels, group_rows);                                                      \
        break
#define TILE_DEFAULT                                                                               \
    default:                                                                                       \
        weft_check_failed("rows of a tile", __FILE__, __LINE__)

/* Every number of rows gets its own copy of `tile`, unrolled: rows, panels and the distances of
 * activations are constants in it. */
#define RUN_FEW(tile, args, n_rows, panels)                                                        \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, panels, 1);                                                       \
        TILE_CASE(tile, args, 2, panels, 1);                                                       \
        TILE_CASE(tile, args, 3, panels, 1);                                                       \
        TILE_CASE(tile, args, 4, panels, 1);                                                       \
        TILE_DEFAULT;                                                                              \
    }

#define RUN_MANY(tile, args, n_rows)                                                               \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 2, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 3, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 4, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 5, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 6, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 7, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 8, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 9, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 10, MANY_PANELS, MANY_ROWS);                                         \
        TILE_CASE(tile, args, 11, MANY_PANELS, MANY_ROWS);                                         \
        TILE_CASE(tile, args, 12, MANY_PANELS, MANY_ROWS);                                         \
        TILE_DEFAULT;                                                                              \
    }

/* Kinds whose dots are scaled every 32 columns: 6 rows x 2 panels have 12 integer and 12 float
 * sums, 2 weights and 1 broadcast. */
enum { DOT_FEW_ROWS = 2, DOT_MANY_ROWS = MANY_ROWS / 2 };

#define RUN_DOT_FEW(tile, args, n_rows)                                                            \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, FEW_PANELS, 1);                                                   \
        TILE_CASE(tile, args, 2, FEW_PANELS, 1);                                                   \
        TILE_CASE(tile, args, 3, MANY_PANELS, 1);                                                  \
        TILE_CASE(tile, args, 4, MANY_PANELS, 1);                                                  \
        TILE_DEFAULT;                                                                              \
    }

#define RUN_DOT_MANY(tile, args, n_rows)                                                           \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 2, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 3, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 4, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 5, MANY_PANELS, MANY_ROWS);                                          \
        TILE_CASE(tile, args, 6, MANY_PANELS, MANY_ROWS);                                          \
        TILE_DEFAULT;                                                                              \
    }

/* What every kernel of a type has in common. */
#define TILES_DOT_AVX512(few_fn, many_fn)                                                          \
    .few_rows = DOT_FEW_ROWS, .few_max = FEW_ROWS, .few_panels = FEW_PANELS, .few = (few_fn),      \
    .group_rows = MANY_ROWS, .many_rows = DOT_MANY_ROWS, .many_panels = MANY_PANELS,               \
    .block_tiles = BLOCK_TILES * MANY_ROWS / DOT_MANY_ROWS, .many = (many_fn)
#define TILES_AVX512(few_fn, many_fn)                                                              \
    .few_rows = FEW_ROWS, .few_max = FEW_ROWS, .few_panels = FEW_PANELS, .few = (few_fn),          \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS, .many = (many_fn)
/* Weights are widened for few rows, too. */
#define TILES_WIDENED_AVX512                                                                       \
    .few_rows = 0, .few_max = FEW_ROWS, .few = wefti_kern_tile_f32_few_avx512, .few_widens = true, \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS,                   \
    .many = wefti_kern_tile_f32_many_avx512

/* Defined in gemm_f32_avx512.c, for all that is widened to f32. */
void wefti_kern_tile_f32_many_avx512(const struct tile *t, uint32_t rows);
void wefti_kern_tile_f32_few_avx512(const struct tile *t, uint32_t rows); /* of two panels */

/* The product with VNNI, which few rows take on AMX, too. */
struct tile_kernel wefti_kern_i8_kernel_avx512vnni(void);

typedef __m512 tile_sums[MANY_ROWS][TILE_PANELS_MAX];

ALWAYS_INLINE void load_sums(const struct tile *t, uint32_t rows, uint32_t panels, tile_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            sum[r][p] = _mm512_load_ps(t->from + (r * panels + p) * WEFT_PANEL);
        }
    }
}

ALWAYS_INLINE void store_sums(const struct tile *t, uint32_t rows, uint32_t panels, tile_sums sum) {
    float *acc = t->acc;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            _mm512_store_ps(acc + (r * panels + p) * WEFT_PANEL, sum[r][p]);
        }
    }
}

ALWAYS_INLINE __m512 load_halves(const uint8_t *at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

ALWAYS_INLINE __m512 broadcast_f32(struct act_words act, uint32_t row, size_t k) {
    return _mm512_set1_ps(*(const float *)act_word(act, row, k));
}

ALWAYS_INLINE __m512i broadcast_word(struct act_words act, uint32_t row, size_t word) {
    return _mm512_set1_epi32(*(const int32_t *)act_word(act, row, word));
}

#endif
