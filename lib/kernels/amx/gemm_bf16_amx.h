/* kernels/gemm_bf16_amx — products of bf16 activations with bf16 weights on AMX's tiles: for the file
 * with the instructions (tiles_amx.h, which is included before), and for a test with a model of them.
 *
 * A tile instruction adds the products of 32 columns, in the order of bf16_order.h: it depends on where
 * a segment of K begins, and on nothing else. So these sums are not those of AVX-512, and a row's bits are
 * the same in any batch because every number of rows takes tiles: with one row a KiB of weights takes
 * 10 ns (Xeon, model 207), a fraction of what memory needs.
 *
 * 16 pairs of columns of a panel lie as a tile wants them. Rows are laid one after the other, once for all
 * panels of a span, in place of widened ones; tiles have as many lines as rows may be. A segment's last
 * columns, if they fill no tile, meet it with zeros on both sides. */
#ifndef WEFT_KERNELS_GEMM_BF16_AMX_H
#define WEFT_KERNELS_GEMM_BF16_AMX_H

#include "avx512/gemm_avx512.h"
#include "rows_amx.h"
#include "tile_config.h"

enum {
    TILE_PAIRS = 16, /* words of a row, lines of a panel */
    TILE_COLUMNS = 2 * TILE_PAIRS,
    TILE_BYTES = TILE_LINES * TILE_LINE,
    MANY_STEP = 4,
};

/* `count` columns of one row, or of interleaved ones: row after row, 4 * count bytes apart. */
static void lay_bf16(const uint8_t *act, uint32_t count, uint32_t group_rows, float *out) {
    const uint32_t n_words = (count + 1) / 2;
    uint32_t done = 0;
    if (group_rows == 1) {
        memcpy(out, act, (size_t)n_words * ACT_WORD);
        return;
    }
    WEFT_ASSERT(group_rows == MANY_ROWS);
    for (; done + LAY_WORDS <= n_words; done += LAY_WORDS) {
        lay_rows(act + (size_t)done * MANY_ROWS * ACT_WORD, (int32_t *)(void *)out + done, count);
    }
    for (; done < n_words; done++) {
        for (size_t r = 0; r < MANY_ROWS; r++) {
            memcpy(out + r * count + done, act + (done * MANY_ROWS + r) * ACT_WORD, ACT_WORD);
        }
    }
}

/* Of a segment's last columns. */
struct rest {
    _Alignas(64) uint8_t rows[2 * MANY_ROWS][TILE_LINE], panels[TILE_PANELS_MAX][TILE_BYTES];
};

static void take_rest(const struct tile *t, uint32_t panels, uint32_t lines, struct rest *rest) {
    const size_t done = t->count / TILE_COLUMNS, n_pairs = (t->count % TILE_COLUMNS + 1) / 2;
    memset(rest, 0, sizeof *rest);
    for (uint32_t r = 0; r < lines; r++) {
        const uint8_t *row = t->act + r * t->act_row_bytes + (size_t)t->k_begin * 2;
        memcpy(rest->rows[r], row + done * TILE_LINE, n_pairs * ACT_WORD);
    }
    for (uint32_t p = 0; p < panels; p++) {
        memcpy(rest->panels[p], t->panels[p] + done * TILE_BYTES, n_pairs * TILE_LINE);
    }
}

/* Two panels' products of the rows in TILE_ROWS. */
#define DOT_TWO(sums_0, sums_1)                                                                    \
    tile_dot_bf16(sums_0, TILE_ROWS, TILE_PANEL_0);                                                \
    tile_dot_bf16(sums_1, TILE_ROWS, TILE_PANEL_1);

ALWAYS_INLINE void dot_many(const uint8_t *rows, size_t row_bytes, const uint8_t *const panels[],
                            bool two_groups) {
    tile_load(TILE_PANEL_0, panels[0], TILE_LINE);
    tile_load(TILE_PANEL_1, panels[1], TILE_LINE);
    tile_load(TILE_ROWS, rows, row_bytes);
    DOT_TWO(TILE_SUMS_0, TILE_SUMS_1)
    if (!two_groups) return;
    tile_load(TILE_ROWS, rows + MANY_ROWS * row_bytes, row_bytes);
    DOT_TWO(TILE_SUMS_2, TILE_SUMS_3)
}

/* One group of rows, or two. */
ALWAYS_INLINE void tile_many(const struct tile *args, bool two_groups) {
    enum {
        SUMS_LINE = MANY_PANELS * TILE_LINE,
        GROUP_FLOATS = MANY_ROWS * MANY_PANELS * WEFT_PANEL
    };
    const struct tile t = *args;
    const uint8_t *rows = t.act + (size_t)t.k_begin * 2;
    tile_load(TILE_SUMS_0, t.from, SUMS_LINE);
    tile_load(TILE_SUMS_1, t.from + WEFT_PANEL, SUMS_LINE);
    if (two_groups) {
        tile_load(TILE_SUMS_2, t.from + GROUP_FLOATS, SUMS_LINE);
        tile_load(TILE_SUMS_3, t.from + GROUP_FLOATS + WEFT_PANEL, SUMS_LINE);
    }
    const uint32_t n_tiles = t.count / TILE_COLUMNS;
    for (size_t i = 0; i < n_tiles; i++) {
        const uint8_t *const panels[] = {t.panels[0] + i * TILE_BYTES,
                                         t.panels[1] + i * TILE_BYTES};
        for (size_t step = 0; step < TILE_COLUMNS / MANY_STEP; step++) {
            prefetch_step(&t, MANY_PANELS, i * (TILE_COLUMNS / MANY_STEP) + step);
        }
        dot_many(rows + i * TILE_LINE, t.act_row_bytes, panels, two_groups);
    }
    if (t.count % TILE_COLUMNS) {
        struct rest rest;
        take_rest(&t, MANY_PANELS, two_groups ? 2 * MANY_ROWS : MANY_ROWS, &rest);
        const uint8_t *const panels[] = {rest.panels[0], rest.panels[1]};
        dot_many(rest.rows[0], TILE_LINE, panels, two_groups);
    }
    tile_store(TILE_SUMS_0, t.acc, SUMS_LINE);
    tile_store(TILE_SUMS_1, t.acc + WEFT_PANEL, SUMS_LINE);
    if (two_groups) {
        tile_store(TILE_SUMS_2, t.acc + GROUP_FLOATS, SUMS_LINE);
        tile_store(TILE_SUMS_3, t.acc + GROUP_FLOATS + WEFT_PANEL, SUMS_LINE);
    }
}

