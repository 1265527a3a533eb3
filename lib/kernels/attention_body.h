/* kernels/attention_body — the walk over a sequence's spans and tiles, shared by the vector ISAs.
 *
 * Queries (row, head) that read the same kv head of the same sequence pass over the cache together:
 * a tile of 64 tokens is read from memory once for up to 64 of them, and QUERY_BATCH of them share
 * each load. `out` holds the unnormalised sum of values meanwhile. What a query computes never
 * depends on its neighbours: every score and every output element is one chain of its own, and
 * where the masks of a batch differ (the tile of the diagonal, and that where a window begins) each
 * query begins and stops at its own tokens, so that not even 0 * v of another one gets in.
 *
 * An ISA file defines before including this, for n and dtype constant after inlining:
 *   score_queries(tile, queries, n, n_subs, dtype, p)       p[i][0 .. 16 * n_subs) = q_i . k
 *   value_queries(tile, queries, n, dtype, p, fade, j0, j1) out_i = out_i * fade[i]
 *                                                           + sum of p[i][j] v_j
 *   tile_max(p), tile_sum(p)                                of 64; the sum by the fixed tree
 *   widen_codes(codes, n, dtype, out)                       `n` elements, a multiple of 16, as f32
 *   transpose(from, n, to)                                  from[n][16] to to[16][n]
 *
 * Where many queries share a tile, it is widened to f32 once for all of them: the same values, so
 * the same bits. A latent's tile always is, and its values are made from its keys there, so that
 * one read from memory serves all heads of a row, and scores and values alike. */
#ifndef WEFT_KERNELS_ATTENTION_BODY_H
#define WEFT_KERNELS_ATTENTION_BODY_H

#include "attention_tile.h"

/* Every number of queries gets its own unrolled copy. */
#define FOR_QUERIES(n, call)                                                                       \
    switch (n) {                                                                                   \
    case 1:                                                                                        \
        call(1);                                                                                   \
        break;                                                                                     \
    case 2:                                                                                        \
        call(2);                                                                                   \
        break;                                                                                     \
    case 3:                                                                                        \
        call(3);                                                                                   \
        break;                                                                                     \
    default:                                                                                       \
        call(4);                                                                                   \
        break;                                                                                     \
    }

#define FOR_DTYPES(tile, n, call_f32, call_bf16, call_f16, call_int8)                              \
    if ((tile)->dtype == WEFT_KV_F32) {                                                            \
        FOR_QUERIES(n, call_f32)                                                                   \
    } else if ((tile)->dtype == WEFT_KV_BF16) {                                                    \
        FOR_QUERIES(n, call_bf16)                                                                  \
    } else if ((tile)->dtype == WEFT_KV_F16) {                                                     \
        FOR_QUERIES(n, call_f16)                                                                   \
    } else {                                                                                       \
        FOR_QUERIES(n, call_int8)                                                                  \
    }

/* Not inline: their loops want every register for themselves. */
static __attribute__((noinline)) void scores(const struct attn_tile *tile,
                                             const struct attn_query *queries, uint32_t n,
                                             uint32_t n_subs, float (*p)[ATTN_TILE]) {
#define SCORE_F32(count) score_queries(tile, queries, count, n_subs, WEFT_KV_F32, p)
#define SCORE_BF16(count) score_queries(tile, queries, count, n_subs, WEFT_KV_BF16, p)
#define SCORE_F16(count) score_queries(tile, queries, count, n_subs, WEFT_KV_F16, p)
#define SCORE_INT8(count) score_queries(tile, queries, count, n_subs, WEFT_KV_INT8, p)
    FOR_DTYPES(tile, n, SCORE_F32, SCORE_BF16, SCORE_F16, SCORE_INT8)
}

static __attribute__((noinline)) void values(const struct attn_tile *tile,
                                             const struct attn_query *queries, uint32_t n,
                                             float (*p)[ATTN_TILE], const float *fade, uint32_t j0,
                                             uint32_t j1) {
#define VALUE_F32(count) value_queries(tile, queries, count, WEFT_KV_F32, p, fade, j0, j1)
#define VALUE_BF16(count) value_queries(tile, queries, count, WEFT_KV_BF16, p, fade, j0, j1)
#define VALUE_F16(count) value_queries(tile, queries, count, WEFT_KV_F16, p, fade, j0, j1)
#define VALUE_INT8(count) value_queries(tile, queries, count, WEFT_KV_INT8, p, fade, j0, j1)
    FOR_DTYPES(tile, n, VALUE_F32, VALUE_BF16, VALUE_F16, VALUE_INT8)
}

