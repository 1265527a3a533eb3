/* output_budget — the output that one call holds, counted against the budget that all calls share,
 * and its log-probabilities against their own bound. Small output costs no shared budget. */
#ifndef WEFT_API_OUTPUT_BUDGET_H
#define WEFT_API_OUTPUT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct weft_api_state;

struct output_budget {
    struct weft_api_state *api;
    uint64_t held_bytes;    /* what choices, stop strings, ids and log-probabilities take */
    uint64_t free_bytes;    /* the first of them cost nothing; set before anything is held */
    uint64_t logprob_bytes; /* of held_bytes, */
    uint64_t logprob_max;   /* --max-logprob-bytes */
    uint64_t prepaid_bytes; /* of held_bytes, for log-probabilities to come */
    bool
        is_reserved; /* so is all that may ever be held: what log-probabilities give back is prepaid again */
};

/* What `n` bytes cost of the shared budget: nothing up to free_bytes, else all. */
uint64_t wefti_api_output_cost(const struct output_budget *budget, uint64_t n);

/* False: the shared budget is used up. */
bool wefti_api_output_hold(struct output_budget *budget, uint64_t n);
void wefti_api_output_release(struct output_budget *budget, uint64_t n);

#endif
