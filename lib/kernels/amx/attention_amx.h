/* kernels/attention_amx — attention over a cache of bf16 or int8 on AMX's tiles: for the file with the
 * instructions (tiles_amx.h, which is included before), and for a test with a model of them. Other
 * caches are met as with AVX-512 and VNNI.
 *
 * bf16: a batch of up to 8 queries has a line each. 16 tokens' keys lie as a tile wants them, 16 pairs of
 * elements at once; of their values 8 pairs of tokens are one, 16 elements wide. Sums have the order of
 * bf16_order.h: of a score along the head, 32 elements at a time; of values 16 tokens at a time, of what
 * a query sees of 64; then they are added to what there was. Which tokens are summed together depends on
 * their positions alone. What a query does not see is 0 on both sides. Lines of queries that are not there
 * are computed and dropped.
 *
 * int8: a query has two lines, one of its codes' high bytes and one of their low bytes. 256 times the sum of the high
 * ones, plus the sum of the low ones, is the integer that VNNI has, so the bits are the same. 16 tokens'
 * keys are 16 fours of elements at once, as they lie; the values of 64 tokens are collected, four lines of
 * each group.
 */
#ifndef WEFT_KERNELS_ATTENTION_AMX_H
#define WEFT_KERNELS_ATTENTION_AMX_H

#include <immintrin.h>

#include "attention_tile.h"
#include "tile_config.h"

#define ATTN_HAS_TILES 1

/* Beside the sums' four of tile_config.h. Literals, see tiles_amx.h. */
#define TILE_QUERIES 2
#define TILE_KEYS 3
#define TILE_WEIGHTS 4
#define TILE_VALUES 7

enum {
    VALUE_PAIRS = ATTN_SUB / 2, /* of tokens, of a tile */
    VALUE_FOURS = ATTN_TILE / 4,
    SUB_FOURS = ATTN_SUB / 4,
    BYTE_LINES = 2 * QUERY_BATCH,
    SUMS_VECTORS = 4,
    SUMS_COLUMNS = SUMS_VECTORS * WEFT_PANEL,
    ALL_SEEN = (1 << ATTN_SUB) - 1,
};
_Static_assert((int)BYTE_LINES <= (int)TILE_LINES, "two lines for each query");
_Static_assert((int)VALUE_FOURS == (int)TILE_LINES, "a whole tile");

/* A row's bits are the same with any number of lines; fewer cost less. */
static inline void attn_begin(enum attn_form form, uint32_t n) {
    const uint32_t n_queries = n > 0 ? weft_min_u32(n, QUERY_BATCH) : 1;
    struct tile_config config = tile_config_of(form == FORM_BYTES ? 2 * n_queries : n_queries);
    const uint32_t value_lines = form == FORM_BYTES ? VALUE_FOURS : VALUE_PAIRS;
    config.lines[TILE_KEYS] = TILE_LINES;
    config.lines[TILE_VALUES] = (uint8_t)value_lines;
    config.line_bytes[TILE_WEIGHTS] = (uint16_t)(value_lines * sizeof(uint32_t));
    config.lines[TILE_WEIGHTS] = config.lines[TILE_QUERIES];
    tile_configure(&config);
}

static inline void attn_end(void) {
    tile_release();
}

/* A CPU whose last dot was some 250 ns ago takes 300 ns more for the next ones (Sapphire Rapids; another tile
 * instruction doesn't count). So there is one for nothing before a tile's scores, and one between scores and values.
 * It leaves no sums in TILE_SUMS_0. */
static inline void attn_stay_awake(void) {
    tile_zero(TILE_SUMS_0); /* whatever bits it has: sums do not overflow */
    tile_dot_signed(TILE_SUMS_0, TILE_QUERIES, TILE_KEYS);
}

/* What is read after a part of a tile, as many lines. Another batch of the same tile fetches nothing. */
#define FETCH_LINES(after, part, n_lines, stride)                                                  \
    if ((after) != (part)) {                                                                       \
        const uint8_t *line_at = (after);                                                          \
        for (uint32_t n_left = (n_lines); n_left > 0; n_left--, line_at += (stride)) {             \
            __builtin_prefetch(line_at);                                                           \
        }                                                                                          \
    }

