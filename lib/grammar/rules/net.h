/* grammar/net: rules as one net of states: what an Earley recogniser walks on.
 *
 * A rule that is a regular language in disguise (it does not need itself, or only as its last or its
 * first part) becomes one expression and costs no more than a regular expression. Of the others, all
 * that lies between their uses of rules is one expression, too. What can never be finished is cut off,
 * so whatever can be begun can be ended.
 * Source: Earley, CACM 1970, with rules whose right sides are automata.
 */
#ifndef WEFTI_GRAMMAR_NET_H
#define WEFTI_GRAMMAR_NET_H

#include "rules/tree.h"

enum wefti_net_kind {
    WEFTI_NET_SPLIT, /* to `next` and to `what`, without taking a text; either may be NONE */
    WEFTI_NET_EXPR,  /* takes a text that is not empty of expression `what`, to `next` */
    WEFTI_NET_RULE,  /* takes one of rule `what`, to `next` */
    WEFTI_NET_END,   /* of rule `what` */
};

#define WEFTI_NET_NONE UINT32_MAX

struct wefti_net_state {
    enum wefti_net_kind kind;
    uint32_t what, next;
};

struct wefti_net_rule {
    uint32_t start;
    bool takes_empty;
};

struct wefti_net {
    struct wefti_net_state *states; /* owned */
    uint32_t n_states, cap_states;
    uint32_t n_made;              /* states, after a failure too */
    struct wefti_net_rule *rules; /* owned; the first one is the root */
    uint32_t n_rules;
};

/* The rules that `root` needs. INVAL: no text fits, or none of a rule that the tree needs. TOOBIG:
 * over a million states, or the pool is full. */
WEFT_MUST_CHECK weft_err wefti_net_make(struct wefti_net *net, struct wefti_tree *tree,
                                        uint32_t root, struct weft_errmsg *why);
void wefti_net_fini(struct wefti_net *net);

#endif
