/* base/sampling — what a request asks of the sampler, as plain data.
 *
 * It is born in the router, travels through the scheduler, which reads only the lengths, and ends
 * in the worker. Values are checked by weft_sampling_check wherever they arrive from another
 * process.
 */
#ifndef WEFT_BASE_SAMPLING_H
#define WEFT_BASE_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/grammar.h"
#include "base/limits.h"

struct weft_logit_bias {
    uint32_t token;
    float bias; /* added to the logit; from WEFT_LOGIT_BIAS_NEVER to its opposite */
};

/* The least bias there is: it forbids its token, whatever the other numbers say. On the wire, too,
 * where a bias is finite. */
#define WEFT_LOGIT_BIAS_NEVER (-1e6f)

/* When a beam search whose places for finished beams are full ends before its length is reached. The
 * numbers travel. */
enum weft_beam_stop {
    WEFT_BEAM_STOP_NEVER = 0,    /* none that lives can still become better than all of these */
    WEFT_BEAM_STOP_UNLIKELY = 1, /* none that lives is better now */
    WEFT_BEAM_STOP_ENOUGH = 2,   /* at once */
    WEFT_BEAM_STOP_COUNT,
};

/* The samplers that requests put into an order, each once at most. Their numbers travel and never
 * change; this is the default order, too. X(NAME, name). */
#define WEFT_SAMPLER_LIST(X)                                                                       \
    X(PENALTIES, "penalties")                                                                      \
    X(DRY, "dry")                                                                                  \
    X(TOP_N_SIGMA, "top_n_sigma")                                                                  \
    X(TEMPERATURE, "temperature")                                                                  \
    X(MIN_P, "min_p")                                                                              \
    X(TOP_K, "top_k")                                                                              \
    X(TOP_P, "top_p")                                                                              \
    X(TYPICAL, "typical_p")                                                                        \
    X(TAIL_FREE, "tfs_z")                                                                          \
    X(XTC, "xtc")                                                                                  \
    X(ADAPTIVE_P, "adaptive_p") /* it draws the token: only as the last one */

enum weft_sampler {
#define SAMPLER(NAME, name) WEFT_SAMPLER_##NAME,
    WEFT_SAMPLER_LIST(SAMPLER)
#undef SAMPLER
        WEFT_SAMPLER_COUNT,
};

/* An order of samplers: four bits for each, its number and 1, the first one lowest. */
#define WEFT_SAMPLERS_USUAL UINT64_C(0) /* all, as they stand in the list */
#define WEFT_SAMPLERS_NONE UINT64_MAX
_Static_assert(WEFT_SAMPLER_COUNT < 15, "in four bits, and never WEFT_SAMPLERS_NONE");

/* Where engines differ: as in vLLM, or in Python's libraries where vLLM has no such sampler
 * (transformers, text-generation-webui, the paper's code); or as in llama.cpp. The numbers travel. */
enum weft_sampler_variant { WEFT_VARIANT_VLLM, WEFT_VARIANT_LLAMA_CPP, WEFT_VARIANT_COUNT };

/* All of its numbers, in the order in which they travel. The struct, its defaults, their check,
 * their form on the wire (proto), their reading from JSON (the router) and the flags of `weft run`
 * come from this list.
 *
 * KNOB(type, name, flag, default, least, most, api_least, api_most, help): clients set it by its
 * name, `weft run` by its flag. An F32 is valid from `least` to `most`; a U32 always is, and means
 * `most` when it is above. Clients may ask for api_least to api_most; a U32 below 0 means 0. An I32
 * counts the last tokens: -1, all of them, or more, up to `most`.
 * OWN(type, name, default): each reader handles it in its own way. A COUNT is -1 or more;
 * an F32 is finite. */
