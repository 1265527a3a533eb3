/* bpe — pieces merged to tokens, and the words whose tokens were found before. */
#ifndef WEFT_TOK_BPE_H
#define WEFT_TOK_BPE_H

#include "pieces/ids.h"
#include "tables.h"

struct wefti_tok_symbol {
    uint32_t start, len; /* in the piece; len 0: merged into its predecessor */
    uint32_t id;
    uint32_t prev, next;   /* WEFTI_TOK_NO_ID at the ends */
    uint32_t rank, merged; /* of this symbol with the next; WEFTI_TOK_NO_RANK: never */
};

#define WEFTI_TOK_WORD_IDS_MAX 10
#define WEFTI_TOK_WORDS_TEXT_MIN 8192 /* shorter texts do not repeat themselves enough */

/* A piece whose ids were found before; len 0: none. */
struct wefti_tok_word {
    uint8_t len, n_ids;
    uint8_t step; /* the split step it reached; 0: it only had to be merged */
    char text[21];
    uint32_t ids[WEFTI_TOK_WORD_IDS_MAX];
};

/* Scratch of one encoding call, reused from piece to piece. */
struct wefti_tok_bpe {
    struct wefti_tok_symbol *symbols;
    size_t cap;
    uint64_t *heap; /* rank << 32 | position, least first */
    size_t n_heap, heap_cap;
    bool last_unknown;            /* SentencePiece: the last character of the piece so far */
    struct wefti_tok_word *words; /* owned; NULL: too short a text */
    bool in_word;                 /* inside a word that will be remembered whole */
};

void wefti_tok_bpe_fini(struct wefti_tok_bpe *bpe);
/* Where a SentencePiece text can be cut so that no token spans the cut: before the first U+2581
 * that follows a byte which precedes it in no piece. `len` if nowhere. */
size_t wefti_tok_split_point(const weft_tokenizer *tok, const char *piece, size_t len);
/* Appends the ids of one piece, of at most WEFTI_TOK_TEXT_BYTES_MAX. O(n log n). Memory is
 * proportional to the ids still allowed, not to `len`. */
weft_err wefti_tok_bpe_run(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe, const char *piece,
                           size_t len, struct wefti_tok_ids *ids, struct weft_errmsg *why);

/* Remembered words (words.c). */

/* Remembers words from here on, if a text of `text_len` is long enough. */
void wefti_tok_words_init(struct wefti_tok_bpe *bpe, size_t text_len);
/* The place of a word, and whether it is there; NULL: words are not remembered. */
struct wefti_tok_word *wefti_tok_words_at(const struct wefti_tok_bpe *bpe, size_t step,
                                          const char *piece, size_t len, bool *found_out);
/* Appends the word's ids. */
weft_err wefti_tok_words_use(const struct wefti_tok_word *word, struct wefti_tok_ids *ids,
                             struct weft_errmsg *why);
/* Remembers that a word is ids->ids[first..], unless they are too many. */
void wefti_tok_words_put(struct wefti_tok_word *word, size_t step, const char *piece, size_t len,
                         const struct wefti_tok_ids *ids, size_t first);

#endif
