/* kernels/gemm_tiles_amx — the loops around AMX's tiles: how rows, panels and columns of a product come to them.
 * For the files of one type of activations each (gemm_bf16_amx.h, gemm_i8_amx.h), which are included where the
 * instructions are defined (tiles_amx.h), or a model of them.
 *
 * 16 words of a panel's columns, 2 columns of bf16 or 4 of int8 in each, lie as a tile wants them. Rows are read
 * where they are, one after the other (weft_kern_table.act_in_rows): their distance is an odd number of lines, so
 * that those of a tile do not meet in one set of L1. Weights of other types become pairs of bf16 in L1, span by
 * span. A segment's last columns, if they fill no tile, meet it with zeros on both sides.
 *
 * - Rows come in blocks of up to 576, so that weights are widened, and read from memory, once for all.
 * - K is cut in spans of 1 KiB of a row: a block's part of one (576 KiB) stays in L2 while all panels of the
 *   call pass over it, two by two, whose part (32 KiB) stays in L1 while all rows do.
 * - Between spans sums rest in memory. */
#ifndef WEFT_KERNELS_GEMM_TILES_AMX_H
#define WEFT_KERNELS_GEMM_TILES_AMX_H

#include "avx512/gemm_avx512.h"
#include "tile_config.h"

enum {
    TILE_BYTES = TILE_LINES * TILE_LINE,
    SPAN_BYTES = 1024,                   /* of a row */
    LAID_BYTES = SPAN_BYTES + TILE_LINE, /* from one row to the next where they are copied */
    BLOCK_ROWS = 576,
    FEW_TILES = 6, /* so many tiles of rows pass over two panels from end to end */
    TILE_FLOATS = TILE_LINES * MANY_PANELS * WEFT_PANEL, /* sums of a tile's rows by two panels */
    SUMS_FLOATS = 4 * BLOCK_ROWS * MANY_PANELS * WEFT_PANEL,
    WIDENED_BYTES = SPAN_BYTES * MANY_PANELS * WEFT_PANEL,
};
_Static_assert(FEW_PANELS == 2 * MANY_PANELS, "what is joined of either has room");

struct tile_product;
struct tile_span;

/* Weights of a kind, and how they meet rows. */
struct tile_weights {
    enum weft_gemm_kind kind;
    uint32_t group, group_bytes; /* columns, and bytes of a panel, that belong together */
    uint32_t column_bytes;       /* of a row: 2 of bf16, 1 of int8 */
    /* NULL: panels are as a tile wants them. Or makes pairs of bf16, [count / 2][16][2], of `count` columns, which
     * are whole groups. */
    void (*widen)(const uint8_t *panel, uint32_t count, uint8_t *pairs);
    /* A tile of rows of a span and, if `two`, the next one, by the set's two panels; `rest`: of each, the columns that
     * fill no tile, and zeros. */
    void (*many)(struct tile_product *p, const struct tile_span *span, uint32_t tile,
                 const uint8_t *const panels[], const uint8_t *const rest[], bool two);
    /* NULL, or: a segment of up to 16 rows by four panels. */
    void (*few)(struct tile_product *p, const struct tile_span *span);
};

/* A tile of rows: lines `line` bytes apart. */
struct tile_rows {
    const uint8_t *at;
    size_t line;
};

/* A product under way: the scratch of the thread that works on it, and what its rows and panels are. */
struct tile_product {
    const struct tile_weights *weights;
    const struct weft_gemm_args *args;
    size_t panel_bytes;
    const uint8_t *act;       /* of the block */
    uint32_t n_rows, n_tiles; /* of the block; tiles of rows, the last one not full */
    uint32_t p_begin, p_end, n_panels, n_sets,
        set;                                /* panels of the call; of a set; sets under way */
    const uint8_t *panels[TILE_PANELS_MAX]; /* of the set, as they are stored */
    /* What is read after the set's part of a span: so many lines of either panel for each tile. */
    const uint8_t *ahead;
    uint32_t ahead_lines;
    _Alignas(64) float acc[SUMS_FLOATS];
    _Alignas(64) float slots[3 * SUMS_FLOATS];
    _Alignas(64) float joined[2 * TILE_FLOATS];
    _Alignas(64) uint8_t widened[WIDENED_BYTES];
    _Alignas(64) uint8_t rest_panels[TILE_PANELS_MAX][TILE_BYTES];
    _Alignas(64) uint8_t rest_rows[TILE_BYTES];
    _Alignas(64) uint8_t
        last_rows[TILE_LINES * LAID_BYTES]; /* of the block's last tile, if it is not full */
};

