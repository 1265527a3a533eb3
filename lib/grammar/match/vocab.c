#include "match/vocab.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define TOKEN_BYTES_MAX (WEFT_GRAM_TOKEN_BYTES_MAX + 2) /* of a special one */

static _Atomic uint64_t n_vocabs;

struct spelling {
    const unsigned char *text;
    uint32_t len, token;
};

static int compare(const void *x, const void *y) {
    const struct spelling *a = x, *b = y;
    int order = memcmp(a->text, b->text, weft_min_u32(a->len, b->len));
    if (order) return order;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

static uint32_t n_shared(const struct spelling *a, const struct spelling *b) {
    uint32_t n = 0, len = weft_min_u32(a->len, b->len);
    while (n < len && a->text[n] == b->text[n])
        n++;
    return n;
}

/* In order of their texts; the nodes between the root and the last one added are open. */
static void build(struct wefti_vocab_trie *trie, uint32_t *same, const struct spelling *list,
                  uint32_t n, uint32_t *open) {
    static const struct spelling none;
    trie->nodes[0] = (struct wefti_vocab_node){.token = WEFTI_VOCAB_NONE};
    trie->n_nodes = 1;
    open[0] = 0;
    uint32_t n_open = 0; /* below the root */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = n_shared(i ? &list[i - 1] : &none, &list[i]);
        for (; n_open > shared; n_open--)
            trie->nodes[open[n_open]].end = trie->n_nodes;
        for (; n_open < list[i].len; n_open++) {
            open[n_open + 1] = trie->n_nodes;
            trie->nodes[trie->n_nodes++] =
                (struct wefti_vocab_node){.token = WEFTI_VOCAB_NONE,
                                          .depth = (uint16_t)(n_open + 1),
                                          .byte = list[i].text[n_open]};
        }
        struct wefti_vocab_node *node = &trie->nodes[open[n_open]];
        same[list[i].token] = node->token;
        node->has_same = node->token != WEFTI_VOCAB_NONE;
        node->token = list[i].token;
    }
    for (;; n_open--) {
        trie->nodes[open[n_open]].end = trie->n_nodes;
        if (n_open == 0) break;
    }
}

/* False: no memory. */
static bool make_trie(struct wefti_vocab_trie *trie, uint32_t *same, const struct spelling *list,
                      uint32_t n) {
    uint32_t open[TOKEN_BYTES_MAX + 1];
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += list[i].len;
    trie->nodes = malloc((n_bytes + 1) * sizeof *trie->nodes);
    if (!trie->nodes) return false;
    build(trie, same, list, n, open);
    struct wefti_vocab_node *nodes = realloc(trie->nodes, trie->n_nodes * sizeof *nodes);
    if (nodes) trie->nodes = nodes;
    return true;
}

const struct wefti_vocab_plain wefti_vocab_plain[WEFTI_VOCAB_PLAIN_N] = {
    {0, 0x20, 0x21, 0}, {0, 0x23, 0x5b, 0}, {0, 0x5d, 0x7e, 0}, {0, 0xc2, 0xdf, 1},
    {0, 0xe0, 0xe0, 4}, {0, 0xe1, 0xec, 2}, {0, 0xed, 0xed, 5}, {0, 0xee, 0xef, 2},
    {0, 0xf0, 0xf0, 6}, {0, 0xf1, 0xf3, 3}, {0, 0xf4, 0xf4, 7}, {1, 0x80, 0xbf, 0},
    {2, 0x80, 0xbf, 1}, {3, 0x80, 0xbf, 2}, {4, 0xa0, 0xbf, 1}, {5, 0x80, 0x9f, 1},
    {6, 0x90, 0xbf, 2}, {7, 0x80, 0x8f, 2}};

/* How many characters a plain one has, else 0. */
static uint32_t n_plain(const struct spelling *one) {
    unsigned char at = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < one->len; i++) {
        uint32_t k = 0;
        while (k < WEFTI_VOCAB_PLAIN_N &&
               (wefti_vocab_plain[k].from != at || one->text[i] < wefti_vocab_plain[k].first ||
                one->text[i] > wefti_vocab_plain[k].last))
            k++;
        if (k == WEFTI_VOCAB_PLAIN_N) return 0;
        at = wefti_vocab_plain[k].to;
        n += at == 0;
    }
    return at == 0 ? n : 0;
}

