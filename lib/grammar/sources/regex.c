/* A tree becomes an expression from its end: what is translated is a node together with all that comes
 * behind it, so that an anchor or a look-ahead is an intersection with what comes. Whether "^" fits depends on what
 * came before, so all is translated for the start of the text and for any other place, side by side. Nodes
 * without any of these are translated by themselves. */
#include "sources/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "expr/chars.h"
#include "sources/regex_tree.h"

#define LARGE 64u
#define LARGE_KEPT 4u
#define LIST_ROOM 16u /* most lists are shorter, and take nothing from the heap */

struct translation {
    wefti_expr_pool *pool;
    struct wefti_regex_tree *tree;
    enum wefti_writing writing;
    struct weft_errmsg *why;
    weft_err err;
    struct {
        uint32_t set;
        wefti_expr expr;
    } large[LARGE_KEPT]; /* classes of many ranges: what they are made of takes long. NONE: free */
    uint32_t n_large;
    wefti_expr of_char[128]; /* of literals in a JSON string; NONE: not yet */
};

/* What may stand at a place and behind it: where the place is the start of the text, and where it is not. */
struct behind {
    wefti_expr at_start, later;
};

static struct behind translate(struct translation *t, uint32_t node, struct behind behind);

static void refuse(struct translation *t, const char *what) {
    if (!t->err) t->err = weft_err_set(t->why, WEFT_E_UNSUPPORTED, "regular expression: %s", what);
}

static const struct wefti_regex_node *node_of(const struct translation *t, uint32_t node) {
    WEFT_ASSERT(node < t->tree->n);
    return &t->tree->nodes[node];
}

/* Children, first to last. */
struct list {
    uint32_t *at; /* `room`, or of malloc */
    size_t n;
    uint32_t room[LIST_ROOM];
};

/* Empty, too, where there is no memory. */
static void list_children(struct translation *t, uint32_t parent, struct list *list) {
    size_t n = 0;
    list->at = list->room;
    for (uint32_t at = node_of(t, parent)->child; at != WEFTI_REGEX_NO_NODE;
         at = node_of(t, at)->next) {
        if (n < LIST_ROOM) list->room[n] = at;
        n++;
    }
    list->n = n;
    if (n <= LIST_ROOM) return;
    list->at = malloc(n * sizeof *list->at);
    list->n = 0;
    if (!list->at) t->err = weft_err_set(t->why, WEFT_E_NOMEM, "out of memory");
    for (uint32_t at = node_of(t, parent)->child; list->at && at != WEFTI_REGEX_NO_NODE;
         at = node_of(t, at)->next)
        list->at[list->n++] = at;
}

static void list_fini(struct list *list) {
    if (list->at != list->room) free(list->at);
}

static bool is_same(const struct wefti_chars *a, const struct wefti_chars *b) {
    return a->n == b->n && memcmp(a->ranges, b->ranges, a->n * sizeof *a->ranges) == 0;
}

static wefti_expr translate_chars(struct translation *t, uint32_t idx) {
    struct wefti_chars *sets = t->tree->sets;
    bool is_large = sets[idx].n > LARGE;
    for (uint32_t i = 0; i < LARGE_KEPT && is_large; i++) {
        bool is_used = t->large[i].expr != WEFTI_EXPR_NONE;
        if (is_used && is_same(&sets[t->large[i].set], &sets[idx])) return t->large[i].expr;
    }
    wefti_expr expr = wefti_chars_expr(t->pool, &sets[idx], t->writing);
    if (is_large) {
        t->large[t->n_large % LARGE_KEPT].set = idx;
        t->large[t->n_large++ % LARGE_KEPT].expr = expr;
    }
    return expr;
}

static wefti_expr translate_literal(struct translation *t, const struct wefti_regex_node *at,
                                    wefti_expr behind) {
    const char *text = t->tree->text.data + at->min;
    if (t->writing == WEFTI_PLAIN) return wefti_expr_literal_before(t->pool, text, at->max, behind);
    for (size_t i = at->max; i-- > 0;) {
        unsigned char c = (unsigned char)text[i];
        WEFT_ASSERT(c < 128);
        if (t->of_char[c] == WEFTI_EXPR_NONE) {
            struct wefti_chars one = {0};
            wefti_chars_add(&one, c, c);
            t->of_char[c] = wefti_chars_expr(t->pool, &one, t->writing);
            wefti_chars_fini(&one);
        }
        behind = wefti_expr_cat(t->pool, t->of_char[c], behind);
    }
    return behind;
}