/* Columns begin..end, all of one segment: whether they are its first and its last ones. */
struct tile_span {
    uint32_t begin, end;
    bool first, last;
    float *sums; /* where they gather, of all sets */
    const struct join *join;
};

/* Columns of a tile. */
static inline uint32_t tile_columns(const struct tile_product *p) {
    return TILE_LINE / p->weights->column_bytes;
}

static inline uint32_t span_columns(const struct tile_product *p) {
    return SPAN_BYTES / p->weights->column_bytes;
}

/* Bytes that `columns` take of a row, in whole words; and where column `begin` is. */
static inline size_t row_bytes_of(const struct tile_product *p, uint32_t columns) {
    return ((size_t)columns * p->weights->column_bytes + ACT_WORD - 1) / ACT_WORD * ACT_WORD;
}

static inline size_t row_place(const struct tile_product *p, uint32_t begin) {
    return (size_t)begin * p->weights->column_bytes;
}

/* Whole tiles of its columns, and how many more there are. */
static inline uint32_t span_tiles(const struct tile_product *p, const struct tile_span *span) {
    return (span->end - span->begin) / tile_columns(p);
}

static inline uint32_t span_rest(const struct tile_product *p, const struct tile_span *span) {
    return (span->end - span->begin) % tile_columns(p);
}

/* --------------------------------------------------------------------------------------- rows --- */

/* `count` columns from `begin` on of up to 16 rows, from `first` on, to lines `line` bytes apart. */
static inline void copy_columns(const struct tile_product *p, uint32_t first, uint32_t begin,
                                uint32_t count, uint8_t *to, size_t line) {
    const uint32_t n = weft_min_u32(p->n_rows - first, TILE_LINES);
    const uint8_t *from = p->act + first * p->args->act_row_bytes + row_place(p, begin);
    for (uint32_t r = 0; r < n; r++, from += p->args->act_row_bytes, to += line)
        memcpy(to, from, row_bytes_of(p, count));
}

/* If the block's last tile is not full, its part of a span is laid beside lines that are there. */
static inline void lay_last_rows(struct tile_product *p, const struct tile_span *span) {
    if (p->n_rows % TILE_LINES == 0) return;
    copy_columns(p, p->n_rows / TILE_LINES * TILE_LINES, span->begin, span->end - span->begin,
                 p->last_rows, LAID_BYTES);
}

static inline struct tile_rows tile_rows_of(const struct tile_product *p,
                                            const struct tile_span *span, uint32_t tile) {
    if ((tile + 1) * TILE_LINES > p->n_rows) return (struct tile_rows){p->last_rows, LAID_BYTES};
    const size_t stride = p->args->act_row_bytes;
    return (struct tile_rows){p->act + tile * TILE_LINES * stride + row_place(p, span->begin),
                              stride};
}

/* The columns that fill no tile, and zeros. */
static inline struct tile_rows rest_of_rows(struct tile_product *p, const struct tile_span *span,
                                            uint32_t tile) {
    const uint32_t rest = span_rest(p, span);
    memset(p->rest_rows, 0, sizeof p->rest_rows);
    copy_columns(p, tile * TILE_LINES, span->end - rest, rest, p->rest_rows, TILE_LINE);
    return (struct tile_rows){p->rest_rows, TILE_LINE};
}

/* ------------------------------------------------------------------------------------- panels --- */

static inline void choose_panels(struct tile_product *p, uint32_t set) {
    p->set = set;
    for (uint32_t i = 0; i < p->n_panels; i++) {
        size_t at = weft_min_u32(p->p_begin + set * p->n_panels + i, p->p_end - 1);
        p->panels[i] = (const uint8_t *)p->args->packed + at * p->panel_bytes;
    }
}

