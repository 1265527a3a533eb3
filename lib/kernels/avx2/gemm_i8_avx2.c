/* int8 weights of one scale per feature, with int8 activations and with f32 ones. */
#include "gemm_i8_avx2.h"

static void widen_i8(const uint8_t *panel, uint32_t count, float *out) {
    const __m256i low = _mm256_set1_epi32(255), zero = _mm256_set1_epi32(128);
    for (uint32_t k = 0; k < count; k++) {
        const __m256i *quads = (const void *)(panel + (size_t)(k / 4) * I8_QUAD_BYTES);
        for (uint32_t h = 0; h < 2; h++, out += HALF) {
            __m256i codes = _mm256_srlv_epi32(_mm256_load_si256(quads + h),
                                              _mm256_set1_epi32((int)(k % 4 * 8)));
            codes = _mm256_sub_epi32(_mm256_and_si256(codes, low), zero);
            _mm256_store_ps(out, _mm256_cvtepi32_ps(codes));
        }
    }
}

static void scale_i8(float *out, uint32_t count, const float *scales) {
    const __m256 low = _mm256_load_ps(scales), high = _mm256_load_ps(scales + HALF);
    for (uint32_t k = 0; k < count; k++, out += WEFT_PANEL) {
        _mm256_store_ps(out, _mm256_mul_ps(_mm256_load_ps(out), low));
        _mm256_store_ps(out + HALF, _mm256_mul_ps(_mm256_load_ps(out + HALF), high));
    }
}

static const struct tile_kernel i8_f32_kernel = {.kind = WEFT_GEMM_I8_F32,
                                                 .group = I8_GROUP,
                                                 .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                                 .step = 1,
                                                 .per_word = 1,
                                                 TILES_WIDENED_AVX2,
                                                 .widen = widen_i8,
                                                 .scale = scale_i8};

static void gemm_i8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_f32_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_i8_avx2(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8_F32] = gemm_i8_f32;
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}
