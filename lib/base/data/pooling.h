/* base/pooling — what a request wants of its prompt in place of tokens: a vector, or scores.
 *
 * Model    The prompt is computed and nothing is sampled (max_tokens is 0). Of the hidden states that
 *          come out of the model (after the final norm), or of what its head makes of them, a few
 *          numbers remain: the values. They come with the sequence's end, as they are: whoever wants
 *          a length of 1 or a sigmoid computes it.
 * Where    It is born in the router and travels through the scheduler, which needs to know how many
 *          values there will be, to the worker.
 */
#ifndef WEFT_BASE_POOLING_H
#define WEFT_BASE_POOLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sampling.h"

#define WEFT_POOLING_IDS_MAX 8

/* The numbers travel (proto/schema.md): they never change. */
enum weft_pooling_kind {
    WEFT_POOLING_NONE = 0,     /* text is generated */
    WEFT_POOLING_LAST = 1,     /* the hidden state of the last token, */
    WEFT_POOLING_MEAN = 2,     /* of all tokens, their mean, */
    WEFT_POOLING_CLS = 3,      /* of the first */
    WEFT_POOLING_TOKENS = 4,   /* logits of a few tokens after the prompt */
    WEFT_POOLING_CLASSIFY = 5, /* what the model's own head says of its labels */
    WEFT_POOLING_COUNT,
};

struct weft_pooling {
    enum weft_pooling_kind kind;
    uint32_t n_ids; /* of TOKENS: 1 or more; else 0 */
    uint32_t ids[WEFT_POOLING_IDS_MAX];
    /* Of a pair of texts, tokens of the first, with what stands before and after it: these have type
     * 0, the others 1. 0: it is one text. */
    uint32_t n_first;
};

/* What a model has to give. */
struct weft_pooling_shape {
    uint32_t n_hidden; /* of a hidden state; 0: not known */
    uint32_t n_labels; /* of its head; 0: it has none */
};

uint32_t weft_pooling_n_values(const struct weft_pooling *pooling,
                               const struct weft_pooling_shape *shape);

/* Whether each position's hidden state counts, or that of the first: none may come out of a cache. */
bool weft_pooling_reads_all(const struct weft_pooling *pooling);

/* Of a prompt of n_prompt tokens (0: not known here), with a vocabulary of n_vocab (likewise). With
 * values come no tokens and no log-probabilities. WEFT_E_INVAL says what is wrong. */
WEFT_MUST_CHECK weft_err weft_pooling_check(const struct weft_pooling *pooling,
                                            const struct weft_sampling *sampling, uint32_t n_prompt,
                                            uint32_t n_vocab, struct weft_errmsg *why);

#endif
