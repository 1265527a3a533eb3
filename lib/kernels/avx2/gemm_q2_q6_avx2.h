/* kernels/gemm_q2_q6_avx2 — the types of 2 to 6 bits with activations of 8. */
#ifndef WEFT_KERNELS_GEMM_Q2_Q6_AVX2_H
#define WEFT_KERNELS_GEMM_Q2_Q6_AVX2_H

#include "gemm_quant_avx2.h"

/* The layout is a constant in every copy. */
#define DEFINE_QUANT(name, ID, ...)                                                                \
    ALWAYS_INLINE void tile_##name(const struct tile *t, uint32_t rows, uint32_t panels,           \
                                   uint32_t group_rows) {                                          \
        if (group_rows == 1)                                                                       \
            tile_quant(t, &quant_layouts[WEFT_DT_##ID], rows, panels);                             \
        else                                                                                       \
            tile_loose(t, &quant_layouts[WEFT_DT_##ID], rows);                                     \
    }                                                                                              \
    static void few_##name(const struct tile *t, uint32_t n_rows) {                                \
        RUN_DOT_FEW(tile_##name, t, n_rows)                                                        \
    }                                                                                              \
    static void many_##name(const struct tile *t, uint32_t n_rows) {                               \
        RUN_MANY(tile_##name, t, n_rows)                                                           \
    }                                                                                              \
    static void loosen_##name(const uint8_t *panel, uint32_t count, float *out) {                  \
        loosen(&quant_layouts[WEFT_DT_##ID], panel, count, (uint8_t *)out);                        \
    }                                                                                              \
    static void start_##name(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,    \
                             int32_t *out) {                                                       \
        start_quant(&quant_layouts[WEFT_DT_##ID], act, k, first, n_blocks, out);                   \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_##ID,                                 \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = QUANT_BLOCK / LOOSE_STEPS,                      \
                                           .per_word = 4,                                          \
                                           .widen = loosen_##name,                                 \
                                           .start = has_starts(q) ? start_##name : NULL,           \
                                           .n_starts = n_starts_of(q),                             \
                                           .wide_bytes = q->group / QUANT_BLOCK * loose_bytes(q),  \
                                           TILES_DOT_AVX2(few_##name, many_##name)};               \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

QUANT_EACH(DEFINE_QUANT)

#define FILL_QUANT(name, ID, ...) table->gemm[WEFT_GEMM_##ID] = gemm_##name;

static void fill_quant(struct weft_kern_table *table) {
    QUANT_EACH(FILL_QUANT)
}

#endif
