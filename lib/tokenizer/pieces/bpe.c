/* Byte-pair merging of one piece of text.
 *
 * The piece is a doubly linked list of symbols in an array, each knowing the rank at which it would
 * merge with its successor. The pair of least rank merges first, the leftmost of equals. A short
 * piece is scanned for its minimum after every merge, which is fastest up to some tens of symbols;
 * a long one keeps its candidates in a heap, so that a megabyte of one letter takes n log n.
 * Entries of the heap are never removed early: one whose rank is not its symbol's is skipped. */
#include <stdlib.h>

#include "base/check.h"
#include "codec/utf8.h"
#include "pieces/bpe.h"
#include "vocab/alphabet.h"

#define UNIT_MAX 4  /* bytes that one symbol starts with: a character */
#define SCAN_MAX 32 /* n^2/2 comparisons at this size cost about what the heap costs */

void wefti_tok_bpe_fini(struct wefti_tok_bpe *bpe) {
    free(bpe->symbols);
    free(bpe->heap);
    free(bpe->words);
    *bpe = (struct wefti_tok_bpe){0};
}

static weft_err too_many(const struct wefti_tok_ids *ids, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_TOOBIG, "the text has more than %zu tokens", ids->max);
}

weft_err wefti_tok_ids_add(struct wefti_tok_ids *ids, uint32_t id, struct weft_errmsg *why) {
    if (ids->n == ids->max) return too_many(ids, why);
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 64;
        uint32_t *grown = realloc(ids->ids, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        ids->ids = grown;
        ids->cap = cap;
    }
    ids->ids[ids->n++] = id;
    return WEFT_OK;
}

/* --- the heap --------------------------------------------------------------------------------- */

static weft_err heap_push(struct wefti_tok_bpe *bpe, uint64_t key) {
    if (bpe->n_heap == bpe->heap_cap) {
        size_t cap = bpe->heap_cap ? 2 * bpe->heap_cap : 256; /* at most 3 per symbol */
        uint64_t *heap = realloc(bpe->heap, cap * sizeof *heap);
        if (!heap) return WEFT_E_NOMEM;
        bpe->heap = heap;
        bpe->heap_cap = cap;
    }
    size_t at = bpe->n_heap++;
    for (; at > 0 && bpe->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        bpe->heap[at] = bpe->heap[(at - 1) / 2];
    bpe->heap[at] = key;
    return WEFT_OK;
}

static uint64_t heap_pop(struct wefti_tok_bpe *bpe) {
    WEFT_ASSERT(bpe->n_heap > 0);
    uint64_t least = bpe->heap[0], last = bpe->heap[--bpe->n_heap];
    size_t at = 0, n = bpe->n_heap;
    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && bpe->heap[child + 1] < bpe->heap[child]) child++;
        if (bpe->heap[child] >= last) break;
        bpe->heap[at] = bpe->heap[child];
        at = child;
    }
    if (n > 0) bpe->heap[at] = last;
    return least;
}

/* --- symbols ---------------------------------------------------------------------------------- */

/* Recomputes what `symbol` and its successor would merge to. */
static void weigh(const weft_tokenizer *tok, const struct wefti_tok_bpe *bpe, const char *piece,
                  struct wefti_tok_symbol *symbol) {
    symbol->rank = WEFTI_TOK_NO_RANK;
    if (symbol->next == WEFTI_TOK_NO_ID) return;
    const struct wefti_tok_symbol *next = &bpe->symbols[symbol->next];
    if (tok->score_ranks) {
        uint32_t id =
            wefti_tok_vocab_find(&tok->vocab, piece + symbol->start, symbol->len + next->len);
        if (id == WEFTI_TOK_NO_ID) return;
        symbol->rank = tok->score_ranks[id];
        symbol->merged = id;
    } else {
        const struct wefti_tok_merge *merge =
            wefti_tok_merges_find(&tok->merges, symbol->id, next->id);
        if (!merge) return;
        symbol->rank = merge->rank;
        symbol->merged = merge->id;
    }
}

static void merge_at(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe, const char *piece,
                     struct wefti_tok_symbol *symbol) {
    struct wefti_tok_symbol *gone = &bpe->symbols[symbol->next];
    WEFT_ASSERT(symbol->rank != WEFTI_TOK_NO_RANK && gone->len > 0);
    symbol->len += gone->len;
    symbol->id = symbol->merged;
    symbol->next = gone->next;
    gone->len = 0;
    if (symbol->next != WEFTI_TOK_NO_ID)
        bpe->symbols[symbol->next].prev = (uint32_t)(symbol - bpe->symbols);
    weigh(tok, bpe, piece, symbol);
    if (symbol->prev != WEFTI_TOK_NO_ID) weigh(tok, bpe, piece, &bpe->symbols[symbol->prev]);
}

