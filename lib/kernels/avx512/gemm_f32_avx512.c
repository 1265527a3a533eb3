/* f32 and f16 weights, f32 activations. */
#include "gemm_avx512.h"

ALWAYS_INLINE __m512 load_weights(const uint8_t *panel, size_t k, bool half) {
    if (half) return _mm512_cvtph_ps(_mm256_load_si256((const void *)(panel + k * 32)));
    return _mm512_load_ps(panel + k * 64);
}

ALWAYS_INLINE void tile_any(const struct tile *args, uint32_t rows, uint32_t panels,
                            uint32_t group_rows, bool half) {
    const struct tile t = *args; /* a copy: the stores into acc might alias the original */
    const struct act_words act = act_words_at(&t, group_rows, t.k_begin);
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t k = 0;
    do {
        __m512 w[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w[p] = load_weights(t.panels[p], k, half);
        }
        prefetch_either(&t, panels, group_rows, k, k * (half ? 32 : 64));
        for (uint32_t r = 0; r < rows; r++) {
            __m512 a = broadcast_f32(act, r, k);
            for (uint32_t p = 0; p < panels; p++) {
                sum[r][p] = _mm512_fmadd_ps(a, w[p], sum[r][p]);
            }
        }
    } while (++k < t.count);
    store_sums(&t, rows, panels, sum);
}

ALWAYS_INLINE void tile_f32(const struct tile *t, uint32_t rows, uint32_t panels,
                            uint32_t group_rows) {
    tile_any(t, rows, panels, group_rows, false);
}

ALWAYS_INLINE void tile_f16(const struct tile *t, uint32_t rows, uint32_t panels,
                            uint32_t group_rows) {
    tile_any(t, rows, panels, group_rows, true);
}

static void few_f32(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_f32, t, rows, FEW_PANELS)
}

static void few_f16(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_f16, t, rows, FEW_PANELS)
}

void wefti_kern_tile_f32_many_avx512(const struct tile *t, uint32_t rows) {
    RUN_MANY(tile_f32, t, rows)
}

void wefti_kern_tile_f32_few_avx512(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_f32, t, rows, MANY_PANELS)
}

static void widen_f16(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k = 0; k < count; k++) {
        _mm512_store_ps(out + k * WEFT_PANEL, load_weights(panel, k, true));
    }
}

static const struct tile_kernel f32_kernel = {
    .kind = WEFT_GEMM_F32_F32,
    .group = 1,
    .group_bytes = 64,
    .step = 1,
    .per_word = 1,
    TILES_AVX512(few_f32, wefti_kern_tile_f32_many_avx512)};

static const struct tile_kernel f16_kernel = {
    .kind = WEFT_GEMM_F16_F32,
    .group = 1,
    .group_bytes = 32,
    .step = 1,
    .per_word = 1,
    TILES_AVX512(few_f16, wefti_kern_tile_f32_many_avx512),
    .widen = widen_f16};

static void gemm_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f32_kernel, args, p_begin, p_end);
}

static void gemm_f16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f16_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_f32_avx512(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_F32_F32] = gemm_f32;
    table->gemm[WEFT_GEMM_F16_F32] = gemm_f16;
}