/* Columns begin..end of the set's panels as tiles want them. */
static inline void read_panels(struct tile_product *p, uint32_t begin, uint32_t end,
                               const uint8_t *panels[TILE_PANELS_MAX]) {
    const struct tile_weights *w = p->weights;
    for (uint32_t i = 0; i < p->n_panels; i++) {
        panels[i] = p->panels[i] + (size_t)begin / w->group * w->group_bytes;
        if (!w->widen) continue;
        uint8_t *to = p->widened + i * (sizeof p->widened / p->n_panels);
        WEFT_ASSERT((size_t)(end - begin) * p->n_panels <= WIDENED_BYTES / (2 * WEFT_PANEL));
        w->widen(panels[i], end - begin, to);
        panels[i] = to;
    }
}

/* Of what read_panels found, the columns that fill no tile, `skip` bytes further on, and zeros. */
static inline void rest_of_panels(struct tile_product *p, const struct tile_span *span, size_t skip,
                                  const uint8_t *const panels[], const uint8_t *rest[]) {
    const size_t n_words = row_bytes_of(p, span_rest(p, span)) / ACT_WORD;
    for (uint32_t i = 0; i < p->n_panels; i++) {
        memset(p->rest_panels[i], 0, sizeof p->rest_panels[i]);
        memcpy(p->rest_panels[i], panels[i] + skip, n_words * TILE_LINE);
        rest[i] = p->rest_panels[i];
    }
}

/* ---------------------------------------------------------------------------------- many rows --- */

enum { SUMS_LINE = MANY_PANELS * TILE_LINE };

/* A tile of rows by the two panels in TILE_PANEL_0 and TILE_PANEL_1: of bf16, or of codes of 8 bits. */
#define DOT_ROWS(sums_0, sums_1, rows, codes)                                                      \
    tile_load(TILE_ROWS, (rows).at, (rows).line);                                                  \
    if (codes) {                                                                                   \
        tile_dot(sums_0, TILE_ROWS, TILE_PANEL_0);                                                 \
        tile_dot(sums_1, TILE_ROWS, TILE_PANEL_1);                                                 \
    } else {                                                                                       \
        tile_dot_bf16(sums_0, TILE_ROWS, TILE_PANEL_0);                                            \
        tile_dot_bf16(sums_1, TILE_ROWS, TILE_PANEL_1);                                            \
    }

#define LOAD_PANELS(panel_0, panel_1)                                                              \
    tile_load(TILE_PANEL_0, panel_0, TILE_LINE);                                                   \
    tile_load(TILE_PANEL_1, panel_1, TILE_LINE)

/* One tile of rows, or two, by two panels, from line `at` of a row on, and prefetches. Nothing in the loop writes
 * to memory. */
ALWAYS_INLINE void dot_columns(struct tile_product *p, const struct tile_rows rows[2],
                               const uint8_t *const panels[], uint32_t at, uint32_t n_tiles,
                               bool two, bool codes) {
    struct tile_rows first = rows[0], second = rows[1];
    const uint8_t *panel_0 = panels[0] + (size_t)at * TILE_BYTES,
                  *panel_1 = panels[1] + (size_t)at * TILE_BYTES, *ahead = p->ahead;
    const size_t ahead_stride = p->panel_bytes;
    const uint32_t lines = p->ahead_lines;
    first.at += (size_t)at * TILE_LINE;
    second.at += (size_t)at * TILE_LINE;
    for (size_t t = 0; t < n_tiles; t++) {
        LOAD_PANELS(panel_0, panel_1);
        DOT_ROWS(TILE_SUMS_0, TILE_SUMS_1, first, codes)
        if (two) {
            DOT_ROWS(TILE_SUMS_2, TILE_SUMS_3, second, codes)
        }
        for (uint32_t i = 0; i < lines; i++, ahead += TILE_LINE) {
            __builtin_prefetch(ahead, 0, 2);
            __builtin_prefetch(ahead + ahead_stride, 0, 2);
        }
        first.at += TILE_LINE;
        second.at += TILE_LINE;
        panel_0 += TILE_BYTES;
        panel_1 += TILE_BYTES;
    }
    p->ahead = ahead;
}