#define DOT_KEYS(sums)                                                                             \
    if (form == FORM_BYTES)                                                                        \
        tile_dot_signed(sums, TILE_QUERIES, TILE_KEYS);                                            \
    else                                                                                           \
        tile_dot_bf16(sums, TILE_QUERIES, TILE_KEYS);

/* Adds one group's keys, 16 lines from byte `at` on. */
#define ADD_KEYS(sums, sub)                                                                        \
    if ((sub) < n_subs) {                                                                          \
        FETCH_LINES(tile->after_k[sub] + at, tile->k[sub] + at, TILE_LINES, TILE_LINE)             \
        tile_load(TILE_KEYS, tile->k[sub] + at, TILE_LINE);                                        \
        DOT_KEYS(sums)                                                                             \
    }

/* The same of what is left of them, n_lines. Queries are 0 behind it. */
#define ADD_REST(sums, sub)                                                                        \
    if ((sub) < n_subs) {                                                                          \
        FETCH_LINES(tile->after_k[sub] + at, tile->k[sub] + at, n_lines, TILE_LINE)                \
        memcpy(rest, tile->k[sub] + at, (size_t)n_lines * TILE_LINE);                              \
        tile_load(TILE_KEYS, rest, TILE_LINE);                                                     \
        DOT_KEYS(sums)                                                                             \
    }

/* Leaves the sums of four groups' keys in tiles. */
ALWAYS_INLINE void add_keys(const struct score_job *job, enum attn_form form, uint32_t n_subs) {
    const struct attn_tile *tile = job->tile;
    const uint32_t unit = form == FORM_BYTES ? 4 : 2, of_tile = unit * TILE_LINES;
    const size_t query_bytes = words_of(form, tile->head_dim) * sizeof(uint32_t);
    const size_t line = form == FORM_BYTES ? query_bytes / 2 : query_bytes;
    const uint8_t *queries = (const uint8_t *)job->words;
    const uint32_t n_tiles = tile->head_dim / of_tile;
    const uint32_t n_lines = (tile->head_dim % of_tile + unit - 1) / unit;
    size_t at = 0;
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    tile_zero(TILE_SUMS_2);
    tile_zero(TILE_SUMS_3);
    for (size_t i = 0; i < n_tiles; i++, at += (size_t)TILE_LINES * TILE_LINE) {
        tile_load(TILE_QUERIES, queries + i * TILE_LINE, line);
        ADD_KEYS(TILE_SUMS_0, 0)
        ADD_KEYS(TILE_SUMS_1, 1)
        ADD_KEYS(TILE_SUMS_2, 2)
        ADD_KEYS(TILE_SUMS_3, 3)
    }
    if (n_lines > 0) {
        _Alignas(64) uint8_t rest[TILE_LINES * TILE_LINE] = {0};
        tile_load(TILE_QUERIES, queries + (size_t)n_tiles * TILE_LINE, line);
        ADD_REST(TILE_SUMS_0, 0)
        ADD_REST(TILE_SUMS_1, 1)
        ADD_REST(TILE_SUMS_2, 2)
        ADD_REST(TILE_SUMS_3, 3)
    }
}

/* One vector of the sums of each line. */
#define STORE_SUMS(sums, vector, out)                                                              \
    tile_store(sums, (out)[0] + (size_t)(vector)*WEFT_PANEL, sizeof *(out))

#define STORE_SCORES(sums, sub)                                                                    \
    if ((sub) < n_subs) tile_store(sums, job->p->p + (size_t)(sub)*ATTN_SUB, sizeof *job->p);

ALWAYS_INLINE void score_subs(const struct score_job *job, uint32_t n_subs) {
    add_keys(job, FORM_TILES, n_subs);
    STORE_SCORES(TILE_SUMS_0, 0)
    STORE_SCORES(TILE_SUMS_1, 1)
    STORE_SCORES(TILE_SUMS_2, 2)
    STORE_SCORES(TILE_SUMS_3, 3)
}

/* Of a whole batch. */
static inline void score_tiles(const struct score_job *job, uint32_t n_subs) {
    if (n_subs == ATTN_SUBS)
        score_subs(job, ATTN_SUBS);
    else
        score_subs(job, n_subs);
}

/* Values of 16 tokens, elements d .. d + 16, as a tile of their own: those of tokens that are not among
 * `seen` and of elements that are not there are zero. */
