/* One open-addressed table per size holds where each n-gram begins. A table starts small and doubles when
 * it is half full, by being made anew from the tokens; places are compared with the tokens themselves, so
 * equal hashes mislead nobody. */
#include "guess/ngram.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "runtime/memory.h"

#define CAP_FIRST 256u
#define TOKENS_PER_CALL 8192u /* about a millisecond */
#define PROBES_MAX 64u        /* half full tables need a dozen, hardly ever more */

static uint32_t cap_for(uint32_t max_len) {
    uint32_t cap = CAP_FIRST;
    while (cap / 2 < max_len)
        cap *= 2;
    return cap;
}

weft_err wefti_ngram_init(struct wefti_ngram *ngram, uint32_t n_max, uint32_t n_slots,
                          uint32_t max_len, uint64_t home, struct weft_errmsg *why) {
    WEFT_ASSERT(n_max <= WEFT_SPEC_NGRAM_MAX && max_len <= WEFT_CONTEXT_MAX);
    *ngram = (struct wefti_ngram){.n_max = n_max, .n_slots = n_slots};
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
    ngram->slots[slot].n_indexed = ngram->slots[slot].cap = 0;
}

static uint32_t hash(const uint32_t *tokens, uint32_t n) {
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ tokens[i]) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(h >> 32);
}

/* The place of an n-gram in its table, or the free one where it belongs; NULL: none near. */
static uint32_t *place_of(const struct wefti_ngram_slot *slot, uint32_t *table,
                          const uint32_t *tokens, const uint32_t *gram, uint32_t n) {
    uint32_t at = hash(gram, n);
    for (uint32_t i = 0; i < PROBES_MAX; i++, at++) {
        uint32_t *place = &table[at & (slot->cap - 1)];
        if (*place == 0 || !memcmp(tokens + *place - 1, gram, n * sizeof *gram)) return place;
    }
    return NULL;
}

/* The n-grams whose last token is `end`. The first find stays. */
static void add_token(const struct wefti_ngram *ngram, const struct wefti_ngram_slot *slot,
                      const uint32_t *tokens, uint32_t end) {
    for (uint32_t n = 2; n <= ngram->n_max && n <= end + 1; n++) {
        uint32_t begin = end + 1 - n, *table = slot->tables + (size_t)(n - 2) * ngram->cap_max;
        uint32_t *place = place_of(slot, table, tokens, tokens + begin, n);
        if (place && *place == 0) *place = begin + 1;
    }
}

static void make_anew(const struct wefti_ngram *ngram, struct wefti_ngram_slot *slot,
                      const uint32_t *tokens) {
    slot->cap = slot->cap ? 2 * slot->cap : CAP_FIRST;
    WEFT_ASSERT(slot->cap <= ngram->cap_max);
    for (uint32_t n = 2; n <= ngram->n_max; n++)
        memset(slot->tables + (size_t)(n - 2) * ngram->cap_max, 0, slot->cap * sizeof(uint32_t));
    for (uint32_t i = 0; i < slot->n_indexed; i++)
        add_token(ngram, slot, tokens, i);
}

uint32_t wefti_ngram_guess(struct wefti_ngram *ngram, uint32_t slot_idx, const uint32_t *tokens,
                           uint32_t n_known, uint32_t n_max_guesses, uint32_t *guesses_out) {
    if (ngram->n_max < 2) return 0;
    WEFT_ASSERT(slot_idx < ngram->n_slots);
    struct wefti_ngram_slot *slot = &ngram->slots[slot_idx];
    uint32_t end = slot->n_indexed + weft_min_u32(n_known - slot->n_indexed, TOKENS_PER_CALL);
    for (; slot->n_indexed < end; slot->n_indexed++) {
        if (slot->n_indexed >= slot->cap / 2) make_anew(ngram, slot, tokens);
        add_token(ngram, slot, tokens, slot->n_indexed);
    }
    if (end < n_known) return 0;
    for (uint32_t n = weft_min_u32(ngram->n_max, n_known); n >= 2; n--) {
        uint32_t *table = slot->tables + (size_t)(n - 2) * ngram->cap_max;
        const uint32_t *place = place_of(slot, table, tokens, tokens + n_known - n, n);
        if (!place || *place == 0 || *place - 1 + n >= n_known) continue;
        uint32_t behind = *place - 1 + n;
        uint32_t n_guesses = weft_min_u32(n_max_guesses, n_known - behind);
        memcpy(guesses_out, tokens + behind, n_guesses * sizeof *tokens);
        return n_guesses;
    }
    return 0;
}
