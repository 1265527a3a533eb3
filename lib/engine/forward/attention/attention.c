/* Paged attention inside a step: who computes which part of it.
 *
 * The rows of a step are cut into tiles of one sequence each, and threads take a tile and some of its kv heads
 * at a time: one, where many rows share what is read; where few do, and so wait for memory, all that can be
 * without leaving threads with nothing to do, as a cache's kv heads lie side by side. Where that is too few, or
 * one is too much, they share a tile's spans of positions, too, and join the sums of the spans
 * afterwards; the kernels fold spans in the same order either way.
 *
 * Heads that share a latent are one kv head, so there threads take groups of heads, as few as keep
 * them busy: each group reads the cache by itself. */
#include "forward/attention/attention.h"

#include "forward/attention/indexer.h"

enum {
    ATTN_ROWS = 32, /* query rows of a sequence per tile */
    /* Room for sums of single spans, or more if one row has more. */
    PART_BYTES = 64 * 1024 * 1024,
    TASKS = 4, /* a thread should have at least, where tasks have different sizes */
    /* Queries of a tile, of all heads, that wait for memory rather than compute: about as many as kernels take
     * over a cache in one go. */
    NARROW = 128,
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

/* What the tiles of a step share. */
struct balance {
    uint64_t all;   /* their sizes */
    size_t n_parts; /* sums that those shared by spans have so far */
};

/* The fewest shares that the kv heads of a tile, or of a span of one, should be divided into. They are even. */
static uint32_t count_shares(const struct wefti_forward *f, uint64_t size, uint64_t all,
                             uint32_t n_kv_heads) {
    uint32_t n = 1;
    if (f->n_threads == 1) return n;
    while (n < n_kv_heads && (n_kv_heads % n != 0 || size * TASKS * f->n_threads > all * n)) {
        n++;
    }
    return n;
}

/* By spans where a kv head of the tile alone would keep a thread busy for more than half of its share of all the
 * work, or where more kv heads can stay together then; as long as there is room for the sums. */
static void divide(const struct wefti_forward *f, struct balance *balance, uint32_t n_kv_heads,
                   struct wefti_forward_attn_tile *tile) {
    const uint64_t n_rows = tile->end - tile->begin;
    const size_t n_parts = n_rows * tile->n_spans;
    const bool is_narrow = n_rows * f->n_heads <= NARROW;
    const uint32_t n_shares =
        is_narrow ? count_shares(f, tile->size, balance->all, n_kv_heads) : n_kv_heads;
    tile->n_shares = n_shares;
    if (tile->n_spans == 1 || balance->n_parts + n_parts > f->parts_max) return;
    if (is_narrow)
        tile->n_shares = count_shares(f, tile->size / tile->n_spans, balance->all, n_kv_heads);
    tile->by_spans =
        tile->n_shares < n_shares || 2 * tile->size * f->n_threads > balance->all * n_kv_heads;
    if (!tile->by_spans) return;
    tile->part = balance->n_parts;
    balance->n_parts += n_parts;
}

/* How many tasks a tile is. */
static uint32_t count_tasks(const struct wefti_forward_attn_tile *tile) {
    return tile->n_shares * (tile->by_spans ? tile->n_spans : 1);
}

/* The number of groups of the heads that share a latent: one, unless threads would have nothing to
 * do. More cost nothing while each has as many queries as pass over the cache together anyway. */
static uint32_t count_groups(const struct wefti_forward *f,
                             const struct wefti_forward_attn_work *work, uint32_t n_rows) {
    uint32_t n_tasks = 0;
    for (uint32_t i = 0; i < work->n_tiles; i++) {
        n_tasks += count_tasks(&work->tiles[i]);
    }
    WEFT_ASSERT(n_tasks > 0);
    uint32_t needed = (f->n_threads + n_tasks - 1) / n_tasks;
    uint32_t even = (TASKS * f->n_threads + n_tasks - 1) / n_tasks;
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
    struct wefti_forward_attn_work work = {.window = window, .rows = rows, .tiles = tiles};
    struct balance balance = {0};
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = begin + 1;
        while (end < n && end - begin < ATTN_ROWS &&
               rows[end].block_table == rows[begin].block_table) {
            end++;
        }
        uint32_t first = weft_attn_first(rows[begin].pos, window, f->in_chunks) / WEFT_ATTN_SPAN;
        uint32_t last = weft_attn_high(&rows[end - 1], window) / WEFT_ATTN_SPAN;
        uint32_t n_seen = weft_attn_high(&rows[end - 1], window) + 1 - first * WEFT_ATTN_SPAN;
        tiles[work.n_tiles] = (struct wefti_forward_attn_tile){
            .begin = begin, .end = end, .span_begin = first, .n_spans = last - first + 1};
        tiles[work.n_tiles].size = (uint64_t)(end - begin) * n_seen;
        balance.all += tiles[work.n_tiles++].size;
    }
    sort_tiles(&work);
    for (uint32_t i = 0; i < work.n_tiles; i++) {
        divide(f, &balance, f->of_kind[kind].n_kv_heads, &tiles[i]);
    }
    work.has_parts = balance.n_parts > 0;
    const uint32_t n_groups = f->latent_dim && n > 0 ? count_groups(f, &work, n) : 0;
    for (uint32_t i = 0; i < work.n_tiles && n_groups > 0; i++) {
        tiles[i].n_shares = n_groups;
    }
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
static uint64_t n_passes(const struct wefti_forward *f,
                         const struct wefti_forward_attn_tile *tile) {
    if (!f->latent_dim) return 1; /* a share reads kv heads of its own */
    uint32_t most = WEFT_ATTN_LATENT_QUERIES, n_rows = tile->end - tile->begin;
    uint32_t n_heads = (f->n_heads + tile->n_shares - 1) / tile->n_shares;
    uint32_t together = n_heads < most ? most / n_heads : 1;
    uint64_t per_share = (uint64_t)(n_rows + together - 1) / together;
    return tile->n_shares * per_share * ((n_heads + most - 1) / most);
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
        sum += count_chosen(f, (uint64_t)work->rows[i].pos + 1) * n_passes(f, &alone);
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
        sum += (high + 1 - low) * n_passes(f, tile);
    }
    return sum;
}