/* The same of the columns that fill no tile. */
ALWAYS_INLINE void dot_last_columns(struct tile_product *p, const struct tile_span *span,
                                    uint32_t tile, const uint8_t *const rest[], bool two,
                                    bool codes) {
    struct tile_rows rows = rest_of_rows(p, span, tile);
    LOAD_PANELS(rest[0], rest[1]);
    DOT_ROWS(TILE_SUMS_0, TILE_SUMS_1, rows, codes)
    if (two) {
        rows = rest_of_rows(p, span, tile + 1);
        DOT_ROWS(TILE_SUMS_2, TILE_SUMS_3, rows, codes)
    }
}

ALWAYS_INLINE void zero_sums(bool two) {
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    if (two) tile_zero(TILE_SUMS_2);
    if (two) tile_zero(TILE_SUMS_3);
}

/* To [tile][row][panel][feature]. */
ALWAYS_INLINE void store_tiles(void *to, bool two) {
    uint8_t *second = (uint8_t *)to + TILE_FLOATS * sizeof(float);
    tile_store(TILE_SUMS_0, to, SUMS_LINE);
    tile_store(TILE_SUMS_1, (uint8_t *)to + TILE_LINE, SUMS_LINE);
    if (two) tile_store(TILE_SUMS_2, second, SUMS_LINE);
    if (two) tile_store(TILE_SUMS_3, second + TILE_LINE, SUMS_LINE);
}

/* Where sums of a tile of rows, or two, come from and go to. */
struct tile_sums {
    float *at;         /* of the set's tile */
    const float *from; /* NULL: they begin with zero */
    float *to;
    bool joins; /* `to` joins those of other segments at last */
};

static inline struct tile_sums tile_sums_of(struct tile_product *p, const struct tile_span *span,
                                            uint32_t tile) {
    float *at = span->sums + ((size_t)p->set * p->n_tiles + tile) * TILE_FLOATS;
    const bool joins = span->last && span->join->n_from;
    return (struct tile_sums){at, span->first ? NULL : at, joins ? p->joined : at, joins};
}

static inline void end_tile_sums(const struct tile_product *p, const struct tile_span *span,
                                 const struct tile_sums *sums, bool two) {
    if (!sums->joins) return;
    join_sums(span->join, p->joined, (size_t)(sums->at - span->sums),
              (two ? 2 : 1) * (size_t)TILE_FLOATS);
}

/* What is read after this span of this set: the same of the next one, or the next span of the first,
 * or the sets that follow. Pairs of tiles share it, so that requests go out evenly. */
static inline void plan_tiles_ahead(struct tile_product *p, const struct tile_span *span) {
    const struct tile_weights *w = p->weights;
    const uint32_t n_steps = (p->n_tiles + 1) / 2 * span_tiles(p, span);
    const size_t k = p->args->k;
    size_t panel = p->p_begin + (p->set + 1) * (size_t)p->n_panels, begin = span->begin;
    if (p->set + 1 == p->n_sets) {
        begin = span->end < k ? span->end : 0;
        if (begin > 0) panel = p->p_begin;
    }
    p->ahead = p->panels[0];
    p->ahead_lines = 0;
    if (n_steps == 0 || panel >= p->p_end) return;
    const size_t end = begin + span_columns(p) < k ? begin + span_columns(p) : k;
    p->ahead = (const uint8_t *)p->args->packed + panel * p->panel_bytes +
               begin / w->group * w->group_bytes;
    const uint32_t lines = (uint32_t)((end - begin) / w->group * w->group_bytes / TILE_LINE);
    p->ahead_lines = (lines + n_steps - 1) / n_steps;
}

static inline void run_many_span(struct tile_product *p, const struct tile_span *span) {
    lay_last_rows(p, span);
    for (uint32_t set = 0; set < p->n_sets; set++) {
        const uint8_t *panels[TILE_PANELS_MAX], *rest[TILE_PANELS_MAX] = {NULL};
        choose_panels(p, set);
        read_panels(p, span->begin, span->end, panels);
        if (span_rest(p, span))
            rest_of_panels(p, span, (size_t)span_tiles(p, span) * TILE_BYTES, panels, rest);
        plan_tiles_ahead(p, span);
        for (uint32_t tile = 0; tile < p->n_tiles; tile += 2) {
            if (p->args->beside) fetch_beside(p->args->beside);
            p->weights->many(p, span, tile, panels, rest, tile + 1 < p->n_tiles);
        }
    }
}

/* ------------------------------------------------------------------------------------ product --- */