static void merge_by_scanning(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe,
                              const char *piece) {
    for (;;) {
        struct wefti_tok_symbol *best = &bpe->symbols[0];
        for (uint32_t at = best->next; at != WEFTI_TOK_NO_ID; at = bpe->symbols[at].next)
            if (bpe->symbols[at].rank < best->rank) best = &bpe->symbols[at];
        if (best->rank == WEFTI_TOK_NO_RANK) return;
        merge_at(tok, bpe, piece, best);
    }
}

static weft_err push_symbol(struct wefti_tok_bpe *bpe, uint32_t at) {
    if (at == WEFTI_TOK_NO_ID || bpe->symbols[at].rank == WEFTI_TOK_NO_RANK) return WEFT_OK;
    return heap_push(bpe, (uint64_t)bpe->symbols[at].rank << 32 | at);
}

static weft_err merge_by_heap(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe,
                              const char *piece, uint32_t n) {
    bpe->n_heap = 0;
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < n && !err; i++)
        err = push_symbol(bpe, i);
    while (bpe->n_heap > 0 && !err) {
        uint64_t key = heap_pop(bpe);
        uint32_t at = (uint32_t)key;
        struct wefti_tok_symbol *symbol = &bpe->symbols[at];
        if (symbol->len == 0 || symbol->rank != (uint32_t)(key >> 32)) continue;
        merge_at(tok, bpe, piece, symbol);
        err = push_symbol(bpe, at);
        if (!err) err = push_symbol(bpe, symbol->prev);
    }
    return err;
}

/* --- a piece ---------------------------------------------------------------------------------- */

/* The symbol that starts at `at`: its id (WEFTI_TOK_NO_ID where the vocabulary has none) and
 * length. */
static uint32_t unit_at(const weft_tokenizer *tok, const char *piece, size_t at, size_t *len_out) {
    unsigned char c = (unsigned char)piece[at];
    *len_out = 1;
    if (tok->byte_level || c < 0x80) return tok->unit_ids[c];
    *len_out = weft_utf8_len(piece[at]);
    return wefti_tok_vocab_find(&tok->vocab, piece + at, *len_out);
}

static weft_err reserve_symbols(struct wefti_tok_bpe *bpe, size_t n) {
    if (n <= bpe->cap) return WEFT_OK;
    size_t cap = n < 2 * bpe->cap ? 2 * bpe->cap : n < 256 ? 256 : n;
    free(bpe->symbols);
    bpe->symbols = malloc(cap * sizeof *bpe->symbols);
    bpe->cap = bpe->symbols ? cap : 0;
    return bpe->symbols ? WEFT_OK : WEFT_E_NOMEM;
}

/* How many symbols can still become ids: each is at least one byte, so an id takes at most as many
 * as the longest entry has bytes. Adjacent unknown characters are one id. */
static size_t usable_symbols(const weft_tokenizer *tok, const struct wefti_tok_ids *ids) {
    if (tok->score_ranks && tok->fuse_unk && !tok->byte_fallback) return SIZE_MAX - UNIT_MAX;
    size_t n, per_id = tok->vocab.bytes_max ? tok->vocab.bytes_max : 1;
    return __builtin_mul_overflow(ids->max - ids->n, per_id, &n) ? SIZE_MAX - UNIT_MAX : n;
}

static weft_err fill_symbols(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe,
                             struct weft_str text, const struct wefti_tok_ids *ids, uint32_t *n_out,
                             struct weft_errmsg *why) {
    const char *piece = text.data;
    size_t len = text.len;
    *n_out = 0;
    size_t room = usable_symbols(tok, ids) + UNIT_MAX;
    if (room > len) room = len;
    weft_err err = reserve_symbols(bpe, room);
    if (err) return err;
    uint32_t n = 0;
    for (size_t at = 0, unit_len; at < len; at += unit_len) {
        uint32_t id = unit_at(tok, piece, at, &unit_len);
        WEFT_ASSERT(unit_len <= UNIT_MAX);
        if (n + unit_len > room) return too_many(ids, why); /* n <= at: it cannot be for `len` */
        if (id == WEFTI_TOK_NO_ID && tok->byte_fallback && !tok->score_ranks) {
            /* Each byte is a symbol: a list of merges may join them. */
            for (size_t i = 0; i < unit_len; i++, n++)
                bpe->symbols[n] = (struct wefti_tok_symbol){
                    .start = (uint32_t)(at + i),
                    .len = 1,
                    .id = tok->fallback_ids[(unsigned char)piece[at + i]]};
            continue;
        }
        if (id == WEFTI_TOK_NO_ID && !tok->byte_fallback) {
            if (tok->unk_id == WEFTI_TOK_NO_ID) continue; /* left out, as Hugging Face does */
            id = tok->unk_id;
            if (tok->fuse_unk && !tok->score_ranks && n > 0 && bpe->symbols[n - 1].id == id) {
                bpe->symbols[n - 1].len += (uint32_t)unit_len;
                continue;
            }
        }
        bpe->symbols[n++] =
            (struct wefti_tok_symbol){.start = (uint32_t)at, .len = (uint32_t)unit_len, .id = id};
    }
    for (uint32_t i = 0; i < n; i++) {
        bpe->symbols[i].prev = i > 0 ? i - 1 : WEFTI_TOK_NO_ID;
        bpe->symbols[i].next = i + 1 < n ? i + 1 : WEFTI_TOK_NO_ID;
    }
    for (uint32_t i = 0; i < n; i++)
        weigh(tok, bpe, piece, &bpe->symbols[i]);
    *n_out = n;
    return WEFT_OK;
}

