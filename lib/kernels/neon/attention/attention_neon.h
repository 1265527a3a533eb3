/* kernels/attention_neon — attention with NEON, for the files with and without dot products of bytes and of
 * bf16. Scores have 16 sums: 4 queries x 16 tokens, or 1 query x 64; a K vector holds 4 tokens of one
 * step of the head. Values: 4 queries x 16 elements, or 1 x 64. Of codes there are 8 sums and 8. */
#ifndef WEFT_KERNELS_ATTENTION_NEON_H
#define WEFT_KERNELS_ATTENTION_NEON_H

#include "attention_lanes_neon.h"
#include "neon/lanes_neon.h"

enum { PIECE = 4, SUMS = 16, CODE_SUMS = 8 };

/* -------------------------------------------------------------------------------- scores --- */

/* Words of n queries, up to four, side by side. */
ALWAYS_INLINE uint32x4_t load_queries(const uint32_t *words, uint32_t n) {
    if (n == 1) return vld1q_dup_u32(words);
    return n == 2 ? vcombine_u32(vld1_u32(words), vdup_n_u32(0)) : vld1q_u32(words);
}

/* Some vectors of four tokens, `first` counted from the tile's; n times as many are at most SUMS, of
 * codes CODE_SUMS. */
struct score_part {
    uint32_t first, vectors;
};

/* One step of the head for four tokens: sum[i] of query i. */
ALWAYS_INLINE void score_step(uint32x4_t keys, const uint32_t *words, enum attn_form form,
                              uint32_t n, bool has_odd, float32x4_t *sum) {
    const uint32x4_t q = load_queries(words, n);
#if ATTN_HAS_PAIRS
    for (uint32_t i = 0; i < n && form == FORM_PAIRS; i++) {
        sum[i] = dot_pairs(sum[i], keys, q, i);
    }
    if (form == FORM_PAIRS) return;
#endif
    const bool is_bf16 = form == FORM_BF16;
    const float32x4_t key = is_bf16 ? even_of(keys) : vreinterpretq_f32_u32(keys);
    for (uint32_t i = 0; i < n; i++) {
        sum[i] = fma_lane(sum[i], key, vreinterpretq_f32_u32(q), i);
    }
    if (!is_bf16 || !has_odd) return;
    const float32x4_t next = vreinterpretq_f32_u32(load_queries(words + QUERY_BATCH, n));
    for (uint32_t i = 0; i < n; i++) {
        sum[i] = fma_lane(sum[i], odd_of(keys), next, i);
    }
}

ALWAYS_INLINE void score_floats(const struct score_job *job, enum attn_form form, uint32_t n,
                                struct score_part part) {
    const struct attn_tile *tile = job->tile;
    const size_t unit = form == FORM_BF16 || form == FORM_PAIRS ? 2 : 1;
    const size_t per_step = form == FORM_BF16 ? 2 : 1; /* words of a query */
    const size_t n_whole = tile->head_dim / unit, n_steps = (tile->head_dim + unit - 1) / unit;
    float32x4_t sum[SUMS];
    for (uint32_t i = 0; i < n * part.vectors; i++) {
        sum[i] = vdupq_n_f32(0);
    }
    for (size_t step = 0; step < n_steps; step++) {
        const uint32_t *words = job->words + step * per_step * QUERY_BATCH;
        for (uint32_t v = 0; v < part.vectors; v++) {
            const uint32_t s = (part.first + v) / QUARTERS, quarter = (part.first + v) % QUARTERS;
            const size_t at = step * ATTN_SUB + (size_t)quarter * LANES4;
            if (quarter == 0)
                __builtin_prefetch(tile->after_k[s] + at * (form == FORM_F16 ? 2 : 4));
            const uint32x4_t keys = form == FORM_F16
                                        ? vreinterpretq_u32_f32(load4(tile->k[s], at, form))
                                        : load_words(tile->k[s], at);
            score_step(keys, words, form, n, step < n_whole, sum + (size_t)v * n);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < part.vectors; v++) {
            vst1q_f32(&job->p[i].p[(part.first + v) * LANES4], sum[v * n + i]);
        }
    }
}

