/* 4 and 8 bits with groups of columns in any order, with f32 activations: weights are widened chunk by
 * chunk into L1 and meet the tile of f32. */
#include "act_order.h"
#include "gemm_avx512.h"

/* scale * (code - zero) of a column's 16 features. */
ALWAYS_INLINE __m512 column(const uint8_t *entry, __m512i codes) {
    __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)entry));
    __m128i zeros = _mm_loadu_si128((const void *)(entry + WEFT_PANEL * 2));
    __m512i above = _mm512_sub_epi32(codes, _mm512_cvtepu8_epi32(zeros));
    return _mm512_mul_ps(scale, _mm512_cvtepi32_ps(above));
}

static void widen_q4_g(const struct weft_gemm_args *args, const uint8_t *at, uint32_t k_begin,
                       uint32_t count, float *out) {
    const struct order_panel panel = order_panel_of(&q4_g_layout, at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_begin + count; k += 2, out += 2 * WEFT_PANEL) {
        const uint8_t *codes = panel.codes + (size_t)k / 2 * WEFT_PANEL;
        __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)codes));
        __m512i even = _mm512_and_si512(both, _mm512_set1_epi32(15));
        _mm512_store_ps(out, column(order_entry(&panel, k), even));
        _mm512_store_ps(out + WEFT_PANEL,
                        column(order_entry(&panel, k + 1), _mm512_srli_epi32(both, 4)));
    }
}

static void widen_q8_g(const struct weft_gemm_args *args, const uint8_t *at, uint32_t k_begin,
                       uint32_t count, float *out) {
    const struct order_panel panel = order_panel_of(&q8_g_layout, at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_begin + count; k++, out += WEFT_PANEL) {
        const uint8_t *codes = panel.codes + (size_t)k * WEFT_PANEL;
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)codes));
        _mm512_store_ps(out, column(order_entry(&panel, k), wide));
    }
}

#define ORDER_KERNEL(name, ID)                                                                     \
    static const struct tile_kernel kernel_##name = {.kind = WEFT_GEMM_##ID##_F32,                 \
                                                     .group = ORDER_GROUP,                         \
                                                     .group_bytes = ORDER_GROUP_BYTES_##ID,        \
                                                     .step = 1,                                    \
                                                     .per_word = 1,                                \
                                                     TILES_WIDENED_AVX512,                         \
                                                     .widen_at = widen_##name};                    \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        gemm_run(&kernel_##name, args, p_begin, p_end);                                            \
    }

ORDER_KERNEL(q4_g, Q4_G)
ORDER_KERNEL(q8_g, Q8_G)

void wefti_kern_fill_gemm_act_order_avx512(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q4_G_F32] = gemm_q4_g;
    table->gemm[WEFT_GEMM_Q8_G_F32] = gemm_q8_g;
}
