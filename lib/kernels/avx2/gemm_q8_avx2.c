/* Q8 weights with f32 activations, and both as Q8. Weights are stored as code + 128. */
#include "gemm_q8_avx2.h"

struct codes {
    __m256i low, high;
};

ALWAYS_INLINE struct codes load_codes(const uint8_t *block, size_t quad) {
    const __m256i *w = (const void *)(block + quad * 64);
    return (struct codes){_mm256_loadu_si256(w), _mm256_loadu_si256(w + 1)};
}

ALWAYS_INLINE struct pair load_scales(const uint8_t *block) {
    const __m128i *scales = (const void *)(block + Q8_CODES);
    return (struct pair){_mm256_cvtph_ps(_mm_loadu_si128(scales)),
                         _mm256_cvtph_ps(_mm_loadu_si128(scales + 1))};
}

/* w = scale * code, exactly: see gemm_q8_avx512.c. The shuffle leaves zeros around the byte. */
struct q8_widener {
    struct pair scale, bias;
};

ALWAYS_INLINE struct q8_widener widener_of(const uint8_t *block) {
    const __m256 minus_32896 = _mm256_set1_ps(-32896.0f);
    struct pair scale = load_scales(block);
    return (struct q8_widener){
        scale, {_mm256_mul_ps(scale.low, minus_32896), _mm256_mul_ps(scale.high, minus_32896)}};
}

ALWAYS_INLINE __m256 widen_half(__m256i codes, __m256i byte_order, __m256 scale, __m256 bias) {
    __m256i biased =
        _mm256_or_si256(_mm256_shuffle_epi8(codes, byte_order), _mm256_set1_epi32(0x47000000));
    return _mm256_fmadd_ps(_mm256_castsi256_ps(biased), scale, bias);
}

/* Element `i` (0..3) of each of the 16 quads in `codes`. */
ALWAYS_INLINE struct pair widen_one(const struct q8_widener *w, struct codes codes, uint32_t i) {
    const int zero = (int)0x80800080u, from = zero + (int)(i << 8);
    const __m256i byte_order = _mm256_setr_epi32(from, from + 0x0400, from + 0x0800, from + 0x0c00,
                                                 from, from + 0x0400, from + 0x0800, from + 0x0c00);
    return (struct pair){widen_half(codes.low, byte_order, w->scale.low, w->bias.low),
                         widen_half(codes.high, byte_order, w->scale.high, w->bias.high)};
}

ALWAYS_INLINE void tile_q8_f32(const struct tile *args, uint32_t rows, uint32_t panels,
                               uint32_t group_rows) {
    const struct tile t = *args;
    const struct act_words act = act_words_at(&t, group_rows, t.k_begin);
    const size_t n_blocks = t.count / Q8_GROUP;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t b = 0;
    do {
        struct q8_widener widener[FEW_PANELS];
        for (uint32_t p = 0; p < panels; p++) {
            widener[p] = widener_of(t.panels[p] + b * Q8_BLOCK_BYTES);
        }
        for (size_t quad = 0; quad < Q8_QUADS; quad++) {
            for (uint32_t i = 0; i < 4; i++) {
                struct pair w[FEW_PANELS];
                for (uint32_t p = 0; p < panels; p++) {
                    w[p] = widen_one(&widener[p],
                                     load_codes(t.panels[p] + b * Q8_BLOCK_BYTES, quad), i);
                }
                for (uint32_t r = 0; r < rows; r++) {
                    __m256 a = broadcast_f32(act, r, b * Q8_GROUP + quad * 4 + i);
                    for (uint32_t p = 0; p < panels; p++) {
                        sum[r][p] = fmadd_pair(a, w[p], sum[r][p]);
                    }
                }
            }
        }
    } while (++b < n_blocks);
    store_sums(&t, rows, panels, sum);
}

static void few_q8_f32(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_q8_f32, t, rows, FEW_PANELS)
}

static void widen_q8(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t b = 0; b < count / Q8_GROUP; b++, panel += Q8_BLOCK_BYTES) {
        struct q8_widener widener = widener_of(panel);
        for (size_t quad = 0; quad < Q8_QUADS; quad++) {
            struct codes codes = load_codes(panel, quad);
            for (uint32_t i = 0; i < 4; i++, out += WEFT_PANEL) {
                struct pair w = widen_one(&widener, codes, i);
                _mm256_store_ps(out, w.low);
                _mm256_store_ps(out + HALF, w.high);
            }
        }
    }
}

static const struct tile_kernel q8_f32_kernel = {
    .kind = WEFT_GEMM_Q8_0_F32,
    .group = Q8_GROUP,
    .group_bytes = Q8_BLOCK_BYTES,
    .step = 1,
    .per_word = 1,
    TILES_AVX2(few_q8_f32, wefti_kern_tile_f32_many_avx2),
    .widen = widen_q8};

static void gemm_q8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&q8_f32_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_q8_avx2(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q8_0_F32] = gemm_q8_f32;
    table->gemm[WEFT_GEMM_Q8_0] = gemm_q8;
}
