/* trie — the pieces that a text may begin with, byte by byte. */
#ifndef WEFT_TOK_TRIE_H
#define WEFT_TOK_TRIE_H

#include "vocab/vocab.h"

struct wefti_tok_trie_node {
    uint32_t first, n; /* children, by byte */
    uint32_t id;       /* the piece that ends here, or WEFTI_TOK_NO_ID */
};

struct wefti_tok_trie {
    struct wefti_tok_trie_node *nodes; /* the root is 0 */
    uint8_t *labels;                   /* by node: the byte that leads there */
    uint32_t n;
    uint32_t depth; /* bytes of the longest piece */
    uint32_t root[256];
};

/* All pieces that are not special; of two equal ones the higher id counts. */
weft_err wefti_tok_trie_build(struct wefti_tok_trie *trie, const struct wefti_tok_vocab *vocab,
                              struct weft_errmsg *why);
void wefti_tok_trie_fini(struct wefti_tok_trie *trie);
/* The child of `node` for a byte; 0: none. */
uint32_t wefti_tok_trie_step(const struct wefti_tok_trie *trie, uint32_t node, uint8_t byte);

#endif
