/* engine/sampler — from the logits of a row to a token, and to log-probabilities.
 *
 * Contract The token drawn is a function of the sequence alone: its logits, its sampling
 *          parameters, its tokens, and the generator's (seed, choice, position).
 * Threads  Reentrant, with one scratch per thread.
 * Memory   A scratch is reserved at opening; nothing here takes memory.
 * Errors   None. Logits that are not numbers yield the token that argmax names. */
#ifndef WEFT_ENGINE_SAMPLER_H
#define WEFT_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sampling.h"
#include "base/step.h"
#include "kernels/kernels.h"
#include "runtime/memory.h"

enum { WEFTI_SAMPLER_BUCKETS = 2048 };

struct wefti_sampler_scratch { /* one per thread */
    float *work;               /* [n_vocab] */
    uint32_t *counts;          /* [n_vocab], all zero between calls */
    uint32_t *hist_n;          /* [WEFTI_SAMPLER_BUCKETS] */
    double *hist_mass;         /* [WEFTI_SAMPLER_BUCKETS] */
    uint32_t *ids;             /* [n_vocab] */
    float *maxima, *best;      /* [wefti_sampler_n_chunks(n_vocab)] each */
    double *sums;              /* [wefti_sampler_n_chunks(n_vocab)] */
    struct wefti_chain_scratch *chain;
};
struct wefti_chain_scratch; /* chain.h */

struct wefti_sampler_logits {
    float *logits; /* [n_vocab] */
    uint32_t n_vocab;
};

static inline uint32_t wefti_sampler_n_chunks(uint32_t n_vocab) {
    return (n_vocab + WEFT_CHUNK - 1) / WEFT_CHUNK;
}

/* Without the part of chains, which is chain.h's. */
struct wefti_sampler_scratch wefti_sampler_scratch_reserve(struct wefti_memory_layout *layout,
                                                           uint32_t n_vocab);

/* The sequence whose next token is wanted. */
struct wefti_sampler_input {
    const struct weft_sampling *sampling;
    uint32_t choice;
    const uint32_t *tokens; /* [n_known] */
    uint32_t n_prompt, n_known;
    const uint64_t *mask; /* a bit for each token that its grammar allows; NULL: any */
    double *state; /* of Mirostat or adaptive-p, which a draw moves; NULL: as at the beginning */
    const double *xtc_draw; /* NULL: the generator's */
};

/* True when sampling leaves the logits as they are: greedy, nothing that changes them. */
bool wefti_sampler_is_plain(const struct wefti_sampler_input *input);

/* The next token. Changes `logits` unless plain. */
uint32_t wefti_sampler_choose(const struct weft_kern_table *kern,
                              const struct wefti_sampler_input *input, float *logits,
                              uint32_t n_vocab, struct wefti_sampler_scratch *scratch);

/* The likeliest tokens, best first, of equal ones the lower id first: at most out->n, and none that is
 * masked. Probabilities are those of all tokens after masks, biases and penalties; samplers that cut or
 * temper mean nothing. Changes `logits`. Of logits that are not numbers: the token that argmax names. */
struct wefti_sampler_likeliest {
    uint32_t n; /* WEFT_CONTRAST_K_MAX at most */
    uint32_t ids[WEFT_CONTRAST_K_MAX];
    double p[WEFT_CONTRAST_K_MAX];
};
void wefti_sampler_find_likeliest(const struct weft_kern_table *kern,
                                  const struct wefti_sampler_input *input,
                                  const struct wefti_sampler_logits *in,
                                  struct wefti_sampler_scratch *scratch,
                                  struct wefti_sampler_likeliest *out);

/* What that would draw from. Without Mirostat. */
void wefti_sampler_probabilities(const struct weft_kern_table *kern,
                                 const struct wefti_sampler_input *input, float *logits,
                                 uint32_t n_vocab, struct wefti_sampler_scratch *scratch,
                                 double *out);

/* Room for the best few, best first. */
struct wefti_sampler_top {
    uint32_t n; /* at most as many as there are */
    uint32_t *ids;
    float *values;
};

/* Log-probability and rank of `token`, and ids and log-probabilities of the best tokens, from raw
 * logits. `out` points into `top`. */
void wefti_sampler_logprobs(const struct weft_kern_table *kern, const float *logits,
                            uint32_t n_vocab, uint32_t token, const struct wefti_sampler_top *top,
                            struct weft_logprobs *out);

#endif
