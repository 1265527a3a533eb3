/* charsmap — SentencePiece's precompiled map of characters. */
#ifndef WEFT_TOK_CHARSMAP_H
#define WEFT_TOK_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct wefti_tok_charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts; /* texts_len bytes and a 0 */
    size_t texts_len;
};

weft_err wefti_tok_charsmap_new(const void *bytes, size_t n, struct wefti_tok_charsmap **map_out,
                                struct weft_errmsg *why);
void wefti_tok_charsmap_free(struct wefti_tok_charsmap *map); /* accepts NULL */
/* Normalises the beginning of `text` (valid UTF-8, not empty): the longest match of the map, or
 * else (also if `map` is NULL) the first character. Returns the bytes read. */
size_t wefti_tok_charsmap_next(const struct wefti_tok_charsmap *map, const char *text, size_t len,
                               struct weft_str *out);
/* Normalises the whole text as Hugging Face's Precompiled does: by grapheme clusters. */
void wefti_tok_charsmap_clusters(const struct wefti_tok_charsmap *map, const struct weft_buf *in,
                                 struct weft_buf *out);

#endif
