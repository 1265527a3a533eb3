/* f32 and f16 weights, f32 activations; and the tiles of all weights that are widened to f32. */
#include "gemm_f32_neon.h"

/* Up to 6 interleaved rows from `first` on. */
ALWAYS_INLINE void part_f32(const struct tile *args, uint32_t first, uint32_t rows) {
    const struct tile t = *args;
    const uint8_t *act = t.act + ((size_t)t.k_begin * MANY_ROWS + first) * ACT_WORD;
    struct quarters sum[PART_ROWS];
    for (uint32_t r = 0; r < rows; r++) {
        sum[r] = load_quarters(t.from + (size_t)(first + r) * WEFT_PANEL);
    }
    size_t k = 0;
    do {
        struct quarters w = load_quarters((const void *)(t.panels[0] + k * 64));
        struct part_f32 a = load_part_f32(act + k * MANY_ROWS * ACT_WORD, rows);
        if (first == 0) prefetch_step(&t, 1, k);
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t i = 0; i < QUARTERS; i++) {
                sum[r].v[i] = fma_lane(sum[r].v[i], w.v[i], a.v[r / LANES], r % LANES);
            }
        }
    } while (++k < t.count);
    for (uint32_t r = 0; r < rows; r++) {
        store_quarters(sum[r], t.acc + (size_t)(first + r) * WEFT_PANEL);
    }
}

void wefti_kern_tile_f32_many_neon(const struct tile *t,
                                   uint32_t rows){RUN_PARTS(part_f32, t, rows)}

ALWAYS_INLINE void tile_f32(const struct tile *t, uint32_t rows, uint32_t panels) {
    tile_few(t, rows, panels, FORM_F32);
}

ALWAYS_INLINE void tile_f16(const struct tile *t, uint32_t rows, uint32_t panels) {
    tile_few(t, rows, panels, FORM_F16);
}

static void few_f32(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_f32, t, rows, FEW_PANELS)
}

static void few_f16(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_f16, t, rows, FEW_PANELS)
}

void wefti_kern_tile_f32_few_neon(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_f32, t, rows, MANY_PANELS)
}

static void widen_f16(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k = 0; k < count; k++) {
        store_quarters(load_halves(panel + k * 32), out + k * WEFT_PANEL);
    }
}

static const struct tile_kernel f32_kernel = {.kind = WEFT_GEMM_F32_F32,
                                              .group = 1,
                                              .group_bytes = 64,
                                              .step = 1,
                                              .per_word = 1,
                                              TILES_NEON(few_f32, wefti_kern_tile_f32_many_neon)};

static const struct tile_kernel f16_kernel = {.kind = WEFT_GEMM_F16_F32,
                                              .group = 1,
                                              .group_bytes = 32,
                                              .step = 1,
                                              .per_word = 1,
                                              TILES_NEON(few_f16, wefti_kern_tile_f32_many_neon),
                                              .widen = widen_f16};

static void gemm_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f32_kernel, args, p_begin, p_end);
}

static void gemm_f16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f16_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_f32_neon(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_F32_F32] = gemm_f32;
    table->gemm[WEFT_GEMM_F16_F32] = gemm_f16;
}
