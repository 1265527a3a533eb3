/* kernels/attention_body — the walk over a sequence's spans and tiles, shared by the vector ISAs.
 *
 * A pass takes some rows of a sequence, and as many kv heads as keep it within BATCHES_MAX batches of queries; at each
 * tile the kv heads, its sides, take turns.
 *
 * Queries (row, head) that read the same kv head of the same sequence pass over the cache together:
 * a tile of 64 tokens is read from memory once for up to 128 of them, and up to QUERY_BATCH of them
 * share each load. `out` holds the unnormalised sum of values meanwhile. What a query computes never
 * depends on its neighbours: every score and every output element is one chain of its own, and
 * where the masks of a batch differ (the tile of the diagonal, and that where a window begins) each
 * query begins and stops at its own tokens, so that not even 0 * v of another one gets in. (Where
 * sums are of integers, 0 * v is nothing, and they need not.)
 *
 * An ISA file defines before including this, for n and form constant after inlining:
 *   ATTN_HAS_PAIRS                1 if it has FORM_PAIRS, else 0
 *   ATTN_HAS_TILES                1 if it has FORM_TILES and FORM_BYTES, in which n is any number up to a whole
 *                                 batch; then
 *   attn_begin(form, n), attn_end()
 *                                 stand around all that uses one of them, batches of no more than n queries
 *   attn_stay_awake()             between them, where nothing that the ISA left in tiles is needed any more
 *   bytes_of(x, n, inverse, bytes)  high and low bytes of codes of x * inverse, n of each; n a multiple of 64
 *   byte_weights(p, scales, bytes)  as code_weights, for BYTES: 64 high and 64 low bytes, which
 *                                 may lie over p
 *   score_piece(job, form, n, n_subs)
 *                                 p[i][0 .. 16 * n_subs) = q_i . k for n = 1, 2, 4 or 8 queries;
 *                                 FOURS: as integers in the bits; BYTES: scores already, dots times
 *                                 scales times the query's factor
 *   value_piece(job, form, n)
 *                                 out_i = out_i * fade + sum of weights[i][j] v_j, j0 <= j < j1. A
 *                                 step of which only some tokens lie there takes no others, but of FOURS
 *                                 and BYTES, where the others' weights are 0. TILES: the
 *                                 sum is one of its own, of all that a query sees of the tile
 *   fours_of(x, n, inverse, words)   codes of x * inverse, n a multiple of 16, as words of a query
 *   code_weights(p, scales, words)     codes of a tile's weights p * scales, 0 where p is; returns their
 *                                    scale, NaN if one is not finite
 *   tile_max(p), tile_sum(p)      of 64; the sum by the fixed tree
 *   widen_f16(codes, n, out)      `n` elements, a multiple of 16, as f32
 *   transpose(from, n, to)        from[n][16] to to[16][n]
 *   latent_pairs(k, n, v), latent_fours(k, n, v)
 *                                 the values of a group, as V lies, from its keys
 *
 * Where many queries share a tile, it is widened to f32 once for all of them: the same values, so
 * the same bits. A latent's values are made from its keys there, so that one read from memory
 * serves all heads of a row, and scores and values alike. */
#ifndef WEFT_KERNELS_ATTENTION_BODY_H
#define WEFT_KERNELS_ATTENTION_BODY_H

#include "attention_tile.h"

#ifndef ATTN_HAS_TILES
#define ATTN_HAS_TILES 0
static inline void attn_begin(enum attn_form form, uint32_t n) {
    (void)form;
    (void)n;
}
static inline void attn_end(void) {}
static inline void attn_stay_awake(void) {}
static inline void bytes_of(const float *x, uint32_t n, float inverse, uint8_t *bytes) {
    (void)x;
    (void)n;
    (void)inverse;
    (void)bytes;
    weft_check_failed("a form without tiles", __FILE__, __LINE__);
}
static inline float byte_weights(const float *p, const float *scales, uint8_t *bytes) {
    (void)p;
    (void)scales;
    (void)bytes;
    weft_check_failed("a form without tiles", __FILE__, __LINE__);
}
#endif

/* Every form and number of queries gets its own unrolled copy. Not inline: their loops want every
 * register for themselves. */
#define PIECES_OF(FORM, CALL)                                                                      \
    case FORM * 16 + 1:                                                                            \
        CALL(FORM, 1);                                                                             \
        break;                                                                                     \
    case FORM * 16 + 2:                                                                            \
        CALL(FORM, 2);                                                                             \
        break;                                                                                     \
    case FORM * 16 + 4:                                                                            \
        CALL(FORM, 4);                                                                             \
        break;                                                                                     \
    case FORM * 16 + 8:                                                                            \
        CALL(FORM, 8);                                                                             \
        break;

#if ATTN_HAS_TILES
enum { BEST_BF16 = FORM_TILES, BEST_INT8 = FORM_BYTES };
#define PIECES_BY_ISA(CALL)                                                                        \
    case FORM_TILES * 16 + 1 ... FORM_TILES * 16 + QUERY_BATCH:                                    \
        CALL(FORM_TILES, n);                                                                       \
        break;                                                                                     \
    case FORM_BYTES * 16 + 1 ... FORM_BYTES * 16 + QUERY_BATCH:                                    \
        CALL(FORM_BYTES, n);                                                                       \
        break;
#elif ATTN_HAS_PAIRS
enum { BEST_BF16 = FORM_PAIRS, BEST_INT8 = FORM_FOURS };
#define PIECES_BY_ISA(CALL)                                                                        \
    PIECES_OF(FORM_PAIRS, CALL)                                                                    \
    PIECES_OF(FORM_FOURS, CALL)
#else
enum { BEST_BF16 = FORM_BF16, BEST_INT8 = FORM_FOURS };
#define PIECES_BY_ISA(CALL) PIECES_OF(FORM_FOURS, CALL)
#endif

#define ALL_PIECES(form, n, CALL)                                                                  \
    switch ((uint32_t)(form)*16 + (n)) {                                                           \
        PIECES_OF(FORM_F32, CALL)                                                                  \
        PIECES_OF(FORM_F16, CALL)                                                                  \
        PIECES_OF(FORM_BF16, CALL)                                                                 \
        PIECES_BY_ISA(CALL)                                                                        \
    default:                                                                                       \
        weft_check_failed("queries of a piece", __FILE__, __LINE__);                               \
    }

