/* logprob_store — the log-probabilities of one choice, or of a prompt. */
#ifndef WEFT_API_LOGPROB_STORE_H
#define WEFT_API_LOGPROB_STORE_H

#include <stdint.h>

#include "base/step.h"
#include "call/output_budget.h"

/* Entry after entry at a fixed stride: value, rank, count, ids[k], values[k]. Entries [first, n)
 * are there; those before `first` were dropped but still count in n. */
struct logprob_store {
    uint32_t *words;         /* owned; from entry `base` on */
    uint32_t base, first, n; /* base <= first <= n */
    uint32_t cap;            /* entries */
    uint32_t k;              /* alternatives kept for each */
};

enum lp_pushed {
    LP_PUSHED,
    LP_NO_ROOM,   /* in the shared budget */
    LP_TOO_MANY,  /* for one call */
    LP_NO_MEMORY, /* of the process */
};

/* Appends an entry; there will be at most `most`. A NULL `lp` stands for one that never came:
 * NaN. */
enum lp_pushed wefti_api_lp_push(struct output_budget *budget, struct logprob_store *store,
                                 uint32_t most, const struct weft_logprobs *lp);

/* Drops the entries before `first`. */
void wefti_api_lp_drop(struct output_budget *budget, struct logprob_store *store, uint32_t first);

/* Entry `i`, or NULL if it is not there. */
const uint32_t *wefti_api_lp_entry(const struct logprob_store *store, uint32_t i);

#endif
