/* kernels/gemm_avx2 — tile shapes for 16 vector registers, where a panel is two of them.
 * 6 rows x 1 panel: 12 sums, 2 weights, 1 broadcast: per step 12 FMAs (6 cycles) face 8 loads (4).
 * Up to 2 rows take 2 panels: 4 chains at least, to hide the latency of the FMA. */
#ifndef WEFT_KERNELS_GEMM_AVX2_H
#define WEFT_KERNELS_GEMM_AVX2_H

#include <immintrin.h>

#include "gemm_body.h"

enum {
    FEW_ROWS = 2,
    FEW_MAX = 4,
    FEW_PANELS = 2,
    MANY_ROWS = WEFTI_KERN_GROUP_ROWS_AVX2,
    MANY_PANELS = 1,
    HALF = WEFT_PANEL / 2,
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
        TILE_CASE(tile, args, 3, MANY_PANELS, 1);                                                  \
        TILE_CASE(tile, args, 4, MANY_PANELS, 1);                                                  \
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
        TILE_DEFAULT;                                                                              \
    }

/* Kinds of integer dots: one row alone takes two panels. Blocks have 96 rows, as AVX-512's do. */
enum { DOT_FEW_ROWS = 1, DOT_BLOCK_TILES = 16 };

#define RUN_DOT_FEW(tile, args, n_rows)                                                            \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, FEW_PANELS, 1);                                                   \
        TILE_CASE(tile, args, 2, MANY_PANELS, 1);                                                  \
        TILE_CASE(tile, args, 3, MANY_PANELS, 1);                                                  \
        TILE_CASE(tile, args, 4, MANY_PANELS, 1);                                                  \
        TILE_DEFAULT;                                                                              \
    }

/* What every kernel of a type has in common. */
#define TILES_AVX2(few_fn, many_fn)                                                                \
    .few_rows = FEW_ROWS, .few_max = FEW_MAX, .few_panels = FEW_PANELS, .few = (few_fn),           \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS, .many = (many_fn)
#define TILES_DOT_AVX2(few_fn, many_fn)                                                            \
    .few_rows = DOT_FEW_ROWS, .few_max = FEW_MAX, .few_panels = FEW_PANELS, .few = (few_fn),       \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS,                   \
    .block_tiles = DOT_BLOCK_TILES, .many = (many_fn)
/* Weights are widened for few rows, too. */
#define TILES_WIDENED_AVX2                                                                         \
    .few_rows = 0, .few_max = FEW_MAX, .few = wefti_kern_tile_f32_few_avx2, .few_widens = true,    \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS,                   \
    .many = wefti_kern_tile_f32_many_avx2

/* Defined in gemm_f32_avx2.c, for all that is widened to f32. */
void wefti_kern_tile_f32_many_avx2(const struct tile *t, uint32_t rows);
void wefti_kern_tile_f32_few_avx2(const struct tile *t, uint32_t rows); /* of one panel */

struct pair {
    __m256 low, high; /* features 0..7 and 8..15 of a panel */
};

typedef struct pair tile_sums[MANY_ROWS][FEW_PANELS];

ALWAYS_INLINE void load_sums(const struct tile *t, uint32_t rows, uint32_t panels, tile_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            const float *from = t->from + (r * panels + p) * WEFT_PANEL;
            sum[r][p] = (struct pair){_mm256_load_ps(from), _mm256_load_ps(from + HALF)};
        }
    }
}

ALWAYS_INLINE void store_sums(const struct tile *t, uint32_t rows, uint32_t panels, tile_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            float *acc = t->acc + (r * panels + p) * WEFT_PANEL;
            _mm256_store_ps(acc, sum[r][p].low);
            _mm256_store_ps(acc + HALF, sum[r][p].high);
        }
    }
}

ALWAYS_INLINE __m256 broadcast_f32(struct act_words act, uint32_t row, size_t k) {
    return _mm256_broadcast_ss(act_word(act, row, k));
}

ALWAYS_INLINE __m256i broadcast_word(struct act_words act, uint32_t row, size_t word) {
    return _mm256_set1_epi32(*(const int32_t *)act_word(act, row, word));
}

ALWAYS_INLINE struct pair fmadd_pair(__m256 a, struct pair w, struct pair sum) {
    return (struct pair){_mm256_fmadd_ps(a, w.low, sum.low), _mm256_fmadd_ps(a, w.high, sum.high)};
}

#endif