/* The largest number of queries that has a copy. */
static inline uint32_t piece_of(enum attn_form form, uint32_t n) {
    if (is_tiled(form)) return n;
    return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

static __attribute__((noinline)) void scores(const struct score_job *job, uint32_t n,
                                             uint32_t n_subs) {
#define SCORES(form, count) score_piece(job, form, count, n_subs)
    ALL_PIECES(job->tile->form, n, SCORES)
}

static __attribute__((noinline)) void values(const struct value_job *job, uint32_t n) {
#define VALUES(form, count) value_piece(job, form, count)
    ALL_PIECES(job->tile->form, n, VALUES)
}

/* A tile made of another one, and the memory for it. */
struct made_tile {
    struct attn_tile tile;
    _Alignas(64) float k[ATTN_TILE * WEFT_KV_DIM_MAX], v[ATTN_TILE * WEFT_KV_DIM_MAX];
};

/* Elements of a group, which lie in rows of `n_columns` units, as f32 in rows: of K a column is a
 * token, of V an element. The last unit's padding is written, too. */
static inline void widen_units(const uint8_t *codes, uint32_t n_rows, uint32_t n_columns,
                               enum weft_kv_dtype dtype, float *out) {
    const size_t n = (size_t)n_rows * n_columns;
    const uint32_t *words = (const void *)codes;
    if (dtype == WEFT_KV_F32) {
        memcpy(out, codes, n * sizeof *out);
    } else if (dtype == WEFT_KV_F16) {
        widen_f16(codes, n, out);
    } else if (dtype == WEFT_KV_BF16) {
        for (uint32_t r = 0; r < n_rows; r += 2, words += n_columns, out += 2 * n_columns) {
            for (uint32_t c = 0; c < n_columns; c++) {
                out[c] = f32_from_bits(words[c] << 16);
                out[n_columns + c] = f32_from_bits(words[c] & 0xffff0000u);
            }
        }
    } else {
        for (uint32_t r = 0; r < n_rows; r += 4, words += n_columns, out += 4 * n_columns) {
            for (uint32_t i = 0; i < 4; i++) {
                for (uint32_t c = 0; c < n_columns; c++) {
                    out[i * n_columns + c] = (float)((int32_t)(words[c] << (24 - 8 * i)) >> 24);
                }
            }
        }
    }
}

/* n_subs groups as f32; those after them are zero, so that products may run over all of them. int8:
 * the codes; their scales stay with `tile`. */
static inline void widen_tile(const struct attn_tile *tile, enum weft_kv_dtype dtype,
                              uint32_t n_subs, struct made_tile *made) {
    const uint32_t n = ATTN_SUB * tile->head_dim, n_values = ATTN_SUB * tile->value_dim;
    made->tile = *tile;
    made->tile.n_after = 0;
    made->tile.form = FORM_F32;
    for (uint32_t s = 0; s < ATTN_SUBS; s++) {
        float *k = made->k + (size_t)s * n, *v = made->v + (size_t)s * n_values;
        if (s >= n_subs) {
            memset(k, 0, n * sizeof *k);
            memset(v, 0, n_values * sizeof *v);
        } else {
            widen_units(tile->k[s], tile->head_dim, ATTN_SUB, dtype, k);
            if (tile->v[s] == tile->k[s])
                transpose(k, tile->value_dim, v);
            else
                widen_units(tile->v[s], ATTN_SUB, tile->value_dim, dtype, v);
        }
        made->tile.k[s] = made->tile.after_k[s] = (const void *)k;
        made->tile.v[s] = made->tile.after_v[s] = (const void *)v;
    }
}

/* The values of a latent's tile, made of its keys. Those of tokens that are not there are never
 * met. */
static inline void make_values(const struct attn_tile *tile, uint32_t n_subs,
                               struct made_tile *made) {
    made->tile = *tile;
    made->tile.n_after = 0;
    for (uint32_t s = 0; s < n_subs; s++) {
        uint8_t *v = (uint8_t *)made->v + (size_t)s * ATTN_SUB * WEFT_KV_DIM_MAX * sizeof(uint16_t);
        if (is_whole(tile->form))
            latent_fours(tile->k[s], tile->value_dim, v);
        else
            latent_pairs(tile->k[s], tile->value_dim, v);
        made->tile.v[s] = made->tile.after_v[s] = v;
        made->tile.after_k[s] = made->tile.k[s];
    }
}

/* The form in which a layer's cache is met, unless its tiles are widened first. */
static inline enum attn_form form_of(const struct weft_attn_args *args) {
    switch (args->kv.dtype) {
    case WEFT_KV_BF16:
        return args->exact ? FORM_BF16 : (enum attn_form)BEST_BF16;
    case WEFT_KV_F16:
        return FORM_F16;
    case WEFT_KV_INT8:
        return args->exact ? FORM_F32 : (enum attn_form)BEST_INT8;
    default:
        return FORM_F32;
    }
}

/* Whether a tile is widened for `n` queries. */
static inline bool is_widened(const struct weft_attn_args *args, enum attn_form form, uint32_t n) {
    if (form == FORM_PAIRS || is_tiled(form) || is_whole(form)) return false;
    if (args->kv.v_dim) return form != FORM_BF16; /* they are larger than L1, and not twice that */
    if (args->kv.dtype == WEFT_KV_INT8) return true;
    return args->kv.dtype != WEFT_KV_F32 && n >= WIDE_QUERIES;
}

/* The largest magnitude, and whether all are finite; NaN and infinity are larger than all else. */
static inline uint32_t max_bits_of(const float *x, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Pairs of bf16, the first one in the low half. */
static inline void pairs_of(const float *x, uint32_t n_words, uint32_t *restrict words) {
    for (uint32_t w = 0; w < n_words; w++) {
        words[w] = (uint32_t)f32_to_bf16(x[2 * w + 1]) << 16 | f32_to_bf16(x[2 * w]);
    }
}

/* One query's words, as its batch has them. */
static inline void prepare_query(const struct weft_attn_args *args, enum attn_form form,
                                 struct attn_query *query, uint32_t lane, attn_words *words) {
    const uint32_t dim = args->kv.head_dim, n_words = words_of(form, dim);
    const float *q = query->q;
    query->factor = args->scale;
    if (form == FORM_TILES) {
        float padded[WEFT_KV_DIM_MAX + 32];
        memcpy(padded, q, dim * sizeof *q);
        memset(padded + dim, 0, (2 * n_words - dim) * sizeof *q);
        pairs_of(padded, n_words, words[0] + (size_t)lane * n_words);
    } else if (form == FORM_PAIRS) {
        for (uint32_t w = 0; w < n_words; w++) {
            uint32_t high = 2 * w + 1 < dim ? f32_to_bf16(q[2 * w + 1]) : 0;
            words[w][lane] = high << 16 | f32_to_bf16(q[2 * w]);
        }
    } else if (form == FORM_BYTES) {
        _Alignas(64) float padded[WEFT_KV_DIM_MAX + 64];
        const uint32_t n = 2 * n_words;
        memcpy(padded, q, dim * sizeof *q);
        memset(padded + dim, 0, (n - dim) * sizeof *q);
        uint32_t max_bits = max_bits_of(padded, n);
        bytes_of(padded, n, code_inverse(max_bits), (uint8_t *)(words[0] + (size_t)lane * n_words));
        query->factor = code_scale(max_bits) * args->scale;
    } else if (form == FORM_FOURS) {
        _Alignas(64) float padded[WEFT_KV_DIM_MAX];
        uint32_t codes[WEFT_KV_DIM_MAX / 2], n = (dim + 15) / 16 * 16;
        memcpy(padded, q, dim * sizeof *q);
        memset(padded + dim, 0, (n - dim) * sizeof *q);
        uint32_t max_bits = max_bits_of(padded, n);
        fours_of(padded, n, code_inverse(max_bits), codes);
        query->factor = code_scale(max_bits) * args->scale;
        for (uint32_t w = 0; w < n_words; w++) {
            words[w][lane] = codes[w];
        }
    } else {
        for (uint32_t w = 0; w < n_words; w++) {
            words[w][lane] = f32_bits(q[w]);
        }
    }
}

/* Queries of a span that see some of a tile, of those that have their words side by side. */
struct batch {
    const struct attn_tile *tile, *again; /* for the first of its pieces, and the others */
    struct attn_query *queries;
    uint32_t n;
    const uint32_t *words; /* the first one's first; see attn_words */
    union attn_weights
        *p; /* [n]; tiled: [QUERY_BATCH], and those after n are written or read, too */
    struct attn_fold *folds;
};

/* Copies, as compilers make vectors only of what they know to lie apart. */
ALWAYS_INLINE void take_scales(const struct attn_tile *tile, const uint8_t *const groups[ATTN_SUBS],
                               uint32_t n_subs, float scales[ATTN_TILE]) {
    for (uint32_t s = 0; s < ATTN_SUBS; s++) {
        if (s < n_subs)
            memcpy(scales + (size_t)s * ATTN_SUB, kv_scales(groups[s], tile->head_dim),
                   ATTN_SUB * sizeof *scales);
        else
            memset(scales + (size_t)s * ATTN_SUB, 0, ATTN_SUB * sizeof *scales);
    }
}

/* Dots become scores: of int8 with the tokens' scales, of codes (is_codes) as integers. */
static inline void scale_scores(const float scales[ATTN_TILE], bool is_int8, bool is_codes,
                                float factor, union attn_weights *p) {
    int32_t dots[ATTN_TILE];
    if (is_codes) {
        memcpy(dots, p->words, sizeof dots);
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p->p[j] = (float)dots[j] * scales[j] * factor;
        }
    } else if (is_int8) {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p->p[j] = p->p[j] * scales[j] * factor;
        }
    } else {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p->p[j] = p->p[j] * factor;
        }
    }
}

