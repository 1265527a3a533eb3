/* kernels/attention_tile — what attention_body hands to an ISA's score_piece() and
 * value_piece(). */
#ifndef WEFT_KERNELS_ATTENTION_TILE_H
#define WEFT_KERNELS_ATTENTION_TILE_H

#include <math.h>
#include <string.h>

#include "exp_f32.h"
#include "kern_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ATTN_QUERIES = 128, QUERY_BATCH = 8, ATTN_SUBS = ATTN_TILE / ATTN_SUB };
enum { QUERIES_MAX = WEFT_ATTN_LATENT_QUERIES };
_Static_assert((int)ATTN_QUERIES <= (int)QUERIES_MAX && QUERIES_MAX % QUERY_BATCH == 0,
               "arrays of queries have room for both kinds of layers, in whole batches");
enum { BATCHES_MAX = QUERIES_MAX / QUERY_BATCH };
enum { WIDE_QUERIES = 16 }; /* this many pay for widening a tile */

static inline uint32_t batches_of(uint32_t n_queries) {
    return (n_queries + QUERY_BATCH - 1) / QUERY_BATCH;
}

/* How keys and values are met. */
enum attn_form {
    FORM_F32,   /* in f32: as they are, or widened for all queries together */
    FORM_F16,   /* in f32, widened where they are loaded */
    FORM_BF16,  /* the same */
    FORM_PAIRS, /* bf16 by dot products of pairs with bf16 */
    FORM_FOURS, /* int8, four by four, by dot products of 16 bits with codes of 15 */
    FORM_TILES, /* bf16 by products of matrices of pairs: of whole batches of queries */
    FORM_BYTES, /* the codes of FOURS by products of matrices of bytes, high and low ones: of whole batches */
};

/* Batches have any number of queries, and those of a batch their words side by side. */
static inline bool is_tiled(enum attn_form form) {
    return form == FORM_TILES || form == FORM_BYTES;
}

/* Sums of codes are integers. */
static inline bool is_whole(enum attn_form form) {
    return form == FORM_FOURS || form == FORM_BYTES;
}

/* Elements that a form takes in one step: of a key along the head, of values along tokens. (Not of tiled ones.) */
static inline uint32_t form_unit(enum attn_form form) {
    return form == FORM_FOURS ? 4 : form == FORM_PAIRS || form == FORM_BF16 ? 2 : 1;
}

struct attn_tile {
    const uint8_t *k[ATTN_SUBS]; /* groups of 16 tokens, as kernels.h has them */
    const uint8_t *v[ATTN_SUBS];
    /* What is read after k, and after v, laid out alike: fetched line by line with them, since in
     * one go it would wait for a buffer per line. The same groups again: nothing is. */
    const uint8_t *after_k[ATTN_SUBS], *after_v[ATTN_SUBS];
    enum attn_form form;
    /* How many of after_v are groups that come next, and lines of 64 bytes that half of one has; of a tile
     * made of another one there are none. */
    uint32_t n_after, half_lines;
    uint32_t head_dim, value_dim;
};

struct attn_query {
    const float *q;
    float *out;           /* sum of values of the current span */
    uint32_t low, pos;    /* the positions it sees: low..pos, its own among them */
    uint32_t begin, end;  /* what it sees of the current tile, or some of what is between */
    uint32_t first_span;  /* the first one that it sees any of */
    uint64_t in_tile;     /* with a set: a bit per token of the current tile that it sees */
    const uint64_t *seen; /* the set of what it sees of low..pos; NULL: all */
    float max, total;     /* of the current span */
    float factor;         /* of its dots: they are scores then */
    struct span_sum joined;
    const float *sink; /* NULL: none */
};

/* The numbers that keys meet, of QUERY_BATCH queries: word w of query i is words[w][i].
 *   F32, F16, BF16  element w of q
 *   PAIRS           elements 2w, 2w + 1 as bf16, the first one in the low half
 *   FOURS           codes of elements 4w' and 4w' + 2 where w = 2w', of the other two where w = 2w' + 1
 *   TILES           as PAIRS, but a query's words lie side by side, up to a multiple of 16
 *   BYTES           likewise: high bytes of codes, up to a multiple of 64, and then as many low ones
 * Words of elements after the last are zero. */
typedef uint32_t attn_words[QUERY_BATCH];

static inline uint32_t words_of(enum attn_form form, uint32_t head_dim) {
    if (form == FORM_TILES) return (head_dim + 31) / 32 * 16;
    if (form == FORM_BYTES) return (head_dim + 63) / 64 * 32;
    if (form == FORM_PAIRS) return (head_dim + 1) / 2;
    return form == FORM_FOURS ? (head_dim + 3) / 4 * 2 : head_dim;
}

/* What one tile's values meet, of a query: f32 weights of its tokens; PAIRS, TILES: 32 words; FOURS: 32
 * words, where the ISA has them (weight_at); BYTES: 64 high bytes of codes and 64 low ones, a
 * query's after another's. */
union attn_weights {
    _Alignas(64) float p[ATTN_TILE];
    uint32_t words[ATTN_TILE];
};

/* out = out * fade + sum of weights times values; FOURS and BYTES: of codes, times scale. */
struct attn_fold {
    float fade, scale;
};

/* What the queries of one piece have to do: their first word, and where scores go. */
struct score_job {
    const struct attn_tile *tile;
    const uint32_t *words; /* see attn_words */
    union attn_weights *p;
    const float *scales; /* [64], of int8 */
    const struct attn_query *queries;
};

/* Values j0..j1 of a tile for the queries of one piece. */
struct value_job {
    const struct attn_tile *tile;
    const struct attn_query *queries;
    const union attn_weights *p;
    const struct attn_fold *folds;
    uint32_t j0, j1;
};

/* What numbers of up to max are divided by to be codes of 15 bits; see FORM_FOURS. NaN if one of
 * them is not finite. */
static inline float code_scale(uint32_t max_bits) {
    float max = f32_from_bits(max_bits);
    if (max < Q8_TINY) return 0.0f;
    return max_bits < 0x7f800000u ? max / (float)ATTN_CODE_MAX : NAN;
}

static inline float code_inverse(uint32_t max_bits) {
    float max = f32_from_bits(max_bits);
    return max >= Q8_TINY && max_bits < 0x7f800000u ? (float)ATTN_CODE_MAX / max : 0.0f;
}

#endif
