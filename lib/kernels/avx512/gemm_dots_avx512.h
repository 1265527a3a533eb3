/* kernels/gemm_dots_avx512 — rows of int8 by weights whose blocks of 32 columns have scales.
 *
 * A block's integer dot becomes a float by its bits: it begins at those of 1.5 * 2^23, whose last
 * place is worth 1. One FMA with the weights' scale, and -1.5 * 2^23 times it to take the beginning
 * away, is dot * scale, rounded once, as both factors are exact: scales have 21 bits at most. A
 * second one multiplies by the activations' scale and adds. To convert, to multiply the scales and
 * to add would be three operations on the two ports that dot products need, too: 36 beside the 96
 * dots of 6 rows x 2 panels, and so they are 24.
 *
 * Many rows meet weights as they are unpacked once per chunk for all tiles: codes as bytes, [8][16][4]
 * in a block, and its factors: [16] f32 each of scales, biases and, where there are some, mins. */
#ifndef WEFT_KERNELS_GEMM_DOTS_AVX512_H
#define WEFT_KERNELS_GEMM_DOTS_AVX512_H

#include "gemm_avx512.h"

/* Adds to 16 sums the products of 4 unsigned by 4 signed bytes each. */
ALWAYS_INLINE __m512i dot_quads(__m512i sum, __m512i w, __m512i a) {
#ifdef __AVX512VNNI__
    return _mm512_dpbusd_epi32(sum, w, a);
#else
    /* vpmaddubsw would saturate; even and odd bytes as 16-bit numbers do not. */
    __m512i w_even = _mm512_and_si512(w, _mm512_set1_epi16(0xff)), w_odd = _mm512_srli_epi16(w, 8);
    __m512i a_even = _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8), a_odd = _mm512_srai_epi16(a, 8);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(w_even, a_even));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w_odd, a_odd));
#endif
}

/* The same of codes up to 127, whose pairs do not saturate: 2 * 127 * 128. */
ALWAYS_INLINE __m512i dot_short_quads(__m512i sum, __m512i w, __m512i a) {
#ifdef __AVX512VNNI__
    return _mm512_dpbusd_epi32(sum, w, a);
#else
    __m512i pairs = _mm512_maddubs_epi16(w, a);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#endif
}

ALWAYS_INLINE __m512i biased(__m512i start) {
    return _mm512_add_epi32(start, _mm512_set1_epi32(DOT_BIAS_BITS));
}

ALWAYS_INLINE __m512 bias_of(__m512 scale) {
    return _mm512_mul_ps(scale, _mm512_set1_ps(-DOT_BIAS));
}

/* sum + dot * scale * by; `bias` is bias_of(scale). */
ALWAYS_INLINE __m512 add_dot(__m512 sum, __m512i dot, __m512 scale, __m512 bias, __m512 by) {
    return _mm512_fmadd_ps(_mm512_fmadd_ps(_mm512_castsi512_ps(dot), scale, bias), by, sum);
}

/* Activations beside their codes, from the tile's first block on. */
struct dot_acts {
    struct act_words codes, scales, offsets, halves, sums;
};

ALWAYS_INLINE struct dot_acts dot_acts_at(const struct tile *t, uint32_t group_rows) {
    const size_t n_all = t->k / Q8_GROUP, first = t->k_begin / Q8_GROUP;
    return (struct dot_acts){act_words_at(t, group_rows, first * Q8_QUADS),
                             act_words_at(t, group_rows, n_all * Q8_QUADS + first),
                             act_words_at(t, group_rows, n_all * (Q8_QUADS + 1) + first),
                             act_words_at(t, group_rows, n_all * (Q8_QUADS + 2) + first),
                             act_words_at(t, group_rows, n_all * (Q8_QUADS + 3) + first)};
}

/* What differs between types; a constant in every copy of the tile. */
struct dot_form {
    uint32_t block_bytes; /* from the codes of a block to those of the next one */
    uint32_t quads;       /* that share a scale: those of a block, or of half of it */
    bool is_short, has_starts, has_mins; /* codes are up to 127; dots begin at tile->starts */
};

/* A block of the tile, and which of its scales. */
struct dot_place {
    size_t block, part;
};