/* A node that asserts nothing, and then `behind`. From its end, so that nothing is made twice. */
static wefti_expr translate_plain(struct translation *t, uint32_t node, wefti_expr behind) {
    const struct wefti_regex_node *at = node_of(t, node);
    struct list list;
    WEFT_ASSERT(!at->asserts);
    if (at->kind == WEFTI_REGEX_LITERAL) return translate_literal(t, at, behind);
    wefti_expr whole = WEFTI_EXPR_NONE;
    if (at->kind == WEFTI_REGEX_CHARS) {
        whole = translate_chars(t, at->min);
        return wefti_expr_cat(t->pool, whole, behind);
    }
    if (at->kind == WEFTI_REGEX_REPEAT) {
        whole = translate_plain(t, at->child, WEFTI_EXPR_EMPTY);
        whole = wefti_expr_repeat(t->pool, whole, at->min, at->max);
        return wefti_expr_cat(t->pool, whole, behind);
    }
    list_children(t, node, &list);
    if (at->kind == WEFTI_REGEX_CAT) {
        for (size_t i = list.n; i-- > 0;)
            behind = translate_plain(t, list.at[i], behind);
    } else {
        for (size_t i = list.n; i-- > 0;) /* an expression is a number, as a node is */
            list.at[i] = translate_plain(t, list.at[i], WEFTI_EXPR_EMPTY);
        whole = wefti_expr_choices(t->pool, list.at, list.n);
        behind = wefti_expr_cat(t->pool, whole, behind);
    }
    list_fini(&list);
    return behind;
}

static struct behind translate_cat(struct translation *t, uint32_t node, struct behind behind) {
    struct list list;
    list_children(t, node, &list);
    for (size_t i = list.n; i-- > 0 && !t->err;)
        behind = translate(t, list.at[i], behind);
    list_fini(&list);
    return behind;
}

static struct behind translate_alt(struct translation *t, uint32_t node, struct behind behind) {
    struct behind whole = {WEFTI_EXPR_NONE, WEFTI_EXPR_NONE};
    for (uint32_t at = node_of(t, node)->child; at != WEFTI_REGEX_NO_NODE && !t->err;
         at = node_of(t, at)->next) {
        struct behind one = translate(t, at, behind);
        whole.at_start = wefti_expr_alt2(t->pool, whole.at_start, one.at_start);
        whole.later = wefti_expr_alt2(t->pool, whole.later, one.later);
    }
    return whole;
}

/* A node that asserts nothing: what is behind it is at the start only if the node took nothing. */
static struct behind translate_apart(struct translation *t, uint32_t node, struct behind behind) {
    struct behind whole = {0, translate_plain(t, node, behind.later)};
    whole.at_start = whole.later;
    if (behind.at_start == behind.later) return whole;
    wefti_expr plain = translate_plain(t, node, WEFTI_EXPR_EMPTY);
    if (!wefti_expr_takes_empty(t->pool, plain)) return whole;
    wefti_expr some = wefti_expr_not(t->pool, WEFTI_EXPR_EMPTY);
    some = wefti_expr_cat(t->pool, wefti_expr_and2(t->pool, plain, some), behind.later);
    whole.at_start = wefti_expr_alt2(t->pool, some, behind.at_start);
    return whole;
}

static struct behind both(struct translation *t, struct behind a, struct behind b) {
    return (struct behind){wefti_expr_and2(t->pool, a.at_start, b.at_start),
                           wefti_expr_and2(t->pool, a.later, b.later)};
}

static struct behind translate_repeat(struct translation *t, const struct wefti_regex_node *at,
                                      struct behind behind) {
    if (at->max > 1) {
        refuse(t, "an anchor or look-ahead in a repeat is not supported");
        return behind;
    }
    struct behind once = at->max ? translate(t, at->child, behind) : behind;
    if (at->min) return once;
    return (struct behind){wefti_expr_alt2(t->pool, once.at_start, behind.at_start),
                           wefti_expr_alt2(t->pool, once.later, behind.later)};
}

