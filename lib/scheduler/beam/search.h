/* scheduler/beam/search — beam search as such: which continuations of which beams go on.
 *
 * Model    A search has up to `width` live beams in `n_groups` groups, and a tree of all tokens that
 *          were ever chosen. It is given the best continuations of every live beam with their
 *          log-probabilities; then it knows the next beams, each with the one that it continues. A
 *          beam that a stop token continues is finished. In the end the best of those that finished,
 *          and of those that lived when the length was reached, are the result.
 * Score    The sum of log-probabilities over (prompt + output tokens)^length_penalty; a stop token's
 *          log-probability counts, its length does not.
 * Groups   A later group finds the log-probability of a token lower by `diversity_penalty` for each
 *          beam of an earlier group that it continues in this step; what was taken off stays off.
 * Order    Sums are in double. Of equal ones the beam of the better rank goes first, then the token
 *          that was listed first. So a search is a function of what it is given.
 * Threads  One owner.
 * Memory   The tree grows by what wefti_beam_reserve takes; nothing else takes any.
 * Source   vLLM's beam search for scores and ends; Vijayakumar et al. 2018 for groups.
 */
#ifndef WEFT_SCHEDULER_BEAM_SEARCH_H
#define WEFT_SCHEDULER_BEAM_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sampling.h"

/* What a search is told once. Pointers are borrowed for as long as it lives. */
struct wefti_beam_options {
    const struct weft_sampling *sampling; /* its beam_* fields, stop tokens and min_tokens */
    uint32_t n_prompt;
    uint32_t max_tokens; /* of the output: 1 or more */
    uint32_t n_vocab;
};

struct wefti_beam_node {
    uint32_t parent; /* index, or WEFTI_BEAM_ROOT */
    uint32_t token;
};
#define WEFTI_BEAM_ROOT UINT32_MAX

/* One that lives, or has finished. */
struct wefti_beam {
    uint32_t node; /* its last token; ROOT: it has none */
    uint32_t n_tokens;
    double sum; /* of log-probabilities, less what diversity took */
    double score;
    uint32_t parent; /* which of the live beams before it continues */
    bool is_stopped; /* by a stop token, its last one */
};

struct wefti_beam_group {
    struct wefti_beam live[WEFT_BEAMS_MAX], done[WEFT_BEAMS_MAX]; /* the best first */
    uint32_t n_live, n_done;
};

typedef struct wefti_beam_search {
    struct wefti_beam_options options;
    uint32_t n_tokens; /* of each live beam */
    uint32_t n_groups, group_size;
    struct wefti_beam_group groups[WEFT_BEAMS_MAX];
    struct wefti_beam_node *nodes;
    uint32_t n_nodes, nodes_cap;
    bool is_over;
} wefti_beam_search;

/* So many continuations of each beam decide on all that follows. */
uint32_t wefti_beam_n_wanted(const struct weft_sampling *sampling, uint32_t n_vocab);

/* Begins with one live beam that has no tokens. NULL: no memory. */
wefti_beam_search *wefti_beam_new(const struct wefti_beam_options *options);
void wefti_beam_free(wefti_beam_search *search); /* accepts NULL */

/* Live beams over all groups; at the beginning one. */
uint32_t wefti_beam_n_live(const wefti_beam_search *search);
/* The idx-th of them: groups in order, in each the best first. */
const struct wefti_beam *wefti_beam_live(const wefti_beam_search *search, uint32_t idx);

/* Room for the next step. WEFT_E_NOMEM: no change. */
WEFT_MUST_CHECK weft_err wefti_beam_reserve(wefti_beam_search *search);

/* Continuations of one beam, the likeliest first. */
struct wefti_beam_next {
    uint32_t n;
    const uint32_t *tokens;
    const float *logprobs;
};
/* One step, reserved before; next[i] continues the i-th live beam. */
void wefti_beam_advance(wefti_beam_search *search, const struct wefti_beam_next *next);

/* The tokens of a beam, in order, into tokens_out[n_tokens]. */
void wefti_beam_tokens(const wefti_beam_search *search, const struct wefti_beam *beam,
                       uint32_t *tokens_out);

/* When it is over: the best `n` into best_out, the best first. Returns how many there are. */
uint32_t wefti_beam_best(const wefti_beam_search *search, uint32_t n,
                         const struct wefti_beam **best_out);

#endif
