/* kernels/attention_body — the walk over a sequence's tiles, shared by the vector ISAs.
 *
 * Queries (row, head) that read the same kv head of the same sequence pass over the cache together:
 * a tile of 64 tokens is read from memory once for up to 64 of them, and QUERY_BATCH of them share
 * each load. `out` holds the unnormalised sum of values meanwhile. What a query computes never
 * depends on its neighbours: every score and every output element is one chain of its own, and
 * where the masks of a batch differ (the tile of the diagonal) each query stops at its own last
 * token, so that not even 0 * v of a later token gets in.
 *
 * An ISA file defines before including this, for n and dtype constant after inlining:
 *   score_queries(tile, queries, n, n_subs, dtype, p)       p[i][0 .. 16 * n_subs) = q_i . k
 *   value_queries(tile, queries, n, dtype, p, fade, j0, j1) out_i = out_i * fade[i] + sum of
 * p[i][j] v_j */
#ifndef WEFT_KERNELS_ATTENTION_BODY_H
#define WEFT_KERNELS_ATTENTION_BODY_H

#include "kernels/attention_tile.h"

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

static void scores(const struct attn_tile *tile, const struct attn_query *queries, uint32_t n,
                   uint32_t n_subs, float (*p)[ATTN_TILE]) {
#define SCORE_F32(count) score_queries(tile, queries, count, n_subs, WEFT_KV_F32, p)
#define SCORE_BF16(count) score_queries(tile, queries, count, n_subs, WEFT_KV_BF16, p)
#define SCORE_F16(count) score_queries(tile, queries, count, n_subs, WEFT_KV_F16, p)
#define SCORE_INT8(count) score_queries(tile, queries, count, n_subs, WEFT_KV_INT8, p)
    FOR_DTYPES(tile, n, SCORE_F32, SCORE_BF16, SCORE_F16, SCORE_INT8)
}

static void values(const struct attn_tile *tile, const struct attn_query *queries, uint32_t n,
                   float (*p)[ATTN_TILE], const float *fade, uint32_t j0, uint32_t j1) {
#define VALUE_F32(count) value_queries(tile, queries, count, WEFT_KV_F32, p, fade, j0, j1)
#define VALUE_BF16(count) value_queries(tile, queries, count, WEFT_KV_BF16, p, fade, j0, j1)
#define VALUE_F16(count) value_queries(tile, queries, count, WEFT_KV_F16, p, fade, j0, j1)
#define VALUE_INT8(count) value_queries(tile, queries, count, WEFT_KV_INT8, p, fade, j0, j1)
    FOR_DTYPES(tile, n, VALUE_F32, VALUE_BF16, VALUE_F16, VALUE_INT8)
}

/* int8: dots become scores with the tokens' scales, and exponentials the weights of codes. What a
 * slot behind the last token of a sequence makes of it is masked, and not read as a weight. */
static inline void apply_scales(const uint8_t *const groups[ATTN_SUBS], uint32_t head_dim,
                                uint32_t n_subs, float p[ATTN_TILE]) {
    for (uint32_t s = 0; s < n_subs; s++) {
        const float *scales = kv_scales(groups[s], head_dim);
        for (uint32_t l = 0; l < ATTN_SUB; l++) {
            p[s * ATTN_SUB + l] *= scales[l];
        }
    }
}

/* Turns scores into exponentials in place (masked ones into 0) and returns what the sums so far are
 * to be multiplied by. */
static inline float fold_scores(struct attn_query *query, float scale, float p[ATTN_TILE]) {
    float lanes[ATTN_SUB], max;
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        p[j] = j < query->count ? p[j] * scale : -INFINITY;
    }
    for (uint32_t l = 0; l < ATTN_SUB; l++) {
        lanes[l] = p[l];
    }
    for (uint32_t j = ATTN_SUB; j < ATTN_TILE; j += ATTN_SUB) {
        for (uint32_t l = 0; l < ATTN_SUB; l++) {
            lanes[l] = p[j + l] > lanes[l] ? p[j + l] : lanes[l];
        }
    }
    max = query->max;
    for (uint32_t l = 0; l < ATTN_SUB; l++) {
        max = lanes[l] > max ? lanes[l] : max;
    }
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        p[j] = exp_lane(p[j] - max);
    }
    float fade = exp_lane(query->max - max), sums[ATTN_TILE / 2];
    for (uint32_t j = 0; j < ATTN_TILE / 2; j++) {
        sums[j] = p[j] + p[j + ATTN_TILE / 2];
    }
    for (uint32_t width = ATTN_TILE / 4; width > 0; width /= 2) {
        for (uint32_t j = 0; j < width; j++) {
            sums[j] += sums[j + width];
        }
    }
    query->total = query->total * fade + sums[0];
    query->max = max;
    return fade;
}