/* Scores of a batch; those of slots that a query does not see mean nothing. `tile` has the scales. */
static inline void score_batch(const struct attn_tile *tile, const struct batch *b, bool is_int8) {
    uint32_t last = b->queries[b->n - 1].end, n_subs = (last + ATTN_SUB - 1) / ATTN_SUB;
    if (n_subs < ATTN_SUBS) memset(b->p, 0, b->n * sizeof *b->p);
    _Alignas(64) float scales[ATTN_TILE];
    if (is_int8) take_scales(tile, tile->k, n_subs, scales);
    for (uint32_t i = 0, n; i < b->n; i += n) {
        n = piece_of(b->tile->form, b->n - i);
        const struct score_job job = {i ? b->again : b->tile, b->words + i, b->p + i, scales,
                                      b->queries + i};
        scores(&job, n, n_subs);
    }
    for (uint32_t i = 0; i < b->n && b->tile->form != FORM_BYTES; i++) {
        scale_scores(scales, is_int8, is_whole(b->tile->form), b->queries[i].factor, b->p + i);
    }
}

static inline void cap_scores(const struct batch *b, float cap) {
    for (uint32_t i = 0; i < b->n; i++) {
        float *p = b->p[i].p;
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[j] = cap * tanh_f32(p[j] / cap);
        }
    }
}

/* What a query does not see has no weight. */
static inline void mask_scores(const struct attn_query *query, float p[ATTN_TILE]) {
    uint32_t begin = query->begin, n_seen = query->end - begin;
    if (query->seen) {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[j] = query->in_tile >> j & 1 ? p[j] : -INFINITY;
        }
        return;
    }
    if (n_seen == ATTN_TILE) return;
    for (uint32_t j = 0; j < ATTN_TILE; j++) {
        p[j] = j - begin < n_seen ? p[j] : -INFINITY;
    }
}

/* Meanwhile the first half of what is read after the values is fetched, a share for each query: requests
 * that go out with loads alone wait for each other, while none are under way here. */
static inline void fetch_share(const struct attn_tile *tile, uint32_t i, uint32_t n) {
    const uint32_t n_lines = tile->half_lines;
    for (uint32_t s = 0; s < tile->n_after; s++) {
        for (uint32_t line = n_lines * i / n; line < n_lines * (i + 1) / n; line++) {
            __builtin_prefetch(tile->after_v[s] + (size_t)line * 64);
        }
    }
}

/* Turns the scores of a batch into exponentials in place (masked ones into 0); `folds` get what the
 * sums so far are to be multiplied by. Each step runs for all queries before the next: most of the
 * time goes to waiting for the result before, and so they wait side by side. */
