/* Paged attention inside a step: who computes which part of it.
 *
 * The rows of a step are cut into tiles of one sequence each, and threads take a tile and a kv head
 * at a time. If that leaves threads with nothing to do (a long sequence among few), they share its
 * spans of positions, too, and join the sums of the spans afterwards; the kernels fold spans in the
 * same order either way.
 *
 * Heads that share a latent are one kv head, so there threads take groups of heads, as few as keep
 * them busy: each group reads the cache by itself. */
#include "forward/attention/attention.h"

#include "forward/attention/indexer.h"

enum {
    ATTN_ROWS = 32, /* query rows of a sequence per tile */
    /* Room for sums of single spans, or more if one row has more. */
    PART_BYTES = 64 * 1024 * 1024,
};

size_t wefti_forward_attn_part_floats(const struct wefti_forward *f) {
    return f->n_heads * weft_attn_part_floats(wefti_forward_value_dim(f));
}

/* One row of the longest sequence has room, however long that is: this is address space. */
size_t wefti_forward_attn_parts_max(const struct wefti_forward *f, uint32_t n_context) {
    uint64_t n_positions = (uint64_t)f->kv->n_blocks[WEFT_KV_FULL] * f->kv->layers[0].block_size;
    return wefti_forward_attn_parts_for(f, weft_min_u64(n_positions, n_context));
}

size_t wefti_forward_attn_parts_for(const struct wefti_forward *f, uint64_t n_positions) {
    size_t n_spans = (size_t)(n_positions + WEFT_ATTN_SPAN - 1) / WEFT_ATTN_SPAN;
    size_t room = PART_BYTES / (wefti_forward_attn_part_floats(f) * sizeof *f->parts);
    if (n_spans <= 1 || f->n_threads == 1) return 0;
    return n_spans > room ? n_spans : room;
}

/* Whether to share by spans: where one tile would keep a thread busy for more than half of its
 * share of all the work, as long as there is room for the sums. */
static bool worth_spans(const struct wefti_forward *f, const struct wefti_forward_attn_work *work) {
    uint64_t all = 0, longest = 0;
    size_t n_parts = 0;
    for (uint32_t i = 0; i < work->n_tiles; i++) {
        const struct wefti_forward_attn_tile *tile = &work->tiles[i];
        uint64_t n_rows = tile->end - tile->begin;
        all += tile->size * work->n_shares;
        if (tile->n_spans == 1) continue;
        n_parts += n_rows * tile->n_spans;
        if (tile->size > longest) longest = tile->size;
    }
    return 2 * longest * f->n_threads > all && n_parts <= f->parts_max;
}

/* The number of groups of the heads that share a latent: one, unless threads would have nothing to
 * do. More cost nothing while each has as many queries as pass over the cache together anyway. */
static uint32_t count_groups(const struct wefti_forward *f,
                             const struct wefti_forward_attn_work *work, uint32_t n_rows) {
    uint32_t n_tasks = work->n_spans ? work->n_spans : work->n_tiles;
    uint32_t needed = (f->n_threads + n_tasks - 1) / n_tasks;
    uint32_t even = (4 * f->n_threads + n_tasks - 1) / n_tasks;
    uint64_t n_queries = (uint64_t)n_rows / work->n_tiles * f->n_heads;
    uint64_t free = n_queries / WEFT_ATTN_LATENT_QUERIES;
    if (even > free) even = (uint32_t)free;
    return weft_min_u32(weft_max_u32(needed, even), f->n_heads);
}

/* The largest first, so that what is left at the end, when threads run out of tasks, is small
 * (Graham 1969). Shell's sort: in place, and 4,096 tiles in any order take no longer than a step
 * can spare. */
static void sort_tiles(struct wefti_forward_attn_work *work) {
    static const uint16_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1}; /* Ciura 2001 */
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        for (uint32_t gap = gaps[g], i = gap; i < work->n_tiles; i++) {
            struct wefti_forward_attn_tile tile = work->tiles[i];
            uint32_t at = i;
            for (; at >= gap && work->tiles[at - gap].size < tile.size; at -= gap)
                work->tiles[at] = work->tiles[at - gap];
            work->tiles[at] = tile;
        }
    }
}