/* Takes long ones to the end of the list; both parts stay in order. */
static uint32_t part_long(struct spelling *list, uint32_t n, struct spelling *scratch) {
    uint32_t n_short = 0, n_long = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].len > WEFTI_VOCAB_SHORT_MAX)
            scratch[n_long++] = list[i];
        else
            list[n_short++] = list[i];
    }
    if (n_long > 0) memcpy(list + n_short, scratch, n_long * sizeof *list);
    return n_short;
}

/* Takes the plain ones out of the list of short ones; the others stay in order. */
static uint32_t part_plain(weft_gram_vocab *vocab, struct spelling *list, uint32_t n) {
    size_t n_words = weft_gram_mask_words(vocab->n_tokens);
    uint32_t n_others = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_chars = n_plain(&list[i]);
        if (n_chars == 0) list[n_others++] = list[i];
        for (uint32_t k = n_chars; k > 0 && k <= WEFTI_VOCAB_SHORT_MAX; k++)
            vocab->plain[k * n_words + list[i].token / 64] |= (uint64_t)1 << (list[i].token % 64);
    }
    return n_others;
}

weft_err weft_gram_vocab_new(const struct weft_str *tokens, uint32_t n,
                             weft_gram_vocab **vocab_out) {
    uint32_t n_spelled = 0;
    weft_err err = WEFT_E_NOMEM;
    *vocab_out = NULL;
    weft_gram_vocab *vocab = calloc(1, sizeof *vocab);
    struct spelling *list = malloc(2 * ((size_t)n + 1) * sizeof *list);
    if (!vocab || !list) goto cleanup;
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i].len == 0) continue;
        err = WEFT_E_TOOBIG;
        if (tokens[i].len > TOKEN_BYTES_MAX) goto cleanup;
        list[n_spelled++] =
            (struct spelling){(const unsigned char *)tokens[i].data, (uint32_t)tokens[i].len, i};
        vocab->n_depth = weft_max_u32(vocab->n_depth, (uint32_t)tokens[i].len);
    }
    err = WEFT_E_NOMEM;
    vocab->n_tokens = n;
    vocab->id = ++n_vocabs;
    vocab->plain =
        calloc((weft_gram_mask_words(n) + 1) * (WEFTI_VOCAB_SHORT_MAX + 1), sizeof *vocab->plain);
    vocab->same = malloc(((size_t)n + 1) * sizeof *vocab->same);
    if (!vocab->plain || !vocab->same) goto cleanup;
    if (n_spelled > 1) qsort(list, n_spelled, sizeof *list, compare);
    /* who is spelled alike stays together */
    uint32_t n_short = part_long(list, n_spelled, list + n_spelled);
    if (!make_trie(&vocab->extra, vocab->same, list + n_short, n_spelled - n_short)) goto cleanup;
    if (!make_trie(&vocab->all, vocab->same, list, n_short)) goto cleanup;
    n_short = part_plain(vocab, list, n_short);
    if (!make_trie(&vocab->others, vocab->same, list, n_short)) goto cleanup;
    *vocab_out = vocab;
    vocab = NULL;
    err = WEFT_OK;
cleanup:
    free(list);
    weft_gram_vocab_free(vocab);
    return err;
}

weft_err weft_gram_vocab_with_special(const struct weft_str *tokens, const bool *is_special,
                                      uint32_t n, weft_gram_vocab **vocab_out) {
    size_t n_bytes = 0;
    weft_err err = WEFT_E_NOMEM;
    *vocab_out = NULL;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += is_special[i] ? tokens[i].len + 2 : 0;
    struct weft_str *spelled = calloc((size_t)n + 1, sizeof *spelled);
    char *room = malloc(n_bytes + 1), *at = room;
    for (uint32_t i = 0; i < n && spelled && room; i++) {
        struct weft_str token = tokens[i];
        if (token.len == 0 || memchr(token.data, WEFT_GRAM_SPECIAL, token.len)) continue;
        spelled[i] = token;
        if (!is_special[i]) continue;
        spelled[i] = (struct weft_str){at, token.len + 2};
        at[0] = at[token.len + 1] = (char)WEFT_GRAM_SPECIAL;
        memcpy(at + 1, token.data, token.len);
        at += token.len + 2;
    }
    if (spelled && room) err = weft_gram_vocab_new(spelled, n, vocab_out);
    free(spelled);
    free(room);
    return err;
}

void weft_gram_vocab_free(weft_gram_vocab *vocab) {
    if (!vocab) return;
    free(vocab->all.nodes);
    free(vocab->others.nodes);
    free(vocab->extra.nodes);
    free(vocab->plain);
    free(vocab->same);
    free(vocab);
}
