/* kernels/gemm_quant_avx512 — the types of 4 to 6 bits with activations of 8: for the files with
 * and without VNNI; integers are exact, so both give the same bits. Codes are taken apart in
 * registers, for every tile of rows anew: that costs the ports that shuffle, and the dot products
 * keep those that multiply. Tiles are those of Q8. */
#ifndef WEFT_KERNELS_GEMM_QUANT_AVX512_H
#define WEFT_KERNELS_GEMM_QUANT_AVX512_H

#include "kernels/gemm_avx512.h"
#include "kernels/quant.h"

enum { QUANT_FEW_ROWS = 2, QUANT_FEW_PANELS = 4, QUANT_MANY_ROWS = 6, QUANT_MANY_PANELS = 2 };

/* Adds to 16 sums the products of 4 codes, up to 63, by 4 signed bytes each. */
ALWAYS_INLINE __m512i dot_codes(__m512i sum, __m512i codes, __m512i a) {
#ifdef __AVX512VNNI__
    return _mm512_dpbusd_epi32(sum, codes, a);
#else
    __m512i pairs = _mm512_maddubs_epi16(codes, a); /* 2 * 63 * 128 does not saturate */
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#endif
}

struct quads {
    __m512i low, high; /* quads j and j + 4 of a block */
};

/* 16-bit lanes by a constant, to the right where it is negative. Compilers do not agree on the type
 * of the intrinsics' counts. */
ALWAYS_INLINE __m512i shift(__m512i x, int left) {
    typedef uint16_t lanes __attribute__((vector_size(64)));
    return left >= 0 ? (__m512i)((lanes)x << left) : (__m512i)((lanes)x >> -left);
}

/* bits | x & mask */
ALWAYS_INLINE __m512i merge(__m512i bits, __m512i x, char mask) {
    return _mm512_ternarylogic_epi32(bits, x, _mm512_set1_epi8(mask), 0xf8);
}

ALWAYS_INLINE struct quads load_quads(const struct quant_layout *q, const uint8_t *group,
                                      uint32_t block, uint32_t j) {
    const uint8_t *line = group + block * QUANT_LOW_BYTES + j * QUANT_LINE;
    __m512i both = _mm512_loadu_si512(line), nibble = _mm512_set1_epi8(15);
    struct quads quads = {_mm512_and_si512(both, nibble),
                          _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble)};
    const uint8_t *high = group + q->at_high;
    if (q->high_bits == 1) { /* bit j to 4, and bit j + 4 */
        __m512i bits = _mm512_loadu_si512(high + block * QUANT_LINE);
        quads.low = merge(quads.low, shift(bits, 4 - (int)j), 16);
        quads.high = merge(quads.high, shift(bits, -(int)j), 16);
    }
    if (q->high_bits == 2) { /* bits 2j, 2j + 1 to 4, 5 */
        __m512i low = _mm512_loadu_si512(high + block * 2 * QUANT_LINE);
        __m512i top = _mm512_loadu_si512(high + (block * 2 + 1) * QUANT_LINE);
        low = shift(low, 4 - 2 * (int)j);
        top = shift(top, 4 - 2 * (int)j);
        quads.low = merge(quads.low, low, 48);
        quads.high = merge(quads.high, top, 48);
    }
    return quads;
}

