/* merges — which pairs of tokens become one, and in what order. */
#ifndef WEFT_TOK_MERGES_H
#define WEFT_TOK_MERGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define WEFTI_TOK_NO_RANK UINT32_MAX

struct wefti_tok_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank; /* lower merges first */
    uint32_t id;   /* the merged token */
};

struct wefti_tok_merges {
    struct wefti_tok_merge *slots;
    uint32_t mask;
};

weft_err wefti_tok_merges_init(struct wefti_tok_merges *merges, size_t n);
void wefti_tok_merges_fini(struct wefti_tok_merges *merges);
/* At most `n` calls, as given to init; a pair listed twice keeps its last rank. */
void wefti_tok_merges_put(struct wefti_tok_merges *merges, uint32_t left, uint32_t right,
                          uint32_t rank, uint32_t id);
/* NULL: this pair never merges. */
const struct wefti_tok_merge *wefti_tok_merges_find(const struct wefti_tok_merges *merges,
                                                    uint32_t left, uint32_t right);

#endif
