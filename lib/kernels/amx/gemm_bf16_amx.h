/* kernels/gemm_bf16_amx — products of bf16 activations on AMX's tiles: for the file with the instructions
 * (tiles_amx.h, which is included before), and for a test with a model of them.
 *
 * A tile instruction adds the products of 32 columns, in the order of bf16_order.h: it depends on where
 * a segment of K begins, and on nothing else. So these sums are not those of AVX-512, and a row's bits are
 * the same in any batch because every number of rows takes tiles: with one row a KiB of weights takes
 * 10 ns (Xeon, model 207), a fraction of what memory needs.
 *
 * Between spans sums rest in memory: four tiles of them come and go for 16 times four products. */
#ifndef WEFT_KERNELS_GEMM_BF16_AMX_H
#define WEFT_KERNELS_GEMM_BF16_AMX_H

#include "gemm_tiles_amx.h"

enum {
    CHUNK_LEAST = 32,
    CHUNK_COLUMNS = 256, /* of four panels, widened for few rows */
};
_Static_assert(FEW_PANELS *CHUNK_COLUMNS * 2 <= MANY_PANELS * SPAN_BYTES, "one buffer for both");

ALWAYS_INLINE void multiply_bf16(struct tile_product *p, const struct tile_span *span,
                                 uint32_t tile, const uint8_t *const pairs[],
                                 const uint8_t *const rest[], bool two) {
    const struct tile_sums sums = tile_sums_of(p, span, tile);
    const float *from = sums.from;
    const struct tile_rows first = tile_rows_of(p, span, tile);
    const struct tile_rows rows[2] = {first, two ? tile_rows_of(p, span, tile + 1) : first};
    if (!from) {
        zero_sums(two);
    } else {
        tile_load(TILE_SUMS_0, from, SUMS_LINE);
        tile_load(TILE_SUMS_1, from + WEFT_PANEL, SUMS_LINE);
        if (two) tile_load(TILE_SUMS_2, from + TILE_FLOATS, SUMS_LINE);
        if (two) tile_load(TILE_SUMS_3, from + TILE_FLOATS + WEFT_PANEL, SUMS_LINE);
    }
    dot_columns(p, rows, pairs, 0, span_tiles(p, span), two, false);
    if (span_rest(p, span)) dot_last_columns(p, span, tile, rest, two, false);
    store_tiles(sums.to, two);
    end_tile_sums(p, span, &sums, two);
}

static void many_bf16(struct tile_product *p, const struct tile_span *span, uint32_t tile,
                      const uint8_t *const pairs[], const uint8_t *const rest[], bool two) {
    if (two)
        multiply_bf16(p, span, tile, pairs, rest, true);
    else
        multiply_bf16(p, span, tile, pairs, rest, false);
}

/* ----------------------------------------------------------------------------------- few rows --- */

/* Four panels' products of the rows in TILE_ROWS. */
ALWAYS_INLINE void dot_four(const uint8_t *const pairs[], size_t at) {
    LOAD_PANELS(pairs[0] + at, pairs[1] + at);
    tile_dot_bf16(TILE_SUMS_0, TILE_ROWS, TILE_PANEL_0);
    tile_dot_bf16(TILE_SUMS_1, TILE_ROWS, TILE_PANEL_1);
    LOAD_PANELS(pairs[2] + at, pairs[3] + at);
    tile_dot_bf16(TILE_SUMS_2, TILE_ROWS, TILE_PANEL_0);
    tile_dot_bf16(TILE_SUMS_3, TILE_ROWS, TILE_PANEL_1);
}

/* Each panel is one long stream, which goes on in the set's next panels. */
ALWAYS_INLINE void fetch_streams(const struct tile_product *p, size_t at, size_t bytes) {
    size_t further = at + FEW_AHEAD;
    if (further >= p->panel_bytes) further += (p->n_panels - 1) * p->panel_bytes;
    for (size_t line = 0; line < bytes; line += TILE_LINE) {
        for (uint32_t i = 0; i < FEW_PANELS; i++)
            __builtin_prefetch(p->panels[i] + further + line);
    }
}

/* Columns at once: the fewer are widened before their dots, the more do both go on at the same time. */
static inline uint32_t few_columns(const struct tile_weights *w) {
    if (!w->widen) return CHUNK_COLUMNS;
    return weft_max_u32(w->group, CHUNK_LEAST);
}

/* A segment of up to 16 rows by four panels: sums stay in tiles. */
static void few_bf16(struct tile_product *p, const struct tile_span *span) {
    enum { FEW_LINE = FEW_PANELS * TILE_LINE };
    const struct tile_weights *w = p->weights;
    const bool joins = span->join->n_from;
    float *to = joins ? p->joined : span->sums;
    const uint32_t rest = span_rest(p, span), whole = span->end - rest;
    const uint8_t *pairs[TILE_PANELS_MAX];
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    tile_zero(TILE_SUMS_2);
    tile_zero(TILE_SUMS_3);
    for (uint32_t begin = span->begin, end; begin < whole; begin = end) {
        end = weft_min_u32(whole, begin + few_columns(w));
        const size_t at = (size_t)begin / w->group * w->group_bytes;
        if (w->widen) fetch_streams(p, at, (size_t)(end - begin) / w->group * w->group_bytes);
        read_panels(p, begin, end, pairs);
        const uint8_t *rows = p->act + (size_t)begin * 2;
        for (size_t t = 0; t < (end - begin) / tile_columns(p); t++) {
            tile_load(TILE_ROWS, rows + t * TILE_LINE, p->args->act_row_bytes);
            if (!w->widen) fetch_streams(p, at + t * TILE_BYTES, TILE_BYTES);
            dot_four(pairs, t * TILE_BYTES);
        }
    }
    if (rest) {
        const uint8_t *rests[TILE_PANELS_MAX];
        const struct tile_rows rows = rest_of_rows(p, span, 0);
        read_panels(p, whole, span->end, pairs);
        rest_of_panels(p, span, 0, pairs, rests);
        tile_load(TILE_ROWS, rows.at, rows.line);
        dot_four(rests, 0);
    }
    tile_store(TILE_SUMS_0, to, FEW_LINE);
    tile_store(TILE_SUMS_1, to + WEFT_PANEL, FEW_LINE);
    tile_store(TILE_SUMS_2, to + (size_t)2 * WEFT_PANEL, FEW_LINE);
    tile_store(TILE_SUMS_3, to + (size_t)3 * WEFT_PANEL, FEW_LINE);
    if (joins) join_sums(span->join, p->joined, 0, (size_t)p->n_rows * FEW_PANELS * WEFT_PANEL);
}

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    static const struct tile_weights weights = {.kind = WEFT_GEMM_BF16,
                                                .group = 2,
                                                .group_bytes = TILE_LINE,
                                                .column_bytes = 2,
                                                .many = many_bf16,
                                                .few = few_bf16};
    gemm_tiles(&weights, args, p_begin, p_end);
}

#endif