/* Rows that share a block table belong to one sequence and go into tiles together. */
struct wefti_forward_attn_work wefti_forward_attn_plan(const struct wefti_forward *f, uint32_t kind,
                                                       const struct weft_attn_row *rows, uint32_t n,
                                                       struct wefti_forward_attn_tile *tiles) {
    const uint32_t window = f->windows[kind];
    struct wefti_forward_attn_work work = {
        .window = window, .rows = rows, .tiles = tiles, .n_shares = f->of_kind[kind].n_kv_heads};
    uint32_t n_spans = 0;
    size_t part = 0;
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && end - begin < ATTN_ROWS &&
               rows[end].block_table == rows[begin].block_table) {
            end++;
        }
        uint32_t first = weft_attn_first(rows[begin].pos, window, f->in_chunks) / WEFT_ATTN_SPAN;
        uint32_t last = weft_attn_high(&rows[end - 1], window) / WEFT_ATTN_SPAN;
        uint32_t n_seen = weft_attn_high(&rows[end - 1], window) + 1 - first * WEFT_ATTN_SPAN;
        struct wefti_forward_attn_tile tile = {
            begin, end, first, last - first + 1, part, (uint64_t)(end - begin) * n_seen};
        if (tile.n_spans > 1) part += (size_t)(end - begin) * tile.n_spans;
        n_spans += tile.n_spans;
        tiles[work.n_tiles++] = tile;
    }
    sort_tiles(&work);
    if (worth_spans(f, &work)) work.n_spans = n_spans;
    if (f->latent_dim && n > 0) work.n_shares = count_groups(f, &work, n);
    return work;
}

/* Positions of `n` that a row attends to, where an indexer may choose them. */
static uint64_t count_chosen(const struct wefti_forward *f, uint64_t n) {
    return f->seen_stride > 0 ? weft_min_u64(n, f->indexer.top_k) : n;
}

uint64_t wefti_forward_attn_seen(const struct wefti_forward *f, uint32_t window,
                                 const struct weft_attn_row *rows, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t low = weft_attn_first(rows[i].pos, window, f->in_chunks);
        sum += count_chosen(f, weft_attn_high(&rows[i], window) + 1 - low);
    }
    return sum;
}

/* How often the shares of a tile together pass over it. */
static uint64_t n_passes(const struct wefti_forward *f, const struct wefti_forward_attn_work *work,
                         const struct wefti_forward_attn_tile *tile) {
    if (!f->latent_dim) return 1; /* a share reads a kv head of its own */
    uint32_t most = WEFT_ATTN_LATENT_QUERIES, n_rows = tile->end - tile->begin;
    uint32_t n_heads = (f->n_heads + work->n_shares - 1) / work->n_shares;
    uint32_t together = n_heads < most ? most / n_heads : 1;
    uint64_t per_share = (uint64_t)(n_rows + together - 1) / together;
    return work->n_shares * per_share * ((n_heads + most - 1) / most);
}

/* Rows whose positions are chosen pass over them one by one. Of the tiles of the cache that these lie in as little
 * counts as they are themselves. */
static uint64_t read_by_rows(const struct wefti_forward *f,
                             const struct wefti_forward_attn_work *work,
                             const struct wefti_forward_attn_tile *tile) {
    uint64_t sum = 0;
    for (uint32_t i = tile->begin; i < tile->end; i++) {
        struct wefti_forward_attn_tile alone = *tile;
        alone.begin = i;
        alone.end = i + 1;
        sum += count_chosen(f, (uint64_t)work->rows[i].pos + 1) * n_passes(f, work, &alone);
    }
    return sum;
}

/* A tile reads all positions that any of its rows sees. */
uint64_t wefti_forward_attn_read(const struct wefti_forward *f,
                                 const struct wefti_forward_attn_work *work) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < work->n_tiles; i++) {
        const struct wefti_forward_attn_tile *tile = &work->tiles[i];
        if (wefti_forward_index_scores(f, &work->rows[tile->end - 1], 1)) {
            sum += read_by_rows(f, work, tile);
            continue;
        }
        uint32_t low = weft_attn_first(work->rows[tile->begin].pos, work->window, f->in_chunks);
        uint32_t high = weft_attn_high(&work->rows[tile->end - 1], work->window);
        sum += (high + 1 - low) * n_passes(f, work, tile);
    }
    return sum;
}

/* How many shares there are in a layer: as planned, unless it has fewer heads than another one. */
static uint32_t shares_of(const struct wefti_forward *f, uint32_t layer,
                          const struct wefti_forward_attn_work *work) {
    const struct wefti_weights_layer *l = &f->weights->layers[layer];
    return weft_min_u32(work->n_shares, f->latent_dim ? l->n_heads : l->n_kv_heads);
}

/* The heads of a layer in tiles. */
struct layer_work {
    const struct wefti_forward_attn_work *work;
    uint32_t n_heads, n_shares; /* per tile or span */
};

