/* grammar/vocab: a vocabulary as a trie, in the order of a walk that goes to children first. */
#ifndef WEFTI_GRAMMAR_VOCAB_H
#define WEFTI_GRAMMAR_VOCAB_H

#include "grammar.h"

#define WEFTI_VOCAB_NONE UINT32_MAX

/* Node 0 is the root. Children of a node follow it; `end` is the first node behind all below. */
struct wefti_vocab_node {
    uint32_t end;
    uint32_t token; /* the first one that is spelled so, or NONE */
    uint16_t depth; /* bytes from the root */
    unsigned char byte;
    bool has_same; /* another token is spelled so, too: no look at a list that is in no cache */
};

/* Tokens of more bytes are *long*. There are few, and whoever leaves them out needs to know of a state only what
 * so many bytes make of it. */
#define WEFTI_VOCAB_SHORT_MAX 32u

/* Short tokens that are whole characters, none of which a JSON string escapes, are *plain*. Where all of them
 * fit, or all of so many characters, as nearly everywhere in a string, only the others need a walk. */

/* UTF-8 as an automaton whose state 0 is between characters: in `from`, bytes of a range lead to `to`. */
struct wefti_vocab_plain {
    unsigned char from, first, last, to;
};
#define WEFTI_VOCAB_PLAIN_N 18u
extern const struct wefti_vocab_plain wefti_vocab_plain[WEFTI_VOCAB_PLAIN_N];

struct wefti_vocab_trie {
    struct wefti_vocab_node *nodes;
    uint32_t n_nodes;
};

struct weft_gram_vocab {
    struct wefti_vocab_trie all, others, extra; /* short; short and not plain; long */
    uint64_t
        *plain; /* masks of the plain ones of at most 0, 1, ... WEFTI_VOCAB_SHORT_MAX characters */
    uint32_t *same;             /* by token: the next one that is spelled so */
    uint32_t n_tokens, n_depth; /* the longest token's bytes */
    uint64_t id;                /* no other vocabulary of this process has it */
};

#endif
