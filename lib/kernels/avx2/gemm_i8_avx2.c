/* int8 weights of one scale per feature, with int8 activations and with f32 ones. Weights are
 * stored as code + 128; integer sums of a group of 256 columns stay in registers. */
#include "gemm_avx2.h"

struct codes {
    __m256i low, high; /* features 0..7 and 8..15 */
};

/* vpmaddubsw would saturate; even and odd bytes as 16-bit numbers do not. */
ALWAYS_INLINE __m256i dot_i8(__m256i sum, __m256i w, __m256i a_even, __m256i a_odd) {
    __m256i w_even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), w_odd = _mm256_srli_epi16(w, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w_even, a_even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w_odd, a_odd));
}

ALWAYS_INLINE void add_scaled(__m256i dot, __m256 by, float *acc) {
    _mm256_store_ps(acc, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), by, _mm256_load_ps(acc)));
}

/* One group of up to 256 columns: acc += dots * activation scale * weight scale. */
ALWAYS_INLINE void tile_i8(const struct tile *args, uint32_t rows, uint32_t panels,
                           uint32_t group_rows) {
    const struct tile t = *args;
    const uint32_t group = t.k_begin / I8_GROUP, n_words = i8_columns(t.k) / 4;
    const struct act_words acts = act_words_at(&t, group_rows, t.k_begin / 4);
    const struct act_words a_scales = act_words_at(&t, group_rows, n_words + group);
    const struct act_words offsets = act_words_at(&t, group_rows, n_words + i8_groups(t.k) + group);
    const size_t n_quads = i8_columns(t.count) / 4;
    struct codes dot[DOT_MANY_ROWS][FEW_PANELS];
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            dot[r][p].low = dot[r][p].high = broadcast_word(offsets, r, 0);
        }
    }
    for (size_t quad = 0; quad < n_quads; quad++) {
        if (group_rows > 1) prefetch_step(&t, panels, quad);
        for (uint32_t r = 0; r < rows; r++) {
            __m256i a = broadcast_word(acts, r, quad);
            __m256i a_even = _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
            __m256i a_odd = _mm256_srai_epi16(a, 8);
            for (uint32_t p = 0; p < panels; p++) {
                const __m256i *w = (const void *)(t.panels[p] + quad * I8_QUAD_BYTES);
                dot[r][p].low = dot_i8(dot[r][p].low, _mm256_load_si256(w), a_even, a_odd);
                dot[r][p].high = dot_i8(dot[r][p].high, _mm256_load_si256(w + 1), a_even, a_odd);
            }
        }
    }
    /* A panel ends in its scales. */
    const size_t scales_at = (i8_columns(t.k) - (size_t)t.k_begin) * WEFT_PANEL;
    for (uint32_t p = 0; p < panels; p++) {
        const float *scales = (const void *)(t.panels[p] + scales_at);
        for (uint32_t r = 0; r < rows; r++) {
            float *acc = t.acc + (r * panels + p) * WEFT_PANEL;
            __m256 by = broadcast_f32(a_scales, r, 0);
            add_scaled(dot[r][p].low, _mm256_mul_ps(by, _mm256_load_ps(scales)), acc);
            add_scaled(dot[r][p].high, _mm256_mul_ps(by, _mm256_load_ps(scales + HALF)),
                       acc + HALF);
        }
    }
}

static void few_i8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_FEW(tile_i8, t, n_rows)
}

static void many_i8(const struct tile *t, uint32_t n_rows) {
    RUN_DOT_MANY(tile_i8, t, n_rows)
}

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

static const struct tile_kernel i8_kernel = {.kind = WEFT_GEMM_I8,
                                             .group = I8_GROUP,
                                             .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                             .step = 4,
                                             .chunk = I8_GROUP,
                                             .per_word = 4,
                                             TILES_DOT_AVX2(few_i8, many_i8)};

static const struct tile_kernel i8_f32_kernel = {.kind = WEFT_GEMM_I8_F32,
                                                 .group = I8_GROUP,
                                                 .group_bytes = I8_GROUP / 4 * I8_QUAD_BYTES,
                                                 .step = 1,
                                                 .per_word = 1,
                                                 TILES_WIDENED_AVX2,
                                                 .widen = widen_i8,
                                                 .scale = scale_i8};

static void gemm_i8(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_kernel, args, p_begin, p_end);
}

static void gemm_i8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&i8_f32_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_i8_avx2(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_I8_F32] = gemm_i8_f32;
    table->gemm[WEFT_GEMM_I8] = gemm_i8;
}
