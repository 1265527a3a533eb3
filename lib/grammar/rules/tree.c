#include "rules/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define NODES_MAX 1000000u

void wefti_tree_init(struct wefti_tree *tree, wefti_expr_pool *pool) {
    *tree = (struct wefti_tree){.pool = pool,
                                .json_blanks = WEFT_GRAMMAR_BLANKS_USUAL,
                                .json_digits = WEFT_GRAMMAR_DIGITS_USUAL};
}

void wefti_tree_fini(struct wefti_tree *tree) {
    for (uint32_t i = 0; i < tree->n_needs; i++)
        free(tree->needs[i].name);
    free(tree->nodes);
    free(tree->bodies);
    free(tree->needs);
    *tree = (struct wefti_tree){.pool = tree->pool};
}

static void *make_room(struct wefti_tree *tree, void *mem, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap) return mem;
    uint32_t wider = *cap ? 2 * *cap : 64;
    void *more = n < NODES_MAX ? realloc(mem, wider * size) : NULL;
    if (more)
        *cap = wider;
    else
        tree->failed = true;
    return more;
}

static uint32_t add(struct wefti_tree *tree, struct wefti_tree_node node) {
    struct wefti_tree_node *nodes =
        make_room(tree, tree->nodes, tree->n_nodes, &tree->cap_nodes, sizeof *nodes);
    if (!nodes) return WEFTI_TREE_NONE;
    tree->nodes = nodes;
    node.next = WEFTI_TREE_NONE;
    node.has_words = tree->has_words;
    tree->nodes[tree->n_nodes] = node;
    return tree->n_nodes++;
}

uint32_t wefti_tree_expr(struct wefti_tree *tree, wefti_expr expr) {
    return add(tree, (struct wefti_tree_node){
                         .kind = WEFTI_TREE_EXPR, .child = WEFTI_TREE_NONE, .what = expr});
}

uint32_t wefti_tree_rule(struct wefti_tree *tree, uint32_t rule) {
    WEFT_ASSERT(rule < tree->n_rules || tree->failed);
    return add(tree, (struct wefti_tree_node){
                         .kind = WEFTI_TREE_RULE, .child = WEFTI_TREE_NONE, .what = rule});
}

uint32_t wefti_tree_parent(struct wefti_tree *tree, enum wefti_tree_kind kind) {
    WEFT_ASSERT(kind == WEFTI_TREE_CAT || kind == WEFTI_TREE_ALT);
    return add(tree, (struct wefti_tree_node){
                         .kind = kind, .child = WEFTI_TREE_NONE, .what = WEFTI_TREE_NONE});
}

/* `what` of a parent is its last child. */
void wefti_tree_add(struct wefti_tree *tree, uint32_t parent, uint32_t child) {
    if (tree->failed || child == WEFTI_TREE_NONE) return; /* whose maker has said why */
    struct wefti_tree_node *node = &tree->nodes[parent];
    WEFT_ASSERT(node->kind == WEFTI_TREE_CAT || node->kind == WEFTI_TREE_ALT ||
                node->kind == WEFTI_TREE_CHAIN);
    if (node->child == WEFTI_TREE_NONE)
        node->child = child;
    else
        tree->nodes[node->what].next = child;
    node->what = child;
}

uint32_t wefti_tree_chain(struct wefti_tree *tree, wefti_expr separator, uint32_t min,
                          uint32_t max) {
    return add(tree, (struct wefti_tree_node){.kind = WEFTI_TREE_CHAIN,
                                              .child = WEFTI_TREE_NONE,
                                              .what = WEFTI_TREE_NONE,
                                              .min = min,
                                              .max = max,
                                              .separator = separator});
}

/* A group of one thing is that thing. */
static uint32_t unwrap(const struct wefti_tree *tree, uint32_t node) {
    while (node != WEFTI_TREE_NONE) {
        const struct wefti_tree_node *at = &tree->nodes[node];
        bool is_group = at->kind == WEFTI_TREE_CAT || at->kind == WEFTI_TREE_ALT;
        if (!is_group || at->child == WEFTI_TREE_NONE) break;
        if (tree->nodes[at->child].next != WEFTI_TREE_NONE) break;
        node = at->child;
    }
    return node;
}

/* A repeat of a repeat is one where no count between is missing: each level would double what a text may
 * be derived by. */
uint32_t wefti_tree_repeat(struct wefti_tree *tree, uint32_t child, uint32_t min, uint32_t max) {
    WEFT_ASSERT(min <= max);
    uint32_t inner = unwrap(tree, child);
    const struct wefti_tree_node *x = inner == WEFTI_TREE_NONE ? NULL : &tree->nodes[inner];
    if (x && x->kind == WEFTI_TREE_REPEAT && x->min <= 1 && x->max > 0) {
        uint64_t most = (uint64_t)x->max * max;
        bool is_endless = x->max == WEFTI_EXPR_MANY || max == WEFTI_EXPR_MANY;
        if (max > 0 && (is_endless || most < WEFTI_EXPR_MANY)) {
            child = x->child;
            min *= x->min;
            max = is_endless ? WEFTI_EXPR_MANY : (uint32_t)most;
        }
    }
    return add(tree, (struct wefti_tree_node){
                         .kind = WEFTI_TREE_REPEAT, .child = child, .min = min, .max = max});
}

uint32_t wefti_tree_new_rule(struct wefti_tree *tree) {
    uint32_t *bodies =
        make_room(tree, tree->bodies, tree->n_rules, &tree->cap_rules, sizeof *bodies);
    if (!bodies) return WEFTI_TREE_NONE;
    tree->bodies = bodies;
    tree->bodies[tree->n_rules] = WEFTI_TREE_NONE;
    return tree->n_rules++;
}

void wefti_tree_need(struct wefti_tree *tree, uint32_t rule, const char *name) {
    if (tree->failed) return;
    struct wefti_tree_need *needs =
        make_room(tree, tree->needs, tree->n_needs, &tree->cap_needs, sizeof *needs);
    if (!needs) return;
    tree->needs = needs;
    char *copy = strdup(name);
    if (!copy) tree->failed = true;
    if (copy) tree->needs[tree->n_needs++] = (struct wefti_tree_need){rule, copy};
}
