/* kernels/gemm_q2_q6_avx512 — the types of 2 to 6 bits with activations of 8: for the files with
 * and without VNNI; integers are exact, so both give the same bits. Many rows meet unpacked weights:
 * the tiles of gemm_dots_avx512.h. Few rows take codes apart in registers. */
#ifndef WEFT_KERNELS_GEMM_Q2_Q6_AVX512_H
#define WEFT_KERNELS_GEMM_Q2_Q6_AVX512_H

#include "gemm_dots_avx512.h"
#include "quant_avx512.h"

ALWAYS_INLINE bool is_short(const struct quant_layout *q) {
    return quant_most(q) <= 127;
}

ALWAYS_INLINE __m512i halve_words(__m512i x, int times) {
    typedef int32_t lanes __attribute__((vector_size(64)));
    typedef uint32_t unsigned_lanes __attribute__((vector_size(64)));
    return times >= 0 ? (__m512i)((lanes)x >> times) : (__m512i)((unsigned_lanes)x << -times);
}

typedef __m512i tile_dots[DOT_MANY_ROWS][TILE_PANELS_MAX];

enum part { LOW = 1, HIGH = 2, BOTH = 3 }; /* columns 0..15 of a block, 16..31 */

ALWAYS_INLINE __m512i dot_codes(const struct quant_layout *q, __m512i sum, __m512i codes,
                                __m512i a) {
    return is_short(q) ? dot_short_quads(sum, codes, a) : dot_quads(sum, codes, a);
}

/* A part of block `at` of the tile, which is block `block` of group `group`. */
struct place {
    size_t at, group;
    uint32_t block;
    enum part part;
};

ALWAYS_INLINE struct place place_of(const struct quant_layout *q, size_t at, enum part part) {
    const size_t per_group = q->group / QUANT_BLOCK;
    return (struct place){at, at / per_group, (uint32_t)(at % per_group), part};
}

ALWAYS_INLINE const uint8_t *group_at(const struct tile *t, const struct quant_layout *q,
                                      uint32_t panel, struct place place) {
    return t->panels[panel] + place.group * q->bytes;
}

/* Adds its products. */
ALWAYS_INLINE void dot_lines(const struct tile *t, const struct quant_layout *q, uint32_t rows,
                             uint32_t panels, struct place place, tile_dots dot) {
    const struct act_words codes = act_words_at(t, 1, t->k_begin / 4);
    const enum part part = place.part;
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; j++) {
        struct quads w[TILE_PANELS_MAX];
        for (uint32_t p = 0; p < panels; p++) {
            w[p] = load_quads(q, group_at(t, q, p, place), place.block, j);
        }
        for (uint32_t r = 0; r < rows; r++) {
            __m512i low = broadcast_word(codes, r, place.at * Q8_QUADS + j);
            __m512i high = broadcast_word(codes, r, place.at * Q8_QUADS + j + 4);
            for (uint32_t p = 0; p < panels; p++) {
                if (part & LOW) dot[r][p] = dot_codes(q, dot[r][p], w[p].low, low);
                if (part & HIGH) dot[r][p] = dot_codes(q, dot[r][p], w[p].high, high);
            }
        }
    }
}

/* Where the dots of a row and part begin: codes stand `zero` too high. */
ALWAYS_INLINE __m512i first_dot(const struct quant_layout *q, const struct dot_acts *acts,
                                uint32_t row, size_t b, enum part part) {
    if (!q->zero) return _mm512_setzero_si512();
    __m512i whole = halve_words(broadcast_word(acts->offsets, row, b), quant_offset_shift(q));
    if (part == BOTH) return whole;
    __m512i low = halve_words(broadcast_word(acts->halves, row, b), quant_halves_shift(q));
    return part == LOW ? low : _mm512_sub_epi32(whole, low);
}

/* The factor of mins: scale times the sum of the part's codes. */
ALWAYS_INLINE __m512 part_sum(const struct dot_acts *acts, uint32_t row, size_t b, enum part part,
                              __m512 by) {
    if (part == BOTH) return broadcast_f32(acts->sums, row, b);
    const __m512i zero = _mm512_setzero_si512();
    __m512i low = _mm512_sub_epi32(zero, halve_words(broadcast_word(acts->halves, row, b), 5));
    __m512i both = _mm512_sub_epi32(zero, halve_words(broadcast_word(acts->offsets, row, b), 7));
    return _mm512_mul_ps(by, _mm512_cvtepi32_ps(part == LOW ? low : _mm512_sub_epi32(both, low)));
}

