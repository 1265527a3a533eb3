/* bf16 weights with f32 or bf16 activations, without instructions for bf16: the latter are widened
 * and take the same tiles. */
#include "gemm_f32_neon.h"

ALWAYS_INLINE void tile_bf16(const struct tile *t, uint32_t rows, uint32_t panels) {
    tile_few(t, rows, panels, FORM_BF16);
}

static void few_bf16(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_bf16, t, rows, FEW_PANELS)
}

static void widen_bf16(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k = 0; k < count; k++) {
        store_quarters(load_bf16(panel, k), out + k * WEFT_PANEL);
    }
}

static const struct tile_kernel bf16_f32_kernel = {
    .kind = WEFT_GEMM_BF16_F32,
    .group = 2,
    .group_bytes = 64,
    .step = 1,
    .per_word = 1,
    TILES_NEON(few_bf16, wefti_kern_tile_f32_many_neon),
    .widen = widen_bf16};

static const struct tile_kernel bf16_kernel = {.kind = WEFT_GEMM_BF16,
                                               .group = 2,
                                               .group_bytes = 64,
                                               .step = 1,
                                               .per_word = 2,
                                               TILES_NEON(few_bf16, wefti_kern_tile_f32_many_neon),
                                               .widen = widen_bf16,
                                               .widen_act = widen_act_bf16};

static void gemm_bf16_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&bf16_f32_kernel, args, p_begin, p_end);
}

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&bf16_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_bf16_neon(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16_F32] = gemm_bf16_f32;
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
}
