/* FP8 and NF4 with f32 activations: weights are widened chunk by chunk into L1 and meet the tile of
 * f32. */
#include "fp8_nf4.h"
#include "gemm_avx2.h"

/* e4m3 as f32, of 8 features: see f8_value; packing takes care of NaN. */
ALWAYS_INLINE __m256 f8_values(const uint8_t *codes) {
    __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)codes));
    __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((short)0xbf80));
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
}

static void widen_f8(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k0 = 0; k0 < count; k0 += F8_GROUP) {
        const float *scales = (const void *)panel;
        const __m256 low = _mm256_loadu_ps(scales), high = _mm256_loadu_ps(scales + HALF);
        const uint8_t *codes = panel + FP8_NF4_SCALES;
        const size_t n = count - k0 < F8_GROUP ? count - k0 : F8_GROUP;
        for (size_t k = 0; k < n; k++, out += WEFT_PANEL) {
            const uint8_t *at = codes + k * WEFT_PANEL;
            _mm256_store_ps(out, _mm256_mul_ps(low, f8_values(at)));
            _mm256_store_ps(out + HALF, _mm256_mul_ps(high, f8_values(at + HALF)));
        }
        panel = codes + (size_t)F8_GROUP * WEFT_PANEL;
    }
}

/* The lowest four bits of each code, looked up. */
ALWAYS_INLINE __m256 look_up_nf4(__m256i codes) {
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nf4_values), codes);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(nf4_values + 8), codes);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}

static void widen_nf4(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k0 = 0; k0 < count; k0 += NF4_GROUP) {
        const float *scales = (const void *)panel;
        const __m256 low = _mm256_loadu_ps(scales), high = _mm256_loadu_ps(scales + HALF);
        panel += FP8_NF4_SCALES;
        for (size_t k = 0; k < NF4_GROUP; k += 2, panel += WEFT_PANEL, out += 2 * WEFT_PANEL) {
            __m256i odd_low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)panel));
            __m256i odd_high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(panel + HALF)));
            __m256i even_low = _mm256_srli_epi32(odd_low, 4);
            __m256i even_high = _mm256_srli_epi32(odd_high, 4);
            float *next = out + WEFT_PANEL;
            _mm256_store_ps(out, _mm256_mul_ps(low, look_up_nf4(even_low)));
            _mm256_store_ps(out + HALF, _mm256_mul_ps(high, look_up_nf4(even_high)));
            _mm256_store_ps(next, _mm256_mul_ps(low, look_up_nf4(odd_low)));
            _mm256_store_ps(next + HALF, _mm256_mul_ps(high, look_up_nf4(odd_high)));
        }
    }
}

static const struct tile_kernel f8_kernel = {.kind = WEFT_GEMM_F8_E4M3_F32,
                                             .group = F8_GROUP,
                                             .group_bytes = FP8_NF4_SCALES + F8_GROUP * WEFT_PANEL,
                                             .step = 1,
                                             .per_word = 1,
                                             TILES_WIDENED_AVX2,
                                             .widen = widen_f8};

static const struct tile_kernel nf4_kernel = {.kind = WEFT_GEMM_NF4_F32,
                                              .group = NF4_GROUP,
                                              .group_bytes =
                                                  FP8_NF4_SCALES + NF4_GROUP / 2 * WEFT_PANEL,
                                              .step = 1,
                                              .per_word = 1,
                                              TILES_WIDENED_AVX2,
                                              .widen = widen_nf4};

static void gemm_f8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f8_kernel, args, p_begin, p_end);
}

static void gemm_nf4(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&nf4_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_fp8_nf4_avx2(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_F8_E4M3_F32] = gemm_f8;
    table->gemm[WEFT_GEMM_NF4_F32] = gemm_nf4;
}
