/* One open-addressed table per size holds where each n-gram begins. Tables are as large as the sequence
 * asks for, and made anew from its tokens when it has outgrown them: never more than half of the places are
 * taken, so a probe ends. Places are compared with the tokens themselves, so equal hashes mislead nobody;
 * what hashes are equal depends on a key that no client knows, so nobody can pile n-grams up. */
#include "guess/ngram.h"

#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "runtime/memory.h"

#define CAP_FIRST 256u
/* With all sizes two milliseconds, or seven where the tables have outgrown the caches. */
#define TOKENS_PER_CALL 8192u
#define PLACES_PER_CALL (128u * 1024u) /* emptied of each table: less than that */

static uint32_t cap_for(uint32_t n_tokens) {
    uint32_t cap = CAP_FIRST;
    while (cap / 2 < n_tokens)
        cap *= 2;
    return cap;
}

uint64_t wefti_ngram_bytes(uint32_t n_max, uint32_t n_slots, uint32_t max_len) {
    if (n_max < 2) return 0;
    return (uint64_t)n_slots * (n_max - 1) * cap_for(max_len) * sizeof(uint32_t);
}

weft_err wefti_ngram_init(struct wefti_ngram *ngram, uint32_t n_max, uint32_t n_slots,
                          uint32_t max_len, uint64_t home, struct weft_errmsg *why) {
    WEFT_ASSERT(n_max <= WEFT_SPEC_NGRAM_MAX && max_len <= WEFT_CONTEXT_MAX);
    *ngram = (struct wefti_ngram){.n_max = n_max, .n_slots = n_slots, .key = weft_rand_seed()};
    if (n_max < 2) return WEFT_OK;
    ngram->cap_max = cap_for(max_len);
    size_t n_places = (size_t)(n_max - 1) * ngram->cap_max;
    struct wefti_memory_layout layout = {0};
    for (int pass = 0; pass < 2; pass++) {
        ngram->slots = wefti_memory_reserve(&layout, n_slots, sizeof *ngram->slots);
        for (uint32_t i = 0; i < n_slots; i++) {
            uint32_t *tables = wefti_memory_reserve(&layout, n_places, sizeof *tables);
            if (layout.base) ngram->slots[i].tables = tables;
        }
        if (pass == 1) break;
        ngram->map_bytes = layout.used;
        ngram->map = wefti_memory_map_near(ngram->map_bytes, home);
        if (!ngram->map)
            return weft_err_set(why, WEFT_E_NOMEM, "no memory for n-grams of %u sequences",
                                n_slots);
        layout = (struct wefti_memory_layout){.base = ngram->map};
    }
    return WEFT_OK;
}

void wefti_ngram_fini(struct wefti_ngram *ngram) {
    wefti_memory_unmap(ngram->map, ngram->map_bytes);
    *ngram = (struct wefti_ngram){0};
}

void wefti_ngram_clear(struct wefti_ngram *ngram, uint32_t slot) {
    if (ngram->n_max < 2) return;
    WEFT_ASSERT(slot < ngram->n_slots);
    ngram->slots[slot].n_indexed = ngram->slots[slot].n_empty = ngram->slots[slot].cap = 0;
}

/* The place of an n-gram in its table, or the free one where it belongs. */
static uint32_t *place_of(const struct wefti_ngram *ngram, const struct wefti_ngram_slot *slot,
                          const uint32_t *tokens, const uint32_t *gram, uint32_t n) {
    uint32_t *table = slot->tables + (size_t)(n - 2) * ngram->cap_max;
    uint64_t at = XXH3_64bits_withSeed(gram, n * sizeof *gram, ngram->key);
    for (;; at++) {
        uint32_t *place = &table[at & (slot->cap - 1)];
        if (*place == 0 || !memcmp(tokens + *place - 1, gram, n * sizeof *gram)) return place;
    }
}

/* The n-grams whose last token is `end`. The first find stays. */
static void add_token(const struct wefti_ngram *ngram, const struct wefti_ngram_slot *slot,
                      const uint32_t *tokens, uint32_t end) {
    for (uint32_t n = 2; n <= ngram->n_max && n <= end + 1; n++) {
        uint32_t begin = end + 1 - n;
        uint32_t *place = place_of(ngram, slot, tokens, tokens + begin, n);
        if (*place == 0) *place = begin + 1;
    }
}

/* Empties tables that are to be filled, a piece of each. Whether they are empty now. */
static bool make_room(const struct wefti_ngram *ngram, struct wefti_ngram_slot *slot) {
    uint32_t end = slot->n_empty + weft_min_u32(slot->cap - slot->n_empty, PLACES_PER_CALL);
    for (uint32_t n = 2; n <= ngram->n_max; n++) {
        uint32_t *table = slot->tables + (size_t)(n - 2) * ngram->cap_max;
        memset(table + slot->n_empty, 0, (end - slot->n_empty) * sizeof *table);
    }
    slot->n_empty = end;
    return end == slot->cap;
}

/* Goes on with the index of a sequence that has n_known tokens. Whether all of them are in it. */
static bool go_on(const struct wefti_ngram *ngram, struct wefti_ngram_slot *slot,
                  const uint32_t *tokens, uint32_t n_known) {
    if (slot->cap / 2 < n_known) {
        slot->cap = cap_for(n_known);
        WEFT_ASSERT(slot->cap <= ngram->cap_max);
        slot->n_indexed = slot->n_empty = 0;
    }
    if (slot->n_empty < slot->cap && !make_room(ngram, slot)) return false;
    uint32_t end = slot->n_indexed + weft_min_u32(n_known - slot->n_indexed, TOKENS_PER_CALL);
    for (; slot->n_indexed < end; slot->n_indexed++)
        add_token(ngram, slot, tokens, slot->n_indexed);
    return end == n_known;
}

uint32_t wefti_ngram_guess(struct wefti_ngram *ngram, uint32_t slot_idx, const uint32_t *tokens,
                           uint32_t n_known, uint32_t n_max_guesses, uint32_t *guesses_out) {
    if (ngram->n_max < 2) return 0;
    WEFT_ASSERT(slot_idx < ngram->n_slots);
    struct wefti_ngram_slot *slot = &ngram->slots[slot_idx];
    if (!go_on(ngram, slot, tokens, n_known)) return 0;
    for (uint32_t n = weft_min_u32(ngram->n_max, n_known); n >= 2; n--) {
        const uint32_t *place = place_of(ngram, slot, tokens, tokens + n_known - n, n);
        if (*place == 0 || *place - 1 + n >= n_known) continue;
        uint32_t behind = *place - 1 + n;
        uint32_t n_guesses = weft_min_u32(n_max_guesses, n_known - behind);
        memcpy(guesses_out, tokens + behind, n_guesses * sizeof *tokens);
        return n_guesses;
    }
    return 0;
}
