/* engine/sampler/chain — samplers in any order, over the tokens that are still in the running.
 *
 * Model    A chain has candidates: a logit and an id each, ids ascending. It begins with all tokens
 *          of the vocabulary, masked ones at -INFINITY; a sampler changes logits, or takes
 *          candidates away. Everything is computed in double, so that an order of samplers means
 *          the same with every instruction set.
 * Order    Equal logits rank by lower id, wherever a sampler ranks.
 * Threads  Reentrant, with one scratch per thread.
 * Memory   A scratch is reserved at opening; nothing here takes memory.
 * Errors   None: the best logit is finite, and each sampler leaves a token.
 * Source   docs/sampling.md names each sampler's. Checked in tests/golden/golden_sampling.c. */
#ifndef WEFT_ENGINE_CHAIN_H
#define WEFT_ENGINE_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sampling.h"
#include "runtime/memory.h"
#include "sampler/sampler.h"

/* Below it a temperature is 0, as in vLLM: a division only overflows. */
#define WEFTI_CHAIN_GREEDY_BELOW 1e-5f

struct wefti_chain_scratch {     /* one per thread */
    double *x, *p, *off;         /* [n_vocab] */
    uint32_t *ids;               /* [n_vocab] */
    uint64_t *keys, *keys_spare; /* [n_vocab], of wefti_rank */
    uint32_t *rank, *rank_spare; /* [n_vocab] */
    uint32_t *runs;              /* [n_runs], of DRY */
    uint32_t n_runs;             /* how far it looks back: the model's length */
};

struct wefti_chain_scratch wefti_chain_scratch_reserve(struct wefti_memory_layout *layout,
                                                       uint32_t n_vocab, uint32_t n_tokens_max);

/* What a request's samplers come to: those that change anything, in their order. */
struct wefti_chain_plan {
    enum weft_sampler steps[WEFT_SAMPLER_COUNT];
    uint32_t n;
    uint32_t n_penalties; /* the first steps are penalties and DRY */
    float temperature;    /* that scales logits: 1 where no sampler does */
    bool is_greedy;       /* behind these it is the best token */
    bool is_adaptive;     /* adaptive-p draws the token */
    bool is_usual;        /* they may run in one go: as in vLLM's order, and nothing else */
};
struct wefti_chain_plan wefti_chain_plan(const struct weft_sampling *sampling);

struct wefti_chain {
    const struct wefti_sampler_input *input;
    struct wefti_chain_scratch *scratch;
    uint32_t *counts; /* [n_vocab], all zero between calls */
    float *logits;    /* [n_vocab], free to be used */
    uint32_t n_vocab;
    uint32_t n; /* candidates: x and ids of the scratch */
};

/* Applies the steps from `begin` on, but for those that draw. */
void wefti_chain_run(struct wefti_chain *chain, const struct wefti_chain_plan *plan,
                     uint32_t begin);
/* The token; moves the state of Mirostat or adaptive-p. */
uint32_t wefti_chain_draw(struct wefti_chain *chain, const struct wefti_chain_plan *plan);
/* What a draw would take: probabilities of all tokens. Without Mirostat. */
void wefti_chain_probabilities(struct wefti_chain *chain, const struct wefti_chain_plan *plan,
                               double *out);

/* ---------------------------------------------------------------- shared by the samplers --- */

/* Probabilities of the candidates into scratch->p. Returns the logarithm of what they were
 * divided by: ln p = x - that. */
double wefti_chain_softmax(struct wefti_chain *chain);
/* Drops the candidates at -INFINITY. */
void wefti_chain_compact(struct wefti_chain *chain);
/* Puts the places of candidates of at least a probability (scratch->p; 0: all, and p is not read) into
 * scratch->rank, by falling logit, and returns how many they are. What is too unlikely to matter need
 * not be sorted. Then, perhaps, the first n of them by a value that rises, in the order that they have
 * where it is equal. */
uint32_t wefti_chain_rank(struct wefti_chain *chain, double least_p);
void wefti_chain_rank_again(struct wefti_chain *chain, const double *rising, uint32_t n);

/* Samplers that take candidates away, or temper them. */
typedef void wefti_chain_fn(struct wefti_chain *chain);
wefti_chain_fn wefti_cut_top_n_sigma, wefti_cut_min_p, wefti_cut_top_k, wefti_cut_top_p,
    wefti_cut_typical, wefti_cut_tail_free, wefti_cut_xtc, wefti_chain_temper;

/* Mirostat's part in a token. */
struct wefti_mirostat {
    double s_hat, k; /* of Mirostat 1: Zipf's exponent, and how many tokens follow from it */
    uint32_t n_kept;
    double p, surprise; /* of the token among those; and what mu's step goes by */
    double mu;          /* after it */
};
/* The token at `u` in [0, 1) of what Mirostat keeps, by falling probability. */
uint32_t wefti_mirostat_draw(struct wefti_chain *chain, double mu, double u,
                             struct wefti_mirostat *out);

#endif
