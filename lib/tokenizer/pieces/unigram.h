/* unigram — the pieces with the best sum of scores. */
#ifndef WEFT_TOK_UNIGRAM_H
#define WEFT_TOK_UNIGRAM_H

#include "pieces/ids.h"
#include "tables.h"

/* Even the longest text cannot sum to more than single precision holds. */
#define WEFTI_TOK_SCORE_MAX 1e12

/* Scratch of one encoding call, and its position in a piece. */
struct wefti_tok_unigram {
    uint32_t *reached_by; /* by position: the token that reaches it best */
    size_t cap;
    double *ring; /* the scores of the positions ahead */
    size_t ring_mask;
    double sum; /* of everything up to here */
    bool last_unknown;
};

void wefti_tok_unigram_fini(struct wefti_tok_unigram *uni);
/* Appends the ids of one piece, of at most WEFTI_TOK_TEXT_BYTES_MAX of valid UTF-8. Linear in
 * `len`. */
weft_err wefti_tok_unigram_run(const weft_tokenizer *tok, struct wefti_tok_unigram *uni,
                               const char *text, size_t len, struct wefti_tok_ids *ids,
                               struct weft_errmsg *why);
/* Derives what follows from tok->scores. */
weft_err wefti_tok_unigram_seal(weft_tokenizer *tok, struct weft_errmsg *why);

#endif