/* One thread's share of a tile: a kv head, or a group of the heads that share a latent, as if there
 * were no others. */
struct share {
    struct weft_attn_args args;
    struct weft_attn_parts parts;
    uint32_t kv_head;
};

static struct share share_of(const struct wefti_forward *f, const struct weft_attn_args *args,
                             const struct layer_work *of,
                             const struct wefti_forward_attn_tile *tile, uint32_t i) {
    struct share share = {.args = *args, .kv_head = i};
    share.parts = (struct weft_attn_parts){
        f->parts + tile->part * wefti_forward_attn_part_floats(f), tile->span_begin, tile->n_spans};
    if (!f->latent_dim) return share;
    uint32_t begin = (uint32_t)((uint64_t)of->n_heads * i / of->n_shares);
    uint32_t end = (uint32_t)((uint64_t)of->n_heads * (i + 1) / of->n_shares);
    size_t n_parts = (size_t)(tile->end - tile->begin) * tile->n_spans * begin;
    share.kv_head = 0;
    share.args.n_heads = end - begin;
    share.args.q += (size_t)begin * f->head_dim;
    share.args.out += (size_t)begin * f->latent_dim;
    share.parts.sums += n_parts * weft_attn_part_floats(f->latent_dim);
    return share;
}

/* The sums of all spans, then their joins. A tile of one span has nothing to join. */
static void attend_by_spans(const struct wefti_forward_thread *thread,
                            const struct weft_attn_args *args, const struct layer_work *of) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_forward_attn_work *work = of->work;
    uint32_t n_shares = of->n_shares, n_tasks = work->n_spans * n_shares, before = 0;
    const struct wefti_forward_attn_tile *tile = work->tiles;
    for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
         task = wefti_forward_take_task(thread)) {
        while (task / n_shares >= before + tile->n_spans) {
            before += tile->n_spans;
            tile++;
        }
        struct share share = share_of(f, args, of, tile, task % n_shares);
        uint32_t span = task / n_shares - before;
        if (tile->n_spans == 1) {
            f->kern->attention(&share.args, share.kv_head, tile->begin, tile->end);
        } else {
            f->kern->attention_span(&share.args, share.kv_head, tile->begin, tile->end,
                                    tile->span_begin + span, &share.parts);
        }
    }
    wefti_forward_end_phase(thread);
    n_tasks = work->n_tiles * n_shares;
    for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
         task = wefti_forward_take_task(thread)) {
        tile = &work->tiles[task / n_shares];
        if (tile->n_spans == 1) continue;
        struct share share = share_of(f, args, of, tile, task % n_shares);
        f->kern->attention_join(&share.args, share.kv_head, tile->begin, tile->end, &share.parts);
    }
    wefti_forward_end_phase(thread);
}

void wefti_forward_attend(const struct wefti_forward_thread *thread, uint32_t layer,
                          const struct wefti_forward_attn_work *work) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *l = &f->weights->layers[layer];
    const struct wefti_forward_heads *heads = wefti_forward_heads_of(f, layer);
    const struct layer_work of = {work, l->n_heads, shares_of(f, layer, work)};
    struct weft_attn_args args = {
        .kv = f->kv->layers[layer],
        .q = f->q + (size_t)l->q_first * heads->head_dim,
        .out = f->attn,
        .q_stride = f->q_stride,
        .out_stride = f->out_stride,
        .rows = work->rows,
        .n_heads = l->n_heads,
        .group_heads = f->latent_dim ? 0 : heads->group_heads,
        .skipped_heads = l->skipped_heads,
        .window = work->window,
        .in_chunks = f->in_chunks,
        .sinks = wefti_forward_vector(f, l->sinks),
        .exact = f->is_exact,
        .scale = heads->scale,
        .soft_cap = f->attn_soft_cap,
        .seen = f->seen_stride > 0 ? f->seen : NULL,
        .seen_stride = f->seen_stride,
        .seen_from = f->indexer.top_k,
    };
    if (work->n_spans > 0) {
        attend_by_spans(thread, &args, &of);
        return;
    }
    uint32_t n_tasks = work->n_tiles * of.n_shares;
    for (uint32_t task = wefti_forward_take_task(thread); task < n_tasks;
         task = wefti_forward_take_task(thread)) {
        const struct wefti_forward_attn_tile *tile = &work->tiles[task / of.n_shares];
        struct share share = share_of(f, &args, &of, tile, task % of.n_shares);
        f->kern->attention(&share.args, share.kv_head, tile->begin, tile->end);
    }
    wefti_forward_end_phase(thread);
}
