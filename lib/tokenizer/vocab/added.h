/* added — tokens that are matched in the text as written. */
#ifndef WEFT_TOK_ADDED_H
#define WEFT_TOK_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct wefti_tok_added_token {
    char *text; /* owned */
    uint32_t len, id;
    bool special, single_word, strip_left, strip_right;
};

/* Sorted by text: finding the longest match costs a binary search per matching byte. */
struct wefti_tok_added {
    struct wefti_tok_added_token *tokens;
    size_t n, cap;
    bool starts[256];  /* some token starts with this byte */
    bool any_ordinary; /* some token is matched without WEFT_TOK_PARSE_SPECIAL */
};

struct wefti_tok_added_match {
    const struct wefti_tok_added_token *token;
    size_t start, end; /* including the white space that the token swallows */
};

void wefti_tok_added_fini(struct wefti_tok_added *added);
weft_err wefti_tok_added_put(struct wefti_tok_added *added, struct weft_str text, uint32_t id,
                             const struct wefti_tok_added_token *traits);
void wefti_tok_added_sort(struct wefti_tok_added *added);
/* The longest token that `text` begins with, or NULL. */
const struct wefti_tok_added_token *wefti_tok_added_longest(const struct wefti_tok_added *added,
                                                            bool parse_special, const char *text,
                                                            size_t len);
/* The first match at or after `from`; of several there, the longest. */
bool wefti_tok_added_find(const struct wefti_tok_added *added, bool parse_special, const char *text,
                          size_t len, size_t from, struct wefti_tok_added_match *match_out);

#endif