/* The heads of a layer in tiles. */
struct layer_work {
    const struct wefti_forward_attn_work *work;
    uint32_t n_heads; /* that shares divide: kv heads, or those that share a latent */
};

/* A thread's place among tasks, which are those of one tile after another's. It gets them in ascending order. */
struct place {
    uint32_t tile, before; /* tasks of the tiles before it */
};

/* One thread's share of a tile: some kv heads, or a group of the heads that share a latent, as if there
 * were no others. */
struct share {
    const struct wefti_forward_attn_tile *tile; /* NULL: there are no more tasks */
    struct weft_attn_args args;
    struct weft_attn_parts parts;
    struct weft_attn_range range;
    uint32_t span; /* its number, where the tile is shared by spans */
};

/* How many shares a tile has in a layer: as planned, unless it has fewer heads than another one. */
static uint32_t shares_of(const struct layer_work *of, const struct wefti_forward_attn_tile *tile) {
    return weft_min_u32(tile->n_shares, of->n_heads);
}

/* Task number `task` of a phase whose tasks are shares, or (by_spans) those of spans where tiles are divided so. */
static struct share share_at(const struct wefti_forward *f, const struct weft_attn_args *args,
                             const struct layer_work *of, bool by_spans, uint32_t task,
                             struct place *place) {
    struct share share = {.tile = NULL};
    const struct wefti_forward_attn_tile *tile = of->work->tiles + place->tile;
    for (; place->tile < of->work->n_tiles; place->tile++, tile++) {
        uint32_t n = shares_of(of, tile) * (by_spans && tile->by_spans ? tile->n_spans : 1);
        if (task < place->before + n) break;
        place->before += n;
    }
    if (place->tile == of->work->n_tiles) return share;
    const uint32_t n_shares = shares_of(of, tile), i = (task - place->before) % n_shares;
    const uint32_t begin = (uint32_t)((uint64_t)of->n_heads * i / n_shares);
    const uint32_t end = (uint32_t)((uint64_t)of->n_heads * (i + 1) / n_shares);
    share.tile = tile;
    share.args = *args;
    share.range = (struct weft_attn_range){tile->begin, tile->end, begin, end};
    share.span = tile->span_begin + (task - place->before) / n_shares;
    share.parts = (struct weft_attn_parts){
        f->parts + tile->part * wefti_forward_attn_part_floats(f), tile->span_begin, tile->n_spans};
    if (!f->latent_dim) return share;
    size_t n_parts = (size_t)(tile->end - tile->begin) * tile->n_spans * begin;
    share.range.kv_head_begin = 0;
    share.range.kv_head_end = 1;
    share.args.n_heads = end - begin;
    share.args.q += (size_t)begin * f->head_dim;
    share.args.out += (size_t)begin * f->latent_dim;
    share.parts.sums += n_parts * weft_attn_part_floats(f->latent_dim);
    return share;
}

/* Tiles, or the sums of their spans. */
static void sum_tiles(const struct wefti_forward_thread *thread, const struct weft_attn_args *args,
                      const struct layer_work *of) {
    const struct wefti_forward *f = thread->forward;
    struct place place = {0};
    for (;;) {
        const struct share share =
            share_at(f, args, of, true, wefti_forward_take_task(thread), &place);
        if (!share.tile) break;
        if (share.tile->by_spans)
            f->kern->attention_span(&share.args, &share.range, share.span, &share.parts);
        else
            f->kern->attention(&share.args, &share.range);
    }
    wefti_forward_end_phase(thread);
}

static void join_spans(const struct wefti_forward_thread *thread, const struct weft_attn_args *args,
                       const struct layer_work *of) {
    const struct wefti_forward *f = thread->forward;
    struct place place = {0};
    for (;;) {
        const struct share share =
            share_at(f, args, of, false, wefti_forward_take_task(thread), &place);
        if (!share.tile) break;
        if (share.tile->by_spans) f->kern->attention_join(&share.args, &share.range, &share.parts);
    }
    wefti_forward_end_phase(thread);
}

void wefti_forward_attend(const struct wefti_forward_thread *thread, uint32_t layer,
                          const struct wefti_forward_attn_work *work) {
    const struct wefti_forward *f = thread->forward;
    const struct wefti_weights_layer *l = &f->weights->layers[layer];
    const struct wefti_forward_heads *heads = wefti_forward_heads_of(f, layer);
    const uint32_t n_heads = f->latent_dim ? l->n_heads : l->n_kv_heads;
    const struct layer_work of = {work, n_heads};
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
    sum_tiles(thread, &args, &of);
    if (work->has_parts) join_spans(thread, &args, &of);
}