/* A tile as f32, and the memory for it. */
struct wide_tile {
    struct attn_tile tile;
    _Alignas(64) float k[ATTN_TILE * WEFT_KV_DIM_MAX], v[ATTN_TILE * WEFT_KV_DIM_MAX];
};

/* n_subs groups; those after them are zero, so that products may run over all of them. int8: the
 * codes; their scales stay with `tile`. */
static inline void widen_tile(const struct attn_tile *tile, uint32_t n_subs,
                              struct wide_tile *wide) {
    const uint32_t n = ATTN_SUB * tile->head_dim, n_values = ATTN_SUB * tile->value_dim;
    wide->tile = *tile;
    wide->tile.dtype = WEFT_KV_F32;
    for (uint32_t s = 0; s < ATTN_SUBS; s++) {
        float *k = wide->k + (size_t)s * n, *v = wide->v + (size_t)s * n_values;
        if (s >= n_subs) {
            memset(k, 0, n * sizeof *k);
            memset(v, 0, n_values * sizeof *v);
        } else {
            widen_codes(tile->k[s], n, tile->dtype, k);
            if (tile->v[s] == tile->k[s])
                transpose(k, tile->value_dim, v);
            else
                widen_codes(tile->v[s], n, tile->dtype, v);
        }
        wide->tile.k[s] = (const void *)k;
        wide->tile.v[s] = (const void *)v;
    }
}

/* int8: dots become scores with the tokens' scales, and exponentials the weights of codes. The
 * results of slots after the last token of a sequence are masked, and not read as weights. */
static inline void apply_scales(const uint8_t *const groups[ATTN_SUBS], uint32_t head_dim,
                                uint32_t n_subs, float p[ATTN_TILE]) {
    for (uint32_t s = 0; s < n_subs; s++) {
        const float *scales = kv_scales(groups[s], head_dim);
        for (uint32_t l = 0; l < ATTN_SUB; l++) {
            p[s * ATTN_SUB + l] *= scales[l];
        }
    }
}

static inline void cap_scores(float (*p)[ATTN_TILE], uint32_t n, float scale, float cap) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[i][j] = cap * tanh_f32(p[i][j] * scale / cap);
        }
    }
}

/* Turns the scores of a batch into exponentials in place (masked ones into 0); `fade` gets what the
 * sums so far are to be multiplied by. Each step runs for all queries before the next: most of the
 * time goes to waiting for the result before, and so they wait side by side. */