ALWAYS_INLINE void add_part(const struct tile *t, const struct quant_layout *q, uint32_t rows,
                            uint32_t panels, struct place place, tile_sums sum) {
    const struct dot_acts acts = dot_acts_at(t, 1);
    const enum part part = place.part;
    const uint32_t sub = part == BOTH ? place.block : 2 * place.block + (part == HIGH);
    const size_t b = place.at;
    tile_dots dot;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t p = 0; p < panels; p++) {
            dot[r][p] = biased(first_dot(q, &acts, r, b, part));
        }
    }
    dot_lines(t, q, rows, panels, place, dot);
    for (uint32_t p = 0; p < panels; p++) {
        const uint8_t *group = group_at(t, q, p, place);
        const __m512 scale = load_scale(q, group, sub), bias = bias_of(scale);
        const __m512 min = q->has_min ? load_min(q, group, sub) : _mm512_setzero_ps();
        for (uint32_t r = 0; r < rows; r++) {
            const __m512 by = broadcast_f32(acts.scales, r, b);
            sum[r][p] = add_dot(sum[r][p], dot[r][p], scale, bias, by);
            if (!q->has_min) continue;
            __m512 sums = part_sum(&acts, r, b, part, by);
            sum[r][p] = takes_min_away(q) ? _mm512_fnmadd_ps(sums, min, sum[r][p])
                                          : _mm512_fmadd_ps(sums, min, sum[r][p]);
        }
    }
}

/* With few rows: this block's share of the lines about FEW_AHEAD further on. */
ALWAYS_INLINE void prefetch_share(const struct tile *t, const struct quant_layout *q,
                                  uint32_t panels, size_t group, uint32_t block) {
    const uint32_t n_blocks = q->group / QUANT_BLOCK, lines = q->bytes / 64;
    const size_t ahead = (FEW_AHEAD + q->bytes - 1) / q->bytes * (size_t)q->bytes;
    const size_t further =
        stream_at(t, group * q->bytes + ahead) + (size_t)lines * block / n_blocks * 64;
    for (uint32_t p = 0; p < panels; p++) {
        const uint8_t *at = t->panels[p] + further;
        for (uint32_t i = 0; i < (lines + n_blocks - 1) / n_blocks; i++) {
            __builtin_prefetch(at + (size_t)i * 64);
        }
    }
}

ALWAYS_INLINE void tile_quant(const struct tile *args, const struct quant_layout *q, uint32_t rows,
                              uint32_t panels) {
    const struct tile t = *args;
    const size_t n_blocks = t.count / QUANT_BLOCK, per_group = q->group / QUANT_BLOCK;
    tile_sums sum;
    load_sums(&t, rows, panels, sum);
    for (size_t b = 0; b < n_blocks; b++) {
        prefetch_share(&t, q, panels, b / per_group, (uint32_t)(b % per_group));
        if (q->sub == QUANT_BLOCK) {
            add_part(&t, q, rows, panels, place_of(q, b, BOTH), sum);
        } else { /* two scales: one half at a time, or the dots would not fit the registers */
            add_part(&t, q, rows, panels, place_of(q, b, LOW), sum);
            add_part(&t, q, rows, panels, place_of(q, b, HIGH), sum);
        }
    }
    store_sums(&t, rows, panels, sum);
}

/* What tile_blocks takes; mins are added there. */
ALWAYS_INLINE const uint8_t *unpack_quant(const struct quant_layout *q, const uint8_t *panel,
                                          uint32_t count, uint8_t *codes, float *factors) {
    const uint32_t per_group = q->group / QUANT_BLOCK, n_subs = QUANT_BLOCK / q->sub;
    uint8_t *to = codes;
    for (uint32_t k0 = 0; k0 < count; k0 += q->group, panel += q->bytes) {
        for (uint32_t block = 0; block < per_group; block++, to += Q8_CODES) {
            for (uint32_t j = 0; j < 4; j++) {
                struct quads quads = load_quads(q, panel, block, j);
                _mm512_store_si512(to + (size_t)j * 64, quads.low);
                _mm512_store_si512(to + (size_t)(j + 4) * 64, quads.high);
            }
            for (uint32_t sub = block * n_subs; sub < (block + 1) * n_subs; sub++) {
                __m512 scale = load_scale(q, panel, sub);
                _mm512_store_ps(factors, scale);
                _mm512_store_ps(factors + WEFT_PANEL, bias_of(scale));
                factors += (size_t)2 * WEFT_PANEL;
                if (!q->has_min) continue;
                __m512 min = load_min(q, panel, sub);
                if (takes_min_away(q)) min = _mm512_sub_ps(_mm512_set1_ps(-0.0f), min);
                _mm512_store_ps(factors, min);
                factors += WEFT_PANEL;
            }
        }
    }
    return codes;
}

