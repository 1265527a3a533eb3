/* engine/guess/ngram — what came after the same words before: guesses without a model.
 *
 * Model    The last n tokens of a sequence are looked for earlier in it, for n from the longest size down
 *          to 2; of the longest size that is found the earliest find counts, and what stands behind it is
 *          the guess. An index per size and sequence knows where each n-gram came first, and grows with
 *          the sequence, so a look-up costs the same at 100,000 tokens as at 100.
 * Contract A guess follows from the sequence's tokens and from when it was asked for, and from nothing
 *          else: ranks that divide a model guess the same. It may be wrong.
 * Bounds   A call indexes so many tokens at most, and offers nothing until it is through: with a long
 *          prompt, and whenever the sequence has doubled and the index is made anew.
 * Threads  One owner.
 * Memory   Reserved at opening for sequences of full length, and resident as they grow.
 * Source   Saxena, "Prompt Lookup Decoding", 2023; Yang et al., "Inference with Reference", 2023. */
#ifndef WEFT_ENGINE_NGRAM_H
#define WEFT_ENGINE_NGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct wefti_ngram_slot {
    uint32_t n_indexed; /* tokens */
    uint32_t cap;       /* places of each table, a power of two; 0: nothing is indexed */
    uint32_t n_empty;   /* places of each that were made ready; none is used before all are */
    uint32_t *tables;   /* [n_max - 1][cap_max] by size: where an n-gram begins, and 1; 0: free */
};

struct wefti_ngram {
    uint32_t n_max; /* the longest size; below 2: there is no index */
    uint32_t n_slots, cap_max;
    uint64_t key; /* of the hash */
    struct wefti_ngram_slot *slots;
    void *map;
    size_t map_bytes;
};

/* For n_slots sequences of at most max_len tokens. NOMEM. They take so many bytes when all are that long. */
uint64_t wefti_ngram_bytes(uint32_t n_max, uint32_t n_slots, uint32_t max_len);
WEFT_MUST_CHECK weft_err wefti_ngram_init(struct wefti_ngram *ngram, uint32_t n_max,
                                          uint32_t n_slots, uint32_t max_len, uint64_t home,
                                          struct weft_errmsg *why);
void wefti_ngram_fini(struct wefti_ngram *ngram); /* accepts zeroed ones */

/* Another sequence is in the slot. */
void wefti_ngram_clear(struct wefti_ngram *ngram, uint32_t slot);

/* Up to n_max_guesses tokens that may follow tokens[n_known], of which those seen before are the same as
 * then. Returns how many. `guesses_out` may be right behind the tokens. */
uint32_t wefti_ngram_guess(struct wefti_ngram *ngram, uint32_t slot, const uint32_t *tokens,
                           uint32_t n_known, uint32_t n_max_guesses, uint32_t *guesses_out);

#endif