static void copy_values(const uint8_t *group, uint32_t value_dim, uint32_t d, uint32_t seen,
                        uint8_t *out) {
    const uint32_t left = value_dim - d;
    const __mmask16 columns = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
    for (uint32_t pair = 0; pair < VALUE_PAIRS; pair++) {
        const uint32_t low = seen >> (2 * pair) & 1, high = seen >> (2 * pair + 1) & 1;
        const uint32_t mask = (low ? 0xffffu : 0) | (high ? 0xffff0000u : 0);
        __m512i words = _mm512_maskz_loadu_epi32(columns, group + ((size_t)pair * value_dim + d) *
                                                                      sizeof(uint32_t));
        words = _mm512_and_si512(words, _mm512_set1_epi32((int32_t)mask));
        _mm512_storeu_si512(out + (size_t)pair * TILE_LINE, words);
    }
}

/* Which of a group's tokens a query sees, all of the job's alike. */
static inline uint32_t seen_of_group(const struct value_job *job, uint32_t sub) {
    const uint32_t first = sub * ATTN_SUB, end = weft_min_u32(ATTN_SUB, job->j1 - first);
    const uint32_t begin = job->j0 > first ? job->j0 - first : 0;
    const uint32_t seen = (1u << end) - (1u << begin);
    const struct attn_query *query = &job->queries[0];
    return query->seen ? seen & (uint32_t)(query->in_tile >> first) : seen;
}

/* A group's values, of the 16 elements whose number is `vector`: as they lie. */
#define ADD_VALUES(sums, vector)                                                                   \
    {                                                                                              \
        const uint8_t *part = tile->v[sub] + (d + (size_t)(vector)*WEFT_PANEL) * sizeof(uint32_t); \
        const uint8_t *after =                                                                     \
            tile->after_v[sub] + (d + (size_t)(vector)*WEFT_PANEL) * sizeof(uint32_t);             \
        FETCH_LINES(after, part, VALUE_PAIRS, stride)                                              \
        tile_load(TILE_VALUES, part, stride);                                                      \
        tile_dot_bf16(sums, TILE_WEIGHTS, TILE_VALUES);                                            \
    }

/* The same of those that are there, and seen. */
#define ADD_SOME(sums, vector)                                                                     \
    if ((vector) < n_vectors) {                                                                    \
        const uint32_t column = d + (vector)*WEFT_PANEL;                                           \
        const size_t at = column * sizeof(uint32_t);                                               \
        FETCH_LINES(tile->after_v[sub] + at, tile->v[sub] + at, VALUE_PAIRS, stride)               \
        copy_values(tile->v[sub], dim, column, seen, some);                                        \
        tile_load(TILE_VALUES, some, TILE_LINE);                                                   \
        tile_dot_bf16(sums, TILE_WEIGHTS, TILE_VALUES);                                            \
    }

/* sums = weights times values, elements d .. d + 16 * n_vectors. */
static inline void add_values(const struct value_job *job, uint32_t d, uint32_t n_vectors,
                              float sums[QUERY_BATCH][SUMS_COLUMNS]) {
    const struct attn_tile *tile = job->tile;
    const uint32_t dim = tile->value_dim;
    const size_t stride = dim * sizeof(uint32_t);
    const bool is_wide = d + SUMS_COLUMNS <= dim;
    _Alignas(64) uint8_t some[VALUE_PAIRS * TILE_LINE];
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    tile_zero(TILE_SUMS_2);
    tile_zero(TILE_SUMS_3);
    for (uint32_t sub = job->j0 / ATTN_SUB; sub * ATTN_SUB < job->j1; sub++) {
        const uint32_t seen = seen_of_group(job, sub);
        tile_load(TILE_WEIGHTS, job->p->words + (size_t)sub * VALUE_PAIRS, sizeof *job->p);
        if (is_wide && seen == ALL_SEEN) {
            ADD_VALUES(TILE_SUMS_0, 0)
            ADD_VALUES(TILE_SUMS_1, 1)
            ADD_VALUES(TILE_SUMS_2, 2)
            ADD_VALUES(TILE_SUMS_3, 3)
        } else {
            ADD_SOME(TILE_SUMS_0, 0)
            ADD_SOME(TILE_SUMS_1, 1)
            ADD_SOME(TILE_SUMS_2, 2)
            ADD_SOME(TILE_SUMS_3, 3)
        }
    }
    STORE_SUMS(TILE_SUMS_0, 0, sums);
    STORE_SUMS(TILE_SUMS_1, 1, sums);
    STORE_SUMS(TILE_SUMS_2, 2, sums);
    STORE_SUMS(TILE_SUMS_3, 3, sums);
}

