/* tree — what a template is compiled to: flat arrays of nodes, expressions and arguments. */
#ifndef WEFT_TMPL_TREE_H
#define WEFT_TMPL_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "template.h"

#define WEFTI_TMPL_NO_IDX UINT32_MAX           /* no node, expression or argument */
#define WEFTI_TMPL_SOURCE_BYTES_MAX (1u << 20) /* a template's source; the longest seen has 17 kB */
#define WEFTI_TMPL_ITEMS_MAX (1u << 20)        /* of each array */

enum wefti_tmpl_expr_kind {
    WEFTI_TMPL_EXPR_STRING,
    WEFTI_TMPL_EXPR_WRITTEN, /* what the block around a filter wrote */
    WEFTI_TMPL_EXPR_INT,
    WEFTI_TMPL_EXPR_FLOAT,
    WEFTI_TMPL_EXPR_BOOL,
    WEFTI_TMPL_EXPR_NONE,
    WEFTI_TMPL_EXPR_NAME,   /* text */
    WEFTI_TMPL_EXPR_MEMBER, /* a . text */
    WEFTI_TMPL_EXPR_INDEX,  /* a [ b ] */
    WEFTI_TMPL_EXPR_SLICE,  /* a [ args ]: start, stop and step, absent ones WEFTI_TMPL_NO_IDX */
    WEFTI_TMPL_EXPR_CALL,   /* a ( args ) */
    WEFTI_TMPL_EXPR_FILTER, /* a | builtin ( args ) */
    WEFTI_TMPL_EXPR_TEST,   /* a is builtin ( args ) */
    WEFTI_TMPL_EXPR_LIST,   /* args */
    WEFTI_TMPL_EXPR_TUPLE,  /* args */
    WEFTI_TMPL_EXPR_DICT,   /* args: keys and values in turn */
    WEFTI_TMPL_EXPR_ADD,
    WEFTI_TMPL_EXPR_SUB,
    WEFTI_TMPL_EXPR_MUL,
    WEFTI_TMPL_EXPR_DIV,
    WEFTI_TMPL_EXPR_FLOORDIV,
    WEFTI_TMPL_EXPR_MOD,
    WEFTI_TMPL_EXPR_POW,
    WEFTI_TMPL_EXPR_NEG,
    WEFTI_TMPL_EXPR_POS,
    WEFTI_TMPL_EXPR_CONCAT,  /* a ~ b */
    WEFTI_TMPL_EXPR_COMPARE, /* a, then args with an operator each */
    WEFTI_TMPL_EXPR_AND,     /* yields the operand that decides, as in Python */
    WEFTI_TMPL_EXPR_OR,
    WEFTI_TMPL_EXPR_NOT,
    WEFTI_TMPL_EXPR_COND, /* b if a else c; without else c is WEFTI_TMPL_NO_IDX */
};

enum wefti_tmpl_cmp {
    WEFTI_TMPL_EQ,
    WEFTI_TMPL_NE,
    WEFTI_TMPL_LT,
    WEFTI_TMPL_LE,
    WEFTI_TMPL_GT,
    WEFTI_TMPL_GE,
    WEFTI_TMPL_IN,
    WEFTI_TMPL_NOT_IN
};

enum wefti_tmpl_arg_kind {
    WEFTI_TMPL_ARG_PLAIN,
    WEFTI_TMPL_ARG_NAMED,
    WEFTI_TMPL_ARG_LIST,
    WEFTI_TMPL_ARG_DICT
};

struct wefti_tmpl_arg {
    uint8_t kind; /* enum wefti_tmpl_arg_kind; in a comparison enum wefti_tmpl_cmp */
    uint32_t expr;
    uint32_t next; /* in tmpl->args, or WEFTI_TMPL_NO_IDX */
    struct weft_str name;
};

struct wefti_tmpl_builtin;

struct wefti_tmpl_expr {
    enum wefti_tmpl_expr_kind kind;
    uint32_t line;
    uint32_t depth;   /* of the tree below: how deep evaluation recurses */
    uint32_t a, b, c; /* operands, as indexes into the expressions */
    uint32_t args;    /* the first, or WEFTI_TMPL_NO_IDX */
    bool negated;     /* TEST */
    union {
        int64_t number; /* INT, BOOL */
        double real;
        const struct wefti_tmpl_builtin *builtin; /* FILTER, TEST: that of the name in `text`;
                                                    NULL: there is none, a fault if reached */
    };
    struct weft_str text;
};

enum wefti_tmpl_node_kind {
    WEFTI_TMPL_NODE_TEXT,
    WEFTI_TMPL_NODE_PRINT,
    WEFTI_TMPL_NODE_IF,
    WEFTI_TMPL_NODE_FOR,       /* target in expr if cond: body else otherwise */
    WEFTI_TMPL_NODE_SET,       /* target = expr */
    WEFTI_TMPL_NODE_SET_BLOCK, /* target = what `body` writes; with expr: filters over it */
    WEFTI_TMPL_NODE_MACRO,
    WEFTI_TMPL_NODE_CALL,   /* expr, with `body` as its caller */
    WEFTI_TMPL_NODE_FILTER, /* expr is a filter over what `body` writes */
    WEFTI_TMPL_NODE_WITH,   /* params are bound for `body` */
    WEFTI_TMPL_NODE_SCOPE,  /* body, in a scope of its own: {% generation %} */
    WEFTI_TMPL_NODE_BREAK,
    WEFTI_TMPL_NODE_CONTINUE,
};

#define WEFTI_TMPL_USES_CALLER 1u
#define WEFTI_TMPL_USES_VARARGS 2u
#define WEFTI_TMPL_USES_KWARGS 4u

struct wefti_tmpl_node {
    enum wefti_tmpl_node_kind kind;
    uint32_t line;
    uint32_t next;            /* its successor, or WEFTI_TMPL_NO_IDX */
    uint32_t expr;            /* or WEFTI_TMPL_NO_IDX */
    uint32_t cond;            /* FOR ... if */
    uint32_t target;          /* FOR, SET: an expression to bind to */
    uint32_t params;          /* MACRO, CALL, WITH: names with defaults, among the args */
    uint32_t body, otherwise; /* first nodes, or WEFTI_TMPL_NO_IDX */
    uint8_t uses;             /* MACRO, CALL: WEFTI_TMPL_USES_* */
    bool recursive;           /* FOR */
    struct weft_str text;     /* TEXT; MACRO's name */
};

struct weft_tmpl {
    char *source; /* owned; texts and literals point into it */
    size_t source_len;
    struct wefti_tmpl_expr *exprs;
    uint32_t n_exprs, exprs_cap;
    struct wefti_tmpl_node *nodes;
    uint32_t n_nodes, nodes_cap;
    struct wefti_tmpl_arg *args;
    uint32_t n_args, args_cap;
    uint32_t first;
    struct weft_tmpl_specials specials; /* texts borrowed from the caller */
};

#endif