/* One tile for up to QUERY_BATCH queries, all of which see its first token at least; ascending
 * counts. */
static inline void fold_batch(const struct attn_tile *tile, struct attn_query *queries, uint32_t n,
                              float scale) {
    _Alignas(64) float p[QUERY_BATCH][ATTN_TILE];
    float fade[QUERY_BATCH], keep[QUERY_BATCH];
    uint32_t n_subs = (queries[n - 1].count + ATTN_SUB - 1) / ATTN_SUB;
    if (n_subs < ATTN_TILE / ATTN_SUB) memset(p, 0, sizeof p);
    scores(tile, queries, n, n_subs, p);
    for (uint32_t i = 0; i < n; i++) {
        if (tile->dtype == WEFT_KV_INT8) apply_scales(tile->k, tile->head_dim, n_subs, p[i]);
        fade[i] = fold_scores(&queries[i], scale, p[i]);
        if (tile->dtype == WEFT_KV_INT8) apply_scales(tile->v, tile->head_dim, n_subs, p[i]);
        keep[i] = 1.0f;
    }
    uint32_t common = queries[0].count;
    values(tile, queries, n, p, fade, 0, common);
    for (uint32_t i = 1; i < n; i++) {
        if (queries[i].count == common) continue;
        values(tile, queries + i, 1, p + i, keep, common, queries[i].count);
    }
}

/* Where the 16-token parts of the tile at `first` lie, as far as `last`. */
static inline void find_tile(const struct weft_kv_layer *kv, const uint32_t *block_table,
                             uint32_t kv_head, uint32_t first, uint32_t last,
                             struct attn_tile *tile) {
    for (uint32_t s = 0; s < ATTN_TILE / ATTN_SUB && first + s * ATTN_SUB <= last; s++) {
        uint32_t pos = first + s * ATTN_SUB, block = block_table[pos / kv->block_size];
        size_t at = kv_group_at(kv, block, kv_head, pos % kv->block_size);
        tile->k[s] = (const uint8_t *)kv->k + at;
        tile->v[s] = (const uint8_t *)kv->v + at;
    }
}

/* All tiles for queries of one sequence and kv head, positions ascending. */
static inline void fold_queries(const struct weft_attn_args *args, const uint32_t *block_table,
                                uint32_t kv_head, struct attn_query *queries, uint32_t n) {
    uint32_t last = queries[n - 1].pos, head_dim = args->kv.head_dim, begin = 0;
    struct attn_tile tile = {.dtype = args->kv.dtype, .head_dim = head_dim};
    for (uint64_t first = 0; first <= last; first += ATTN_TILE) {
        find_tile(&args->kv, block_table, kv_head, (uint32_t)first, last, &tile);
        while (queries[begin].pos < first) {
            begin++;
        }
        for (uint32_t i = begin; i < n; i++) {
            queries[i].count = min_u32(ATTN_TILE, queries[i].pos - (uint32_t)first + 1);
        }
        for (uint32_t i = begin; i < n; i += QUERY_BATCH) {
            fold_batch(&tile, queries + i, min_u32(QUERY_BATCH, n - i), args->scale);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        float inverse = 1.0f / queries[i].total;
        for (uint32_t d = 0; d < head_dim; d++) {
            queries[i].out[d] *= inverse;
        }
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

static void attention(const struct weft_attn_args *args, uint32_t kv_head, uint32_t row_begin,
                      uint32_t row_end) {
    check_attn_args(args, kv_head, row_begin, row_end);
    uint32_t group = args->n_heads / args->kv.n_kv_heads, head_dim = args->kv.head_dim;
    uint32_t heads_max = min_u32(group, ATTN_QUERIES), rows_max = ATTN_QUERIES / heads_max;
    struct attn_query queries[ATTN_QUERIES];
    for (uint32_t r = row_begin, r_end; r < row_end; r = r_end) {
        r_end = rows_together(args->rows, r, row_end, rows_max);
        for (uint32_t h = 0; h < group; h += heads_max) {
            uint32_t n = 0;
            for (uint32_t i = r; i < r_end; i++) {
                for (uint32_t j = h; j < min_u32(h + heads_max, group); j++) {
                    size_t at = ((size_t)kv_head * group + j) * head_dim;
                    float *out = args->out + i * args->out_stride + at;
                    memset(out, 0, head_dim * sizeof *out);
                    queries[n++] = (struct attn_query){.q = args->q + i * args->q_stride + at,
                                                       .out = out,
                                                       .pos = args->rows[i].pos,
                                                       .max = -INFINITY};
                }
            }
            fold_queries(args, args->rows[r].block_table, kv_head, queries, n);
        }
    }
}

#endif
