/* prefixes — which scheduler has probably cached what a prompt begins with.
 *
 * Model    A prompt's beginnings are marked at lengths that grow by a third, in blocks of
 *          WEFTI_API_PREFIX_BLOCK tokens: forty marks or so for the longest prompt. A mark is a hash of
 *          all tokens up to there, and of the space in which prompts share anything. A table remembers
 *          for which scheduler each was last seen, and after how many other blocks that scheduler will
 *          have given up what it had computed then.
 * Errors   A table of hashes may be wrong, and a cache may forget early: then a request goes to a
 *          scheduler that has less of its prompt than another, and nothing else happens. So the hash
 *          need not withstand anybody.
 * Bounds   WEFTI_API_PREFIXES entries of 16 bytes; the oldest of a set gives way. No allocation.
 */
#ifndef WEFT_API_CLUSTER_PREFIXES_H
#define WEFT_API_CLUSTER_PREFIXES_H

#include <stdint.h>

#include "api/upstream.h"
#include "base/request.h"

#define WEFTI_API_PREFIX_BLOCK 16u
#define WEFTI_API_MARKS_MAX 64u
#define WEFTI_API_PREFIX_WAYS 8u
#define WEFTI_API_PREFIX_SETS 8192u
#define WEFTI_API_PREFIXES (WEFTI_API_PREFIX_WAYS * WEFTI_API_PREFIX_SETS)

/* The marks of one prompt; the shortest first. */
struct wefti_api_marks {
    uint32_t n;
    uint32_t n_blocks[WEFTI_API_MARKS_MAX]; /* up to each */
    uint64_t hashes[WEFTI_API_MARKS_MAX];
    uint64_t all; /* the hash of the last mark; of a prompt without any, that of its tokens */
};

struct wefti_api_prefixes { /* zeroes: empty */
    struct wefti_api_prefix_entry {
        uint64_t tag; /* 0: free */
        uint32_t used, at_block;
    } entries[WEFTI_API_PREFIX_SETS][WEFTI_API_PREFIX_WAYS];
    uint32_t n_notes; /* ever; it may wrap */
    /* Blocks that each scheduler was given to compute; they may wrap, too. */
    uint32_t n_given[WEFT_API_SCHEDULERS_MAX];
    uint32_t n_forgotten[WEFT_API_SCHEDULERS_MAX]; /* times: entries of another number are void */
};

void wefti_api_marks_make(struct wefti_api_marks *marks, const struct weft_digest *space,
                          const uint32_t *tokens, uint32_t n_tokens);

/* The blocks of the prompt that the scheduler should have, whose cache holds `n_cache_blocks` of this
 * size. */
uint32_t wefti_api_prefixes_find(const struct wefti_api_prefixes *prefixes,
                                 const struct wefti_api_marks *marks, uint32_t scheduler,
                                 uint32_t n_cache_blocks);

/* The scheduler gets the prompt, of which it should have `n_found` blocks. */
void wefti_api_prefixes_note(struct wefti_api_prefixes *prefixes,
                             const struct wefti_api_marks *marks, uint32_t scheduler,
                             uint32_t n_found);

/* The scheduler has nothing any more. */
void wefti_api_prefixes_forget(struct wefti_api_prefixes *prefixes, uint32_t scheduler);

/* A hash of both. */
uint64_t wefti_api_mix(uint64_t hash, uint64_t value);

#endif
