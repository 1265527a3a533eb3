/* Q8 weights with f32 activations; and both as Q8 on a CPU without VNNI. */
#include "gemm_q8_avx512.h"

/* w = scale * code, exactly (11 times 8 significant bits), in two instructions: a shuffle puts the
 * byte code + 128 into the second lowest byte of 32768.0f, which is worth 1 there: 32896 + code.
 * One FMA multiplies by the scale and takes 32896 * scale (exact, too: 9 times 11 bits) away. */
struct q8_widener {
    __m512 scale, bias;
};

ALWAYS_INLINE struct q8_widener widener_of(const uint8_t *block) {
    __m512 scale = load_scales(block);
    return (struct q8_widener){scale, _mm512_mul_ps(scale, _mm512_set1_ps(-32896.0f))};
}

/* Element `i` (0..3) of each of the 16 quads in `codes`. */
ALWAYS_INLINE __m512 widen_one(const struct q8_widener *w, __m512i codes, uint32_t i) {
    const int from = (int)i << 8; /* only the second byte of each four is taken */
    const __m512i byte_order = _mm512_set4_epi32(0x0c00 + from, 0x0800 + from, 0x0400 + from, from);
    __m512i biased = _mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x47000000), 0x2222222222222222u,
                                              codes, byte_order);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(biased), w->scale, w->bias);
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
        struct q8_widener widener[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            widener[p] = widener_of(t.panels[p] + b * Q8_BLOCK_BYTES);
        }
        for (size_t quad = 0; quad < Q8_QUADS; quad++) {
            __m512i codes[TILE_PANELS_MAX];
            for (uint32_t p = 0; p < panels; p++) {
                codes[p] = _mm512_loadu_si512(t.panels[p] + b * Q8_BLOCK_BYTES + quad * 64);
            }
            for (uint32_t i = 0; i < 4; i++) {
                __m512 w[TILE_PANELS_MAX];
                for (uint32_t p = 0; p < panels; p++) {
                    w[p] = widen_one(&widener[p], codes[p], i);
                }
                for (uint32_t r = 0; r < rows; r++) {
                    __m512 a = broadcast_f32(act, r, b * Q8_GROUP + quad * 4 + i);
                    for (uint32_t p = 0; p < panels; p++) {
                        sum[r][p] = _mm512_fmadd_ps(a, w[p], sum[r][p]);
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
            __m512i codes = _mm512_loadu_si512(panel + quad * 64);
            for (uint32_t i = 0; i < 4; i++, out += WEFT_PANEL) {
                _mm512_store_ps(out, widen_one(&widener, codes, i));
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
    TILES_AVX512(few_q8_f32, wefti_kern_tile_f32_many_avx512),
    .widen = widen_q8};

static void gemm_q8_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&q8_f32_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_q8_avx512(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q8_0_F32] = gemm_q8_f32;
    table->gemm[WEFT_GEMM_Q8_0] = gemm_q8;
}