/* Adds the bytes of a character that is no token and merged with nothing (SentencePiece). */
static weft_err add_bytes(const weft_tokenizer *tok, const char *piece,
                          const struct wefti_tok_symbol *symbol, struct wefti_tok_ids *ids,
                          struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < symbol->len && !err; i++)
        err =
            wefti_tok_ids_add(ids, tok->fallback_ids[(unsigned char)piece[symbol->start + i]], why);
    return err;
}

/* Merges a piece that no token extends beyond. */
static weft_err run_part(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe, const char *piece,
                         size_t len, struct wefti_tok_ids *ids, struct weft_errmsg *why) {
    uint32_t n;
    weft_err err = fill_symbols(tok, bpe, (struct weft_str){piece, len}, ids, &n, why);
    if (err || n == 0) return err;
    if (n <= SCAN_MAX)
        merge_by_scanning(tok, bpe, piece);
    else
        err = merge_by_heap(tok, bpe, piece, n);
    for (uint32_t at = 0; at != WEFTI_TOK_NO_ID && !err; at = bpe->symbols[at].next) {
        const struct wefti_tok_symbol *symbol = &bpe->symbols[at];
        bool unknown = tok->score_ranks && tok->fuse_unk && symbol->id == tok->unk_id;
        bool goes_on = unknown && bpe->last_unknown;
        bpe->last_unknown = unknown;
        if (goes_on) continue;
        if (symbol->id != WEFTI_TOK_NO_ID)
            err = wefti_tok_ids_add(ids, symbol->id, why);
        else
            err = add_bytes(tok, piece, symbol, ids, why);
    }
    return err;
}

/* The same for a word that may have been seen before. Next to an unknown character its ids may
 * differ, so it is neither looked up nor remembered then. */
static weft_err run_word(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe, const char *piece,
                         size_t len, struct wefti_tok_ids *ids, struct weft_errmsg *why) {
    bool found = false;
    struct wefti_tok_word *word = NULL;
    if (!bpe->last_unknown) word = wefti_tok_words_at(bpe, 0, piece, len, &found);
    if (found) return wefti_tok_words_use(word, ids, why);
    size_t before = ids->n;
    weft_err err = run_part(tok, bpe, piece, len, ids, why);
    if (!err && word && !bpe->last_unknown) wefti_tok_words_put(word, 0, piece, len, ids, before);
    return err;
}

size_t wefti_tok_split_point(const weft_tokenizer *tok, const char *piece, size_t len) {
    static const char mark[] = WEFTI_TOK_MARK;
    for (size_t at = 1; at < len; at++) {
        const char *lead = memchr(piece + at, mark[0], len - at);
        if (!lead) break;
        at = (size_t)(lead - piece);
        if (len - at >= 3 && memcmp(lead, mark, 3) == 0 &&
            !tok->joins_mark[(unsigned char)piece[at - 1]])
            return at;
    }
    return len;
}

weft_err wefti_tok_bpe_run(const weft_tokenizer *tok, struct wefti_tok_bpe *bpe, const char *piece,
                           size_t len, struct wefti_tok_ids *ids, struct weft_errmsg *why) {
    WEFT_ASSERT(len <= WEFTI_TOK_TEXT_BYTES_MAX);
    if (tok->ignore_merges) {
        uint32_t id = wefti_tok_vocab_find(&tok->vocab, piece, len);
        /* A special token's text is not that token unless the caller parsed it as one. */
        if (id != WEFTI_TOK_NO_ID && !(tok->vocab.tokens[id].flags & WEFTI_TOK_SPECIAL))
            return wefti_tok_ids_add(ids, id, why);
    }
    bpe->last_unknown = false;
    if (tok->byte_level) return run_word(tok, bpe, piece, len, ids, why);
    weft_err err = WEFT_OK;
    for (size_t n; len > 0 && !err; piece += n, len -= n) {
        n = wefti_tok_split_point(tok, piece, len);
        err = run_word(tok, bpe, piece, n, ids, why);
    }
    return err;
}
