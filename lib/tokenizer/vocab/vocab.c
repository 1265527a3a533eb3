/* The tables of a tokenizer: tokens by id, pieces by text, merges by pair, added tokens by prefix.
 *
 * All are built once and then read only. The two hash tables are open-addressed, at most half full,
 * and sized when everything is known: a look-up costs one cache line, often the only one a merge
 * step needs. */
#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "text_internal.h"

/* --- tokens ------------------------------------------------------------------------------------
 */

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
    if (id >= WEFT_VOCAB_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "token id %llu is over the limit of %u",
                            (unsigned long long)id, WEFT_VOCAB_MAX - 1);
    if (piece.len > WEFTI_TOK_ENTRY_BYTES_MAX || bytes.len > WEFTI_TOK_ENTRY_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "token %llu has %zu bytes; the limit is %d",
                            (unsigned long long)id, piece.len > bytes.len ? piece.len : bytes.len,
                            WEFTI_TOK_ENTRY_BYTES_MAX);
    weft_err err = grow_tokens(vocab, (uint32_t)id);
    if (err) return err;
    if (!vocab->arena.data) weft_buf_add(&vocab->arena, "", 1); /* there even if all are empty */
    if (vocab->arena.failed) return WEFT_E_NOMEM;
    struct wefti_tok_entry *token = &vocab->tokens[id];
    if (!(token->flags & WEFTI_TOK_PIECE)) { /* a piece stays: the index holds its hash */
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

/* --- merges ------------------------------------------------------------------------------------
 */

weft_err wefti_tok_merges_init(struct wefti_tok_merges *merges, size_t n) {
    if (n > (size_t)4 * WEFT_VOCAB_MAX) return WEFT_E_TOOBIG;
    uint32_t n_slots = 16;
    while (n_slots < 2 * n)
        n_slots *= 2; /* ends: n <= 2^23 */
    merges->slots = malloc(n_slots * sizeof *merges->slots);
    if (!merges->slots) return WEFT_E_NOMEM;
    memset(merges->slots, 0xFF, n_slots * sizeof *merges->slots);
    merges->mask = n_slots - 1;
    return WEFT_OK;
}

void wefti_tok_merges_fini(struct wefti_tok_merges *merges) {
    free(merges->slots);
    *merges = (struct wefti_tok_merges){0};
}

static struct wefti_tok_merge *merge_slot(const struct wefti_tok_merges *merges, uint64_t pair) {
    uint64_t hash =
        pair * 0x9E3779B97F4A7C15u; /* Fibonacci hashing: the upper half is well mixed */
    for (uint32_t at = (uint32_t)(hash >> 32) & merges->mask;; at = (at + 1) & merges->mask) {
        struct wefti_tok_merge *slot = &merges->slots[at];
        if (slot->pair == pair || slot->pair == UINT64_MAX) return slot;
    }
}

void wefti_tok_merges_put(struct wefti_tok_merges *merges, uint32_t left, uint32_t right,
                          uint32_t rank, uint32_t id) {
    uint64_t pair = (uint64_t)left << 32 | right;
    *merge_slot(merges, pair) = (struct wefti_tok_merge){pair, rank, id};
}

const struct wefti_tok_merge *wefti_tok_merges_find(const struct wefti_tok_merges *merges,
                                                    uint32_t left, uint32_t right) {
    const struct wefti_tok_merge *slot = merge_slot(merges, (uint64_t)left << 32 | right);
    return slot->pair == UINT64_MAX ? NULL : slot;
}

/* --- added tokens ------------------------------------------------------------------------------
 */

void wefti_tok_added_fini(struct wefti_tok_added *added) {
    for (size_t i = 0; i < added->n; i++)
        free(added->tokens[i].text);
    free(added->tokens);
    *added = (struct wefti_tok_added){0};
}

weft_err wefti_tok_added_put(struct wefti_tok_added *added, struct weft_str text, uint32_t id,
                             const struct wefti_tok_added_token *traits) {
    WEFT_ASSERT(text.len <= 4 * WEFTI_TOK_ENTRY_BYTES_MAX);
    if (text.len == 0) return WEFT_OK; /* would match everywhere and say nothing */
    if (added->n == added->cap) {
        size_t cap = added->cap ? 2 * added->cap : 64; /* bounded by the vocabulary */
        struct wefti_tok_added_token *tokens = realloc(added->tokens, cap * sizeof *tokens);
        if (!tokens) return WEFT_E_NOMEM;
        added->tokens = tokens;
        added->cap = cap;
    }
    char *copy = malloc(text.len);
    if (!copy) return WEFT_E_NOMEM;
    memcpy(copy, text.data, text.len);
    struct wefti_tok_added_token *token = &added->tokens[added->n++];
    *token = *traits;
    token->text = copy;
    token->len = (uint32_t)text.len;
    token->id = id;
    added->starts[(unsigned char)copy[0]] = true;
    if (!token->special) added->any_ordinary = true;
    return WEFT_OK;
}

static int compare_added(const void *a, const void *b) {
    const struct wefti_tok_added_token *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order != 0) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void wefti_tok_added_sort(struct wefti_tok_added *added) {
    if (added->n > 1) qsort(added->tokens, added->n, sizeof *added->tokens, compare_added);
}

/* First of tokens [low, high), which agree on their first `at` bytes and are longer than that,
 * whose byte at `at` is >= `byte`. */
static size_t lower_bound(const struct wefti_tok_added *added, size_t low, size_t high, size_t at,
                          unsigned byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)added->tokens[middle].text[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct wefti_tok_added_token *wefti_tok_added_longest(const struct wefti_tok_added *added,
                                                            bool parse_special, const char *text,
                                                            size_t len) {
    if (len == 0 || !added->starts[(unsigned char)*text]) return NULL;
    const struct wefti_tok_added_token *best = NULL;
    size_t low = 0, high = added->n;
    for (size_t at = 0; low < high; at++) {
        /* Tokens that end here come first among those with the same beginning. */
        for (; low < high && added->tokens[low].len == at; low++)
            if (parse_special || !added->tokens[low].special) best = &added->tokens[low];
        if (at == len) break;
        unsigned byte = (unsigned char)text[at];
        low = lower_bound(added, low, high, at, byte);
        high = lower_bound(added, low, high, at, byte + 1);
    }
    return best;
}

/* Bytes of the white space that ends at `end`, without going below `floor`. */
static size_t space_before(const char *text, size_t floor, size_t end) {
    size_t start = end;
    while (start > floor) {
        size_t at = start - 1, len;
        while (at > floor && ((unsigned char)text[at] & 0xC0) == 0x80)
            at--;
        if (!weft_unicode_is_space(weft_utf8_get(text + at, &len))) break;
        start = at;
    }
    return end - start;
}

static size_t space_behind(const char *text, size_t len, size_t from) {
    size_t at = from, n;
    while (at < len && weft_unicode_is_space(weft_utf8_get(text + at, &n)))
        at += n;
    return at - from;
}

static bool is_lone_word(const char *text, size_t len, size_t start, size_t end) {
    size_t n;
    if (end < len && weft_unicode_is_word(weft_utf8_get(text + end, &n))) return false;
    if (start == 0) return true;
    size_t at = start - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return !weft_unicode_is_word(weft_utf8_get(text + at, &n));
}

bool wefti_tok_added_find(const struct wefti_tok_added *added, bool parse_special, const char *text,
                          size_t len, size_t from, struct wefti_tok_added_match *match_out) {
    if (added->n == 0 || (!parse_special && !added->any_ordinary)) return false;
    for (size_t at = from; at < len;) {
        const struct wefti_tok_added_token *token =
            wefti_tok_added_longest(added, parse_special, text + at, len - at);
        if (!token) {
            at++;
            continue;
        }
        size_t end = at + token->len;
        if (token->single_word && !is_lone_word(text, len, at, end)) {
            at = end; /* what was looked at is text now, as Hugging Face's matcher has it */
            continue;
        }
        match_out->token = token;
        match_out->start = token->strip_left ? at - space_before(text, from, at) : at;
        match_out->end = token->strip_right ? end + space_behind(text, len, end) : end;
        return true;
    }
    return false;
}
