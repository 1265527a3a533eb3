/* Merges by pair: a hash table like that of the pieces. */
#include "vocab/merges.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"

weft_err wefti_tok_merges_init(struct wefti_tok_merges *merges, size_t n) {
    if (n > (size_t)4 * WEFT_VOCAB_MAX) return WEFT_E_TOOBIG;
    uint32_t n_slots = 16;
    while (n_slots < 2 * n)
        n_slots *= 2; /* ends: n <= 2^23 */
    merges->slots = malloc(n_slots * sizeof *merges->slots);
    if (!merges->slots) return WEFT_E_NOMEM;
    memset(merges->slots, 0xFF, n_slots * sizeof *merges->slots);
    merges->mask = n_slots - 1;
    return WEFT_OK;
}

void wefti_tok_merges_fini(struct wefti_tok_merges *merges) {
    free(merges->slots);
    *merges = (struct wefti_tok_merges){0};
}

static struct wefti_tok_merge *merge_slot(const struct wefti_tok_merges *merges, uint64_t pair) {
    uint64_t hash =
        pair * 0x9E3779B97F4A7C15u; /* Fibonacci hashing: the upper half is well mixed */
    for (uint32_t at = (uint32_t)(hash >> 32) & merges->mask;; at = (at + 1) & merges->mask) {
        struct wefti_tok_merge *slot = &merges->slots[at];
        if (slot->pair == pair || slot->pair == UINT64_MAX) return slot;
    }
}

void wefti_tok_merges_put(struct wefti_tok_merges *merges, uint32_t left, uint32_t right,
                          uint32_t rank, uint32_t id) {
    WEFT_ASSERT(merges->slots);
    uint64_t pair = (uint64_t)left << 32 | right;
    *merge_slot(merges, pair) = (struct wefti_tok_merge){pair, rank, id};
}

const struct wefti_tok_merge *wefti_tok_merges_find(const struct wefti_tok_merges *merges,
                                                    uint32_t left, uint32_t right) {
    const struct wefti_tok_merge *slot = merge_slot(merges, (uint64_t)left << 32 | right);
    return slot->pair == UINT64_MAX ? NULL : slot;
}