/* The vectors of up to SUMS_COLUMNS elements, of `left`, and the mask of the last one. */
struct vectors {
    uint32_t n;
    __mmask16 last;
};

static inline struct vectors vectors_of(uint32_t left) {
    const uint32_t n_columns = weft_min_u32(SUMS_COLUMNS, left);
    const uint32_t n = (n_columns + WEFT_PANEL - 1) / WEFT_PANEL;
    return (struct vectors){n, (__mmask16)(0xffffu >> (n * WEFT_PANEL - n_columns))};
}

/* Of `n` queries of a batch. */
static inline void value_tiles(const struct value_job *job, uint32_t n) {
    const uint32_t dim = job->tile->value_dim;
    _Alignas(64) float sums[QUERY_BATCH][SUMS_COLUMNS];
    for (uint32_t d = 0; d < dim; d += SUMS_COLUMNS) {
        const struct vectors vectors = vectors_of(dim - d);
        add_values(job, d, vectors.n, sums);
        for (uint32_t i = 0; i < n; i++) {
            const __m512 fade = _mm512_set1_ps(job->folds[i].fade);
            float *out = job->queries[i].out + d;
            for (uint32_t v = 0; v < vectors.n; v++, out += WEFT_PANEL) {
                const __mmask16 mask = v + 1 < vectors.n ? 0xffff : vectors.last;
                __m512 sum = _mm512_load_ps(sums[i] + (size_t)v * WEFT_PANEL);
                sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, out), fade, sum);
                _mm512_mask_storeu_ps(out, mask, sum);
            }
        }
    }
}

/* ---------------------------------------------------------------------------------- bytes --- */

ALWAYS_INLINE void sum_subs(const struct score_job *job, uint32_t n_subs,
                            int32_t sums[BYTE_LINES][ATTN_TILE]) {
    add_keys(job, FORM_BYTES, n_subs);
    STORE_SUMS(TILE_SUMS_0, 0, sums);
    STORE_SUMS(TILE_SUMS_1, 1, sums);
    STORE_SUMS(TILE_SUMS_2, 2, sums);
    STORE_SUMS(TILE_SUMS_3, 3, sums);
}

/* The sums of a query's codes, from those of its two lines. */
ALWAYS_INLINE __m512i code_sums(const int32_t *high, const int32_t *low) {
    return _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high), 8), _mm512_load_si512(low));
}

/* Of `n` queries of a batch. Scores of groups that are not there are 0. */
static inline void score_bytes(const struct score_job *job, uint32_t n, uint32_t n_subs) {
    _Alignas(64) int32_t sums[BYTE_LINES][ATTN_TILE];
    if (n_subs == ATTN_SUBS)
        sum_subs(job, ATTN_SUBS, sums);
    else
        sum_subs(job, n_subs, sums);
    for (uint32_t i = 0; i < n; i++) {
        const __m512 factor = _mm512_set1_ps(job->queries[i].factor);
        for (uint32_t j = 0; j < ATTN_TILE; j += WEFT_PANEL) {
            __m512i dots = code_sums(sums[(size_t)2 * i] + j, sums[(size_t)2 * i + 1] + j);
            __m512 score = _mm512_mul_ps(_mm512_cvtepi32_ps(dots), _mm512_load_ps(job->scales + j));
            _mm512_store_ps(job->p[i].p + j, _mm512_mul_ps(score, factor));
        }
    }
}

