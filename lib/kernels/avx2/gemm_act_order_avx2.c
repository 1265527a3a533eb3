/* 4 bits with groups of columns in any order, with f32 activations: weights are widened chunk by
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
    const struct q4_g_panel panel = q4_g_panel_of(at, args->k, whole_k(args));
    const __m256i nibble = _mm256_set1_epi32(15);
    for (uint32_t k = k_begin; k < k_begin + count; k += 2, out += 2 * WEFT_PANEL) {
        const uint8_t *codes = panel.codes + (size_t)k / 2 * WEFT_PANEL;
        __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)codes));
        __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(codes + HALF)));
        widen_column(q4_g_entry(&panel, k), _mm256_and_si256(low, nibble),
                     _mm256_and_si256(high, nibble), out);
        widen_column(q4_g_entry(&panel, k + 1), _mm256_srli_epi32(low, 4),
                     _mm256_srli_epi32(high, 4), out + WEFT_PANEL);
    }
}

static const struct tile_kernel kernel = {.kind = WEFT_GEMM_Q4_G_F32,
                                          .group = Q4_G_GROUP,
                                          .group_bytes = Q4_G_BYTES,
                                          .step = 1,
                                          .per_word = 1,
                                          TILES_WIDENED_AVX2,
                                          .widen_at = widen_q4_g};

static void gemm_q4_g(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_act_order_avx2(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q4_G_F32] = gemm_q4_g;
}