ALWAYS_INLINE void start_quant(const struct quant_layout *q, const uint8_t *act, uint32_t k,
                               uint32_t first, uint32_t n_blocks, int32_t *out) {
    if (!q->zero)
        start_half_sums(act, k, first, n_blocks, out);
    else if (q->sub == QUANT_BLOCK)
        start_blocks(act, k, first, n_blocks, quant_offset_shift(q), out);
    else
        start_halves(act, k, first, n_blocks, quant_offset_shift(q), out);
}

ALWAYS_INLINE void blocks_quant(const struct tile *t, const struct quant_layout *q, uint32_t rows,
                                uint32_t panels) {
    tile_blocks(t,
                (struct dot_form){.block_bytes = Q8_CODES,
                                  .quads = q->sub / 4,
                                  .is_short = is_short(q),
                                  .has_starts = q->zero != 0,
                                  .has_mins = q->has_min},
                rows, panels);
}

/* The layout is a constant in every copy. */
#define DEFINE_QUANT(name, ID, sub_, bits_, zero_, ...)                                            \
    ALWAYS_INLINE void tile_##name(const struct tile *t, uint32_t rows, uint32_t panels,           \
                                   uint32_t group_rows) {                                          \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        if (group_rows > 1)                                                                        \
            blocks_quant(t, q, rows, panels);                                                      \
        else                                                                                       \
            tile_quant(t, q, rows, panels);                                                        \
    }                                                                                              \
    static void few_##name(const struct tile *t, uint32_t n_rows) {                                \
        RUN_DOT_FEW(tile_##name, t, n_rows)                                                        \
    }                                                                                              \
    static void many_##name(const struct tile *t, uint32_t n_rows) {                               \
        RUN_DOT_MANY(tile_##name, t, n_rows)                                                       \
    }                                                                                              \
    static const uint8_t *unpack_##name(const uint8_t *panel, uint32_t count, uint8_t *codes,      \
                                        float *factors) {                                          \
        return unpack_quant(&quant_layouts[WEFT_DT_##ID], panel, count, codes, factors);           \
    }                                                                                              \
    static void start_##name(const uint8_t *act, uint32_t k, uint32_t first, uint32_t n_blocks,    \
                             int32_t *out) {                                                       \
        start_quant(&quant_layouts[WEFT_DT_##ID], act, k, first, n_blocks, out);                   \
    }                                                                                              \
    static inline struct tile_kernel kernel_##name(void) {                                         \
        const struct quant_layout *q = &quant_layouts[WEFT_DT_##ID];                               \
        return (struct tile_kernel){.kind = WEFT_GEMM_##ID,                                        \
                                    .group = q->group,                                             \
                                    .group_bytes = q->bytes,                                       \
                                    .step = 4,                                                     \
                                    .per_word = 4,                                                 \
                                    TILES_DOT_AVX512(few_##name, many_##name),                     \
                                    .unpack = unpack_##name,                                       \
                                    .start =                                                       \
                                        (zero_) || (sub_) < QUANT_BLOCK ? start_##name : NULL,     \
                                    .n_starts = QUANT_BLOCK / (sub_)};                             \
    }                                                                                              \
    static void gemm_##name(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) { \
        const struct tile_kernel kernel = kernel_##name();                                         \
        gemm_run(&kernel, args, p_begin, p_end);                                                   \
    }

QUANT_EACH(DEFINE_QUANT)

#define FILL_QUANT(name, ID, ...) table->gemm[WEFT_GEMM_##ID] = gemm_##name;

static void fill_quant(struct weft_kern_table *table) {
    QUANT_EACH(FILL_QUANT)
}

#endif
