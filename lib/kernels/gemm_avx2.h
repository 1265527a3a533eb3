/* kernels/gemm_avx2 — tile shapes for 16 vector registers, where a panel is two of them.
 * 6 rows x 1 panel: 12 sums, 2 weights, 1 broadcast: per step 12 FMAs (6 cycles) face 8 loads (4).
 * Up to 2 rows take 2 panels: 4 chains at least, to hide the latency of the FMA. */
#ifndef WEFT_KERNELS_GEMM_AVX2_H
#define WEFT_KERNELS_GEMM_AVX2_H

#include <immintrin.h>

#include "kernels/gemm_body.h"

enum { FEW_ROWS = 2, FEW_PANELS = 2, MANY_ROWS = 6, MANY_PANELS = 1, HALF = WEFT_PANEL / 2 };

#define TILE_CASE(tile, args, rows, panels)                                                        \
    case rows:                                                                                     \
        tile(args, rows, panels);                                                                  \
        break

/* Every number of rows gets its own copy of `tile`, unrolled: rows and panels are constants in it.
 */
#define RUN_FEW(tile, args, n_rows)                                                                \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, FEW_PANELS);                                                      \
        TILE_CASE(tile, args, 2, FEW_PANELS);                                                      \
    default:                                                                                       \
        weft_check_failed("rows of a tile", __FILE__, __LINE__);                                   \
    }

#define RUN_MANY(tile, args, n_rows)                                                               \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, MANY_PANELS); /* 1 and 2: of kinds without a tile for few rows */ \
        TILE_CASE(tile, args, 2, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 3, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 4, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 5, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 6, MANY_PANELS);                                                     \
    default:                                                                                       \
        weft_check_failed("rows of a tile", __FILE__, __LINE__);                                   \
    }

/* Defined in gemm_f32_avx2.c; what is widened to f32 comes here. */
void wefti_kern_tile_f32_many_avx2(const struct tile *t, uint32_t rows);

struct pair {
    __m256 low, high; /* features 0..7 and 8..15 of a panel */
};

typedef struct pair tile_sums[MANY_ROWS][FEW_PANELS];

ALWAYS_INLINE void load_sums(const struct tile *t, uint32_t rows, uint32_t panels, tile_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            const float *acc = t->acc + (r * panels + p) * WEFT_PANEL;
            sum[r][p] = (struct pair){_mm256_load_ps(acc), _mm256_load_ps(acc + HALF)};
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

ALWAYS_INLINE __m256 broadcast_f32(const struct tile *t, uint32_t row, size_t k) {
    const float *a = (const void *)(t->act + row * t->act_row_bytes);
    return _mm256_broadcast_ss(a + k);
}

ALWAYS_INLINE struct pair fmadd_pair(__m256 a, struct pair w, struct pair sum) {
    return (struct pair){_mm256_fmadd_ps(a, w.low, sum.low), _mm256_fmadd_ps(a, w.high, sum.high)};
}

#endif
