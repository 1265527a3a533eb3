/* grammar/tree: rules as they are written: sequences, choices and repeats of expressions and of other
 * rules. Readers of notations build one; rules/net.h makes it runnable. */
#ifndef WEFTI_GRAMMAR_TREE_H
#define WEFTI_GRAMMAR_TREE_H

#include "base/grammar.h"
#include "expr/expr.h"
#include "grammar.h"

#define WEFTI_TREE_NONE UINT32_MAX

enum wefti_tree_kind {
    WEFTI_TREE_EXPR,
    WEFTI_TREE_RULE,
    WEFTI_TREE_CAT, /* no child: the empty text */
    WEFTI_TREE_ALT, /* no child: no text */
    WEFTI_TREE_REPEAT,
    /* Members in order, with a separator between those that are there: a REPEAT of at most one may be
     * left out, one of many may come again and again, any other must be there; between min and max of
     * them in all. */
    WEFTI_TREE_CHAIN,
};

struct wefti_tree_node {
    enum wefti_tree_kind kind;
    uint32_t child, next; /* the first one; its brother */
    uint32_t what;        /* EXPR: the expression; RULE: its index */
    uint32_t min, max;
    wefti_expr separator; /* CHAIN */
    bool has_words;       /* as the tree was when it was made */
};

/* A rule of which there must be a text, and how messages call it. */
struct wefti_tree_need {
    uint32_t rule;
    char *name; /* owned */
};

struct wefti_tree {
    wefti_expr_pool *pool; /* borrowed */
    struct wefti_tree_node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *bodies; /* of rules; WEFTI_TREE_NONE: not defined */
    uint32_t n_rules, cap_rules;
    struct wefti_tree_need *needs;
    uint32_t n_needs, cap_needs;
    /* What is made from here on has expressions that each stand for themselves, as a word of a language does: a
     * string of JSON is then in the same state wherever it stands, and what is known of it is known
     * everywhere. */
    bool has_words;
    const struct weft_gram_specials *specials; /* NULL: any special token may be there */
    uint32_t json_blanks, json_digits;         /* of what is made from schemas: base/grammar.h */
    bool failed;                               /* no memory, or over a million nodes */
};

void wefti_tree_init(struct wefti_tree *tree, wefti_expr_pool *pool);
void wefti_tree_fini(struct wefti_tree *tree);

uint32_t wefti_tree_expr(struct wefti_tree *tree, wefti_expr expr);
uint32_t wefti_tree_rule(struct wefti_tree *tree, uint32_t rule);
/* A CAT or ALT without children, and its children one by one. */
uint32_t wefti_tree_parent(struct wefti_tree *tree, enum wefti_tree_kind kind);
void wefti_tree_add(struct wefti_tree *tree, uint32_t parent, uint32_t child);
uint32_t wefti_tree_repeat(struct wefti_tree *tree, uint32_t child, uint32_t min, uint32_t max);
/* A CHAIN without children. */
uint32_t wefti_tree_chain(struct wefti_tree *tree, wefti_expr separator, uint32_t min,
                          uint32_t max);
/* A new rule without a body. */
uint32_t wefti_tree_new_rule(struct wefti_tree *tree);
/* Without a text of this rule there is to be no grammar, though the others would do without it. */
void wefti_tree_need(struct wefti_tree *tree, uint32_t rule, const char *name);

#endif