/* Lanes of rows that are not there are summed, too. */
static void many_bf16(const struct tile *t, uint32_t n_rows) {
    if (n_rows > MANY_ROWS)
        tile_many(t, true);
    else
        tile_many(t, false);
}

/* Four panels' products of the rows in TILE_ROWS. */
ALWAYS_INLINE void dot_four(const uint8_t *const panels[], size_t at) {
    tile_load(TILE_PANEL_0, panels[0] + at, TILE_LINE);
    tile_load(TILE_PANEL_1, panels[1] + at, TILE_LINE);
    tile_dot_bf16(TILE_SUMS_0, TILE_ROWS, TILE_PANEL_0);
    tile_dot_bf16(TILE_SUMS_1, TILE_ROWS, TILE_PANEL_1);
    tile_load(TILE_PANEL_0, panels[2] + at, TILE_LINE);
    tile_load(TILE_PANEL_1, panels[3] + at, TILE_LINE);
    tile_dot_bf16(TILE_SUMS_2, TILE_ROWS, TILE_PANEL_0);
    tile_dot_bf16(TILE_SUMS_3, TILE_ROWS, TILE_PANEL_1);
}

/* Up to four rows and four panels. */
static void few_bf16(const struct tile *args, uint32_t n_rows) {
    enum { SUMS_LINE = FEW_PANELS * TILE_LINE };
    const struct tile t = *args;
    const uint8_t *rows = t.act + (size_t)t.k_begin * 2;
    (void)n_rows;
    tile_load(TILE_SUMS_0, t.from, SUMS_LINE);
    tile_load(TILE_SUMS_1, t.from + WEFT_PANEL, SUMS_LINE);
    tile_load(TILE_SUMS_2, t.from + (size_t)2 * WEFT_PANEL, SUMS_LINE);
    tile_load(TILE_SUMS_3, t.from + (size_t)3 * WEFT_PANEL, SUMS_LINE);
    const uint32_t n_tiles = t.count / TILE_COLUMNS;
    for (size_t i = 0; i < n_tiles; i++) {
        tile_load(TILE_ROWS, rows + i * TILE_LINE, t.act_row_bytes);
        for (size_t line = 0; line < TILE_LINES; line++) {
            prefetch_either(&t, FEW_PANELS, 1, 0, i * TILE_BYTES + line * TILE_LINE);
        }
        dot_four(t.panels, i * TILE_BYTES);
    }
    if (t.count % TILE_COLUMNS) {
        struct rest rest;
        take_rest(&t, FEW_PANELS, FEW_ROWS, &rest);
        const uint8_t *const panels[] = {rest.panels[0], rest.panels[1], rest.panels[2],
                                         rest.panels[3]};
        tile_load(TILE_ROWS, rest.rows, TILE_LINE);
        dot_four(panels, 0);
    }
    tile_store(TILE_SUMS_0, t.acc, SUMS_LINE);
    tile_store(TILE_SUMS_1, t.acc + WEFT_PANEL, SUMS_LINE);
    tile_store(TILE_SUMS_2, t.acc + (size_t)2 * WEFT_PANEL, SUMS_LINE);
    tile_store(TILE_SUMS_3, t.acc + (size_t)3 * WEFT_PANEL, SUMS_LINE);
}

static const struct tile_kernel bf16_kernel = {.kind = WEFT_GEMM_BF16,
                                               .group = 2,
                                               .group_bytes = TILE_LINE,
                                               .step = MANY_STEP,
                                               .per_word = 2,
                                               .few_rows = FEW_ROWS,
                                               .few_max = FEW_ROWS,
                                               .few_panels = FEW_PANELS,
                                               .few = few_bf16,
                                               .group_rows = MANY_ROWS,
                                               .many_rows = 2 * MANY_ROWS,
                                               .many_panels = MANY_PANELS,
                                               .block_tiles = BLOCK_TILES / 2,
                                               .block_sets = SETS_MAX,
                                               .many = many_bf16,
                                               .widen_act = lay_bf16};

static void gemm_bf16(const struct weft_gemm_args *args, uint32_t p_begin, uint32_t p_end) {
    const struct tile_config config = tile_config_of(args->act_group > 1 ? MANY_ROWS : FEW_ROWS);
    tile_configure(&config);
    gemm_run(&bf16_kernel, args, p_begin, p_end);
    tile_release();
}

#endif