static inline void fold_scores(struct attn_query *queries, uint32_t n, float scale,
                               float (*p)[ATTN_TILE], float *fade) {
    float max[QUERY_BATCH] = {0}, shrink[QUERY_BATCH] = {0}, kept[QUERY_BATCH];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t begin = queries[i].begin, n_seen = queries[i].end - begin;
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[i][j] = j - begin < n_seen ? p[i][j] * scale : -INFINITY;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        float top = tile_max(p[i]);
        max[i] = top > queries[i].max ? top : queries[i].max;
        shrink[i] = queries[i].max - max[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[i][j] = exp_f32(p[i][j] - max[i]);
        }
    }
    for (uint32_t i = 0; i < QUERY_BATCH; i++) {
        kept[i] = exp_f32(shrink[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        fade[i] = kept[i];
        queries[i].total = queries[i].total * fade[i] + tile_sum(p[i]);
        queries[i].max = max[i];
    }
}

/* The values of one tile for a batch whose weights are in `p`: together where all see, else one by
 * one, in position order. */
static inline void fold_values(const struct attn_tile *tile, const struct attn_query *queries,
                               uint32_t n, float (*p)[ATTN_TILE], const float *fade) {
    uint32_t from = queries[n - 1].begin, to = queries[0].end;
    float ones[QUERY_BATCH];
    for (uint32_t i = 0; i < n; i++) {
        bool early = queries[i].begin < from || from >= to;
        uint32_t end = from < to ? from : queries[i].end;
        if (early) values(tile, queries + i, 1, p + i, fade + i, queries[i].begin, end);
        ones[i] = early ? 1.0f : fade[i];
    }
    if (from >= to) return; /* a window so narrow that they have no token in common */
    values(tile, queries, n, p, ones, from, to);
    for (uint32_t i = 1; i < n; i++) {
        const float one = 1.0f;
        if (queries[i].end > to) values(tile, queries + i, 1, p + i, &one, to, queries[i].end);
    }
}

/* One tile for `n` queries, each of which sees some of it; ascending positions. First all scores,
 * then all weights, then all values: each with its half of the tile in L1. `products`: the tile, or
 * the same one widened. */
static inline void fold_tile(const struct attn_tile *tile, const struct attn_tile *products,
                             struct attn_query *queries, uint32_t n, float scale, float cap) {
    _Alignas(64) float p[QUERIES_MAX][ATTN_TILE];
    float fade[QUERIES_MAX];
    bool widened = products != tile, scaled = tile->dtype == WEFT_KV_INT8;
    for (uint32_t i = 0; i < n; i += QUERY_BATCH) {
        uint32_t some = weft_min_u32(QUERY_BATCH, n - i);
        uint32_t n_subs = (queries[i + some - 1].end + ATTN_SUB - 1) / ATTN_SUB;
        if (!widened && n_subs < ATTN_SUBS) memset(p + i, 0, some * sizeof p[0]);
        scores(products, queries + i, some, widened ? ATTN_SUBS : n_subs, p + i);
        for (uint32_t j = i; j < i + some && scaled; j++) {
            apply_scales(tile->k, tile->head_dim, n_subs, p[j]);
        }
    }
    for (uint32_t i = 0; i < n; i += QUERY_BATCH) {
        if (cap > 0) cap_scores(p + i, weft_min_u32(QUERY_BATCH, n - i), scale, cap);
        fold_scores(queries + i, weft_min_u32(QUERY_BATCH, n - i), cap > 0 ? 1.0f : scale, p + i,
                    fade + i);
    }
    for (uint32_t i = 0; i < n; i += QUERY_BATCH) {
        uint32_t some = weft_min_u32(QUERY_BATCH, n - i);
        uint32_t n_subs = (queries[i + some - 1].end + ATTN_SUB - 1) / ATTN_SUB;
        for (uint32_t j = i; j < i + some && scaled; j++) {
            apply_scales(tile->v, tile->head_dim, n_subs, p[j]);
        }
        fold_values(products, queries + i, some, p + i, fade + i);
    }
}

/* Where the 16-token parts of the tile at `first` lie, up to `last`. Returns their number. */
static inline uint32_t find_tile(const struct weft_kv_layer *kv, const uint32_t *block_table,
                                 uint32_t kv_head, uint32_t first, uint32_t last,
                                 struct attn_tile *tile) {
    uint32_t s = 0;
    for (; s < ATTN_SUBS && first + s * ATTN_SUB <= last; s++) {
        uint32_t pos = first + s * ATTN_SUB, block = block_table[pos / kv->block_size];
        size_t at = kv_group_at(kv, block, kv_head, pos % kv->block_size);
        tile->k[s] = (const uint8_t *)kv->k + at;
        tile->v[s] = kv->v_dim ? tile->k[s] : (const uint8_t *)kv->v + at;
    }
    return s;
}

/* Blocks lie anywhere in memory, so the hardware's prefetchers see each of them begin too late:
 * asking for the next tile while this one is computed gains a fifth in decoding. */
static inline void prefetch_tile(const struct attn_tile *tile, uint32_t n_subs,
                                 size_t group_bytes) {
    for (uint32_t s = 0; s < n_subs; s++) {
        for (size_t at = 0; at < group_bytes; at += 64) {
            __builtin_prefetch(tile->k[s] + at);
            if (tile->v[s] != tile->k[s]) __builtin_prefetch(tile->v[s] + at);
        }
    }
}

/* One span for queries of one sequence and kv head, positions ascending; all see some of it. */
static inline void fold_span(const struct weft_attn_args *args, const uint32_t *block_table,
                             uint32_t kv_head, uint32_t span, struct attn_query *queries,
                             uint32_t n) {
    WEFT_ASSERT(n > 0);
    uint32_t first = span * WEFT_ATTN_SPAN, low = queries[0].low / ATTN_TILE * ATTN_TILE;
    uint32_t last = weft_min_u32(first + WEFT_ATTN_SPAN - 1, queries[n - 1].pos), begin = 0,
             end = 0;
    struct attn_tile tile, next = {.dtype = args->kv.dtype,
                                   .head_dim = args->kv.head_dim,
                                   .value_dim = weft_kv_value_dim(&args->kv)};
    struct wide_tile wide;
    size_t group_bytes = weft_kv_group_bytes(&args->kv);
    for (uint32_t i = 0; i < n; i++) {
        memset(queries[i].out, 0, next.value_dim * sizeof(float));
        queries[i].max = -INFINITY;
        queries[i].total = 0.0f;
    }
    uint32_t at = first > low ? first : low;
    (void)find_tile(&args->kv, block_table, kv_head, at, last, &next);
    for (; at <= last; at += ATTN_TILE) {
        tile = next;
        uint32_t n_next = find_tile(&args->kv, block_table, kv_head, at + ATTN_TILE, last, &next);
        prefetch_tile(&next, n_next, group_bytes);
        while (queries[begin].pos < at) {
            begin++;
        }
        while (end < n && queries[end].low < at + ATTN_TILE) {
            end++;
        }
        for (uint32_t i = begin; i < end; i++) {
            queries[i].begin = queries[i].low > at ? queries[i].low - at : 0;
            queries[i].end = weft_min_u32(ATTN_TILE, queries[i].pos - at + 1);
        }
        const struct attn_tile *products = &tile;
        bool pays = end - begin >= WIDE_QUERIES && tile.dtype != WEFT_KV_F32;
        if (pays || args->kv.v_dim) {
            widen_tile(&tile, (weft_min_u32(last - at, ATTN_TILE - 1) + ATTN_SUB) / ATTN_SUB,
                       &wide);
            products = &wide.tile;
        }
        fold_tile(&tile, products, queries + begin, end - begin, args->scale, args->soft_cap);
    }
}

/* The sums so far take in those of the next span. */
static inline void join_span(struct span_sum *sum, const float *out, float max, float total,
                             uint32_t value_dim) {
    float top = max > sum->max ? max : sum->max;
    float keep = exp_f32(sum->max - top), add = exp_f32(max - top);
    for (uint32_t d = 0; d < value_dim; d++) {
        sum->out[d] = sum->out[d] * keep + out[d] * add;
    }
    sum->total = sum->total * keep + total * add;
    sum->max = top;
}

static inline void divide(const struct span_sum *sum, uint32_t value_dim) {
    float inverse = 1.0f / sum->total;
    for (uint32_t d = 0; d < value_dim; d++) {
        sum->out[d] *= inverse;
    }
}

/* All spans for queries of one sequence and kv head, positions ascending. A query's first span is
 * summed where the result belongs, later ones beside it. */
static inline void fold_queries(const struct weft_attn_args *args, const uint32_t *block_table,
                                uint32_t kv_head, struct attn_query *queries, uint32_t n) {
    uint32_t value_dim = weft_kv_value_dim(&args->kv), begin = 0, end = 0;
    float beside[QUERIES_MAX * WEFT_KV_DIM_MAX];
    for (uint32_t span = queries[0].low / WEFT_ATTN_SPAN;
         span <= queries[n - 1].pos / WEFT_ATTN_SPAN; span++) {
        while (queries[begin].pos / WEFT_ATTN_SPAN < span) {
            begin++;
        }
        while (end < n && queries[end].low / WEFT_ATTN_SPAN <= span) {
            end++;
        }
        if (begin == end) continue; /* between windows: nobody sees it */
        for (uint32_t i = begin; i < end; i++) {
            bool is_first = queries[i].low / WEFT_ATTN_SPAN == span;
            queries[i].out = is_first ? queries[i].joined.out : beside + (size_t)i * value_dim;
        }
        fold_span(args, block_table, kv_head, span, queries + begin, end - begin);
        for (uint32_t i = begin; i < end; i++) {
            struct attn_query *query = &queries[i];
            if (query->out == query->joined.out) {
                query->joined.max = query->max;
                query->joined.total = query->total;
            } else {
                join_span(&query->joined, query->out, query->max, query->total, value_dim);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        divide(&queries[i].joined, value_dim);
    }
}

/* Rows from `begin` on that pass over the cache with it: same table, and no more than fit. */
static inline uint32_t rows_together(const struct weft_attn_row *rows, uint32_t begin, uint32_t end,
                                     uint32_t rows_max) {
    uint32_t r = begin + 1;
    while (r < end && r - begin < rows_max && rows[r].block_table == rows[begin].block_table &&
           rows[r].pos > rows[r - 1].pos) {
        r++;
    }
    return r;
}

static inline struct attn_query query_at(const struct weft_attn_args *args, uint32_t row,
                                         uint32_t head) {
    size_t q_at = (size_t)head * args->kv.head_dim;
    size_t out_at = (size_t)head * weft_kv_value_dim(&args->kv);
    return (struct attn_query){.q = args->q + row * args->q_stride + q_at,
                               .joined.out = args->out + row * args->out_stride + out_at,
                               .low = weft_attn_low(args->rows[row].pos, args->window),
                               .pos = weft_attn_high(&args->rows[row], args->window)};
}

static void attention(const struct weft_attn_args *args, uint32_t kv_head, uint32_t row_begin,
                      uint32_t row_end) {
    check_attn_args(args, kv_head, row_begin, row_end);
    const struct head_range heads = heads_of(args, kv_head);
    uint32_t queries_max = args->kv.v_dim ? WEFT_ATTN_LATENT_QUERIES : ATTN_QUERIES;
    uint32_t heads_max = weft_min_u32(heads.end - heads.begin, queries_max);
    uint32_t rows_max = queries_max / heads_max;
    struct attn_query queries[QUERIES_MAX];
    for (uint32_t r = row_begin, r_end; r < row_end; r = r_end) {
        r_end = rows_together(args->rows, r, row_end, rows_max);
        for (uint32_t h = heads.begin; h < heads.end; h += heads_max) {
            uint32_t n = 0;
            for (uint32_t i = r; i < r_end; i++) {
                for (uint32_t j = h; j < weft_min_u32(h + heads_max, heads.end); j++) {
                    queries[n++] = query_at(args, i, j);
                }
            }
            fold_queries(args, args->rows[r].block_table, kv_head, queries, n);
        }
    }
}

static void attention_span(const struct weft_attn_args *args, uint32_t kv_head, uint32_t row_begin,
                           uint32_t row_end, uint32_t span, const struct weft_attn_parts *parts) {
    check_attn_args(args, kv_head, row_begin, row_end);
    const struct head_range heads = heads_of(args, kv_head);
    uint32_t value_dim = weft_kv_value_dim(&args->kv);
    uint32_t queries_max = args->kv.v_dim ? WEFT_ATTN_LATENT_QUERIES : ATTN_QUERIES;
    uint32_t heads_max = weft_min_u32(heads.end - heads.begin, queries_max);
    uint32_t rows_max = queries_max / heads_max;
    struct attn_query queries[QUERIES_MAX];
    for (uint32_t r = row_begin, r_end; r < row_end; r = r_end) {
        r_end = rows_together(args->rows, r, row_end, rows_max);
        for (uint32_t h = heads.begin; h < heads.end; h += heads_max) {
            uint32_t n = 0;
            for (uint32_t i = r; i < r_end; i++) {
                for (uint32_t j = h; j < weft_min_u32(h + heads_max, heads.end); j++) {
                    struct attn_query query = query_at(args, i, j);
                    if (!sees_span(query.low, query.pos, span)) continue;
                    query.out = part_at(args, parts, i - row_begin, span, j);
                    queries[n++] = query;
                }
            }
            if (n > 0) fold_span(args, args->rows[r].block_table, kv_head, span, queries, n);
            for (uint32_t i = 0; i < n; i++) {
                queries[i].out[value_dim] = queries[i].max;
                queries[i].out[value_dim + 1] = queries[i].total;
            }
        }
    }
}

static void attention_join(const struct weft_attn_args *args, uint32_t kv_head, uint32_t row_begin,
                           uint32_t row_end, const struct weft_attn_parts *parts) {
    check_attn_args(args, kv_head, row_begin, row_end);
    const struct head_range heads = heads_of(args, kv_head);
    uint32_t value_dim = weft_kv_value_dim(&args->kv);
    for (uint32_t r = row_begin; r < row_end; r++) {
        for (uint32_t h = heads.begin; h < heads.end; h++) {
            struct attn_query query = query_at(args, r, h);
            struct span_sum sum = query.joined;
            uint32_t first = query.low / WEFT_ATTN_SPAN, last = query.pos / WEFT_ATTN_SPAN;
            for (uint32_t span = first; span <= last; span++) {
                const float *part = part_at(args, parts, r - row_begin, span, h);
                if (span == first) {
                    memcpy(sum.out, part, value_dim * sizeof *part);
                    sum.max = part[value_dim];
                    sum.total = part[value_dim + 1];
                } else {
                    join_span(&sum, part, part[value_dim], part[value_dim + 1], value_dim);
                }
            }
            divide(&sum, value_dim);
        }
    }
}

static inline void fill_attention(struct weft_kern_table *table) {
    table->attention = attention;
    table->attention_span = attention_span;
    table->attention_join = attention_join;
}

#endif
