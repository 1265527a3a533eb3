/* The types of 2 to 6 bits: with quantised activations on a CPU without VNNI, and with f32 ones,
 * where weights are widened chunk by chunk into L1 and meet the tile of f32. */
#include "gemm_q2_q6_avx512.h"

/* Element `i` (0..3) of each of the 16 quads in `codes` as f32. */
ALWAYS_INLINE __m512 code_f32(__m512i codes, uint32_t i) {
    __m512i shifted = _mm512_srli_epi32(codes, 8 * i);
    return _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(255)));
}

ALWAYS_INLINE void widen_quads(__m512i codes, __m512 zero, __m512 scale, __m512 min, float *out) {
    for (uint32_t i = 0; i < 4; i++) {
        __m512 code = _mm512_sub_ps(code_f32(codes, i), zero);
        _mm512_store_ps(out + (size_t)i * WEFT_PANEL, _mm512_fmadd_ps(scale, code, min));
    }
}

ALWAYS_INLINE __m512 signed_min(const struct quant_layout *q, const uint8_t *panel, uint32_t sub) {
    __m512 min = q->has_min ? load_min(q, panel, sub) : _mm512_setzero_ps();
    return takes_min_away(q) ? _mm512_sub_ps(_mm512_setzero_ps(), min) : min;
}

ALWAYS_INLINE void widen_quant(const struct quant_layout *q, const uint8_t *panel, uint32_t count,
                               float *out) {
    const __m512 zero = _mm512_set1_ps((float)q->zero);
    for (size_t k0 = 0; k0 < count; k0 += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < q->group / QUANT_BLOCK; block++) {
            uint32_t n_subs = QUANT_BLOCK / q->sub, sub = block * n_subs;
            uint32_t last = sub + n_subs - 1;
            __m512 low = load_scale(q, panel, sub), high = load_scale(q, panel, last);
            __m512 low_min = signed_min(q, panel, sub), high_min = signed_min(q, panel, last);
            for (uint32_t j = 0; j < 4; j++) {
                struct quads quads = load_quads(q, panel, block, j);
                float *to = out + (size_t)j * 4 * WEFT_PANEL;
                widen_quads(quads.low, zero, low, low_min, to);
                widen_quads(quads.high, zero, high, high_min,
                            to + (size_t)QUANT_BLOCK / 2 * WEFT_PANEL);
            }
            out += (size_t)QUANT_BLOCK * WEFT_PANEL;
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
                                           TILES_WIDENED_AVX512,                                   \
                                           .widen = widen_##name};                                 \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

QUANT_EACH(DEFINE_QUANT_F32)

#define FILL_QUANT_F32(name, ID, ...) table->gemm[WEFT_GEMM_##ID##_F32] = gemm_##name##_f32;

void wefti_kern_fill_gemm_q2_q6_avx512(struct weft_kern_table *table) {
    fill_quant(table);
    QUANT_EACH(FILL_QUANT_F32)
}
