/* Paged attention inside a step: who computes which part of it.
 *
 * The rows of a step are cut into tiles of one sequence each, and threads take a tile and a kv head
 * at a time. Where that leaves threads with nothing to do, a long sequence among few, they share
 * its spans of positions, too, and join the sums of the spans afterwards; the kernels fold spans
 * in the same order either way. */
#include "engine/forward_internal.h"

enum {
    ATTN_ROWS = 32, /* query rows of a sequence per tile */
    /* Sums of single spans held at a time, or as many as one row has. */
    PART_BYTES = 64 * 1024 * 1024,
};

size_t wefti_attn_part_floats(const struct wefti_forward *f) {
    return f->n_heads * weft_attn_part_floats(f->head_dim);
}

/* As address space: one row of the longest sequence has room, however long that is. */
size_t wefti_attn_parts_max(const struct wefti_forward *f, uint32_t n_context) {
    uint64_t n_positions = (uint64_t)f->kv->n_blocks * f->kv->layers[0].block_size;
    if (n_positions > n_context) n_positions = n_context;
    size_t n_spans = (size_t)(n_positions + WEFT_ATTN_SPAN - 1) / WEFT_ATTN_SPAN;
    size_t room = PART_BYTES / (wefti_attn_part_floats(f) * sizeof *f->parts);
    if (n_spans <= 1 || f->n_threads == 1) return 0;
    return n_spans > room ? n_spans : room;
}

/* Shares by spans where one tile would keep a thread busy for more than half of what is each
 * thread's share of all, as long as there is room for the sums. */
static bool worth_spans(const struct wefti_forward *f, const struct wefti_attn_work *work) {
    uint64_t all = 0, longest = 0;
    size_t n_parts = 0;
    for (uint32_t i = 0; i < work->n_tiles; i++) {
        const struct wefti_attn_tile *tile = &work->tiles[i];
        uint64_t n_rows = tile->end - tile->begin;
        uint32_t n_seen = work->rows[tile->end - 1].pos + 1 - tile->span_begin * WEFT_ATTN_SPAN;
        all += n_rows * n_seen * f->n_kv_heads;
        if (tile->n_spans == 1) continue;
        n_parts += n_rows * tile->n_spans;
        if (n_rows * n_seen > longest) longest = n_rows * n_seen;
    }
    return 2 * longest * f->n_threads > all && n_parts <= f->parts_max;
}

/* Tiles of rows that share a block table, so of one sequence. */
struct wefti_attn_work wefti_attn_plan(const struct wefti_forward *f, uint32_t window,
                                       const struct weft_attn_row *rows, uint32_t n,
                                       struct wefti_attn_tile *tiles) {
    struct wefti_attn_work work = {.window = window, .rows = rows, .tiles = tiles};
    uint32_t n_spans = 0;
    size_t part = 0;
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && end - begin < ATTN_ROWS &&
               rows[end].block_table == rows[begin].block_table) {
            end++;
        }
        uint32_t first = weft_attn_low(rows[begin].pos, window) / WEFT_ATTN_SPAN;
        uint32_t last = rows[end - 1].pos / WEFT_ATTN_SPAN;
        struct wefti_attn_tile tile = {begin, end, first, last - first + 1, part};
        if (tile.n_spans > 1) part += (size_t)(end - begin) * tile.n_spans;
        n_spans += tile.n_spans;
        tiles[work.n_tiles++] = tile;
    }
    if (worth_spans(f, &work)) work.n_spans = n_spans;
    return work;
}

uint64_t wefti_attn_seen(uint32_t window, const struct weft_attn_row *rows, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += rows[i].pos + 1 - weft_attn_low(rows[i].pos, window);
    }
    return sum;
}

/* A tile reads what any of its rows sees. */
uint64_t wefti_attn_read(const struct wefti_attn_work *work) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < work->n_tiles; i++) {
        const struct wefti_attn_tile *tile = &work->tiles[i];
        uint32_t low = weft_attn_low(work->rows[tile->begin].pos, work->window);
        sum += work->rows[tile->end - 1].pos + 1 - low;
    }
    return sum;
}

static struct weft_attn_parts parts_of(const struct wefti_forward *f,
                                       const struct wefti_attn_tile *tile) {
    return (struct weft_attn_parts){f->parts + tile->part * wefti_attn_part_floats(f),
                                    tile->span_begin, tile->n_spans};
}

/* The sums of all spans, then their joins. A tile of one span has nothing to join. */
static void attend_by_spans(const struct wefti_lane *lane, const struct weft_attn_args *args,
                            const struct wefti_attn_work *work) {
    const struct wefti_forward *f = lane->f;
    uint32_t n_tasks = work->n_spans * f->n_kv_heads, before = 0;
    const struct wefti_attn_tile *tile = work->tiles;
    for (uint32_t task = wefti_take(lane); task < n_tasks; task = wefti_take(lane)) {
        while (task / f->n_kv_heads >= before + tile->n_spans) {
            before += tile->n_spans;
            tile++;
        }
        uint32_t kv_head = task % f->n_kv_heads, span = task / f->n_kv_heads - before;
        struct weft_attn_parts parts = parts_of(f, tile);
        if (tile->n_spans == 1) {
            f->kern->attention(args, kv_head, tile->begin, tile->end);
        } else {
            f->kern->attention_span(args, kv_head, tile->begin, tile->end, tile->span_begin + span,
                                    &parts);
        }
    }
    wefti_barrier(lane);
    n_tasks = work->n_tiles * f->n_kv_heads;
    for (uint32_t task = wefti_take(lane); task < n_tasks; task = wefti_take(lane)) {
        tile = &work->tiles[task / f->n_kv_heads];
        struct weft_attn_parts parts = parts_of(f, tile);
        if (tile->n_spans > 1)
            f->kern->attention_join(args, task % f->n_kv_heads, tile->begin, tile->end, &parts);
    }
    wefti_barrier(lane);
}

void wefti_attend(const struct wefti_lane *lane, uint32_t layer,
                  const struct wefti_attn_work *work) {
    const struct wefti_forward *f = lane->f;
    struct weft_attn_args args = {
        .kv = f->kv->layers[layer],
        .q = f->q,
        .out = f->attn,
        .q_stride = f->q_stride,
        .out_stride = f->q_stride,
        .rows = work->rows,
        .n_heads = f->n_heads,
        .window = work->window,
        .scale = f->attn_scale,
        .soft_cap = f->attn_soft_cap,
    };
    if (work->n_spans > 0) {
        attend_by_spans(lane, &args, work);
        return;
    }
    uint32_t n_tasks = work->n_tiles * f->n_kv_heads;
    for (uint32_t task = wefti_take(lane); task < n_tasks; task = wefti_take(lane)) {
        const struct wefti_attn_tile *tile = &work->tiles[task / f->n_kv_heads];
        f->kern->attention(&args, task % f->n_kv_heads, tile->begin, tile->end);
    }
    wefti_barrier(lane);
}