ALWAYS_INLINE __m512 load_halves(const uint8_t *at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

ALWAYS_INLINE __m512 load_scale(const struct quant_layout *q, const uint8_t *group, uint32_t sub) {
    const uint8_t *scales = group + q->at_scales;
    if (!q->is_super) return load_halves(scales);
    __m128i bytes = _mm_loadu_si128((const void *)(scales + sub * WEFT_PANEL));
    __m512i whole = q->high_bits == 2 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    return _mm512_mul_ps(load_halves(group + q->at_super), _mm512_cvtepi32_ps(whole));
}

/* 4_1: as stored; the K types: what is to be taken away. */
ALWAYS_INLINE __m512 load_min(const struct quant_layout *q, const uint8_t *group, uint32_t sub) {
    const uint8_t *mins = group + q->at_mins;
    if (!q->is_super) return load_halves(mins);
    __m128i bytes = _mm_loadu_si128((const void *)(mins + sub * WEFT_PANEL));
    __m512 super = load_halves(group + q->at_super + WEFT_PANEL * 2);
    return _mm512_mul_ps(super, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}

typedef __m512i tile_dots[MANY_ROWS][TILE_PANELS_MAX];

/* Lines j_begin..j_end of a block. Of 6_K a line's two quads have scales of their own, `high_dot`
 * takes the second. */
ALWAYS_INLINE void dot_lines(const struct tile *t, const struct quant_layout *q, uint32_t rows,
                             uint32_t panels, const uint8_t *const *groups, size_t block_at,
                             uint32_t block, tile_dots low_dot, tile_dots high_dot) {
    const uint8_t *codes = t->act + t->k_begin;
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; j++) {
        struct quads w[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w[p] = load_quads(q, groups[p], block, j);
        }
        if (rows > QUANT_FEW_ROWS) prefetch_step(t, panels, block_at * 4 + j);
        for (uint32_t r = 0; r < rows; r++) {
            const int32_t *row = (const void *)(codes + r * t->act_row_bytes);
            __m512i low = _mm512_set1_epi32(row[block_at * Q8_QUADS + j]);
            __m512i high = _mm512_set1_epi32(row[block_at * Q8_QUADS + j + 4]);
            for (uint32_t p = 0; p < panels; p++) {
                low_dot[r][p] = dot_codes(low_dot[r][p], w[p].low, low);
                high_dot[r][p] = dot_codes(high_dot[r][p], w[p].high, high);
            }
        }
    }
}

ALWAYS_INLINE __m512 scaled(__m512i dot, __m512 scale, __m512 sum) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sum);
}

ALWAYS_INLINE void tile_quant(const struct tile *args, const struct quant_layout *q, uint32_t rows,
                              uint32_t panels) {
    const struct tile t = *args;
    const size_t n_blocks = t.count / QUANT_BLOCK, per_group = q->group / QUANT_BLOCK;
    const struct q8_row first = q8_row_at(t.act, t.k);
    const size_t at = t.k_begin / QUANT_BLOCK;
    const bool two = q->sub < QUANT_BLOCK;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    for (size_t b = 0; b < n_blocks; b++) {
        uint32_t block = (uint32_t)(b % per_group), sub = two ? 2 * block : block;
        const uint8_t *groups[TILE_PANELS_MAX];
        tile_dots low, high;
        for (uint32_t p = 0; p < panels; p++) {
            groups[p] = t.panels[p] + b / per_group * q->bytes;
        }
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t p = 0; p < panels; p++) {
                low[r][p] = high[r][p] = _mm512_setzero_si512();
            }
        }
        if (two)
            dot_lines(&t, q, rows, panels, groups, b, block, low, high);
        else
            dot_lines(&t, q, rows, panels, groups, b, block, low, low);
        __m512 scale[2][TILE_PANELS_MAX], min[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            scale[0][p] = load_scale(q, groups[p], sub);
            if (two) scale[1][p] = load_scale(q, groups[p], sub + 1);
            if (q->has_min) min[p] = load_min(q, groups[p], sub);
        }
        for (uint32_t r = 0; r < rows; r++) {
            const size_t skip = r * t.act_row_bytes;
            const float *a_scale = (const void *)((const uint8_t *)first.scales + skip);
            const int32_t *offset = (const void *)((const uint8_t *)first.offsets + skip);
            const int32_t *half = (const void *)((const uint8_t *)first.halves + skip);
            const float *a_sum = (const void *)((const uint8_t *)first.sums + skip);
            __m512 by = _mm512_set1_ps(a_scale[at + b]);
            for (uint32_t p = 0; p < panels; p++) {
                __m512 by_low = _mm512_mul_ps(by, scale[0][p]);
                if (two) { /* zero is 32 */
                    __m512i off = _mm512_set1_epi32(half[at + b]);
                    __m512i rest = _mm512_set1_epi32(offset[at + b] / 4 - half[at + b]);
                    sum[r][p] = scaled(_mm512_sub_epi32(low[r][p], off), by_low, sum[r][p]);
                    sum[r][p] = scaled(_mm512_sub_epi32(high[r][p], rest),
                                       _mm512_mul_ps(by, scale[1][p]), sum[r][p]);
                } else if (q->zero) { /* it is 8 */
                    __m512i off = _mm512_set1_epi32(offset[at + b] / 16);
                    sum[r][p] = scaled(_mm512_sub_epi32(low[r][p], off), by_low, sum[r][p]);
                } else {
                    __m512 sums = _mm512_set1_ps(a_sum[at + b]);
                    sum[r][p] = scaled(low[r][p], by_low, sum[r][p]);
                    sum[r][p] = q->is_super ? _mm512_fnmadd_ps(sums, min[p], sum[r][p])
                                            : _mm512_fmadd_ps(sums, min[p], sum[r][p]);
                }
            }
        }
    }
    store_sums(&t, rows, panels, sum);
}

