/* Expressions that look like others to whoever sees only so much of them. */
#include "base/minmax.h"
#include "expr/pool.h"

#define VISITS_MAX 2000u /* nodes that one question may look at; what lies beyond stays as it is */
#define PARTS_MAX 64u
#define DEPTH_MAX 200u /* a frame has some 700 bytes */

struct view {
    wefti_expr_pool *pool;
    uint32_t n; /* bytes seen */
    uint32_t n_visits, depth;
};

static wefti_expr far_from(struct view *v, wefti_expr a);

/* Each part that is not empty is a byte at least, so what stands behind n of them is not seen. */
static wefti_expr far_chain(struct view *v, wefti_expr a) {
    wefti_expr parts[PARTS_MAX];
    uint32_t n_parts = 0, n_bytes = 0;
    while (v->pool->nodes[a].kind == CAT && n_parts < PARTS_MAX && n_bytes < v->n) {
        struct node node = v->pool->nodes[a];
        n_bytes += !v->pool->nodes[node.a].takes_empty;
        parts[n_parts++] = far_from(v, node.a);
        a = node.b;
    }
    if (n_parts < PARTS_MAX && n_bytes < v->n) a = far_from(v, a);
    while (n_parts-- > 0)
        a = wefti_expr_cat(v->pool, parts[n_parts], a);
    return a;
}

static wefti_expr far_alt(struct view *v, wefti_expr a) {
    struct node node = v->pool->nodes[a];
    wefti_expr parts[PARTS_MAX];
    bool is_changed = false;
    if (node.b > PARTS_MAX) return a;
    for (uint32_t i = 0; i < node.b; i++) {
        wefti_expr one = v->pool->children[node.a + i];
        parts[i] = far_from(v, one);
        is_changed = is_changed || parts[i] != one;
    }
    return is_changed ? wefti_expr_alt(v->pool, parts, node.b) : a;
}

/* The fewest bytes of a text, and of what is left of one behind any of its beginnings. */
struct rest_of {
    uint32_t all, left;
};

#define REST_MAX 1000u

/* False: there are intersections, or it is too long to look at. */
static bool measure(struct view *v, wefti_expr a, struct rest_of *out);

static bool measure_node(struct view *v, wefti_expr a, struct rest_of *out) {
    struct node node = v->pool->nodes[a];
    struct rest_of x, y;
    *out = (struct rest_of){node.kind == SET, 0};
    if (node.kind == EMPTY || node.kind == ALL || node.kind == SET) return true;
    if (node.kind == CAT) {
        if (!measure(v, node.a, &x) || !measure(v, node.b, &y)) return false;
        *out = (struct rest_of){x.all + y.all, weft_max_u32(x.left + y.all, y.left)};
    } else if (node.kind == REPEAT) {
        if (node.min > REST_MAX || !measure(v, node.a, &x)) return false;
        uint32_t others = node.min ? node.min - 1 : 0;
        *out = (struct rest_of){node.min * x.all, x.left + others * x.all};
    } else if (node.kind == ALT) {
        for (uint32_t i = 0; i < node.b; i++) {
            if (!measure(v, v->pool->children[node.a + i], &x)) return false;
            out->all = i ? weft_min_u32(out->all, x.all) : x.all;
            out->left = weft_max_u32(out->left, x.left);
        }
    } else {
        return false;
    }
    return out->all <= REST_MAX && out->left <= REST_MAX;
}

static bool measure(struct view *v, wefti_expr a, struct rest_of *out) {
    if (++v->n_visits > VISITS_MAX || v->depth == DEPTH_MAX) return false;
    v->depth++;
    bool is_known = measure_node(v, a, out);
    v->depth--;
    return is_known;
}

/* A string's pattern beside a counter that is not near its end, as maxLength is: where any beginning of the pattern's
 * texts has a text that is short enough for the counter, nothing is seen of the counter. */
static wefti_expr far_and(struct view *v, wefti_expr a) {
    struct node node = v->pool->nodes[a];
    struct rest_of rest;
    if (node.b != 2) return a;
    for (uint32_t i = 0; i < 2; i++) {
        wefti_expr counter = v->pool->children[node.a + i];
        wefti_expr pattern = v->pool->children[node.a + 1 - i];
        if (!v->pool->nodes[pattern].is_tail || !measure(v, pattern, &rest)) continue;
        uint32_t n_bytes = v->n + weft_max_u32(rest.all, rest.left);
        if (wefti_expr_far(v->pool, counter, n_bytes) == v->pool->tail) return far_from(v, pattern);
    }
    return a;
}

static wefti_expr far_node(struct view *v, wefti_expr a) {
    struct node node = v->pool->nodes[a];
    if (node.kind == CAT) return far_chain(v, a);
    if (node.kind == ALT) return far_alt(v, a);
    if (node.kind == AND) return far_and(v, a);
    if (node.kind != REPEAT) return a;
    if (node.max > v->n) node.max = WEFTI_EXPR_MANY;
    node.min = weft_min_u32(node.min, v->n + 1);
    return wefti_expr_repeat(v->pool, far_from(v, node.a), node.min, node.max);
}

static wefti_expr far_from(struct view *v, wefti_expr a) {
    if (++v->n_visits > VISITS_MAX || v->depth == DEPTH_MAX) return a;
    v->depth++;
    a = far_node(v, a);
    v->depth--;
    return a;
}

wefti_expr wefti_expr_far(wefti_expr_pool *pool, wefti_expr a, uint32_t n) {
    struct view view = {.pool = pool, .n = n};
    wefti_expr far = far_from(&view, a);
    return wefti_expr_pool_failed(pool) ? a : far;
}

/* An intersection is endless where one part is and the others are complements of what is finite. */
wefti_expr wefti_expr_endless(const wefti_expr_pool *pool, wefti_expr a) {
    const struct node *node = &pool->nodes[a];
    while (node->kind == CAT && pool->nodes[node->b].has_text) {
        a = node->a;
        node = &pool->nodes[a];
    }
    if (!node->is_endless) return WEFTI_EXPR_NONE;
    if (node->kind != AND) return a;
    for (uint32_t i = 0; i < node->b; i++) {
        wefti_expr one = pool->children[node->a + i];
        if (pool->nodes[one].kind != NOT) return one;
    }
    return WEFTI_EXPR_NONE;
}
