/* ids — a growing list of token ids with a bound. */
#ifndef WEFT_TOK_IDS_H
#define WEFT_TOK_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct wefti_tok_ids {
    uint32_t *ids; /* owned */
    size_t n, cap, max;
};

weft_err wefti_tok_ids_add(struct wefti_tok_ids *ids, uint32_t id, struct weft_errmsg *why);

#endif
