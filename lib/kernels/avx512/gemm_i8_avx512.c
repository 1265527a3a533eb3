/* int8 weights of one scale per feature: with int8 activations on a CPU without VNNI, and with f32
 * ones, where they are widened chunk by chunk into L1 and meet the tile of f32. */
#include "gemm_i8_avx512.h"

static void widen_i8(const uint8_t *panel, uint32_t count, float *out) {
    const __m512i low = _mm512_set1_epi32(255), zero = _mm512_set1_epi32(128);
    for (uint32_t k = 0; k < count; k++, out += WEFT_PANEL) {
        __m512i quads = _mm512_load_si512(panel + (size_t)(k / 4) * I8_QUAD_BYTES);
        __m512i codes = _mm512_srlv_epi32(quads, _mm512_set1_epi32((int)(k % 4 * 8)));
        codes = _mm512_sub_epi32(_mm512_and_si512(codes, low), zero);
        _mm512_store_ps(out, _mm512_cvtepi32_ps(codes));
    }
}

static void scale_i8(float *out, uint32_t count, const float *scales) {
    const __m512 by = _mm512_load_ps(scales);
    for (uint32_t k = 0; k < count; k++, out += WEFT_PANEL) {
        _mm512_store_ps(out, _mm512_mul_ps(_mm512_load_ps(out), by));
    }
}

static const struct tile_kernel i8_f32_kernel = {.kind = WEFT_GEMM_I8_F32,
                                                 .group = I8_GROUP,
                                                 .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                                 .step = 1,
                                                 .per_word = 1,
                                                 TILES_WIDENED_AVX512,
                                                 .widen = widen_i8,
                                                 .scale = scale_i8};

static void gemm_i8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_f32_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_i8_avx512(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8_F32] = gemm_i8_f32;
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}