/* The quads of a scale, for the tile's rows and panels. */
ALWAYS_INLINE void add_quads(const struct tile *t, struct dot_form form, uint32_t rows,
                             uint32_t panels, struct dot_place place, tile_sums sum) {
    const struct dot_acts acts = dot_acts_at(t, MANY_ROWS);
    const size_t b = place.block, scale_idx = b * (Q8_QUADS / form.quads) + place.part;
    __m512i dot[DOT_MANY_ROWS][TILE_PANELS_MAX];
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            dot[r][p] = _mm512_set1_epi32(form.has_starts ? t->starts[scale_idx * MANY_ROWS + r]
                                                          : DOT_BIAS_BITS);
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < form.quads; i++) {
        const size_t quad = place.part * form.quads + i;
        __m512i w[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w[p] = _mm512_loadu_si512(t->panels[p] + b * form.block_bytes + quad * 64);
        }
        prefetch_step(t, panels, b * Q8_QUADS + quad);
        for (uint32_t r = 0; r < rows; r++) {
            __m512i a = broadcast_word(acts.codes, r, b * Q8_QUADS + quad);
            for (uint32_t p = 0; p < panels; p++) {
                dot[r][p] = form.is_short ? dot_short_quads(dot[r][p], w[p], a)
                                          : dot_quads(dot[r][p], w[p], a);
            }
        }
    }
    for (uint32_t p = 0; p < panels; p++) {
        const float *factors = t->factors[p] + scale_idx * (form.has_mins ? 3 : 2) * WEFT_PANEL;
        __m512 scale = _mm512_load_ps(factors), bias = _mm512_load_ps(factors + WEFT_PANEL);
        for (uint32_t r = 0; r < rows; r++) {
            __m512 by = broadcast_f32(acts.scales, r, b);
            sum[r][p] = add_dot(sum[r][p], dot[r][p], scale, bias, by);
            if (!form.has_mins) continue;
            const float *halves = (const void *)t->starts; /* see start_half_sums */
            __m512 min = _mm512_load_ps(factors + (size_t)2 * WEFT_PANEL);
            __m512 sums = form.quads == Q8_QUADS
                              ? broadcast_f32(acts.sums, r, b)
                              : _mm512_set1_ps(halves[scale_idx * MANY_ROWS + r]);
            sum[r][p] = _mm512_fmadd_ps(sums, min, sum[r][p]);
        }
    }
}

ALWAYS_INLINE void tile_blocks(const struct tile *args, struct dot_form form, uint32_t rows,
                               uint32_t panels) {
    const struct tile t = *args;
    const size_t n_blocks = t.count / Q8_GROUP;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    size_t b = 0;
    do {
        add_quads(&t, form, rows, panels, (struct dot_place){b, 0}, sum);
        if (form.quads < Q8_QUADS) add_quads(&t, form, rows, panels, (struct dot_place){b, 1}, sum);
    } while (++b < n_blocks);
    store_sums(&t, rows, panels, sum);
}

/* What dots of interleaved rows begin with: -128 * 2^-shift times the sum of their codes. */
ALWAYS_INLINE void start_blocks(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                                int shift, int32_t *out) {
    const int32_t *offsets = (const int32_t *)(const void *)act +
                             ((size_t)k / Q8_GROUP * (Q8_QUADS + 1) + first) * MANY_ROWS;
    for (size_t i = 0; i < (size_t)n_blocks * MANY_ROWS; i++) {
        out[i] = biased_word(offsets[i] >> shift, 0);
    }
}

/* The same for each half of a block; of the first half there are -32 times the sum. */
ALWAYS_INLINE void start_halves(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,
                                int shift, int32_t *out) {
    const size_t n_all = k / Q8_GROUP;
    const int32_t *offsets =
        (const int32_t *)(const void *)act + (n_all * (Q8_QUADS + 1) + first) * MANY_ROWS;
    const int32_t *halves = offsets + n_all * MANY_ROWS;
    for (size_t b = 0; b < n_blocks; b++, out += (size_t)2 * MANY_ROWS) {
        for (size_t r = 0; r < MANY_ROWS; r++) {
            int32_t low = shifted_right(halves[b * MANY_ROWS + r], shift - 2);
            out[r] = biased_word(low, 0);
            out[MANY_ROWS + r] = biased_word(offsets[b * MANY_ROWS + r] >> shift, low);
        }
    }
}

/* Halves of blocks with mins have dots that begin at nothing, and need in that place what mins are
 * multiplied by: scale times the sum of the half's codes. */
ALWAYS_INLINE void start_half_sums(const uint8_t *act, uint32_t k, uint32_t first,
                                   uint32_t n_blocks, int32_t *out) {
    const size_t n_all = k / Q8_GROUP, line = n_all * MANY_ROWS;
    const float *scales = (const float *)(const void *)act + Q8_QUADS * line + first * MANY_ROWS;
    const int32_t *offsets = (const int32_t *)(const void *)(scales + line),
                  *halves = offsets + line;
    float *sums = (void *)out;
    for (size_t b = 0; b < n_blocks; b++, sums += (size_t)2 * MANY_ROWS) {
        for (size_t r = 0; r < MANY_ROWS; r++) {
            const size_t at = b * MANY_ROWS + r;
            int32_t low = -(halves[at] >> 5);
            sums[r] = scales[at] * (float)low;
            sums[MANY_ROWS + r] = scales[at] * (float)(-(offsets[at] >> 7) - low);
        }
    }
}

#endif