static inline void fold_scores(const struct batch *b) {
    float max[QUERY_BATCH] = {0}, shrink[QUERY_BATCH] = {0}, kept[QUERY_BATCH];
    struct attn_query *queries = b->queries;
    for (uint32_t i = 0; i < b->n; i++) {
        mask_scores(&queries[i], b->p[i].p);
    }
    for (uint32_t i = 0; i < b->n; i++) {
        float top = tile_max(b->p[i].p);
        max[i] = top > queries[i].max ? top : queries[i].max;
        shrink[i] = queries[i].max - max[i];
    }
    for (uint32_t i = 0; i < b->n; i++) {
        float *p = b->p[i].p;
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            p[j] = exp_falling(p[j] - max[i]);
        }
        if (b->tile != b->again) fetch_share(b->tile, i, b->n);
        if (i == b->n / 2 && is_tiled(b->tile->form)) attn_stay_awake();
    }
    for (uint32_t i = 0; i < QUERY_BATCH; i++) {
        kept[i] = exp_falling(shrink[i]);
    }
    for (uint32_t i = 0; i < b->n; i++) {
        b->folds[i].fade = kept[i];
        queries[i].total = queries[i].total * kept[i] + tile_sum(b->p[i].p);
        queries[i].max = max[i];
    }
}

/* Exponentials in the form that values meet. What is not seen has no scale to read. */
static inline void make_weights(const struct attn_tile *tile, const struct batch *b, bool is_int8) {
    uint32_t last = b->queries[b->n - 1].end, n_subs = (last + ATTN_SUB - 1) / ATTN_SUB;
    const enum attn_form form = b->tile->form;
    _Alignas(64) float scales[ATTN_TILE], p[ATTN_TILE];
    if (is_int8) take_scales(tile, tile->v, n_subs, scales);
    for (uint32_t i = 0; i < b->n && form == FORM_FOURS; i++) {
        b->folds[i].scale = code_weights(b->p[i].p, scales, b->p[i].words);
    }
    for (uint32_t i = 0; i < b->n && form == FORM_BYTES; i++) { /* over the floats of i / 2 */
        uint8_t *bytes = (uint8_t *)b->p + (size_t)i * 2 * ATTN_TILE;
        b->folds[i].scale = byte_weights(b->p[i].p, scales, bytes);
    }
    for (uint32_t i = 0; i < b->n && is_int8 && !is_whole(form); i++) {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            float scaled = b->p[i].p[j] * scales[j];
            b->p[i].p[j] = b->p[i].p[j] > 0 ? scaled : 0.0f;
        }
    }
    for (uint32_t i = 0; i < b->n && (form == FORM_PAIRS || form == FORM_TILES); i++) {
        memcpy(p, b->p[i].p, sizeof p);
        pairs_of(p, ATTN_TILE / 2, b->p[i].words);
    }
}

/* Values j0..j1 for one query, which others of its batch do not all see. */
static inline void own_values(const struct batch *b, uint32_t i, const struct attn_fold *fold,
                              uint32_t j0, uint32_t j1) {
    values(&(struct value_job){b->again, b->queries + i, b->p + i, fold, j0, j1}, 1);
}

/* The same for all of it. */
static inline void shared_values(const struct batch *b, const struct attn_fold *folds, uint32_t j0,
                                 uint32_t j1) {
    for (uint32_t i = 0, n; i < b->n; i += n) {
        n = piece_of(b->tile->form, b->n - i);
        const struct value_job job = {
            i ? b->again : b->tile, b->queries + i, b->p + i, folds + i, j0, j1};
        values(&job, n);
    }
}

/* The values of one tile for a batch whose weights are made: together where all see, else one by
 * one, in position order, and never half a step of the form. */
static inline void fold_values(const struct batch *b) {
    const struct attn_query *queries = b->queries;
    const uint32_t n = b->n, unit = form_unit(b->tile->form);
    const struct attn_fold one = {.fade = 1.0f};
    struct attn_fold folds[QUERY_BATCH];
    if (is_whole(b->tile->form)) { /* the others' weights are 0 */
        shared_values(b, b->folds, queries[0].begin, queries[n - 1].end);
        return;
    }
    if (b->tile->form == FORM_TILES) { /* what a query sees of a tile is one sum */
        const bool is_same =
            queries[0].begin == queries[n - 1].begin && queries[0].end == queries[n - 1].end;
        if (is_same) shared_values(b, b->folds, queries[0].begin, queries[0].end);
        for (uint32_t i = 0; i < n && !is_same; i++) {
            own_values(b, i, b->folds + i, queries[i].begin, queries[i].end);
        }
        return;
    }
    uint32_t from = queries[n - 1].begin, to = queries[0].end;
    if (queries[0].begin != from) from = (from + unit - 1) / unit * unit;
    if (queries[n - 1].end != to) to = to / unit * unit;
    for (uint32_t i = 0; i < n; i++) {
        bool early = queries[i].begin < from || from >= to;
        uint32_t end = from < to ? from : queries[i].end;
        if (early) own_values(b, i, b->folds + i, queries[i].begin, end);
        folds[i] = early ? one : b->folds[i];
    }
    if (from >= to) return; /* a window so narrow that they have no token in common */
    shared_values(b, folds, from, to);
    for (uint32_t i = 0; i < n; i++) {
        if (queries[i].end > to) own_values(b, i, &one, to, queries[i].end);
    }
}

/* A kv head's queries of a span, ascending positions. */
struct side {
    uint32_t kv_head;
    struct attn_query *queries;
    uint32_t n;
    uint32_t begin, end; /* those of them that see some of the current tile */
    const attn_words *words;
};

/* One tile for those of a side's queries that see some of it. First all scores, then all weights, then all
 * values: each with its half of the tile in L1. */
