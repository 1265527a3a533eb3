/* vocab — tokens by id, pieces by their text. */
#ifndef WEFT_TOK_VOCAB_H
#define WEFT_TOK_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define WEFTI_TOK_NO_ID UINT32_MAX

/* Longest real entries are runs of some hundred spaces; the bound keeps every look-up cheap. */
#define WEFTI_TOK_ENTRY_BYTES_MAX 4096

#define WEFTI_TOK_PRESENT 1u
#define WEFTI_TOK_PIECE 2u   /* a possible result of merging: in the index of pieces */
#define WEFTI_TOK_ADDED 4u   /* matched in the text as written, before everything else */
#define WEFTI_TOK_SPECIAL 8u /* matched only with WEFT_TOK_PARSE_SPECIAL; hidden by skip_special */
#define WEFTI_TOK_CHOSEN 16u /* Unigram: a piece that wins against every other way to write it */

struct wefti_tok_entry {
    uint32_t piece_at, piece_len; /* what merging sees */
    uint32_t bytes_at, bytes_len; /* what decoding writes */
    uint32_t flags;
};

struct wefti_tok_vocab_slot {
    uint32_t tag; /* upper half of the hash */
    uint32_t id;  /* WEFTI_TOK_NO_ID: empty */
};

struct wefti_tok_vocab {
    struct weft_buf arena;
    struct wefti_tok_entry *tokens; /* by id; holes have no flags */
    uint32_t n_tokens, cap;
    uint32_t bytes_max; /* longest piece or written form */
    struct wefti_tok_vocab_slot *slots;
    uint32_t mask;
};

void wefti_tok_vocab_init(struct wefti_tok_vocab *vocab);
void wefti_tok_vocab_fini(struct wefti_tok_vocab *vocab);

/* Adds token `id`, or changes what it decodes to; flags are or-ed. `piece` and `bytes` may be the
 * same string. */
weft_err wefti_tok_vocab_put(struct wefti_tok_vocab *vocab, uint64_t id, struct weft_str piece,
                             struct weft_str bytes, uint32_t flags, struct weft_errmsg *why);
/* Builds the index over all pieces; of two equal ones the higher id wins. */
weft_err wefti_tok_vocab_index(struct wefti_tok_vocab *vocab);
/* The id of a piece, or WEFTI_TOK_NO_ID. */
uint32_t wefti_tok_vocab_find(const struct wefti_tok_vocab *vocab, const char *piece, size_t len);

static inline struct weft_str wefti_tok_vocab_bytes(const struct wefti_tok_vocab *vocab,
                                                    uint32_t id) {
    const struct wefti_tok_entry *token = &vocab->tokens[id];
    return (struct weft_str){vocab->arena.data + token->bytes_at, token->bytes_len};
}

#endif
