/* sentence — SentencePiece's normaliser, run before it looks for pieces. */
#ifndef WEFT_TOK_SENTENCE_H
#define WEFT_TOK_SENTENCE_H

#include "normalize/charsmap.h"
#include "vocab/added.h"

struct wefti_tok_sentence {
    struct wefti_tok_charsmap *map; /* owned, or NULL */
    struct wefti_tok_added kept;    /* symbols the map leaves alone; sorted */
    bool prefix, suffix;            /* a space before, after the text */
    bool prefix_once;               /* and not again after each special token */
    bool squeeze;                   /* several spaces become one; none at the ends */
    bool escape;                    /* spaces become U+2581 */
};

void wefti_tok_sentence_free(struct wefti_tok_sentence *sentence); /* accepts NULL */
/* `first`: nothing of the whole text stands before `in`. */
void wefti_tok_sentence_run(const struct wefti_tok_sentence *sentence, const struct weft_buf *in,
                            bool first, struct weft_buf *out);

#endif