/* The layout is a constant in every copy. */
#define DEFINE_QUANT(name, KIND)                                                                   \
    ALWAYS_INLINE void tile_##name(const struct tile *t, uint32_t rows, uint32_t panels) {         \
        tile_quant(t, &quant_layouts[QUANT_##KIND], rows, panels);                                 \
    }                                                                                              \
    static void few_##name(const struct tile *t, uint32_t n_rows) {                                \
        switch (n_rows) {                                                                          \
            TILE_CASE(tile_##name, t, 1, QUANT_FEW_PANELS);                                        \
            TILE_CASE(tile_##name, t, 2, QUANT_FEW_PANELS);                                        \
        default:                                                                                   \
            weft_check_failed("rows of a tile", __FILE__, __LINE__);                               \
        }                                                                                          \
    }                                                                                              \
    static void many_##name(const struct tile *t, uint32_t n_rows) {                               \
        switch (n_rows) {                                                                          \
            TILE_CASE(tile_##name, t, 3, QUANT_MANY_PANELS);                                       \
            TILE_CASE(tile_##name, t, 4, QUANT_MANY_PANELS);                                       \
            TILE_CASE(tile_##name, t, 5, QUANT_MANY_PANELS);                                       \
            TILE_CASE(tile_##name, t, 6, QUANT_MANY_PANELS);                                       \
        default:                                                                                   \
            weft_check_failed("rows of a tile", __FILE__, __LINE__);                               \
        }                                                                                          \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        const struct quant_layout *q = &quant_layouts[QUANT_##KIND];                               \
        const struct tile_kernel kernel = {.kind = WEFT_GEMM_Q##KIND,                              \
                                           .group = q->group,                                      \
                                           .group_bytes = q->bytes,                                \
                                           .step = 8,                                              \
                                           .few_rows = QUANT_FEW_ROWS,                             \
                                           .few_panels = QUANT_FEW_PANELS,                         \
                                           .few = few_##name,                                      \
                                           .many_rows = QUANT_MANY_ROWS,                           \
                                           .many_panels = QUANT_MANY_PANELS,                       \
                                           .many = many_##name};                                   \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

DEFINE_QUANT(q4_0, 4_0)
DEFINE_QUANT(q4_1, 4_1)
DEFINE_QUANT(q4_k, 4_K)
DEFINE_QUANT(q5_k, 5_K)
DEFINE_QUANT(q6_k, 6_K)

static void fill_quant(struct weft_kern_table *table) {
    table->gemm[WEFT_GEMM_Q4_0] = gemm_q4_0;
    table->gemm[WEFT_GEMM_Q4_1] = gemm_q4_1;
    table->gemm[WEFT_GEMM_Q4_K] = gemm_q4_k;
    table->gemm[WEFT_GEMM_Q5_K] = gemm_q5_k;
    table->gemm[WEFT_GEMM_Q6_K] = gemm_q6_k;
}

#endif
