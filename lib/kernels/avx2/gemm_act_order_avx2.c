/* 4 and 8 bits with groups of columns in any order, with f32 activations: weights are widened chunk by
 * chunk into L1 and meet the tile of f32. */
#include "act_order.h"
#include "gemm_avx2.h"

/* scale * (code - zero) of half a column's features; both begin with theirs. */
ALWAYS_INLINE __m256 half_column(const uint8_t *scales, const uint8_t *zeros, __m256i codes) {
    __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const void *)scales));
    __m256i zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)zeros));
    return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, zero)));
}

ALWAYS_INLINE void widen_column(const uint8_t *entry, __m256i low, __m256i high, float *out) {
    const uint8_t *zeros = entry + WEFT_PANEL * 2;
    _mm256_store_ps(out, half_column(entry, zeros, low));
    _mm256_store_ps(out + HALF, half_column(entry + WEFT_PANEL, zeros + HALF, high));
}

static void widen_q4_g(const struct weft_gemm_args *args, const uint8_t *at, uint32_t k_begin,
                       uint32_t count, float *out) {
    const struct order_panel panel = order_panel_of(&q4_g_layout, at, args->k, whole_k(args));
    const __m256i nibble = _mm256_set1_epi32(15);
    for (uint32_t k = k_begin; k < k_begin + count; k += 2, out += 2 * WEFT_PANEL) {
        const uint8_t *codes = panel.codes + (size_t)k / 2 * WEFT_PANEL;
        __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)codes));
        __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(codes + HALF)));
        widen_column(order_entry(&panel, k), _mm256_and_si256(low, nibble),
                     _mm256_and_si256(high, nibble), out);
        widen_column(order_entry(&panel, k + 1), _mm256_srli_epi32(low, 4),
                     _mm256_srli_epi32(high, 4), out + WEFT_PANEL);
    }
}

static void widen_q8_g(const struct weft_gemm_args *args, const uint8_t *at, uint32_t k_begin,
                       uint32_t count, float *out) {
    const struct order_panel panel = order_panel_of(&q8_g_layout, at, args->k, whole_k(args));
    for (uint32_t k = k_begin; k < k_begin + count; k++, out += WEFT_PANEL) {
        const uint8_t *codes = panel.codes + (size_t)k * WEFT_PANEL;
        __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)codes));
        __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(codes + HALF)));
        widen_column(order_entry(&panel, k), low, high, out);
    }
}

#define ORDER_KERNEL(name, ID)                                                                     \
    static const struct tile_kernel kernel_##name = {.kind = WEFT_GEMM_##ID##_F32,                 \
                                                     .group = ORDER_GROUP,                         \
                                                     .group_bytes = ORDER_GROUP_BYTES_##ID,        \
                                                     .step = 1,                                    \
                                                     .per_word = 1,                                \
                                                     TILES_WIDENED_AVX2,                           \
                                                     .widen_at = widen_##name};                    \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        gemm_run(&kernel_##name, args, p_begin, p_end);                                            \
    }

ORDER_KERNEL(q4_g, Q4_G)
ORDER_KERNEL(q8_g, Q8_G)

void wefti_kern_fill_gemm_act_order_avx2(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q4_G_F32] = gemm_q4_g;
    table->gemm[WEFT_GEMM_Q8_G_F32] = gemm_q8_g;
}
