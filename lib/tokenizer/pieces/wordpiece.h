/* wordpiece — a word as the longest pieces, from left to right. */
#ifndef WEFT_TOK_WORDPIECE_H
#define WEFT_TOK_WORDPIECE_H

#include "pieces/ids.h"
#include "tables.h"

/* Appends the ids of one word of valid UTF-8. The look-ups are at most `len` times the longest piece. */
weft_err wefti_tok_wordpiece_run(const weft_tokenizer *tok, const char *text, size_t len,
                                 struct wefti_tok_ids *ids, struct weft_errmsg *why);
/* Derives what follows from the vocabulary and tok->word. `head` and `tail` are what pieces have in front that
 * begin a word, or go on with it. UNSUPPORTED: there is no token for unknown words. */
weft_err wefti_tok_wordpiece_seal(weft_tokenizer *tok, struct weft_errmsg *why);

#endif
