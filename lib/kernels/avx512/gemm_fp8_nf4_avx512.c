/* FP8 and NF4 with f32 activations: weights are widened chunk by chunk into L1 and meet the tile of
 * f32. */
#include "fp8_nf4.h"
#include "gemm_avx512.h"

/* e4m3 as f32: see f8_value; packing takes care of NaN. */
ALWAYS_INLINE __m512 f8_values(const uint8_t *codes) {
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)codes));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
}

static void widen_f8(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k0 = 0; k0 < count; k0 += F8_GROUP) {
        const __m512 scale = _mm512_loadu_ps((const void *)panel);
        const uint8_t *codes = panel + FP8_NF4_SCALES;
        const size_t n = count - k0 < F8_GROUP ? count - k0 : F8_GROUP;
        for (size_t k = 0; k < n; k++, out += WEFT_PANEL) {
            _mm512_store_ps(out, _mm512_mul_ps(scale, f8_values(codes + k * WEFT_PANEL)));
        }
        panel = codes + (size_t)F8_GROUP * WEFT_PANEL;
    }
}

static void widen_nf4(const uint8_t *panel, uint32_t count, float *out) {
    const __m512 values = _mm512_loadu_ps(nf4_values);
    for (size_t k0 = 0; k0 < count; k0 += NF4_GROUP) {
        const __m512 scale = _mm512_loadu_ps((const void *)panel);
        panel += FP8_NF4_SCALES;
        for (size_t k = 0; k < NF4_GROUP; k += 2, panel += WEFT_PANEL, out += 2 * WEFT_PANEL) {
            /* The permutation looks at the lowest four bits alone. */
            __m512i odd = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)panel));
            __m512i even = _mm512_srli_epi32(odd, 4);
            _mm512_store_ps(out, _mm512_mul_ps(scale, _mm512_permutexvar_ps(even, values)));
            _mm512_store_ps(out + WEFT_PANEL,
                            _mm512_mul_ps(scale, _mm512_permutexvar_ps(odd, values)));
        }
    }
}

static const struct tile_kernel f8_kernel = {.kind = WEFT_GEMM_F8_E4M3_F32,
                                             .group = F8_GROUP,
                                             .group_bytes = FP8_NF4_SCALES + F8_GROUP * WEFT_PANEL,
                                             .step = 1,
                                             .per_word = 1,
                                             TILES_WIDENED_AVX512,
                                             .widen = widen_f8};

static const struct tile_kernel nf4_kernel = {.kind = WEFT_GEMM_NF4_F32,
                                              .group = NF4_GROUP,
                                              .group_bytes =
                                                  FP8_NF4_SCALES + NF4_GROUP / 2 * WEFT_PANEL,
                                              .step = 1,
                                              .per_word = 1,
                                              TILES_WIDENED_AVX512,
                                              .widen = widen_nf4};

static void gemm_f8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&f8_kernel, args, p_begin, p_end);
}

static void gemm_nf4(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&nf4_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_fp8_nf4_avx512(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_F8_E4M3_F32] = gemm_f8;
    table->gemm[WEFT_GEMM_NF4_F32] = gemm_nf4;
}
