/* A tree becomes an expression from its end: what is translated is a node together with all that comes
 * behind it, so that an anchor or a look-ahead is an intersection with what comes. Nodes without any are
 * translated by themselves. */
#include "sources/regex.h"

#include <stdlib.h>

#include "base/check.h"
#include "expr/chars.h"
#include "sources/regex_tree.h"

#define LIST_ROOM 16u /* most lists are shorter, and take nothing from the heap */

struct translation {
    wefti_expr_pool *pool;
    struct wefti_regex_tree *tree;
    enum wefti_writing writing;
    struct weft_errmsg *why;
    weft_err err;
    wefti_expr of_char[128]; /* of literals in a JSON string; NONE: not yet */
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
        whole = wefti_chars_expr(t->pool, &t->tree->sets[at->min], t->writing);
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
    size_t n_zero = 0;
    struct list list;
    list_children(t, node, &list);
    while (n_zero < list.n && node_of(t, list.at[n_zero])->is_zero_width)
        n_zero++; /* the child behind those is at the start, too */
    for (size_t i = n_zero + 1; i < list.n && at_start; i++) {
        if (has_start(t, list.at[i]) && !node_of(t, list.at[n_zero])->asserts &&
            wefti_expr_takes_empty(t->pool, translate_plain(t, list.at[n_zero], WEFTI_EXPR_EMPTY)))
            behind = refuse(t, "\"^\" behind something that may be empty is not supported");
    }
    for (size_t i = list.n; i-- > 0 && !t->err;)
        behind = translate(t, list.at[i], behind, at_start && i <= n_zero);
    list_fini(&list);
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
    if (!at->asserts) return translate_plain(t, node, behind);
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
    case WEFTI_REGEX_LITERAL:
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
