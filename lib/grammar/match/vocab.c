#include "match/vocab.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"

#define TOKEN_BYTES_MAX 4096u

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
static void build(weft_gram_vocab *vocab, const struct spelling *list, uint32_t n, uint32_t *open) {
    static const struct spelling none;
    vocab->nodes[0] = (struct wefti_vocab_node){.token = WEFTI_VOCAB_NONE};
    vocab->n_nodes = 1;
    open[0] = 0;
    uint32_t n_open = 0; /* below the root */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = n_shared(i ? &list[i - 1] : &none, &list[i]);
        for (; n_open > shared; n_open--)
            vocab->nodes[open[n_open]].end = vocab->n_nodes;
        for (; n_open < list[i].len; n_open++) {
            open[n_open + 1] = vocab->n_nodes;
            vocab->nodes[vocab->n_nodes++] =
                (struct wefti_vocab_node){.token = WEFTI_VOCAB_NONE,
                                          .depth = (uint16_t)(n_open + 1),
                                          .byte = list[i].text[n_open]};
        }
        struct wefti_vocab_node *node = &vocab->nodes[open[n_open]];
        vocab->same[list[i].token] = node->token;
        node->token = list[i].token;
    }
    for (;; n_open--) {
        vocab->nodes[open[n_open]].end = vocab->n_nodes;
        if (n_open == 0) break;
    }
}

weft_err weft_gram_vocab_new(const struct weft_str *tokens, uint32_t n,
                             weft_gram_vocab **vocab_out) {
    size_t n_bytes = 0;
    uint32_t n_spelled = 0;
    weft_err err = WEFT_E_NOMEM;
    *vocab_out = NULL;
    weft_gram_vocab *vocab = calloc(1, sizeof *vocab);
    struct spelling *list = malloc(((size_t)n + 1) * sizeof *list);
    uint32_t open[TOKEN_BYTES_MAX + 1];
    if (!vocab || !list) goto cleanup;
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i].len == 0) continue;
        err = WEFT_E_TOOBIG;
        if (tokens[i].len > TOKEN_BYTES_MAX) goto cleanup;
        list[n_spelled++] =
            (struct spelling){(const unsigned char *)tokens[i].data, (uint32_t)tokens[i].len, i};
        n_bytes += tokens[i].len;
        vocab->n_depth = weft_max_u32(vocab->n_depth, (uint32_t)tokens[i].len);
    }
    err = WEFT_E_NOMEM;
    vocab->n_tokens = n;
    vocab->id = ++n_vocabs;
    vocab->nodes = malloc((n_bytes + 1) * sizeof *vocab->nodes);
    vocab->same = malloc(((size_t)n + 1) * sizeof *vocab->same);
    if (!vocab->nodes || !vocab->same) goto cleanup;
    qsort(list, n_spelled, sizeof *list, compare);
    build(vocab, list, n_spelled, open);
    struct wefti_vocab_node *nodes = realloc(vocab->nodes, vocab->n_nodes * sizeof *nodes);
    if (nodes) vocab->nodes = nodes;
    *vocab_out = vocab;
    vocab = NULL;
    err = WEFT_OK;
cleanup:
    free(list);
    weft_gram_vocab_free(vocab);
    return err;
}

void weft_gram_vocab_free(weft_gram_vocab *vocab) {
    if (!vocab) return;
    free(vocab->nodes);
    free(vocab->same);
    free(vocab);
}
