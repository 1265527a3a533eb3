/* kernels/attention_tile — what attention_body hands to an ISA's score_queries() and
 * value_queries(). */
#ifndef WEFT_KERNELS_ATTENTION_TILE_H
#define WEFT_KERNELS_ATTENTION_TILE_H

#include <math.h>
#include <string.h>

#include "exp_f32.h"
#include "kern_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ATTN_QUERIES = 64, QUERY_BATCH = 4, ATTN_SUBS = ATTN_TILE / ATTN_SUB };
enum { QUERIES_MAX = WEFT_ATTN_LATENT_QUERIES };
enum { WIDE_QUERIES = 4 * QUERY_BATCH }; /* this many pay for widening a tile */

struct attn_tile {
    const uint8_t *k[ATTN_SUBS]; /* groups of 16 tokens, as kernels.h has them */
    const uint8_t *v[ATTN_SUBS];
    enum weft_kv_dtype dtype;
    uint32_t head_dim, value_dim;
};

struct attn_query {
    const float *q;
    float *out;          /* sum of values of the current span */
    uint32_t low, pos;   /* the positions it sees: low..pos, its own among them */
    uint32_t begin, end; /* what it sees of the current tile */
    float max, total;    /* of the current span */
    struct span_sum joined;
};

#endif
