/* A tree becomes an expression from its end: what is translated is a node together with all that comes
 * behind it, so that an anchor or a look-ahead is an intersection with what comes. Nodes without any are
 * translated by themselves. */
#include "sources/regex.h"

#include <stdlib.h>

#include "base/check.h"
#include "expr/chars.h"
#include "sources/regex_tree.h"

struct translation {
    wefti_expr_pool *pool;
    struct wefti_regex_tree *tree;
    enum wefti_writing writing;
    struct weft_errmsg *why;
    weft_err err;
};

static wefti_expr translate(struct translation *t, uint32_t node, wefti_expr behind, bool at_start);

static wefti_expr refuse(struct translation *t, const char *what) {
    if (!t->err) t->err = weft_err_set(t->why, WEFT_E_UNSUPPORTED, "regular expression: %s", what);
    return WEFTI_EXPR_NONE;
}

static const struct wefti_regex_node *node_of(const struct translation *t, uint32_t node) {
    WEFT_ASSERT(node < t->tree->n);
    return &t->tree->nodes[node];
}

/* The children, first to last. NULL: there are none, or no memory. */
static uint32_t *list_children(struct translation *t, uint32_t parent, size_t *n_out) {
    size_t n = 0;
    for (uint32_t at = node_of(t, parent)->child; at != WEFTI_REGEX_NO_NODE;
         at = node_of(t, at)->next)
        n++;
    *n_out = n;
    uint32_t *list = n ? calloc(n, sizeof *list) : NULL;
    if (n && !list) t->err = weft_err_set(t->why, WEFT_E_NOMEM, "out of memory");
    n = 0;
    for (uint32_t at = node_of(t, parent)->child; list && at != WEFTI_REGEX_NO_NODE;
         at = node_of(t, at)->next)
        list[n++] = at;
    return list;
}

/* One that asserts nothing. */
static wefti_expr translate_plain(struct translation *t, uint32_t node) {
    const struct wefti_regex_node *at = node_of(t, node);
    size_t n;
    WEFT_ASSERT(!at->asserts);
    if (at->kind == WEFTI_REGEX_CHARS)
        return wefti_chars_expr(t->pool, &t->tree->nodes[node].set, t->writing);
    if (at->kind == WEFTI_REGEX_REPEAT)
        return wefti_expr_repeat(t->pool, translate_plain(t, at->child), at->min, at->max);
    uint32_t *list = list_children(t, node, &n);
    wefti_expr whole = at->kind == WEFTI_REGEX_CAT ? WEFTI_EXPR_EMPTY : WEFTI_EXPR_NONE;
    wefti_expr *parts = list ? calloc(n, sizeof *parts) : NULL;
    for (size_t i = n; parts && i-- > 0;) {
        parts[i] = translate_plain(t, list[i]);
        if (at->kind == WEFTI_REGEX_CAT) whole = wefti_expr_cat(t->pool, parts[i], whole);
    }
    if (parts && at->kind == WEFTI_REGEX_ALT) whole = wefti_expr_choices(t->pool, parts, n);
    if (list && !parts) t->err = weft_err_set(t->why, WEFT_E_NOMEM, "out of memory");
    free(parts);
    free(list);
    return whole;
}

static bool has_start(const struct translation *t, uint32_t node) {
    const struct wefti_regex_node *at = node_of(t, node);
    if (at->kind == WEFTI_REGEX_START) return true;
    for (uint32_t child = at->child; at->asserts && child != WEFTI_REGEX_NO_NODE;
         child = node_of(t, child)->next) {
        if (has_start(t, child)) return true;
    }
    return false;
}

static wefti_expr translate_cat(struct translation *t, uint32_t node, wefti_expr behind,
                                bool at_start) {
    size_t n, n_zero = 0;
    uint32_t *list = list_children(t, node, &n);
    while (list && n_zero < n && node_of(t, list[n_zero])->is_zero_width)
        n_zero++; /* the child behind those is at the start, too */
    for (size_t i = n_zero + 1; list && i < n && at_start; i++) {
        if (has_start(t, list[i]) && !node_of(t, list[n_zero])->asserts &&
            wefti_expr_takes_empty(t->pool, translate_plain(t, list[n_zero])))
            behind = refuse(t, "\"^\" behind something that may be empty is not supported");
    }
    for (size_t i = n; list && i-- > 0 && !t->err;)
        behind = translate(t, list[i], behind, at_start && i <= n_zero);
    free(list);
    return behind;
}

static wefti_expr translate_alt(struct translation *t, uint32_t node, wefti_expr behind,
                                bool at_start) {
    wefti_expr whole = WEFTI_EXPR_NONE;
    for (uint32_t at = node_of(t, node)->child; at != WEFTI_REGEX_NO_NODE && !t->err;
         at = node_of(t, at)->next)
        whole = wefti_expr_alt2(t->pool, whole, translate(t, at, behind, at_start));
    return whole;
}

static wefti_expr translate(struct translation *t, uint32_t node, wefti_expr behind,
                            bool at_start) {
    const struct wefti_regex_node *at = node_of(t, node);
    if (!at->asserts) return wefti_expr_cat(t->pool, translate_plain(t, node), behind);
    switch (at->kind) {
    case WEFTI_REGEX_START:
        return at_start ? behind : WEFTI_EXPR_NONE;
    case WEFTI_REGEX_END:
        return wefti_expr_and2(t->pool, behind, WEFTI_EXPR_EMPTY);
    case WEFTI_REGEX_AHEAD:
        return wefti_expr_and2(t->pool, behind, translate(t, at->child, WEFTI_EXPR_ALL, at_start));
    case WEFTI_REGEX_NOT_AHEAD:
        return wefti_expr_and2(
            t->pool, behind,
            wefti_expr_not(t->pool, translate(t, at->child, WEFTI_EXPR_ALL, at_start)));
    case WEFTI_REGEX_CAT:
        return translate_cat(t, node, behind, at_start);
    case WEFTI_REGEX_ALT:
        return translate_alt(t, node, behind, at_start);
    case WEFTI_REGEX_REPEAT:
        if (at->max > 1) return refuse(t, "an anchor or look-ahead in a repeat is not supported");
        return wefti_expr_alt2(t->pool, at->min ? WEFTI_EXPR_NONE : behind,
                               at->max ? translate(t, at->child, behind, at_start) : behind);
    case WEFTI_REGEX_CHARS:
        break;
    }
    WEFT_ASSERT(false);
    return WEFTI_EXPR_NONE;
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
    wefti_expr whole = translate(&t, tree.n - 1, tail, true);
    if (kind == WEFTI_REGEX_SEARCH && !t.err) {
        wefti_expr later = translate(&t, tree.n - 1, tail, false);
        wefti_expr before = wefti_expr_repeat(pool, any, 1, WEFTI_EXPR_MANY);
        whole = wefti_expr_alt2(pool, whole, wefti_expr_cat(pool, before, later));
    }
    wefti_regex_tree_fini(&tree);
    if (!t.err && wefti_expr_pool_failed(pool))
        t.err = weft_err_set(why, WEFT_E_TOOBIG, "the regular expression is too large");
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
    wefti_expr whole = translate_plain(&t, tree.n - 1);
    wefti_regex_tree_fini(&tree);
    if (!t.err && wefti_expr_pool_failed(pool))
        t.err = weft_err_set(why, WEFT_E_TOOBIG, "the regular expression is too large");
    if (!t.err) *expr_out = whole;
    return t.err;
}