static inline bool is_few(const struct tile_product *p) {
    return p->n_tiles == 1 && p->weights->few;
}

/* Sums of a set. */
static inline size_t set_floats_of(const struct tile_product *p) {
    const size_t rows = is_few(p) ? p->n_rows : (size_t)p->n_tiles * TILE_LINES;
    return rows * p->n_panels * WEFT_PANEL;
}

/* All of K for the block's rows and sets; the result is left in acc, [set][row][panel][16]. */
static inline void run_segments(struct tile_product *p) {
    const struct weft_kern_segs *segs = p->args->segs;
    const size_t n_floats = p->n_sets * set_floats_of(p);
    bool full[3] = {false};
    uint32_t begin = 0;
    for (uint32_t s = 0; s < segs->n_segs; s++) {
        const uint32_t end = segs->seg_end[s], seg_begin = begin;
        struct join join = {.to = p->acc};
        if (segs->n_segs > 1) join = plan_join(p->acc, p->slots, SUMS_FLOATS, full, s, begin < end);
        if (begin == end) join_sums(&join, NULL, 0, n_floats);
        struct tile_span span = {.sums = join.n_from ? p->acc : join.to, .join = &join};
        for (; begin < end; begin = span.end) {
            span.begin = begin;
            span.end = is_few(p) ? end : weft_min_u32(end, begin + span_columns(p));
            span.first = begin == seg_begin;
            span.last = span.end == end;
            if (is_few(p))
                p->weights->few(p, &span);
            else
                run_many_span(p, &span);
        }
    }
}

static inline void put_sets(const struct tile_product *p, uint32_t m0) {
    const struct weft_gemm_args *args = p->args;
    const size_t row_floats = (size_t)p->n_panels * WEFT_PANEL, set_floats = set_floats_of(p);
    for (uint32_t r = 0; r < p->n_rows; r++) {
        for (uint32_t set = 0; set < p->n_sets; set++) {
            const uint32_t first = p->p_begin + set * p->n_panels, n0 = first * WEFT_PANEL;
            const uint32_t end = weft_min_u32(first + p->n_panels, p->p_end) * WEFT_PANEL;
            put_row(args, p->acc + set * set_floats + r * row_floats, m0 + r, n0,
                    weft_min_u32(args->n, end) - n0);
        }
    }
}

/* Rows m0..m0 + p->n_rows, all panels of the call. */
static inline void run_tile_rows(struct tile_product *p, uint32_t m0, uint32_t p_begin,
                                 uint32_t p_end) {
    p->n_tiles = (p->n_rows + TILE_LINES - 1) / TILE_LINES;
    p->n_panels = is_few(p) ? FEW_PANELS : MANY_PANELS;
    p->act = (const uint8_t *)p->args->act + m0 * p->args->act_row_bytes;
    p->p_end = p_end;
    uint32_t sets_max = p->n_tiles <= FEW_TILES ? 1 : (uint32_t)(SUMS_FLOATS / set_floats_of(p));
    for (p->p_begin = p_begin; p->p_begin < p_end; p->p_begin += p->n_sets * p->n_panels) {
        p->n_sets = weft_min_u32((p_end - p->p_begin + p->n_panels - 1) / p->n_panels, sets_max);
        choose_panels(p, 0);
        run_segments(p);
        put_sets(p, m0);
    }
}

static inline void gemm_tiles(const struct tile_weights *weights, const struct weft_gemm_args *args,
                              uint32_t p_begin, uint32_t p_end) {
    check_gemm_args(args, weights->kind, p_begin, p_end);
    WEFT_ASSERT(args->act_group == 1 || args->act_group == MANY_ROWS);
    struct tile_product p;
    p.weights = weights;
    p.args = args;
    p.panel_bytes = weft_kern_part_bytes(weights->kind, whole_k(args), args->k);
    for (uint32_t m0 = 0; m0 < args->m; m0 += BLOCK_ROWS) {
        p.n_rows = weft_min_u32(BLOCK_ROWS, args->m - m0);
        const struct tile_config config = tile_config_of(weft_min_u32(p.n_rows, TILE_LINES));
        tile_configure(&config);
        run_tile_rows(&p, m0, p_begin, p_end);
    }
    tile_release();
}

#endif
