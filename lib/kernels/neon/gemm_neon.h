/* kernels/gemm_neon — tile shapes for 32 registers of four lanes, where a panel is four of them.
 *
 * Rows stand interleaved by 12, which a call of a tile takes in parts whose sums fit the registers:
 * 6 rows x 1 panel of float sums (24 registers, 4 of weights, 2 of activations: one load brings those
 * of four rows, and multiply-adds take a lane each), 4 rows where integer sums are beside them. The
 * panel's chunk is in L1 while they pass over it. Up to 2 rows take 2 panels: 8 chains at least, to
 * hide the latency of multiply-adds. */
#ifndef WEFT_KERNELS_GEMM_NEON_H
#define WEFT_KERNELS_GEMM_NEON_H

#include <arm_neon.h>

#include "gemm_body.h"
#include "lanes_neon.h"

enum {
    FEW_ROWS = 2,
    FEW_MAX = 4,
    FEW_PANELS = 2,
    MANY_ROWS = WEFTI_KERN_GROUP_ROWS_NEON,
    MANY_PANELS = 1,
    PART_ROWS = MANY_ROWS / 2,
    LANES = 4,
    QUARTERS = WEFT_PANEL / LANES, /* registers of a panel */
};

#define TILE_CASE(tile, args, rows, panels)                                                        \
    case rows:                                                                                     \
        tile(args, rows, panels);                                                                  \
        break
#define PART_CASE(part, args, first, rows)                                                         \
    case rows:                                                                                     \
        part(args, first, rows);                                                                   \
        break
#define TILE_DEFAULT                                                                               \
    default:                                                                                       \
        weft_check_failed("rows of a tile", __FILE__, __LINE__)

/* Every number of rows gets its own copy of `tile`, unrolled: rows and panels are constants in it. */
#define RUN_FEW(tile, args, n_rows, panels)                                                        \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, panels);                                                          \
        TILE_CASE(tile, args, 2, panels);                                                          \
        TILE_CASE(tile, args, 3, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 4, MANY_PANELS);                                                     \
        TILE_DEFAULT;                                                                              \
    }

/* Kinds of integer dots have sums of floats beside them. */
enum { DOT_FEW_ROWS = 1 };

#define RUN_DOT_FEW(tile, args, n_rows)                                                            \
    switch ((n_rows)) {                                                                            \
        TILE_CASE(tile, args, 1, FEW_PANELS);                                                      \
        TILE_CASE(tile, args, 2, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 3, MANY_PANELS);                                                     \
        TILE_CASE(tile, args, 4, MANY_PANELS);                                                     \
        TILE_DEFAULT;                                                                              \
    }

/* Interleaved rows, by `part(args, first, rows)`: up to 6 rows from `first` on. */
#define RUN_PARTS(part, args, n_rows)                                                              \
    for (uint32_t first = 0; first < (n_rows); first += PART_ROWS) {                               \
        switch (weft_min_u32((n_rows)-first, PART_ROWS)) {                                         \
            PART_CASE(part, args, first, 1);                                                       \
            PART_CASE(part, args, first, 2);                                                       \
            PART_CASE(part, args, first, 3);                                                       \
            PART_CASE(part, args, first, 4);                                                       \
            PART_CASE(part, args, first, 5);                                                       \
            PART_CASE(part, args, first, 6);                                                       \
            TILE_DEFAULT;                                                                          \
        }                                                                                          \
    }

/* What every kernel of a type has in common. */
#define TILES_NEON(few_fn, many_fn)                                                                \
    .few_rows = FEW_ROWS, .few_max = FEW_MAX, .few_panels = FEW_PANELS, .few = (few_fn),           \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS, .many = (many_fn)
#define TILES_DOT_NEON(few_fn, many_fn)                                                            \
    .few_rows = DOT_FEW_ROWS, .few_max = FEW_MAX, .few_panels = FEW_PANELS, .few = (few_fn),       \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS, .many = (many_fn)
/* Weights are widened for few rows, too. */
#define TILES_WIDENED_NEON                                                                         \
    .few_rows = 0, .few_max = FEW_MAX, .few = wefti_kern_tile_f32_few_neon, .few_widens = true,    \
    .group_rows = MANY_ROWS, .many_rows = MANY_ROWS, .many_panels = MANY_PANELS,                   \
    .many = wefti_kern_tile_f32_many_neon

/* Defined in gemm_f32_neon.c, for all that is widened to f32. */
void wefti_kern_tile_f32_many_neon(const struct tile *t, uint32_t rows);
void wefti_kern_tile_f32_few_neon(const struct tile *t, uint32_t rows); /* of one panel */

/* 16 features, of a row or of a panel. */
struct quarters {
    float32x4_t v[QUARTERS];
};

ALWAYS_INLINE struct quarters load_quarters(const float *from) {
    return (struct quarters){
        {vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
}

ALWAYS_INLINE void store_quarters(struct quarters q, float *to) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        vst1q_f32(to + (size_t)i * LANES, q.v[i]);
    }
}

/* Of f16. */
ALWAYS_INLINE struct quarters load_halves(const uint8_t *from) {
    struct quarters q;
    for (uint32_t i = 0; i < QUARTERS; i++) {
        uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(from + (size_t)i * 8));
        q.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(bits));
    }
    return q;
}

ALWAYS_INLINE struct quarters times(struct quarters a, struct quarters b) {
    for (uint32_t i = 0; i < QUARTERS; i++) {
        a.v[i] = vmulq_f32(a.v[i], b.v[i]);
    }
    return a;
}

/* Six words of interleaved rows, of f32. */
struct part_f32 {
    float32x4_t v[2];
};

ALWAYS_INLINE struct part_f32 load_part_f32(const uint8_t *at, uint32_t rows) {
    const float *words = (const void *)at;
    struct part_f32 part = {{vld1q_f32(words), vdupq_n_f32(0)}};
    if (rows > LANES) part.v[1] = vcombine_f32(vld1_f32(words + LANES), vdup_n_f32(0));
    return part;
}

#endif
