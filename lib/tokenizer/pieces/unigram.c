/* Unigram: the way to write a piece of text as tokens with the best sum of scores (Kudo 2018),
 * found by dynamic programming over the ends of characters.
 *
 * A position keeps the token that reaches it best; its score is needed only as far as the longest
 * token reaches, in a ring. So a byte of text takes four bytes of memory, and each character one
 * walk down the trie. The text is processed between places that no token spans
 * (wefti_tok_split_point); the sum continues over them, so the additions are those of the whole
 * text done at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/utf8.h"
#include "pieces/bpe.h"
#include "pieces/unigram.h"

#define UNKNOWN WEFTI_TOK_NO_ID /* a step of a path: a character that begins no token */

void wefti_tok_unigram_fini(struct wefti_tok_unigram *uni) {
    free(uni->reached_by);
    free(uni->ring);
    *uni = (struct wefti_tok_unigram){0};
}

static weft_err reserve(const weft_tokenizer *tok, struct wefti_tok_unigram *uni, size_t len) {
    if (!uni->ring) {
        size_t n = 8; /* more than the longest token and the longest character */
        while (n <= tok->trie.depth)
            n *= 2;
        uni->ring = malloc(n * sizeof *uni->ring);
        if (!uni->ring) return WEFT_E_NOMEM;
        uni->ring_mask = n - 1;
        for (size_t i = 0; i < n; i++)
            uni->ring[i] = -INFINITY;
    }
    if (len < uni->cap) return WEFT_OK;
    size_t cap = len + 1 < 2 * uni->cap ? 2 * uni->cap : len + 256;
    free(uni->reached_by);
    uni->reached_by = malloc(cap * sizeof *uni->reached_by);
    uni->cap = uni->reached_by ? cap : 0;
    return uni->reached_by ? WEFT_OK : WEFT_E_NOMEM;
}

/* Records the step to `end` if `score` is the best so far. */
static void offer(const weft_tokenizer *tok, struct wefti_tok_unigram *uni, size_t end,
                  double score, uint32_t id) {
    double *best = &uni->ring[end & uni->ring_mask];
    if (!(score > *best)) return;
    *best = tok->float_sums ? (double)(float)score : score;
    uni->reached_by[end] = id;
}

/* All tokens that begin at `at`. */
static void walk(const weft_tokenizer *tok, struct wefti_tok_unigram *uni, const char *text,
                 size_t len, size_t at, double sum) {
    size_t char_end = at + weft_utf8_len(text[at]);
    bool whole_char = false; /* some token is just this character */
    uint32_t node = 0;
    for (size_t end = at; end < len;) {
        node = wefti_tok_trie_step(&tok->trie, node, (uint8_t)text[end++]);
        if (node == 0) break;
        uint32_t id = tok->trie.nodes[node].id;
        if (id == WEFTI_TOK_NO_ID) continue;
        offer(tok, uni, end, sum + tok->scores[id], id);
        whole_char |= end == char_end;
    }
    if (whole_char) return;
    double score = sum + tok->unknown_score;
    offer(tok, uni, char_end, tok->float_sums ? (double)(float)score : score, UNKNOWN);
}

