/* Tokens by id, pieces by their text.
 *
 * The table is built once, then read only. It is open-addressed, at most half full, and sized when
 * everything is known: a look-up costs one cache line. */
#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/limits.h"
#include "vocab/vocab.h"

void wefti_tok_vocab_init(struct wefti_tok_vocab *vocab) {
    *vocab = (struct wefti_tok_vocab){0};
    weft_buf_init(&vocab->arena, (size_t)1 << 30); /* offsets are 32 bits */
}

void wefti_tok_vocab_fini(struct wefti_tok_vocab *vocab) {
    weft_buf_fini(&vocab->arena);
    free(vocab->tokens);
    free(vocab->slots);
    *vocab = (struct wefti_tok_vocab){0};
}

static weft_err grow_tokens(struct wefti_tok_vocab *vocab, uint32_t id) {
    if (id < vocab->cap) return WEFT_OK;
    uint32_t cap = vocab->cap ? vocab->cap : 1024;
    while (cap <= id)
        cap *= 2; /* ends: id < WEFT_VOCAB_MAX = 2^21 */
    struct wefti_tok_entry *tokens = realloc(vocab->tokens, cap * sizeof *tokens);
    if (!tokens) return WEFT_E_NOMEM;
    memset(tokens + vocab->cap, 0, (cap - vocab->cap) * sizeof *tokens);
    vocab->tokens = tokens;
    vocab->cap = cap;
    return WEFT_OK;
}

weft_err wefti_tok_vocab_put(struct wefti_tok_vocab *vocab, uint64_t id, struct weft_str piece,
                             struct weft_str bytes, uint32_t flags, struct weft_errmsg *why) {
    WEFT_ASSERT(vocab->n_tokens <= vocab->cap);
    if (id >= WEFT_VOCAB_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "token id %llu is over the limit of %u",
                            (unsigned long long)id, WEFT_VOCAB_MAX - 1);
    if (piece.len > WEFTI_TOK_ENTRY_BYTES_MAX || bytes.len > WEFTI_TOK_ENTRY_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "token %llu has %zu bytes; the limit is %d",
                            (unsigned long long)id, piece.len > bytes.len ? piece.len : bytes.len,
                            WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_err err = grow_tokens(vocab, (uint32_t)id);
    if (err) return err;
    if (!vocab->arena.data) weft_buf_add(&vocab->arena, "", 1); /* not NULL even if all are empty */
    if (vocab->arena.failed) return WEFT_E_NOMEM;
    struct wefti_tok_entry *token = &vocab->tokens[id];
    if (!(token->flags & WEFTI_TOK_PIECE)) { /* a piece's text stays: the index holds its hash */
        token->piece_at = (uint32_t)vocab->arena.len;
        token->piece_len = (uint32_t)piece.len;
        weft_buf_add(&vocab->arena, piece.data, piece.len);
        if (vocab->arena.failed) return WEFT_E_NOMEM;
    }
    token->bytes_at = token->piece_at;
    token->bytes_len = (uint32_t)bytes.len;
    if (!weft_str_is(bytes, vocab->arena.data + token->piece_at, token->piece_len)) {
        token->bytes_at = (uint32_t)vocab->arena.len;
        weft_buf_add(&vocab->arena, bytes.data, bytes.len);
    }
    if (vocab->arena.failed) return WEFT_E_NOMEM;
    token->flags |= flags | WEFTI_TOK_PRESENT;
    if (vocab->bytes_max < token->piece_len) vocab->bytes_max = token->piece_len;
    if (vocab->bytes_max < token->bytes_len) vocab->bytes_max = token->bytes_len;
    if (vocab->n_tokens <= id) vocab->n_tokens = (uint32_t)id + 1;
    return WEFT_OK;
}

/* The slot that holds this piece, or the empty one where it would go. */
static struct wefti_tok_vocab_slot *piece_slot(const struct wefti_tok_vocab *vocab,
                                               const char *piece, size_t len, uint32_t *tag_out) {
    uint64_t hash = XXH3_64bits(piece, len);
    uint32_t tag = (uint32_t)(hash >> 32);
    uint32_t at = (uint32_t)hash & vocab->mask;
    *tag_out = tag;
    for (;; at = (at + 1) & vocab->mask) {
        struct wefti_tok_vocab_slot *slot = &vocab->slots[at];
        if (slot->id == WEFTI_TOK_NO_ID) return slot;
        if (slot->tag != tag) continue;
        const struct wefti_tok_entry *token = &vocab->tokens[slot->id];
        if (token->piece_len == len && memcmp(vocab->arena.data + token->piece_at, piece, len) == 0)
            return slot;
    }
}

weft_err wefti_tok_vocab_index(struct wefti_tok_vocab *vocab) {
    WEFT_ASSERT(!vocab->slots);
    uint32_t n_slots = 16;
    while (n_slots < 2 * vocab->n_tokens)
        n_slots *= 2;
    vocab->slots = malloc(n_slots * sizeof *vocab->slots);
    if (!vocab->slots) return WEFT_E_NOMEM;
    memset(vocab->slots, 0xFF, n_slots * sizeof *vocab->slots); /* WEFTI_TOK_NO_ID */
    vocab->mask = n_slots - 1;
    for (uint32_t id = 0; id < vocab->n_tokens; id++) {
        const struct wefti_tok_entry *token = &vocab->tokens[id];
        if (!(token->flags & WEFTI_TOK_PIECE) || token->piece_len == 0) continue;
        uint32_t tag;
        struct wefti_tok_vocab_slot *slot =
            piece_slot(vocab, vocab->arena.data + token->piece_at, token->piece_len, &tag);
        *slot = (struct wefti_tok_vocab_slot){tag, id};
    }
    return WEFT_OK;
}

uint32_t wefti_tok_vocab_find(const struct wefti_tok_vocab *vocab, const char *piece, size_t len) {
    if (len == 0 || len > WEFTI_TOK_ENTRY_BYTES_MAX) return WEFTI_TOK_NO_ID;
    uint32_t tag;
    return piece_slot(vocab, piece, len, &tag)->id;
}
