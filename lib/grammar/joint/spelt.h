/* grammar/spelt: texts of structural tags with special tokens in them, as the grammar's language spells them
 * (WEFT_GRAM_SPECIAL). Where a tag takes a text it takes a string, a format {"type": "token",
 * "token": "<|call|>"}, or a list of both, which are put together. */
#ifndef WEFTI_GRAMMAR_SPELT_H
#define WEFTI_GRAMMAR_SPELT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "grammar.h"

/* What was put together; zeroed: nothing. */
struct wefti_spelt {
    char **texts; /* owned */
    size_t n;
    const struct weft_gram_specials *specials; /* NULL: any special token may be there */
};
void wefti_spelt_fini(struct wefti_spelt *spelt);

/* Lasts as long as the document and `spelt`. INVAL, UNSUPPORTED, NOMEM: *fault_out says it, in words that follow the
 * field's name. */
WEFT_MUST_CHECK weft_err wefti_spelt_read(struct wefti_spelt *spelt, const json_t *value,
                                          struct weft_str *text_out, const char **fault_out);

bool wefti_spelt_has_special(struct weft_str text);
/* The bytes before the first special token. */
size_t wefti_spelt_head(struct weft_str text);
/* Whether `part` occurs in `text`, or ends it. Within a special token there is nothing. */
bool wefti_spelt_has(struct weft_str text, struct weft_str part);
bool wefti_spelt_ends_with(struct weft_str text, struct weft_str part);

#endif
