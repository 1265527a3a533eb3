/* grammar/mask: the tokens that may come next, by walks over the vocabulary's trie.
 *
 * A walk goes with one thread: one state of the lexer. Where an expression may end within a token, the
 * rest of that token is walked with the column that is next, which is made once for all tokens that get
 * there so. What a walk over the whole trie has found depends on the lexer's state alone, so it is kept:
 * inside a string all places are one state, and only what follows the quote is walked again.
 */
#ifndef WEFTI_GRAMMAR_MASK_H
#define WEFTI_GRAMMAR_MASK_H

#include "match/place.h"
#include "match/vocab.h"

typedef struct wefti_masks wefti_masks; /* walks that are kept, of one grammar */

wefti_masks *wefti_masks_new(void); /* NULL: no memory */
void wefti_masks_free(wefti_masks *masks);
size_t wefti_masks_bytes(const wefti_masks *masks);

/* The place is as before. TOOBIG or NOMEM: it is of no use any more. */
WEFT_MUST_CHECK weft_err wefti_masks_make(wefti_masks *masks, struct wefti_place *place,
                                          const weft_gram_vocab *vocab, uint64_t *mask);

#endif