ALWAYS_INLINE void score_fours(const struct score_job *job, uint32_t n, struct score_part part) {
    const struct attn_tile *tile = job->tile;
    const uint32_t n_fours = (tile->head_dim + 3) / 4;
    struct code_sum sum[CODE_SUMS];
    for (uint32_t i = 0; i < n * part.vectors; i++) {
        sum[i] = no_codes();
    }
    for (size_t four = 0; four < n_fours; four++) {
        const uint32_t *words = job->words + 2 * four * QUERY_BATCH;
        const int8x16_t high = vreinterpretq_s8_u32(load_queries(words, n));
        const int8x16_t low = vreinterpretq_s8_u32(load_queries(words + QUERY_BATCH, n));
        for (uint32_t v = 0; v < part.vectors; v++) {
            const uint32_t s = (part.first + v) / QUARTERS, quarter = (part.first + v) % QUARTERS;
            const size_t at = four * ATTN_SUB + (size_t)quarter * LANES4;
            if (quarter == 0) __builtin_prefetch(tile->after_k[s] + at * sizeof(uint32_t));
            const int8x16_t key = vreinterpretq_s8_u32(load_words(tile->k[s], at));
            for (uint32_t i = 0; i < n; i++) {
                struct code_sum *to = &sum[v * n + i];
                to->high = dot_lane(to->high, key, high, i);
                to->low = dot_lane(to->low, key, low, i);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < part.vectors; v++) {
            vst1q_u32(&job->p[i].words[(part.first + v) * LANES4],
                      vreinterpretq_u32_s32(join_codes(sum[v * n + i])));
        }
    }
}

ALWAYS_INLINE void score_some(const struct score_job *job, enum attn_form form, uint32_t n,
                              struct score_part part) {
    if (form == FORM_FOURS)
        score_fours(job, n, part);
    else
        score_floats(job, form, n, part);
}

ALWAYS_INLINE void score_piece(const struct score_job *job, enum attn_form form, uint32_t n_all,
                               uint32_t n_subs) {
    const uint32_t n = n_all < PIECE ? n_all : PIECE;
    const uint32_t together = (form == FORM_FOURS ? CODE_SUMS : SUMS) / n;
    const uint32_t least = together < QUARTERS ? together : QUARTERS;
    for (uint32_t i = 0; i < n_all; i += n) {
        struct score_job some = *job;
        some.words += i;
        some.p += i;
        uint32_t vector = 0;
        for (; vector + together <= n_subs * QUARTERS; vector += together) {
            score_some(&some, form, n, (struct score_part){vector, together});
        }
        for (; vector < n_subs * QUARTERS; vector += least) {
            score_some(&some, form, n, (struct score_part){vector, least});
        }
    }
}

/* -------------------------------------------------------------------------------- values --- */

/* Elements d .. d + 4 * vectors of the head; the last, incomplete vector has `count`. */
struct columns {
    size_t d;
    uint32_t vectors, count;
};

ALWAYS_INLINE uint32x4_t load_columns(const uint8_t *base, size_t word, const struct columns *c) {
    if (c->count == LANES4) return load_words(base, word);
    uint32_t some[LANES4] = {0};
    memcpy(some, base + word * sizeof *some, c->count * sizeof *some);
    return vld1q_u32(some);
}

ALWAYS_INLINE float32x4_t load_elements(const uint8_t *base, size_t at, enum attn_form form,
                                        const struct columns *c) {
    if (form == FORM_F32) return vreinterpretq_f32_u32(load_columns(base, at, c));
    if (c->count == LANES4) return load4(base, at, form);
    uint8_t halves[8] = {0};
    memcpy(halves, base + at * 2, (size_t)c->count * 2);
    return load4(halves, 0, form);
}

ALWAYS_INLINE void value_start(const struct value_job *job, uint32_t n, const struct columns *c,
                               float32x4_t *sum) {
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *out = (const void *)(job->queries[i].out + c->d);
        for (uint32_t v = 0; v < c->vectors; v++) {
            float32x4_t before = load_elements(out, (size_t)v * LANES4, FORM_F32, c);
            sum[i * c->vectors + v] = vmulq_n_f32(before, job->folds[i].fade);
        }
    }
}

