#include "call/logprob_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define LP_HEADER 3        /* value, rank, count */
#define LP_IDLE_BYTES 4096 /* kept by an empty store for its next entries */

static uint32_t stride_of(const struct logprob_store *store) {
    return LP_HEADER + 2 * store->k;
}

static uint64_t bytes_of(const struct logprob_store *store) {
    return stride_of(store) * sizeof *store->words;
}

/* Makes room for an entry; there will be at most `most`. Doubling is capped, so entries that fit
 * the bound of one call do not fail by it. */
static enum lp_pushed grow(struct output_budget *budget, struct logprob_store *store,
                           uint32_t most) {
    uint64_t each = bytes_of(store), max = budget->logprob_max;
    WEFT_ASSERT(store->cap < most && budget->logprob_bytes <= max);
    uint64_t room = (max - budget->logprob_bytes) / each;
    uint32_t more = store->cap ? store->cap : 1;
    if (more > most - store->cap) more = most - store->cap;
    if (more > room) more = (uint32_t)room;
    if (more == 0) return LP_TOO_MANY;
    uint64_t paid = more * each < budget->prepaid_bytes ? more * each : budget->prepaid_bytes;
    if (!wefti_api_output_hold(budget, more * each - paid)) return LP_NO_ROOM;
    uint32_t *words = realloc(store->words, (store->cap + more) * each);
    if (!words) {
        wefti_api_output_release(budget, more * each - paid);
        return LP_NO_MEMORY;
    }
    budget->prepaid_bytes -= paid;
    store->words = words;
    store->cap += more;
    budget->logprob_bytes += more * each;
    return LP_PUSHED;
}

/* Shrinks to `cap` entries, enough for all that are there. */
static void shrink(struct output_budget *budget, struct logprob_store *store, uint32_t cap) {
    uint64_t each = bytes_of(store), less = (store->cap - cap) * each;
    WEFT_ASSERT(cap < store->cap && store->n - store->base <= cap);
    uint32_t *words = NULL;
    if (cap == 0)
        free(store->words);
    else
        words = realloc(store->words, cap * each);
    if (cap && !words) return; /* keep the larger block */
    store->words = words;
    store->cap = cap;
    budget->logprob_bytes -= less;
    if (budget->is_reserved)
        budget->prepaid_bytes += less;
    else
        wefti_api_output_release(budget, less);
}

/* Moves the rest and frees memory only when that costs no more than adding the dropped entries
 * did. */
void wefti_api_lp_drop(struct output_budget *budget, struct logprob_store *store, uint32_t first) {
    if (first > store->n) first = store->n;
    if (first <= store->first) return;
    store->first = first;
    uint32_t n_left = store->n - first, n_gone = first - store->base;
    if (n_gone < n_left) return;
    memmove(store->words, store->words + (size_t)n_gone * stride_of(store),
            n_left * bytes_of(store));
    store->base = first;
    if (store->cap * bytes_of(store) > LP_IDLE_BYTES && n_left <= store->cap / 4)
        shrink(budget, store, 2 * n_left);
}

enum lp_pushed wefti_api_lp_push(struct output_budget *budget, struct logprob_store *store,
                                 uint32_t most, const struct weft_logprobs *lp) {
    if (store->n - store->base == store->cap) {
        enum lp_pushed grown = grow(budget, store, most);
        if (grown != LP_PUSHED) return grown;
    }
    WEFT_ASSERT(store->n - store->base < store->cap);
    uint32_t *at = store->words + (size_t)(store->n - store->base) * stride_of(store);
    float value = lp ? lp->logprob : NAN;
    uint32_t n_top = lp ? lp->n_top : 0;
    if (n_top > store->k) n_top = store->k;
    memcpy(&at[0], &value, sizeof value);
    at[1] = lp ? lp->rank : 0;
    at[2] = n_top;
    if (lp && n_top) {
        memcpy(at + LP_HEADER, lp->top_ids, n_top * sizeof *at);
        memcpy(at + LP_HEADER + n_top, lp->top_logprobs, n_top * sizeof *at);
    }
    store->n++;
    return LP_PUSHED;
}

const uint32_t *wefti_api_lp_entry(const struct logprob_store *store, uint32_t i) {
    if (i < store->first || i >= store->n) return NULL;
    return store->words + (size_t)(i - store->base) * stride_of(store);
}