static struct behind translate(struct translation *t, uint32_t node, struct behind behind) {
    static const struct behind all = {WEFTI_EXPR_ALL, WEFTI_EXPR_ALL},
                               empty = {WEFTI_EXPR_EMPTY, WEFTI_EXPR_EMPTY};
    const struct wefti_regex_node *at = node_of(t, node);
    struct behind ahead;
    if (!at->asserts) return translate_apart(t, node, behind);
    switch (at->kind) {
    case WEFTI_REGEX_START:
        return (struct behind){behind.at_start, WEFTI_EXPR_NONE};
    case WEFTI_REGEX_END:
        return both(t, behind, empty);
    case WEFTI_REGEX_AHEAD:
        return both(t, behind, translate(t, at->child, all));
    case WEFTI_REGEX_NOT_AHEAD:
        ahead = translate(t, at->child, all);
        ahead.at_start = wefti_expr_not(t->pool, ahead.at_start);
        ahead.later = wefti_expr_not(t->pool, ahead.later);
        return both(t, behind, ahead);
    case WEFTI_REGEX_CAT:
        return translate_cat(t, node, behind);
    case WEFTI_REGEX_ALT:
        return translate_alt(t, node, behind);
    case WEFTI_REGEX_REPEAT:
        return translate_repeat(t, at, behind);
    case WEFTI_REGEX_CHARS:
    case WEFTI_REGEX_LITERAL:
        break;
    }
    WEFT_ASSERT(false);
    return behind;
}

weft_err wefti_regex_expr(wefti_expr_pool *pool, struct weft_str text, enum wefti_regex_kind kind,
                          enum wefti_writing writing, wefti_expr *expr_out,
                          struct weft_errmsg *why) {
    struct wefti_regex_tree tree;
    *expr_out = WEFTI_EXPR_NONE;
    weft_err err = wefti_regex_tree_read(&tree, text, kind, 0, why);
    if (err) return err;
    struct translation t = {.pool = pool, .tree = &tree, .writing = writing, .why = why};
    wefti_expr any = wefti_chars_any(pool, writing), tail = WEFTI_EXPR_EMPTY;
    if (kind == WEFTI_REGEX_SEARCH) tail = wefti_expr_repeat(pool, any, 0, WEFTI_EXPR_MANY);
    struct behind root = translate(&t, tree.n - 1, (struct behind){tail, tail});
    wefti_expr whole = root.at_start;
    if (kind == WEFTI_REGEX_SEARCH && !t.err) {
        wefti_expr before = wefti_expr_repeat(pool, any, 1, WEFTI_EXPR_MANY);
        whole = wefti_expr_alt2(pool, whole, wefti_expr_cat(pool, before, root.later));
    }
    wefti_regex_tree_fini(&tree);
    bool is_alone = kind == WEFTI_REGEX_MATCH && writing == WEFTI_PLAIN;
    bool is_dead = !t.err && is_alone && !wefti_expr_is_live(pool, whole);
    if (!t.err && wefti_expr_pool_failed(pool))
        t.err = weft_err_set(why, WEFT_E_TOOBIG, "the regular expression is too large");
    else if (is_dead)
        t.err = weft_err_set(why, WEFT_E_INVAL, "no text fits the regular expression");
    if (!t.err) *expr_out = whole;
    return t.err;
}

weft_err wefti_regex_word(wefti_expr_pool *pool, struct weft_str text, unsigned flags,
                          wefti_expr *expr_out, struct weft_errmsg *why) {
    struct wefti_regex_tree tree;
    *expr_out = WEFTI_EXPR_NONE;
    weft_err err =
        wefti_regex_tree_read(&tree, text, WEFTI_REGEX_MATCH, flags | WEFTI_REGEX_IS_WORD, why);
    if (err) return err;
    struct translation t = {.pool = pool, .tree = &tree, .writing = WEFTI_PLAIN, .why = why};
    wefti_expr whole = translate_plain(&t, tree.n - 1, WEFTI_EXPR_EMPTY);
    wefti_regex_tree_fini(&tree);
    if (!t.err && wefti_expr_pool_failed(pool))
        t.err = weft_err_set(why, WEFT_E_TOOBIG, "the regular expression is too large");
    if (!t.err) *expr_out = whole;
    return t.err;
}
