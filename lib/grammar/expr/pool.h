/* grammar/pool: what a pool of expressions is made of, for the files of this room. */
#ifndef WEFTI_GRAMMAR_POOL_H
#define WEFTI_GRAMMAR_POOL_H

#include "expr/expr.h"

#define WEFTI_EXPR_MEMO 4096u

enum kind { NONE, EMPTY, ALL, SET, CAT, ALT, AND, NOT, REPEAT, MULTIPLE };
enum live { UNKNOWN, ALIVE, DEAD };

struct node {
    unsigned char kind, live;
    bool takes_empty : 1;
    bool has_text : 1; /* these surely, without a search */
    bool is_finite : 1, is_endless : 1;
    bool is_within : 1; /* the pool's `top` */
    bool is_chars : 1;  /* each text so many characters as they are written in a JSON string */
    bool is_tail : 1;   /* such, and a quote */
    uint32_t a, b; /* SET: index; CAT: both; ALT, AND: first child's place, count; NOT, REPEAT: a;
                    * MULTIPLE: m, the remainder so far */
    uint32_t min,
        max; /* MULTIPLE: places behind the point, and how many are left; MANY: no point yet */
};

struct memo {
    wefti_expr from, to;
    unsigned char byte;
    bool is_used;
};

struct wefti_expr_pool {
    struct node *nodes;
    uint32_t n, cap, n_max;
    uint32_t *slots; /* open addressing; 0 is free, else index + 1 below bits of a hash */
    uint32_t n_slots, slot_mask;
    wefti_expr *children;
    uint32_t n_children, cap_children;
    struct wefti_byte_set *sets;
    uint32_t n_sets, cap_sets;
    wefti_expr of_byte[256]; /* sets of one byte; NONE: not yet */
    unsigned char class_of[256], representatives[256];
    uint32_t n_classes;
    struct memo memo[WEFTI_EXPR_MEMO];
    wefti_expr top;  /* all strings; NONE: nobody has named them */
    wefti_expr tail; /* what is left of one behind its quote */
    uint64_t work, work_max;
    bool failed;
};

#endif