ALWAYS_INLINE void value_end(const struct value_job *job, uint32_t n, const struct columns *c,
                             const float32x4_t *sum) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < c->vectors; v++) {
            float *out = job->queries[i].out + c->d + (size_t)v * LANES4, some[LANES4];
            if (c->count == LANES4) {
                vst1q_f32(out, sum[i * c->vectors + v]);
            } else {
                vst1q_f32(some, sum[i * c->vectors + v]);
                memcpy(out, some, c->count * sizeof *some);
            }
        }
    }
}

/* F32 and F16: token by token. */
ALWAYS_INLINE void value_tokens(const struct value_job *job, enum attn_form form, uint32_t n,
                                const struct columns *c, float32x4_t *sum) {
    const struct attn_tile *tile = job->tile;
    for (uint32_t j = job->j0; j < job->j1; j++) {
        const uint8_t *base = tile->v[j / ATTN_SUB], *next = tile->after_v[j / ATTN_SUB];
        const size_t at = j % ATTN_SUB * (size_t)tile->value_dim + c->d;
        for (uint32_t v = 0; v < c->vectors; v++) {
            if (v % QUARTERS == 0)
                __builtin_prefetch(next + (at + (size_t)v * LANES4) * (form == FORM_F16 ? 2 : 4));
            float32x4_t value = load_elements(base, at + (size_t)v * LANES4, form, c);
            for (uint32_t i = 0; i < n; i++) {
                float32x4_t *to = &sum[i * c->vectors + v];
                *to = vfmaq_n_f32(*to, value, job->p[i].p[j]);
            }
        }
    }
}

struct pair_of {
    uint32_t pair;
    bool has_first, has_second;
};

/* Both tokens of a pair, or one of them; PAIRS: the other one counts for nothing. */
ALWAYS_INLINE void value_pair(const struct value_job *job, enum attn_form form, uint32_t n,
                              struct pair_of of, const struct columns *c, float32x4_t *sum) {
    const struct attn_tile *tile = job->tile;
    const union attn_weights *p = job->p;
    const uint32_t pair = of.pair;
    const uint8_t *base = tile->v[pair / (ATTN_SUB / 2)];
    const uint8_t *next = tile->after_v[pair / (ATTN_SUB / 2)];
    const size_t at = pair % (ATTN_SUB / 2) * (size_t)tile->value_dim + c->d;
    for (uint32_t v = 0; v < c->vectors; v++) {
        if (v % QUARTERS == 0)
            __builtin_prefetch(next + (at + (size_t)v * LANES4) * sizeof(uint32_t));
        uint32x4_t both = load_columns(base, at + (size_t)v * LANES4, c);
#if ATTN_HAS_PAIRS
        if (form == FORM_PAIRS && !(of.has_first && of.has_second))
            both = vandq_u32(both, vdupq_n_u32(of.has_first ? 0x0000ffffu : 0xffff0000u));
        for (uint32_t i = 0; i < n && form == FORM_PAIRS; i++) {
            float32x4_t *to = &sum[i * c->vectors + v];
            *to = dot_pairs(*to, both, vld1q_dup_u32(&p[i].words[pair]), 0);
        }
        if (form == FORM_PAIRS) continue;
#endif
        (void)form;
        for (uint32_t i = 0; i < n; i++) {
            float32x4_t *to = &sum[i * c->vectors + v];
            if (of.has_first) *to = vfmaq_n_f32(*to, even_of(both), p[i].p[2 * pair]);
            if (of.has_second) *to = vfmaq_n_f32(*to, odd_of(both), p[i].p[2 * pair + 1]);
        }
    }
}