static size_t step_len(const weft_tokenizer *tok, const char *text, size_t end, uint32_t id) {
    if (id != UNKNOWN) return tok->vocab.tokens[id].piece_len;
    size_t at = end - 1;
    while (((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return end - at;
}

/* Reverses the path: afterwards reached_by[p] is the token that starts at p. */
static void reverse(const weft_tokenizer *tok, struct wefti_tok_unigram *uni, const char *text,
                    size_t len) {
    uint32_t id = uni->reached_by[len];
    for (size_t end = len; end > 0;) {
        size_t start = end - step_len(tok, text, end, id);
        uint32_t before = uni->reached_by[start];
        uni->reached_by[start] = id;
        id = before;
        end = start;
    }
}

static weft_err add_unknown(const weft_tokenizer *tok, struct wefti_tok_unigram *uni,
                            const char *text, size_t len, struct wefti_tok_ids *ids,
                            struct weft_errmsg *why) {
    bool goes_on = uni->last_unknown;
    uni->last_unknown = true;
    weft_err err = WEFT_OK;
    if (tok->byte_fallback) {
        for (size_t i = 0; i < len && !err; i++)
            err = wefti_tok_ids_add(ids, tok->fallback_ids[(unsigned char)text[i]], why);
    } else if (!goes_on && tok->unk_id != WEFTI_TOK_NO_ID) {
        err = wefti_tok_ids_add(ids, tok->unk_id, why);
    }
    return err;
}

static weft_err run_part(const weft_tokenizer *tok, struct wefti_tok_unigram *uni, const char *text,
                         size_t len, struct wefti_tok_ids *ids, struct weft_errmsg *why) {
    weft_err err = reserve(tok, uni, len);
    if (err) return err;
    uni->ring[0] = uni->sum;
    uni->reached_by[0] = UNKNOWN;
    for (size_t at = 0; at < len; at += weft_utf8_len(text[at])) {
        double *best = &uni->ring[at & uni->ring_mask], sum = *best;
        WEFT_ASSERT(sum > -INFINITY); /* every character is a step, at least an unknown one */
        *best = -INFINITY;            /* reused for a later position */
        walk(tok, uni, text, len, at, sum);
    }
    uni->sum = uni->ring[len & uni->ring_mask];
    uni->ring[len & uni->ring_mask] = -INFINITY;
    reverse(tok, uni, text, len);
    size_t n;
    for (size_t at = 0; at < len && !err; at += n) {
        uint32_t id = uni->reached_by[at];
        n = id == UNKNOWN ? weft_utf8_len(text[at]) : tok->vocab.tokens[id].piece_len;
        if (id == UNKNOWN) {
            err = add_unknown(tok, uni, text + at, n, ids, why);
        } else {
            uni->last_unknown = false;
            err = wefti_tok_ids_add(ids, id, why);
        }
    }
    return err;
}

weft_err wefti_tok_unigram_run(const weft_tokenizer *tok, struct wefti_tok_unigram *uni,
                               const char *text, size_t len, struct wefti_tok_ids *ids,
                               struct weft_errmsg *why) {
    WEFT_ASSERT(len <= WEFTI_TOK_TEXT_BYTES_MAX);
    weft_err err = WEFT_OK;
    uni->sum = 0;
    uni->last_unknown = false;
    for (size_t n; len > 0 && !err; text += n, len -= n) {
        n = wefti_tok_split_point(tok, text, len);
        err = run_part(tok, uni, text, n, ids, why);
    }
    return err;
}

weft_err wefti_tok_unigram_seal(weft_tokenizer *tok, struct weft_errmsg *why) {
    double least = INFINITY, most = -INFINITY;
    WEFT_ASSERT(tok->scores);
    for (uint32_t id = 0; id < tok->vocab.n_tokens; id++) {
        uint32_t flags = tok->vocab.tokens[id].flags;
        if (!(flags & WEFTI_TOK_PIECE)) continue;
        if (!(fabs(tok->scores[id]) <= WEFTI_TOK_SCORE_MAX))
            return weft_err_set(why, WEFT_E_PROTO, "the score of token %u is not a number up to %g",
                                id, WEFTI_TOK_SCORE_MAX);
        if (flags & WEFTI_TOK_CHOSEN) continue;
        if (tok->scores[id] < least) least = tok->scores[id];
        if (tok->scores[id] > most) most = tok->scores[id];
    }
    if (!(least <= most))
        return weft_err_set(why, WEFT_E_PROTO, "the vocabulary has no piece with a score");
    double unknown = least - 10;
    tok->unknown_score = tok->float_sums ? (double)(float)unknown : unknown;
    /* Better than any other way to write it. */
    for (uint32_t id = 0; id < tok->vocab.n_tokens; id++) {
        const struct wefti_tok_entry *token = &tok->vocab.tokens[id];
        if (token->flags & WEFTI_TOK_CHOSEN)
            tok->scores[id] = (double)((float)token->piece_len * (float)most) - 0.1;
    }
    return wefti_tok_trie_build(&tok->trie, &tok->vocab, why);
}