/* Values of a tile's tokens, elements d .. d + 16: four lines of each group that any query sees. */
ALWAYS_INLINE void collect_values(const struct value_job *job, uint32_t d, __mmask16 columns,
                                  uint8_t *out) {
    const struct attn_tile *tile = job->tile;
    for (uint32_t sub = 0; sub < ATTN_SUBS; sub++) {
        const bool is_seen = sub >= job->j0 / ATTN_SUB && sub * ATTN_SUB < job->j1;
        for (uint32_t four = 0; four < SUB_FOURS; four++, out += TILE_LINE) {
            const size_t at = ((size_t)four * tile->value_dim + d) * sizeof(uint32_t);
            __m512i words = _mm512_setzero_si512();
            if (is_seen) {
                if (tile->after_v[sub] != tile->v[sub]) __builtin_prefetch(tile->after_v[sub] + at);
                words = _mm512_maskz_loadu_epi32(columns, tile->v[sub] + at);
            }
            _mm512_store_si512(out, words);
        }
    }
}

#define ADD_COLLECTED(sums, vector)                                                                \
    if ((vector) < n_vectors) {                                                                    \
        tile_load(TILE_VALUES, values[vector], TILE_LINE);                                         \
        tile_dot_signed(sums, TILE_WEIGHTS, TILE_VALUES);                                          \
    }

/* out = weights times values, of n_vectors vectors of elements. */
ALWAYS_INLINE void add_collected(uint8_t values[SUMS_VECTORS][TILE_LINES * TILE_LINE],
                                 uint32_t n_vectors, int32_t out[BYTE_LINES][SUMS_COLUMNS]) {
    tile_zero(TILE_SUMS_0);
    tile_zero(TILE_SUMS_1);
    tile_zero(TILE_SUMS_2);
    tile_zero(TILE_SUMS_3);
    ADD_COLLECTED(TILE_SUMS_0, 0)
    ADD_COLLECTED(TILE_SUMS_1, 1)
    ADD_COLLECTED(TILE_SUMS_2, 2)
    ADD_COLLECTED(TILE_SUMS_3, 3)
    STORE_SUMS(TILE_SUMS_0, 0, out);
    STORE_SUMS(TILE_SUMS_1, 1, out);
    STORE_SUMS(TILE_SUMS_2, 2, out);
    STORE_SUMS(TILE_SUMS_3, 3, out);
}

/* Values of a tile, elements d .. d + 16 * n_vectors, the last vector's as `last` says, for `n` queries. */
ALWAYS_INLINE void fold_vectors(const struct value_job *job, uint32_t n, uint32_t d,
                                uint32_t n_vectors, __mmask16 last) {
    _Alignas(64) int32_t sums[BYTE_LINES][SUMS_COLUMNS];
    _Alignas(64) uint8_t values[SUMS_VECTORS][TILE_LINES * TILE_LINE];
    for (uint32_t v = 0; v < n_vectors; v++) {
        collect_values(job, d + v * WEFT_PANEL, v + 1 < n_vectors ? 0xffff : last, values[v]);
    }
    add_collected(values, n_vectors, sums);
    for (uint32_t i = 0; i < n; i++) {
        const __m512 fade = _mm512_set1_ps(job->folds[i].fade);
        const __m512 scale = _mm512_set1_ps(job->folds[i].scale);
        float *out = job->queries[i].out + d;
        for (uint32_t v = 0; v < n_vectors; v++, out += WEFT_PANEL) {
            const __mmask16 mask = v + 1 < n_vectors ? 0xffff : last;
            const uint32_t at = v * WEFT_PANEL;
            const __m512i dots = code_sums(sums[(size_t)2 * i] + at, sums[(size_t)2 * i + 1] + at);
            __m512 sum = _mm512_mul_ps(fade, _mm512_maskz_loadu_ps(mask, out));
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scale, sum);
            _mm512_mask_storeu_ps(out, mask, sum);
        }
    }
}

/* Of `n` queries of a batch; as many lines of weights are read as attn_begin made room for. */
static inline void value_bytes(const struct value_job *job, uint32_t n) {
    const uint32_t dim = job->tile->value_dim;
    tile_load(TILE_WEIGHTS, job->p->words, TILE_LINE);
    for (uint32_t d = 0; d < dim; d += SUMS_COLUMNS) {
        const struct vectors vectors = vectors_of(dim - d);
        if (dim - d >= SUMS_COLUMNS)
            fold_vectors(job, n, d, SUMS_VECTORS, 0xffff);
        else
            fold_vectors(job, n, d, vectors.n, vectors.last);
    }
}

#include "avx512/attention_avx512.h"

#endif
