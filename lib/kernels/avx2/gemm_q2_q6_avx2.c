/* The types of 2 to 6 bits: with quantised activations on a CPU without VNNI, and with f32 ones,
 * where weights are widened chunk by chunk into L1 and meet the tile of f32. */
#include "gemm_q2_q6_avx2.h"

/* Element `i` (0..3) of each of the 8 quads in `codes` as a weight. */
ALWAYS_INLINE __m256 weight_of(__m256i codes, uint32_t i, __m256 zero, __m256 scale, __m256 min) {
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(codes, 8 * (int)i), _mm256_set1_epi32(255));
    return _mm256_fmadd_ps(scale, _mm256_sub_ps(_mm256_cvtepi32_ps(code), zero), min);
}

/* Columns k..k+3 of the group, those of a quad of a block. */
ALWAYS_INLINE void widen_quad(const struct quant_layout *q, const uint8_t *group, uint32_t block,
                              uint32_t quad, uint32_t sub, float *out) {
    const __m256 zero = _mm256_set1_ps((float)q->zero);
    for (uint32_t h = 0; h < 2; h++) {
        const __m256i codes = load_quad(q, group, block, quad, h);
        const __m256 scale = load_scale(q, group, sub, h);
        __m256 min = q->has_min ? load_min(q, group, sub, h) : _mm256_setzero_ps();
        if (takes_min_away(q)) min = _mm256_sub_ps(_mm256_setzero_ps(), min);
        for (uint32_t i = 0; i < 4; i++) {
            _mm256_store_ps(out + (size_t)i * WEFT_PANEL + (size_t)h * HALF,
                            weight_of(codes, i, zero, scale, min));
        }
    }
}

ALWAYS_INLINE void widen_quant(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                               float *out) {
    for (size_t k0 = 0; k0 < count; k0 += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < q->group / QUANT_BLOCK; block++) {
            for (uint32_t quad = 0; quad < Q8_QUADS; quad++, out += 4 * WEFT_PANEL) {
                const uint32_t sub = (block * QUANT_BLOCK + quad * 4) / q->sub;
                widen_quad(q, panel, block, quad, sub, out);
            }
        }
    }
}

#define DEFINE_QUANT_F32(name, ID, ...)                                                            \
    static void widen_##name(const uint8_t *panel, uint32_t count, float *out) {                   \
        widen_quant(&quant_layouts[WEFT_DT_##ID], panel, count, out);                              \
    }                                                                                              \
    static void gemm_##name##_f32(const struct weft_gemm_args *args, uint32_t p_begin,             \
                                  uint32_t p_end) {                                                \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_##ID##_F32,                           \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = 1,                                              \
                                           .per_word = 1,                                          \
                                           TILES_WIDENED_AVX2,                                     \
                                           .widen = widen_##name};                                 \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

QUANT_EACH(DEFINE_QUANT_F32)

#define FILL_QUANT_F32(name, ID, ...) table->gemm[WEFT_GEMM_##ID##_F32] = gemm_##name##_f32;

void wefti_kern_fill_gemm_q2_q6_avx2(struct weft_kern_table *table) {
    fill_quant(table);
    QUANT_EACH(FILL_QUANT_F32)
}
