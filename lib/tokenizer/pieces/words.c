/* Words seen before, and their ids: most of a text is a few thousand words, and looking one up
 * costs a fraction of merging it. Each word has one place, a cache line; a new word evicts the old
 * one. */
#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "pieces/bpe.h"

#define N_WORDS 2048u /* 128 KiB: fits the L2 cache, and is quickly cleared for one call */

_Static_assert(sizeof(struct wefti_tok_word) == 64, "a word fills a cache line");

void wefti_tok_words_init(struct wefti_tok_bpe *bpe, size_t text_len) {
    if (text_len >= WEFTI_TOK_WORDS_TEXT_MIN && !bpe->words)
        bpe->words = calloc(N_WORDS, sizeof *bpe->words); /* optional: only slower without */
}

struct wefti_tok_word *wefti_tok_words_at(const struct wefti_tok_bpe *bpe, size_t step,
                                          const char *piece, size_t len, bool *found_out) {
    *found_out = false;
    if (!bpe->words || bpe->in_word || len == 0 || len > sizeof bpe->words->text) return NULL;
    struct wefti_tok_word *word = &bpe->words[XXH3_64bits_withSeed(piece, len, step) % N_WORDS];
    *found_out = word->len == len && word->step == step && memcmp(word->text, piece, len) == 0;
    return word;
}

weft_err wefti_tok_words_use(const struct wefti_tok_word *word, struct wefti_tok_ids *ids,
                             struct weft_errmsg *why) {
    WEFT_ASSERT(word->n_ids <= WEFTI_TOK_WORD_IDS_MAX);
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < word->n_ids && !err; i++)
        err = wefti_tok_ids_add(ids, word->ids[i], why);
    return err;
}

void wefti_tok_words_put(struct wefti_tok_word *word, size_t step, const char *piece, size_t len,
                         const struct wefti_tok_ids *ids, size_t first) {
    WEFT_ASSERT(first <= ids->n);
    size_t n = ids->n - first;
    WEFT_ASSERT(len <= sizeof word->text && step < WEFTI_TOK_STEPS_MAX && first <= ids->n);
    if (n == 0 || n > WEFTI_TOK_WORD_IDS_MAX) return;
    word->len = (uint8_t)len;
    word->step = (uint8_t)step;
    word->n_ids = (uint8_t)n;
    memcpy(word->text, piece, len);
    memcpy(word->ids, ids->ids + first, n * sizeof *word->ids);
}
