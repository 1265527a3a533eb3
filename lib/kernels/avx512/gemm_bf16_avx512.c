/* bf16 weights with f32 activations, and with bf16 ones on a CPU whose vdpbf16ps is slow or not
 * there. A pair of elements lies in 32 bits, the even one low; either is an f32 once it is in the
 * high half. With bf16 activations the order is the same, so they are widened and take the same
 * tiles. */
#include "gemm_avx512.h"

ALWAYS_INLINE __m512i load_pairs(const uint8_t *panel, size_t pair) {
    return _mm512_load_si512(panel + pair * 64);
}

ALWAYS_INLINE __m512 widen_even(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

ALWAYS_INLINE __m512 widen_odd(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}

ALWAYS_INLINE void tile_pairs(const struct tile *args, uint32_t rows, uint32_t panels,
                              uint32_t group_rows) {
    const struct tile t = *args;
    const struct act_words act = act_words_at(&t, group_rows, t.k_begin);
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    for (size_t pair = 0; pair < t.count / 2; pair++) {
        __m512 even[TILE_PANELS_MAX], odd[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            __m512i pairs = load_pairs(t.panels[p], pair);
            even[p] = widen_even(pairs);
            odd[p] = widen_odd(pairs);
        }
        prefetch_either(&t, panels, group_rows, pair * 2, pair * 64);
        if (group_rows > 1) prefetch_step(&t, panels, pair * 2 + 1);
        for (uint32_t r = 0; r < rows; r++) {
            __m512 a0 = broadcast_f32(act, r, pair * 2), a1 = broadcast_f32(act, r, pair * 2 + 1);
            for (uint32_t p = 0; p < panels; p++) {
                sum[r][p] = _mm512_fmadd_ps(a0, even[p], sum[r][p]);
                sum[r][p] = _mm512_fmadd_ps(a1, odd[p], sum[r][p]);
            }
        }
    }
    if (t.count % 2 != 0) { /* an odd K ends here; the bytes after the activations are not ours */
        for (uint32_t r = 0; r < rows; r++) {
            __m512 a0 = broadcast_f32(act, r, t.count - 1);
            for (uint32_t p = 0; p < panels; p++) {
                __m512 even = widen_even(load_pairs(t.panels[p], t.count / 2));
                sum[r][p] = _mm512_fmadd_ps(a0, even, sum[r][p]);
            }
        }
    }
    store_sums(&t, rows, panels, sum);
}

static void few_bf16(const struct tile *t, uint32_t rows) {
    RUN_FEW(tile_pairs, t, rows, FEW_PANELS)
}

static void narrow_bf16(const struct tile *t, uint32_t rows) {
    RUN_MANY(tile_pairs, t, rows)
}

static void widen_bf16(const uint8_t *panel, uint32_t count, float *out) {
    for (size_t k = 0; k < count; k++) {
        __m512i pairs = load_pairs(panel, k / 2);
        _mm512_store_ps(out + k * WEFT_PANEL, k % 2 == 0 ? widen_even(pairs) : widen_odd(pairs));
    }
}

/* Two words of 12 rows, 48 numbers, become 48 f32: of three vectors each takes its numbers from 32
 * that lie side by side, and puts them into high halves. */
static void widen_act_bf16_avx512(const uint8_t *act, uint32_t count, uint32_t group_rows,
                                  float *out) {
    enum { VECTORS = 3, PAIR = 2 * MANY_ROWS * ACT_WORD }; /* PAIR: bytes of two words */
    static const uint8_t begins[VECTORS] = {0, 16, 32};    /* where the 32 numbers are, in bytes */
    uint32_t done = 0;
    if (group_rows == MANY_ROWS) {
        _Alignas(64) uint16_t at[VECTORS][32];
        for (uint32_t i = 0; i < VECTORS * 32; i++) {
            uint32_t column = i / 2 / MANY_ROWS, row = i / 2 % MANY_ROWS;
            uint32_t from = (column / 2 * MANY_ROWS + row) * 2 + column % 2;
            at[i / 32][i % 32] = (uint16_t)(from - begins[i / 32] / 2u);
        }
        for (; done + 4 <= count; done += 4, act += PAIR, out += (size_t)4 * MANY_ROWS) {
            for (uint32_t v = 0; v < VECTORS; v++) {
                __m512i near = _mm512_loadu_si512(act + begins[v]);
                __m512i wide =
                    _mm512_maskz_permutexvar_epi16(0xaaaaaaaau, _mm512_load_si512(at[v]), near);
                _mm512_storeu_si512(out + (size_t)v * WEFT_PANEL, wide);
            }
        }
    } else if (group_rows == 1) {
        for (; done + 16 <= count; done += 16, act += 32, out += 16) {
            __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)act));
            _mm512_storeu_si512(out, _mm512_slli_epi32(wide, 16));
        }
    }
    widen_act_bf16(act, count - done, group_rows, out);
}

static const struct tile_kernel bf16_f32_kernel = {
    .kind = WEFT_GEMM_BF16_F32,
    .group = 2,
    .group_bytes = 64,
    .step = 1,
    .per_word = 1,
    TILES_AVX512(few_bf16, wefti_kern_tile_f32_many_avx512),
    .narrow = narrow_bf16,
    .widen = widen_bf16};

static const struct tile_kernel bf16_kernel = {
    .kind = WEFT_GEMM_BF16,
    .group = 2,
    .group_bytes = 64,
    .step = 1,
    .per_word = 2,
    TILES_AVX512(few_bf16, wefti_kern_tile_f32_many_avx512),
    .narrow = narrow_bf16,
    .widen = widen_bf16,
    .widen_act = widen_act_bf16_avx512};

static void gemm_bf16_f32(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&bf16_f32_kernel, args, p_begin, p_end);
}

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    gemm_run(&bf16_kernel, args, p_begin, p_end);
}

void wefti_kern_fill_gemm_bf16_avx512(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_BF16_F32] = gemm_bf16_f32;
    table->gemm[WEFT_GEMM_BF16] = gemm_bf16;
}