#define WEFT_SAMPLING_LIST(KNOB, OWN)                                                              \
    OWN(U64, seed, 0) /* the router draws one for a request that brings none */                    \
    KNOB(F32, temperature, "temperature", 0, 0, 1e6, 0, 100, "divisor of the logits; 0: greedy")   \
    KNOB(F32, top_p, "top-p", 1, 1e-30, 1, 1e-6, 1,                                                \
         "nucleus sampling: least sum of probabilities to keep; 1: off")                           \
    KNOB(F32, min_p, "min-p", 0, 0, 1, 0, 1, "least probability, of the best one's; 0: off")       \
    KNOB(U32, top_k, "top-k", 0, 0, WEFT_VOCAB_MAX, -1, INT32_MAX, "tokens to keep; 0: all")       \
    KNOB(F32, top_n_sigma, "top-n-sigma", 0, -1, 1e6, -1, 1e6,                                     \
         "keep logits within so many standard deviations of the best; 0, -1: all")                 \
    KNOB(F32, repetition_penalty, "repetition-penalty", 1, 1e-6, 1e6, 1e-3, 1e3,                   \
         "divides logits of tokens of prompt and output; 1: off")                                  \
    KNOB(F32, presence_penalty, "presence-penalty", 0, -1e6, 1e6, -2, 2,                           \
         "taken from logits of tokens of the output; 0: off")                                      \
    KNOB(F32, frequency_penalty, "frequency-penalty", 0, -1e6, 1e6, -2, 2,                         \
         "the same for each time that one came; 0: off")                                           \
    KNOB(F32, dynatemp_range, "dynatemp-range", 0, 0, 1e6, 0, 100,                                 \
         "dynamic temperature: how far below and above --temperature entropy may move it; 0: off") \
    KNOB(F32, dynatemp_exponent, "dynatemp-exponent", 1, 0, 1e3, 0, 100,                           \
         "of the entropy's share there")                                                           \
    KNOB(F32, typical_p, "typical-p", 1, 0, 1, 0, 1,                                               \
         "locally typical sampling: sum of probabilities to keep; 1: off")                         \
    KNOB(F32, tfs_z, "tfs-z", 1, 0, 1, 0, 1, "tail-free sampling: share of the curve; 1: off")     \
    KNOB(F32, xtc_probability, "xtc-probability", 0, 0, 1, 0, 1,                                   \
         "how often the likeliest tokens are left out but for the last of them; 0: never")         \
    KNOB(F32, xtc_threshold, "xtc-threshold", 0.1, 0, 1, 0, 1,                                     \
         "least probability of such a token; over 0.5: off")                                       \
    KNOB(F32, dry_multiplier, "dry-multiplier", 0, 0, 1e6, 0, 100,                                 \
         "of the penalty on tokens that go on with a repetition; 0: off")                          \
    KNOB(F32, dry_base, "dry-base", 1.75, 0, 1e6, 0, 100,                                          \
         "it grows by this with each token repeated; below 1: off")                                \
    KNOB(U32, dry_allowed_length, "dry-allowed-length", 2, 0, WEFT_CONTEXT_MAX, 0, INT32_MAX,      \
         "repeated tokens from which on it is taken")                                              \
    KNOB(I32, dry_penalty_last_n, "dry-penalty-last-n", -1, -1, WEFT_CONTEXT_MAX, -1, INT32_MAX,   \
         "last tokens that it looks at; -1: all")                                                  \
    KNOB(I32, repeat_last_n, "repeat-last-n", -1, -1, WEFT_CONTEXT_MAX, -1, INT32_MAX,             \
         "last tokens that llama.cpp's penalties look at; -1: all, 0: none")                       \
    KNOB(U32, mirostat, "mirostat", 0, 0, 2, 0, 2,                                                 \
         "Mirostat 1 or 2 in place of all samplers that cut; 0: off")                              \
    KNOB(F32, mirostat_tau, "mirostat-tau", 5, 0, 100, 0, 100, "its surprise wanted, in bits")     \
    KNOB(F32, mirostat_eta, "mirostat-eta", 0.1, 0, 100, 0, 100, "its rate of learning")           \
    KNOB(F32, adaptive_target, "adaptive-target", -1, -1, 1, -1, 1,                                \
         "adaptive-p: probability that tokens shall have on average; below 0: off")                \
    KNOB(F32, adaptive_decay, "adaptive-decay", 0.9, 0, 0.99, 0, 0.99, "how slowly it forgets")    \
    KNOB(F32, penalty_alpha, "penalty-alpha", 0, 0, 1, 0, 1,                                       \
         "contrastive search: weight of what is unlike the text before it; 0: off")                \
    OWN(U32, max_tokens, 16) /* of the output; 0: only the prompt is computed */                   \
    KNOB(U32, min_tokens, "min-tokens", 0, 0, WEFT_CONTEXT_MAX, 0, WEFT_CONTEXT_MAX,               \
         "no end of sequence before so many")                                                      \
    OWN(U32, thinking_token_budget, UINT32_MAX) /* within thoughts of a grammar; most: no bound */ \
    OWN(U64, samplers, WEFT_SAMPLERS_USUAL)                                                        \
    OWN(U32, variant, WEFT_VARIANT_VLLM) /* enum weft_sampler_variant */                           \
    OWN(COUNT, n_logprobs, -1)           /* k >= 0: the sampled token's, and the k best */         \
    OWN(COUNT, n_prompt_logprobs, -1)    /* the same for each prompt token but the first */        \
    OWN(U32, beam_width, 0)              /* live beams of a beam search; 0: it is none */          \
    OWN(U32, beam_groups, 1)             /* that divide these equally */                           \
    OWN(U32, early_stopping, WEFT_BEAM_STOP_NEVER)                                                 \
    OWN(F32, length_penalty, 1)    /* beams rank by log-probability over length to this power */   \
    OWN(F32, diversity_penalty, 0) /* taken from what groups of beams before chose in the step */

