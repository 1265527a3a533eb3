/* base/sampling — what a request asks of the sampler, as plain data.
 *
 * It is born in the router, travels through the scheduler, which reads only the lengths, and ends
 * in the worker. Values are checked by weft_sampling_check wherever they arrive from another
 * process.
 */
#ifndef WEFT_BASE_SAMPLING_H
#define WEFT_BASE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

struct weft_logit_bias {
    uint32_t token;
    float bias; /* added to the logit; finite */
};

struct weft_sampling {
    uint64_t seed;            /* the router draws one for a request that brings none */
    float temperature;        /* 0: greedy; else the divisor of the logits */
    float top_p;              /* (0, 1]; 1: off */
    float min_p;              /* [0, 1]; 0: off */
    uint32_t top_k;           /* 0: off */
    float repetition_penalty; /* > 0; 1: off. Over prompt and output */
    float presence_penalty;   /* 0: off. Over the output */
    float frequency_penalty;  /* 0: off. Over the output */

    uint32_t max_tokens; /* output length; 0 only together with prompt log-probabilities */
    uint32_t min_tokens; /* none of stop_tokens and masked_tokens before this many */

    int32_t n_logprobs;        /* -1: none; k >= 0: the sampled token's, and the k best */
    int32_t n_prompt_logprobs; /* the same for each prompt token but the first */

    uint32_t n_stop_tokens; /* end-of-sequence ids (unless ignored) and stop_token_ids alike */
    const uint32_t *stop_tokens;
    uint32_t n_masked_tokens; /* kept back by min_tokens and nothing else: ignored end-of-sequence
                                 ids, which from then on are tokens like any other */
    const uint32_t *masked_tokens;
    uint32_t n_bias;
    const struct weft_logit_bias *bias; /* tokens ascending, each once */
};

/* All switched off, greedy, seed 0, max_tokens 16. */
void weft_sampling_init(struct weft_sampling *sampling);

/* Ranges, finite values, counts within base/limits.h, tokens below n_vocab (0: not known here).
 * WEFT_E_INVAL names the field. */
WEFT_MUST_CHECK weft_err weft_sampling_check(const struct weft_sampling *sampling, uint32_t n_vocab,
                                             struct weft_errmsg *why);

#endif
