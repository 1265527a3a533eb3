#include "cluster/prefixes.h"

#include "base/check.h"

/* Multiply and fold, as in splitmix64's finisher (Steele, Lea and Flood 2014). */
uint64_t wefti_api_mix(uint64_t hash, uint64_t value) {
    uint64_t z = hash ^ (value + 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 1, 2, 3, 4, 5, 6, 8, 10, 13, ... */
static uint32_t next_mark(uint32_t n_blocks) {
    return n_blocks + (n_blocks < 6 ? 1 : n_blocks / 3);
}

void wefti_api_marks_make(struct wefti_api_marks *marks, const struct weft_digest *space,
                          const uint32_t *tokens, uint32_t n_tokens) {
    uint64_t hash = wefti_api_mix(wefti_api_mix(1, space->hi), space->lo);
    uint32_t mark = 1;
    marks->n = 0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        hash = wefti_api_mix(hash, tokens[i]);
        if (i + 1 != mark * WEFTI_API_PREFIX_BLOCK || marks->n == WEFTI_API_MARKS_MAX) continue;
        marks->n_blocks[marks->n] = mark;
        marks->hashes[marks->n++] = hash;
        mark = next_mark(mark);
    }
    marks->all = marks->n > 0 ? marks->hashes[marks->n - 1] : hash;
}

/* Never 0, which is a free entry. */
static uint64_t tag_of(const struct wefti_api_prefixes *prefixes, uint64_t hash,
                       uint32_t scheduler) {
    return wefti_api_mix(hash, (uint64_t)prefixes->n_forgotten[scheduler] << 32 | scheduler) | 1;
}

static uint32_t set_of(uint64_t tag) {
    return (uint32_t)(tag >> 32) % WEFTI_API_PREFIX_SETS;
}

uint32_t wefti_api_prefixes_find(const struct wefti_api_prefixes *prefixes,
                                 const struct wefti_api_marks *marks, uint32_t scheduler,
                                 uint32_t n_cache_blocks) {
    WEFT_ASSERT(scheduler < WEFT_API_SCHEDULERS_MAX);
    for (uint32_t i = marks->n; i-- > 0;) {
        uint64_t tag = tag_of(prefixes, marks->hashes[i], scheduler);
        const struct wefti_api_prefix_entry *set = prefixes->entries[set_of(tag)];
        for (uint32_t k = 0; k < WEFTI_API_PREFIX_WAYS; k++) {
            uint32_t n_since = prefixes->n_given[scheduler] - set[k].at_block;
            if (set[k].tag == tag && n_since <= n_cache_blocks) return marks->n_blocks[i];
        }
    }
    return 0;
}

/* The entry of this tag, or the free one or oldest one that it replaces. */
static struct wefti_api_prefix_entry *place_for(struct wefti_api_prefixes *prefixes, uint64_t tag) {
    struct wefti_api_prefix_entry *set = prefixes->entries[set_of(tag)], *oldest = set;
    for (uint32_t k = 0; k < WEFTI_API_PREFIX_WAYS; k++) {
        if (set[k].tag == tag) return &set[k];
        if (oldest->tag == 0) continue;
        uint32_t age = prefixes->n_notes - set[k].used;
        if (set[k].tag == 0 || age > prefixes->n_notes - oldest->used) oldest = &set[k];
    }
    return oldest;
}

void wefti_api_prefixes_note(struct wefti_api_prefixes *prefixes,
                             const struct wefti_api_marks *marks, uint32_t scheduler,
                             uint32_t n_found) {
    WEFT_ASSERT(scheduler < WEFT_API_SCHEDULERS_MAX);
    uint32_t n_blocks = marks->n > 0 ? marks->n_blocks[marks->n - 1] : 0;
    WEFT_ASSERT(n_found <= n_blocks);
    prefixes->n_given[scheduler] += n_blocks - n_found;
    prefixes->n_notes++;
    for (uint32_t i = 0; i < marks->n; i++) {
        uint64_t tag = tag_of(prefixes, marks->hashes[i], scheduler);
        *place_for(prefixes, tag) = (struct wefti_api_prefix_entry){
            .tag = tag, .used = prefixes->n_notes, .at_block = prefixes->n_given[scheduler]};
    }
}

void wefti_api_prefixes_forget(struct wefti_api_prefixes *prefixes, uint32_t scheduler) {
    WEFT_ASSERT(scheduler < WEFT_API_SCHEDULERS_MAX);
    prefixes->n_forgotten[scheduler]++;
}
