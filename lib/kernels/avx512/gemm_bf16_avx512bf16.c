/* bf16 weights and activations with vdpbf16ps: both products of a pair are added in f32 without
 * rounding to bf16 in between. The instruction flushes subnormals of its inputs and results to
 * zero. */
#include "gemm_avx512.h"

ALWAYS_INLINE void tile_dot(const struct tile *args, uint32_t rows, uint32_t panels,
                            uint32_t group_rows) {
    const struct tile t = *args;
    const struct act_words act = act_words_at(&t, group_rows, t.k_begin / 2);
    const size_t n_pairs = (t.count + 1) / 2; /* an odd K is padded with zero on both sides */
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t pair = 0;
    do {
        __m512i w[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w[p] = _mm512_load_si512(t.panels[p] + pair * 64);
        }
        prefetch_either(&t, panels, group_rows, pair, pair * 64);
        for (uint32_t r = 0; r < rows; r++) {
            __m512i a = broadcast_word(act, r, pair);
            for (uint32_t p = 0; p < panels; p++) {
                sum[r][p] = _mm512_dpbf16_ps(sum[r][p], (__m512bh)a, (__m512bh)w[p]);
            }
        }
    } while (++pair < n_pairs);
    store_sums(&t, rows, panels, sum);
}

static void few_dot(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_dot, t, rows, FEW_PANELS)
}

static void many_dot(const struct tile *t, uint32_t rows) {
    RUN_MANY(tile_dot, t, rows)
}

static const struct tile_kernel bf16_kernel = {.kind = WEFT_GEMM_BF16,
                                               .group = 2,
                                               .group_bytes = 64,
                                               .step = 2,
                                               .per_word = 2,
                                               TILES_AVX512(few_dot, many_dot)};

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&bf16_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_bf16_avx512bf16(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
}
