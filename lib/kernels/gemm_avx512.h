/* kernels/gemm_avx512 — tile shapes for 32 vector registers, and what the AVX-512 tiles share.
 * 12 rows x 2 panels: 24 sums, 2 weights, 1 broadcast: per step 24 FMAs (12 cycles on two pipes)
 * face 14 loads (7 cycles). Up to 4 rows take 4 panels: 4 streams, and 4 chains at least to hide
 * latency. */
#ifndef WEFT_KERNELS_GEMM_AVX512_H
#define WEFT_KERNELS_GEMM_AVX512_H

#include <immintrin.h>

#include "kernels/gemm_body.h"

enum { FEW_ROWS = 4, FEW_PANELS = 4, MANY_ROWS = 12, MANY_PANELS = 2 };

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
        TILE_CASE(tile, args, 3, FEW_PANELS);                                                      \
        TILE_CASE(tile, args, 4, FEW_PANELS);                                                      \
    default:                                                                                       \
        weft_check_failed("rows of a tile", __FILE__, __LINE__);                                   \
    }

#define RUN_MANY(tile, args, n_rows)                                                               \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, MANY_PANELS); /* 1 to 4: of kinds without a tile for few rows */  \
        TILE_CASE(tile, args, 2, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 3, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 4, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 5, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 6, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 7, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 8, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 9, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 10, MANY_PANELS);                                                    \
        TILE_CASE(tile, args, 11, MANY_PANELS);                                                    \
        TILE_CASE(tile, args, 12, MANY_PANELS);                                                    \
    default:                                                                                       \
        weft_check_failed("rows of a tile", __FILE__, __LINE__);                                   \
    }

/* Defined in gemm_f32_avx512.c; what is widened to f32 comes here. */
void wefti_kern_tile_f32_many_avx512(const struct tile *t, uint32_t rows);

typedef __m512 tile_sums[MANY_ROWS][TILE_PANELS_MAX];

ALWAYS_INLINE void load_sums(const struct tile *t, uint32_t rows, uint32_t panels, tile_sums sum) {
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            sum[r][p] = _mm512_load_ps(t->acc + (r * panels + p) * WEFT_PANEL);
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

ALWAYS_INLINE __m512 broadcast_f32(const struct tile *t, uint32_t row, size_t k) {
    const float *a = (const void *)(t->act + row * t->act_row_bytes);
    return _mm512_set1_ps(a[k]);
}

#endif