static inline void fold_tile(const struct weft_attn_args *args, const struct attn_tile *tile,
                             const struct attn_tile *products, const struct side *side) {
    const uint32_t begin = side->begin, end = side->end;
    struct attn_query *queries = side->queries;
    union attn_weights p[QUERIES_MAX + QUERY_BATCH];
    struct attn_fold folds[QUERIES_MAX];
    struct batch batches[BATCHES_MAX + 1];
    const bool is_int8 = args->kv.dtype == WEFT_KV_INT8;
    const uint32_t n_words = words_of(products->form, tile->head_dim);
    const uint32_t lane_stride = is_tiled(products->form) ? n_words : 1;
    struct attn_tile again = *products;
    uint32_t n_batches = 0;
    memcpy(again.after_k, again.k, sizeof again.k);
    memcpy(again.after_v, again.v, sizeof again.v);
    for (uint32_t i = begin, next; i < end; i = next) {
        next = weft_min_u32(end, (i / QUERY_BATCH + 1) * QUERY_BATCH);
        batches[n_batches++] = (struct batch){.tile = i == begin ? products : &again,
                                              .again = &again,
                                              .queries = queries + i,
                                              .n = next - i,
                                              .words = side->words[i / QUERY_BATCH * n_words] +
                                                       (size_t)(i % QUERY_BATCH) * lane_stride,
                                              .p = p + (i - begin),
                                              .folds = folds + (i - begin)};
    }
    for (uint32_t i = 0; i < n_batches; i++) {
        score_batch(tile, &batches[i], is_int8);
    }
    for (uint32_t i = 0; i < n_batches; i++) {
        if (args->soft_cap > 0) cap_scores(&batches[i], args->soft_cap);
        fold_scores(&batches[i]);
    }
    for (uint32_t i = 0; i < n_batches; i++) {
        make_weights(tile, &batches[i], is_int8);
        fold_values(&batches[i]);
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
 * values are fetched while keys are met, and the next keys while values are. (A whole tile ahead
 * takes more of L1 than there is: 5 to 20 % slower.) */
static inline void plan_fetches(struct attn_tile *tile, const struct attn_tile *next,
                                uint32_t n_next) {
    tile->n_after = n_next;
    for (uint32_t s = 0; s < ATTN_SUBS; s++) {
        tile->after_k[s] = tile->v[s];
        tile->after_v[s] = s < n_next ? next->k[s] : tile->v[s];
    }
}

/* From byte `begin` of each group on: what follows codes, or all of it where a tile is not read as
 * it lies. */
static inline void fetch_rest(const struct attn_tile *next, uint32_t n_next, size_t begin,
                              size_t end) {
    for (uint32_t s = 0; s < n_next; s++) {
        for (size_t at = begin; at < end; at += 64) {
            __builtin_prefetch(next->k[s] + at);
            if (next->v[s] != next->k[s]) __builtin_prefetch(next->v[s] + at);
        }
    }
}

/* What keys of a span meet, and sums of nothing. Words of a side begin with a batch. */
static inline void prepare_sides(const struct weft_attn_args *args, enum attn_form form,
                                 struct side *sides, uint32_t n_sides, attn_words *words) {
    const uint32_t n_words = words_of(form, args->kv.head_dim);
    for (uint32_t s = 0; s < n_sides; s++) {
        struct side *side = &sides[s];
        side->words = words;
        side->begin = side->end = 0;
        for (uint32_t i = 0; i < side->n; i++) {
            struct attn_query *query = &side->queries[i];
            prepare_query(args, form, query, i % QUERY_BATCH, words + i / QUERY_BATCH * n_words);
            memset(query->out, 0, weft_kv_value_dim(&args->kv) * sizeof(float));
            query->max = -INFINITY;
            query->total = 0.0f;
        }
        words += batches_of(side->n) * n_words;
    }
}

/* The same with the next groups of 16 tokens of which a set has any, from group *group_io on; `bits_out`: which tokens of
 * theirs. The next call goes on from where this one ends. */
static inline uint32_t find_chosen(const struct weft_attn_args *args, const uint32_t *block_table,
                                   uint32_t kv_head, const uint64_t *seen, uint32_t *group_io,
                                   uint32_t group_end, struct attn_tile *tile, uint64_t *bits_out) {
    uint32_t s = 0;
    *bits_out = 0;
    for (; s < ATTN_SUBS && *group_io < group_end; ++*group_io) {
        uint64_t bits = seen[*group_io / ATTN_SUBS] >> *group_io % ATTN_SUBS * ATTN_SUB &
                        ((1u << ATTN_SUB) - 1);
        if (bits == 0) continue;
        struct attn_tile found;
        uint32_t pos = *group_io * ATTN_SUB;
        (void)find_tile(&args->kv, block_table, kv_head, pos, pos, &found);
        tile->k[s] = found.k[0];
        tile->v[s] = found.v[0];
        *bits_out |= bits << s++ * ATTN_SUB;
    }
    return s;
}

/* What all tiles of a span are met with. */
struct span {
    const struct weft_attn_args *args;
    enum attn_form form;
    size_t group_bytes;
    struct made_tile made;
};

/* One tile of n_subs groups for those of a side's queries that see some of it; n_next groups are met after it. */
static inline void meet_tile(struct span *span, const struct side *side, struct attn_tile *tile,
                             uint32_t n_subs, const struct attn_tile *next, uint32_t n_next) {
    const struct weft_attn_args *args = span->args;
    const struct attn_tile *products = tile;
    plan_fetches(tile, next, n_next);
    bool is_wide = is_widened(args, span->form, side->end - side->begin);
    bool is_read = !is_wide && !args->kv.v_dim;
    fetch_rest(next, n_next, is_read ? weft_kv_code_bytes(&args->kv) : 0, span->group_bytes);
    if (is_wide) {
        widen_tile(tile, args->kv.dtype, n_subs, &span->made);
        products = &span->made.tile;
    } else if (args->kv.v_dim && args->kv.dtype != WEFT_KV_F32) {
        make_values(tile, n_subs, &span->made);
        products = &span->made.tile;
    }
    if (is_tiled(products->form)) attn_stay_awake();
    fold_tile(args, tile, products, side);
}

/* The positions first..last that one row's queries see of a span, of a set. */
static inline void fold_chosen(struct span *span, struct side *side, const uint32_t *block_table,
                               uint32_t first, uint32_t last) {
    const struct weft_attn_args *args = span->args;
    const uint64_t *seen = side->queries[0].seen;
    uint32_t group = first / ATTN_SUB, end = last / ATTN_SUB + 1;
    struct attn_tile tile, next = {.form = span->form,
                                   .head_dim = args->kv.head_dim,
                                   .value_dim = weft_kv_value_dim(&args->kv)};
    uint64_t bits, next_bits;
    uint32_t n_next =
        find_chosen(args, block_table, side->kv_head, seen, &group, end, &next, &next_bits);
    side->begin = 0;
    side->end = side->n;
    while (n_next > 0) {
        uint32_t n_subs = n_next;
        tile = next;
        bits = next_bits;
        n_next =
            find_chosen(args, block_table, side->kv_head, seen, &group, end, &next, &next_bits);
        for (uint32_t i = 0; i < side->n; i++) {
            side->queries[i].in_tile = bits;
            side->queries[i].begin = (uint32_t)__builtin_ctzll(bits);
            side->queries[i].end = ATTN_TILE - (uint32_t)__builtin_clzll(bits);
        }
        meet_tile(span, side, &tile, n_subs, &next, n_next);
    }
}

/* Finds which of a side's queries see some of the tile at `at`, and what. Tiles ascend. */
static inline void see_tile(struct side *side, uint32_t at) {
    struct attn_query *queries = side->queries;
    while (queries[side->begin].pos < at) {
        side->begin++;
    }
    while (side->end < side->n && queries[side->end].low < at + ATTN_TILE) {
        side->end++;
    }
    for (uint32_t i = side->begin; i < side->end; i++) {
        queries[i].begin = queries[i].low > at ? queries[i].low - at : 0;
        queries[i].end = weft_min_u32(ATTN_TILE, queries[i].pos - at + 1);
    }
}

/* One span for queries of one sequence, all of which see some of it, each side's of the same rows: with a set, of
 * one. Sides take turns at each tile: blocks have their kv heads one after another, so what the CPU fetches
 * beyond one head's is the next one's. */
static inline void fold_span(const struct weft_attn_args *args, const uint32_t *block_table,
                             uint32_t span_idx, struct side *sides, uint32_t n_sides) {
    const struct side *one = &sides[0];
    WEFT_ASSERT(one->n > 0);
    uint32_t first = span_idx * WEFT_ATTN_SPAN, low = one->queries[0].low / ATTN_TILE * ATTN_TILE;
    uint32_t last = weft_min_u32(first + WEFT_ATTN_SPAN - 1, one->queries[one->n - 1].pos);
    attn_words words[BATCHES_MAX * WEFT_KV_DIM_MAX];
    struct span span;
    span.args = args;
    span.form = form_of(args);
    span.group_bytes = weft_kv_group_bytes(&args->kv);
    prepare_sides(args, span.form, sides, n_sides, words);
    if (one->queries[0].seen) {
        for (uint32_t s = 0; s < n_sides; s++) {
            fold_chosen(&span, &sides[s], block_table, first, last);
        }
        return;
    }
    struct attn_tile tile, next = {.form = span.form,
                                   .half_lines = (uint32_t)(weft_kv_code_bytes(&args->kv) / 128),
                                   .head_dim = args->kv.head_dim,
                                   .value_dim = weft_kv_value_dim(&args->kv)};
    uint32_t at = first > low ? first : low;
    (void)find_tile(&args->kv, block_table, one->kv_head, at, last, &next);
    for (; at <= last; at += ATTN_TILE) {
        uint32_t n_subs = (weft_min_u32(last - at, ATTN_TILE - 1) + ATTN_SUB) / ATTN_SUB;
        for (uint32_t s = 0; s < n_sides; s++) {
            const bool is_last = s + 1 == n_sides;
            tile = next;
            uint32_t n_next = find_tile(&args->kv, block_table, sides[is_last ? 0 : s + 1].kv_head,
                                        is_last ? at + ATTN_TILE : at, last, &next);
            see_tile(&sides[s], at);
            meet_tile(&span, &sides[s], &tile, n_subs, &next, n_next);
        }
    }
}

/* The sums so far take in those of the next span. */
static inline void join_span(struct span_sum *sum, const float *out, float max, float total,
                             uint32_t value_dim) {
    float top = max > sum->max ? max : sum->max;
    float keep = exp_falling(sum->max - top), add = exp_falling(max - top);
    for (uint32_t d = 0; d < value_dim; d++) {
        sum->out[d] = sum->out[d] * keep + out[d] * add;
    }
    sum->total = sum->total * keep + total * add;
    sum->max = top;
}

/* `sink` may be NULL. It takes weight and adds nothing, last of all. */
static inline void divide(struct span_sum *sum, const float *sink, uint32_t value_dim) {
    if (sink && *sink > sum->max) {
        float keep = exp_falling(sum->max - *sink);
        for (uint32_t d = 0; d < value_dim; d++) {
            sum->out[d] *= keep;
        }
        sum->total = sum->total * keep + 1.0f;
    } else if (sink) {
        sum->total += exp_falling(*sink - sum->max);
    }
    float inverse = 1.0f / sum->total;
    for (uint32_t d = 0; d < value_dim; d++) {
        sum->out[d] *= inverse;
    }
}

/* Those of a side's queries that see some of a span. */
static inline struct side side_of_span(const struct side *all, uint32_t span) {
    uint32_t begin = 0, end;
    while (begin < all->n && all->queries[begin].pos / WEFT_ATTN_SPAN < span) {
        begin++;
    }
    end = begin;
    while (end < all->n && all->queries[end].low / WEFT_ATTN_SPAN <= span) {
        end++;
    }
    return (struct side){
        .kv_head = all->kv_head, .queries = all->queries + begin, .n = end - begin};
}

/* What a span left of a query. */
static inline void take_span(struct attn_query *query, uint32_t value_dim) {
    if (query->out == query->joined.out) {
        query->joined.max = query->max;
        query->joined.total = query->total;
    } else {
        join_span(&query->joined, query->out, query->max, query->total, value_dim);
    }
}

/* All spans for queries of one sequence, of which sides have the same rows. A query's first span is summed where the
 * result belongs, later ones beside it. */
static inline void fold_sides(const struct weft_attn_args *args, const uint32_t *block_table,
                              const struct side *sides, uint32_t n_sides) {
    const struct attn_query *all = sides[0].queries, *last = all + sides[0].n - 1;
    uint32_t value_dim = weft_kv_value_dim(&args->kv);
    float beside[QUERIES_MAX * WEFT_KV_DIM_MAX];
    for (uint32_t span = all->low / WEFT_ATTN_SPAN; span <= last->pos / WEFT_ATTN_SPAN; span++) {
        struct side parts[BATCHES_MAX];
        const struct side first = side_of_span(&sides[0], span);
        if (first.n == 0) continue; /* between windows: nobody sees it */
        if (!has_of_span(first.queries->seen, first.queries->pos, span)) continue;
        for (uint32_t s = 0; s < n_sides; s++) {
            parts[s] = side_of_span(&sides[s], span);
            for (uint32_t i = 0; i < parts[s].n; i++) {
                struct attn_query *query = &parts[s].queries[i];
                bool is_first = query->first_span == span;
                query->out =
                    is_first ? query->joined.out : beside + (size_t)(query - all) * value_dim;
            }
        }
        fold_span(args, block_table, span, parts, n_sides);
        for (uint32_t s = 0; s < n_sides; s++) {
            for (uint32_t i = 0; i < parts[s].n; i++) {
                take_span(&parts[s].queries[i], value_dim);
            }
        }
    }
    for (uint32_t s = 0; s < n_sides; s++) {
        for (uint32_t i = 0; i < sides[s].n; i++) {
            divide(&sides[s].queries[i].joined, sides[s].queries[i].sink, value_dim);
        }
    }
}

/* Rows from `begin` on that pass over the cache with it: same table, no sets, and no more than fit. */
static inline uint32_t rows_together(const struct weft_attn_args *args, uint32_t begin,
                                     uint32_t end, uint32_t rows_max) {
    const struct weft_attn_row *rows = args->rows;
    uint32_t r = begin + 1;
    if (seen_by(args, begin)) return r;
    while (r < end && r - begin < rows_max && rows[r].block_table == rows[begin].block_table &&
           rows[r].pos > rows[r - 1].pos && !seen_by(args, r)) {
        r++;
    }
    return r;
}

static inline struct attn_query query_at(const struct weft_attn_args *args, uint32_t row,
                                         uint32_t head) {
    size_t q_at = (size_t)head * args->kv.head_dim;
    size_t out_at = (size_t)head * weft_kv_value_dim(&args->kv);
    const uint64_t *seen = seen_by(args, row);
    uint32_t low = weft_attn_first(args->rows[row].pos, args->window, args->in_chunks),
             pos = weft_attn_high(&args->rows[row], args->window),
             first_span = low / WEFT_ATTN_SPAN;
    while (!has_of_span(seen, pos, first_span)) {
        first_span++;
        WEFT_ASSERT(first_span <= pos / WEFT_ATTN_SPAN); /* a set is not empty */
    }
    return (struct attn_query){.q = args->q + row * args->q_stride + q_at,
                               .joined.out = args->out + row * args->out_stride + out_at,
                               .sink = args->sinks ? args->sinks + head : NULL,
                               .low = low,
                               .pos = pos,
                               .first_span = first_span,
                               .seen = seen};
}

/* What passes over a sequence's cache together: rows, kv heads, and of each kv head the heads from its `head`th on. */
struct pass {
    struct weft_attn_range range;
    uint32_t head, n_heads;
};

/* Sums of one span, of rows from row_begin on; `parts` NULL: all spans, joined. */
struct goal {
    const struct weft_attn_parts *parts;
    uint32_t row_begin, span;
};

/* The queries of one kv head of a pass. Returns their number. */
static inline uint32_t take_queries(const struct weft_attn_args *args, const struct pass *pass,
                                    const struct goal *goal, uint32_t kv_head,
                                    struct attn_query *queries) {
    const struct head_range heads = heads_of(args, kv_head);
    const uint32_t begin = heads.begin + pass->head;
    uint32_t n = 0;
    for (uint32_t i = pass->range.row_begin; i < pass->range.row_end; i++) {
        for (uint32_t j = begin; j < weft_min_u32(begin + pass->n_heads, heads.end); j++) {
            struct attn_query query = query_at(args, i, j);
            if (goal->parts) {
                if (!sees_span(query.low, query.pos, goal->span)) continue;
                if (!has_of_span(query.seen, query.pos, goal->span)) continue;
                query.out = part_at(args, goal->parts, i - goal->row_begin, goal->span, j);
            }
            queries[n++] = query;
        }
    }
    return n;
}

static inline void attend_pass(const struct weft_attn_args *args, const struct pass *pass,
                               const struct goal *goal) {
    const uint32_t *block_table = args->rows[pass->range.row_begin].block_table;
    const uint32_t value_dim = weft_kv_value_dim(&args->kv);
    struct attn_query queries[QUERIES_MAX], *next = queries;
    struct side sides[BATCHES_MAX];
    uint32_t n_sides = 0;
    for (uint32_t h = pass->range.kv_head_begin; h < pass->range.kv_head_end; h++) {
        const uint32_t n = take_queries(args, pass, goal, h, next);
        if (n == 0) continue;
        sides[n_sides++] = (struct side){.kv_head = h, .queries = next, .n = n};
        next += n;
    }
    if (n_sides == 0) return;
    if (!goal->parts) {
        fold_sides(args, block_table, sides, n_sides);
        return;
    }
    fold_span(args, block_table, goal->span, sides, n_sides);
    for (struct attn_query *query = queries; query < next; query++) {
        query->out[value_dim] = query->max;
        query->out[value_dim + 1] = query->total;
    }
}

static void attend(const struct weft_attn_args *args, const struct weft_attn_range *range,
                   const struct goal *goal) {
    check_attn_args(args, range);
    const uint32_t group = kv_group_heads(args);
    const uint32_t queries_max = args->kv.v_dim ? WEFT_ATTN_LATENT_QUERIES : ATTN_QUERIES;
    const uint32_t heads_max = weft_min_u32(group, queries_max), rows_max = queries_max / heads_max;
    const uint32_t n_rows = range->row_end - range->row_begin;
    const bool by_tiles = is_tiled(form_of(args));
    if (by_tiles) attn_begin(form_of(args), heads_max * weft_min_u32(rows_max, n_rows));
    struct pass pass = {.range = *range, .n_heads = heads_max};
    for (uint32_t r = range->row_begin; r < range->row_end; r = pass.range.row_end) {
        pass.range.row_begin = r;
        pass.range.row_end = rows_together(args, r, range->row_end, rows_max);
        const uint32_t n_batches = batches_of((pass.range.row_end - r) * heads_max);
        for (uint32_t h = range->kv_head_begin; h < range->kv_head_end;
             h = pass.range.kv_head_end) {
            pass.range.kv_head_begin = h;
            pass.range.kv_head_end = weft_min_u32(range->kv_head_end, h + BATCHES_MAX / n_batches);
            for (pass.head = 0; pass.head < group; pass.head += heads_max) {
                attend_pass(args, &pass, goal);
            }
        }
    }
    if (by_tiles) attn_end();
}

static void attention(const struct weft_attn_args *args, const struct weft_attn_range *range) {
    attend(args, range, &(struct goal){.parts = NULL});
}

static void attention_span(const struct weft_attn_args *args, const struct weft_attn_range *range,
                           uint32_t span, const struct weft_attn_parts *parts) {
    attend(args, range, &(struct goal){parts, range->row_begin, span});
}

/* One head of a row. */
static inline void join_parts(const struct weft_attn_args *args, uint32_t row, uint32_t head,
                              const struct goal *goal) {
    const uint32_t value_dim = weft_kv_value_dim(&args->kv);
    struct attn_query query = query_at(args, row, head);
    struct span_sum sum = query.joined;
    uint32_t first = query.first_span, last = query.pos / WEFT_ATTN_SPAN;
    for (uint32_t span = first; span <= last; span++) {
        if (!has_of_span(query.seen, query.pos, span)) continue;
        const float *part = part_at(args, goal->parts, row - goal->row_begin, span, head);
        if (span == first) {
            memcpy(sum.out, part, value_dim * sizeof *part);
            sum.max = part[value_dim];
            sum.total = part[value_dim + 1];
        } else {
            join_span(&sum, part, part[value_dim], part[value_dim + 1], value_dim);
        }
    }
    divide(&sum, query.sink, value_dim);
}

static void attention_join(const struct weft_attn_args *args, const struct weft_attn_range *range,
                           const struct weft_attn_parts *parts) {
    check_attn_args(args, range);
    const struct goal goal = {parts, range->row_begin, 0};
    const uint32_t begin = heads_of(args, range->kv_head_begin).begin;
    const uint32_t end = heads_of(args, range->kv_head_end - 1).end;
    for (uint32_t r = range->row_begin; r < range->row_end; r++) {
        for (uint32_t h = begin; h < end; h++) {
            join_parts(args, r, h, &goal);
        }
    }
}

/* A tile of index keys: codes of int8 are widened where no integers meet them. */
static inline const struct attn_tile *index_tile(const struct weft_attn_args *attn,
                                                 const struct attn_tile *tile, uint32_t n_subs,
                                                 struct made_tile *made) {
    const uint32_t dim = tile->head_dim;
    if (attn->kv.dtype != WEFT_KV_INT8 || is_whole(tile->form)) return tile;
    made->tile = *tile;
    for (uint32_t s = 0; s < n_subs; s++) {
        float *k = made->k + (size_t)s * ATTN_SUB * WEFT_KV_DIM_MAX;
        widen_units(tile->k[s], dim, ATTN_SUB, WEFT_KV_INT8, k);
        made->tile.k[s] = made->tile.after_k[s] = (const void *)k;
    }
    return &made->tile;
}

/* What a batch of heads adds to the scores of one tile's positions. */
static inline void add_heads(const struct batch *b, const float *weights, float sums[ATTN_TILE]) {
    for (uint32_t i = 0; i < b->n; i++) {
        for (uint32_t j = 0; j < ATTN_TILE; j++) {
            float x = b->p[i].p[j];
            sums[j] += weights[i] * (x > 0.0f ? x : 0.0f);
        }
    }
}

/* Up to QUERIES_MAX heads, whose words are made once; sums begin with what is in `scores`. */
static inline void add_index_scores(const struct weft_attn_args *attn,
                                    const struct weft_index_args *args, uint32_t head, uint32_t n,
                                    uint32_t begin, uint32_t end, float *scores) {
    const enum attn_form form = form_of(attn);
    const uint32_t dim = args->kv.head_dim, n_words = words_of(form, dim);
    struct attn_query queries[QUERIES_MAX];
    attn_words words[BATCHES_MAX * WEFT_HEAD_DIM_MAX];
    union attn_weights p[QUERY_BATCH];
    struct made_tile made;
    struct attn_tile tile, next = {.form = form, .head_dim = dim, .value_dim = dim};
    WEFT_ASSERT(dim <= WEFT_HEAD_DIM_MAX && n <= QUERIES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        queries[i] = (struct attn_query){.q = args->q + (size_t)(head + i) * dim};
        prepare_query(attn, form, &queries[i], i % QUERY_BATCH, words + i / QUERY_BATCH * n_words);
    }
    uint32_t n_subs = find_tile(&args->kv, args->block_table, 0, begin, end - 1, &next), n_next;
    for (uint32_t at = begin; at < end; at += ATTN_TILE, n_subs = n_next) {
        float sums[ATTN_TILE] = {0};
        const size_t n_bytes = weft_min_u32(ATTN_TILE, end - at) * sizeof *sums;
        tile = next;
        n_next = find_tile(&args->kv, args->block_table, 0, at + ATTN_TILE, end - 1, &next);
        for (uint32_t s = 0; s < n_subs; s++) {
            tile.after_k[s] = s < n_next ? next.k[s] : tile.k[s];
        }
        const struct attn_tile *products = index_tile(attn, &tile, n_subs, &made);
        struct attn_tile again = *products;
        memcpy(again.after_k, again.k, sizeof again.k);
        memcpy(sums, scores + (at - begin), n_bytes);
        for (uint32_t i = 0; i < n; i += QUERY_BATCH) {
            const struct batch b = {.tile = i ? &again : products,
                                    .again = &again,
                                    .queries = queries + i,
                                    .n = weft_min_u32(QUERY_BATCH, n - i),
                                    .words = words[i / QUERY_BATCH * n_words],
                                    .p = p};
            queries[i + b.n - 1].end = n_subs * ATTN_SUB;
            score_batch(&tile, &b, args->kv.dtype == WEFT_KV_INT8);
            add_heads(&b, args->weights + head + i, sums);
        }
        memcpy(scores + (at - begin), sums, n_bytes);
    }
}

static void index_scores(const struct weft_index_args *args, uint32_t begin, uint32_t end,
                         float *scores) {
    check_index_args(args, begin, end);
    const struct weft_attn_args attn = {.kv = args->kv, .exact = args->exact, .scale = args->scale};
    if (begin == end) return;
    memset(scores, 0, (end - begin) * sizeof *scores);
    const bool by_tiles = is_tiled(form_of(&attn));
    if (by_tiles) attn_begin(form_of(&attn), args->n_heads);
    for (uint32_t h = 0; h < args->n_heads; h += QUERIES_MAX) {
        add_index_scores(&attn, args, h, weft_min_u32(QUERIES_MAX, args->n_heads - h), begin, end,
                         scores);
    }
    if (by_tiles) attn_end();
}

static inline void fill_attention(struct weft_kern_table *table) {
    table->index_scores = index_scores;
    table->attention = attention;
    table->attention_span = attention_span;
    table->attention_join = attention_join;
    table->attention_peak[WEFT_KV_BF16] =
        (int)BEST_BF16 == (int)FORM_BF16 ? WEFT_PEAK_F32 : WEFT_PEAK_BF16;
    table->attention_peak[WEFT_KV_INT8] = WEFT_PEAK_INT8;
}

#endif