/* The types of the list in C. */
#define WEFT_SAMPLING_U64 uint64_t
#define WEFT_SAMPLING_U32 uint32_t
#define WEFT_SAMPLING_I32 int32_t
#define WEFT_SAMPLING_F32 float
#define WEFT_SAMPLING_COUNT int32_t /* -1: none */

struct weft_sampling {
#define FIELD(type, name, ...) WEFT_SAMPLING_##type name;
    WEFT_SAMPLING_LIST(FIELD, FIELD)
#undef FIELD

    uint32_t n_stop_tokens; /* end-of-sequence ids (unless ignored) and stop_token_ids alike */
    const uint32_t *stop_tokens;
    uint32_t n_masked_tokens; /* kept back by min_tokens and nothing else: ignored end-of-sequence
                                 ids, which from then on are tokens like any other */
    const uint32_t *masked_tokens;
    uint32_t n_bias;
    const struct weft_logit_bias *bias; /* tokens ascending, each once */
    uint32_t n_allowed_tokens;
    const uint32_t *allowed_tokens; /* ascending, each once; no other may come; none: any may */
    uint32_t n_bad_words;
    const uint32_t *
        bad_words; /* of each its number of tokens, 1 or more, and then these: behind all but the last
                                    of them the last may not come */
    uint32_t n_dry_breakers;
    const uint32_t *dry_breakers; /* over these DRY looks for no repetition */
    struct weft_grammar grammar;  /* NONE: any text */
};

/* What may be so much that few sequences with it start at a time. */
static inline size_t weft_sampling_long_bytes(const struct weft_sampling *sampling) {
    return sampling->grammar.n_bytes +
           ((size_t)sampling->n_allowed_tokens + sampling->n_bad_words) * sizeof(uint32_t);
}

/* The number of the sampler of this name, or of another name that llama-server has for it;
 * WEFT_SAMPLER_COUNT: there is none. */
enum weft_sampler weft_sampler_of_name(const char *name);
const char *weft_sampler_name(enum weft_sampler sampler);

/* `samplers` with one more at the end; it is not in there yet. */
uint64_t weft_samplers_add(uint64_t samplers, enum weft_sampler sampler);
/* Writes what runs in this order, and returns how many there are; `samplers` passed
 * weft_sampling_check. */
uint32_t weft_samplers_list(uint64_t samplers, enum weft_sampler out[WEFT_SAMPLER_COUNT]);

/* Whether tokens are penalised for having come before. */
bool weft_sampling_has_penalties(const struct weft_sampling *sampling);
/* Whether they should be by fewer tokens than the max_len that a sequence may have: vLLM's penalties look at
 * all of them. */
bool weft_sampling_sees_too_little(const struct weft_sampling *sampling, uint32_t max_len);

/* Mirostat and adaptive-p carry a number from token to token, which goes wherever the sequence's
 * output goes: its last tokens alone do not tell it. */
bool weft_sampling_has_state(const struct weft_sampling *sampling);
double weft_sampling_first_state(const struct weft_sampling *sampling);

/* Contrastive search chooses among the top_k likeliest tokens, by its own rule: nothing is drawn, and
 * samplers that cut or temper mean nothing. */
static inline bool weft_sampling_is_contrastive(const struct weft_sampling *sampling) {
    return sampling->penalty_alpha > 0.0f;
}

/* What its hidden states take in a sequence of so many tokens. */
static inline uint64_t weft_sampling_contrast_bytes(uint32_t n_tokens, uint32_t n_hidden) {
    return (uint64_t)n_tokens * (n_hidden * sizeof(float) + sizeof(double));
}

/* All switched off, greedy, seed 0, max_tokens 16. */
void weft_sampling_init(struct weft_sampling *sampling);

/* From api_least to api_most of the KNOB of this name; it must be one. */
struct weft_sampling_range {
    double least, most;
};
struct weft_sampling_range weft_sampling_api_range(const char *name);

/* Ranges, finite values, counts within base/limits.h, tokens below n_vocab (0: not known here).
 * WEFT_E_INVAL names the field. */
WEFT_MUST_CHECK weft_err weft_sampling_check(const struct weft_sampling *sampling, uint32_t n_vocab,
                                             struct weft_errmsg *why);

#endif