ALWAYS_INLINE void value_pairs(const struct value_job *job, enum attn_form form, uint32_t n,
                               const struct columns *c, float32x4_t *sum) {
    const uint32_t j0 = job->j0, j1 = job->j1;
    uint32_t pair = j0 / 2;
    if (j0 >= j1) return;
    if (j0 % 2) value_pair(job, form, n, (struct pair_of){pair++, false, true}, c, sum);
    for (; pair < j1 / 2; pair++) {
        value_pair(job, form, n, (struct pair_of){pair, true, true}, c, sum);
    }
    if (j1 % 2) value_pair(job, form, n, (struct pair_of){pair, true, false}, c, sum);
}

ALWAYS_INLINE void value_fours(const struct value_job *job, uint32_t n, const struct columns *c,
                               float32x4_t *sum) {
    const struct attn_tile *tile = job->tile;
    struct code_sum dot[CODE_SUMS];
    for (uint32_t i = 0; i < n * c->vectors; i++) {
        dot[i] = no_codes();
    }
    for (uint32_t four = job->j0 / 4; four < (job->j1 + 3) / 4; four++) {
        const uint8_t *base = tile->v[four / 4], *next = tile->after_v[four / 4];
        const size_t at = four % 4 * (size_t)tile->value_dim + c->d;
        for (uint32_t v = 0; v < c->vectors; v++) {
            if (v % QUARTERS == 0)
                __builtin_prefetch(next + (at + (size_t)v * LANES4) * sizeof(uint32_t));
            int8x16_t value = vreinterpretq_s8_u32(load_columns(base, at + (size_t)v * LANES4, c));
            for (uint32_t i = 0; i < n; i++) {
                struct code_sum *to = &dot[i * c->vectors + v];
                int8x16_t words = vreinterpretq_s8_u32(load_queries(job->p[i].words + 2 * four, 2));
                to->high = dot_lane(to->high, value, words, 0);
                to->low = dot_lane(to->low, value, words, 1);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < c->vectors; v++) {
            float32x4_t exact = vcvtq_f32_s32(join_codes(dot[i * c->vectors + v]));
            float32x4_t *to = &sum[i * c->vectors + v];
            *to = vfmaq_n_f32(*to, exact, job->folds[i].scale);
        }
    }
}

ALWAYS_INLINE void value_columns(const struct value_job *job, enum attn_form form, uint32_t n,
                                 struct columns c) {
    float32x4_t sum[SUMS];
    value_start(job, n, &c, sum);
    if (form == FORM_FOURS)
        value_fours(job, n, &c, sum);
    else if (form == FORM_BF16 || form == FORM_PAIRS)
        value_pairs(job, form, n, &c, sum);
    else
        value_tokens(job, form, n, &c, sum);
    value_end(job, n, &c, sum);
}

ALWAYS_INLINE void value_piece(const struct value_job *job, enum attn_form form, uint32_t n_all) {
    const uint32_t n = n_all < PIECE ? n_all : PIECE;
    const uint32_t vectors = (form == FORM_FOURS ? CODE_SUMS : SUMS) / n, wide = vectors * LANES4;
    for (uint32_t i = 0; i < n_all; i += n) {
        const struct value_job some = {job->tile,      job->queries + i, job->p + i,
                                       job->folds + i, job->j0,          job->j1};
        uint32_t d = 0, value_dim = job->tile->value_dim;
        for (; d + wide <= value_dim; d += wide) {
            value_columns(&some, form, n, (struct columns){d, vectors, LANES4});
        }
        for (; d + LANES4 <= value_dim; d += LANES4) {
            value_columns(&some, form, n, (struct columns){d, 1, LANES4});
        }
        if (d < value_dim) {
            value_columns(&some, form, n, (struct columns){d, 1, value_dim - d});
        }
    }
}

#include "attention_body.h"

#endif
