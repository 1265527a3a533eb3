/* Words that came before, and their ids: most of a text is a few thousand words, and looking one up
 * costs a fraction of merging it. One line of the CPU's cache per word, one place for each: a word
 * that is in another's place takes it. */
#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "text_internal.h"

#define N_WORDS 2048u /* 128 KiB: of the second-level cache, and little to clear for one call */

_Static_assert(sizeof(struct wefti_word) == 64, "a word fills a cache line");

void wefti_words_init(struct wefti_bpe *bpe, size_t text_len) {
    if (text_len >= WEFTI_WORDS_TEXT_MIN && !bpe->words)
        bpe->words = calloc(N_WORDS, sizeof *bpe->words); /* without them it only takes longer */
}

struct wefti_word *wefti_words_at(const struct wefti_bpe *bpe, const char *piece, size_t len,
                                  bool *found_out) {
    *found_out = false;
    if (!bpe->words || len == 0 || len > sizeof bpe->words->text) return NULL;
    struct wefti_word *word = &bpe->words[XXH3_64bits(piece, len) % N_WORDS];
    *found_out = word->len == len && memcmp(word->text, piece, len) == 0;
    return word;
}

void wefti_words_put(struct wefti_word *word, const char *piece, size_t len, const uint32_t *ids,
                     size_t n) {
    WEFT_ASSERT(len <= sizeof word->text);
    if (n > WEFTI_WORD_IDS_MAX) return;
    word->len = (uint8_t)len;
    word->n_ids = (uint8_t)n;
    memcpy(word->text, piece, len);
    if (n > 0) memcpy(word->ids, ids, n * sizeof *ids);
}
