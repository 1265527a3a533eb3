/* Whether any text is in an expression: a search where there are intersections or complements. */
#include <stdlib.h>

#include "expr/pool.h"

#define LIVE_VISITS_MAX 70000u /* states that one question may look at */
#define FIRST_VISITS_MAX 300u  /* nodes for what one state may begin with */

static bool is_known(const wefti_expr_pool *pool, wefti_expr a, bool *live_out) {
    const struct node *node = &pool->nodes[a];
    *live_out = node->has_text || node->takes_empty || node->live == ALIVE;
    return *live_out || node->live == DEAD;
}

static const struct wefti_byte_set all_bytes = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};

static void add_bytes(struct wefti_byte_set *to, const struct wefti_byte_set *more) {
    for (int w = 0; w < 4; w++)
        to->bits[w] |= more->bits[w];
}

static void add_first(const wefti_expr_pool *pool, wefti_expr a, unsigned *n_visits,
                      struct wefti_byte_set *to);

static void add_first_of_all(const wefti_expr_pool *pool, const struct node *node,
                             unsigned *n_visits, struct wefti_byte_set *to) {
    struct wefti_byte_set shared = all_bytes;
    for (uint32_t i = 0; i < node->b; i++) {
        struct wefti_byte_set one = {{0}};
        add_first(pool, pool->children[node->a + i], n_visits, &one);
        for (int w = 0; w < 4; w++)
            shared.bits[w] &= one.bits[w];
    }
    add_bytes(to, &shared);
}

/* Bytes that a text may begin with, and perhaps others. */
static void add_first(const wefti_expr_pool *pool, wefti_expr a, unsigned *n_visits,
                      struct wefti_byte_set *to) {
    static const struct wefti_byte_set digits = {{(uint64_t)0x3ff << '0' | (uint64_t)1 << '.'}};
    const struct node *node = &pool->nodes[a];
    while (node->kind == CAT && ++*n_visits <= FIRST_VISITS_MAX) {
        add_first(pool, node->a, n_visits, to);
        if (!pool->nodes[node->a].takes_empty) return;
        node = &pool->nodes[node->b];
    }
    if (++*n_visits > FIRST_VISITS_MAX || node->kind == ALL || node->kind == NOT) {
        *to = all_bytes;
    } else if (node->kind == SET) {
        add_bytes(to, &pool->sets[node->a]);
    } else if (node->kind == REPEAT) {
        add_first(pool, node->a, n_visits, to);
    } else if (node->kind == MULTIPLE) {
        add_bytes(to, &digits);
    } else if (node->kind == AND) {
        add_first_of_all(pool, node, n_visits, to);
    } else if (node->kind == ALT) {
        for (uint32_t i = 0; i < node->b; i++)
            add_first(pool, pool->children[node->a + i], n_visits, to);
    }
}

/* A number goes on with one of a dozen bytes: no others are tried. */
struct place {
    wefti_expr expr;
    uint32_t first_class, n_tried; /* of classes */
    struct wefti_byte_set first;
};

/* Depth first; who is seen is taken for dead until a text is found, and then those on the way to it
 * are alive. The others that were seen stay open, unless all was searched in vain. */
struct search {
    struct place *path;
    size_t n, cap;
    wefti_expr *seen;
    size_t n_seen, cap_seen;
};

static bool note_seen(struct search *search, wefti_expr a) {
    if (search->n_seen == LIVE_VISITS_MAX) return false;
    if (search->n_seen == search->cap_seen) {
        size_t cap = search->cap_seen ? 2 * search->cap_seen : 64;
        wefti_expr *seen = realloc(search->seen, cap * sizeof *seen);
        if (!seen) return false;
        search->seen = seen;
        search->cap_seen = cap;
    }
    search->seen[search->n_seen++] = a;
    return true;
}

static bool enter(wefti_expr_pool *pool, struct search *search, wefti_expr a,
                  uint32_t first_class) {
    if (search->n == search->cap) {
        size_t cap = search->cap ? 2 * search->cap : 64;
        struct place *path = realloc(search->path, cap * sizeof *path);
        if (!path) return false;
        search->path = path;
        search->cap = cap;
    }
    if (!note_seen(search, a)) return false;
    struct place *place = &search->path[search->n++];
    unsigned n_visits = 0;
    *place = (struct place){.expr = a, .first_class = first_class};
    add_first(pool, a, &n_visits, &place->first);
    pool->nodes[a].live = DEAD;
    return true;
}

/* The one of the quote comes first: it ends a string at once, any other leads to the longest there is. Then those
 * from the one on that led here: where a text must have several letters, those before have mostly been had. With
 * JSON all from the first one on: else forty patterns for one string compile at once, but have masks that pass any
 * bound, so it is better that they are refused. */
static uint32_t class_to_try(const wefti_expr_pool *pool, const struct place *place) {
    uint32_t quote = pool->class_of['"'], n = pool->n_classes;
    if (place->n_tried == 0) return quote;
    uint32_t from = place->first_class - (place->first_class > quote); /* of all but that one */
    uint32_t class = (from + place->n_tried - 1) % (n - 1);
    return class < quote ? class : class + 1;
}

static bool search_text(wefti_expr_pool *pool, struct search *search) {
    bool is_live = false;
    while (search->n > 0 && !is_live && !pool->failed) {
        struct place *place = &search->path[search->n - 1];
        if (place->n_tried == pool->n_classes) {
            search->n--;
            continue;
        }
        uint32_t class = class_to_try(pool, place);
        unsigned char byte = pool->representatives[class];
        place->n_tried++;
        if (!(place->first.bits[byte / 64] >> (byte % 64) & 1)) continue;
        wefti_expr next = wefti_expr_step(pool, place->expr, byte);
        bool is_json = pool->top != WEFTI_EXPR_NONE;
        if (!is_known(pool, next, &is_live) && !enter(pool, search, next, is_json ? 0 : class))
            pool->failed = true;
    }
    return is_live;
}

void wefti_expr_has_text(wefti_expr_pool *pool, wefti_expr a, const void *text, size_t n) {
    const unsigned char *bytes = text;
    wefti_expr end = a;
    for (size_t i = 0; i < n; i++)
        end = wefti_expr_step(pool, end, bytes[i]);
    if (pool->failed || !pool->nodes[end].takes_empty) return;
    for (size_t i = 0; i < n; i++) {
        pool->nodes[a].live = ALIVE;
        a = wefti_expr_step(pool, a, bytes[i]);
    }
}

bool wefti_expr_is_live(wefti_expr_pool *pool, wefti_expr a) {
    struct search search = {0};
    bool is_live = false;
    if (is_known(pool, a, &is_live)) return is_live;
    if (!enter(pool, &search, a, 0)) pool->failed = true;
    is_live = search_text(pool, &search);
    if (is_live || pool->failed) {
        for (size_t i = 0; i < search.n_seen; i++)
            pool->nodes[search.seen[i]].live = UNKNOWN;
    }
    for (size_t i = 0; i < search.n && is_live; i++)
        pool->nodes[search.path[i].expr].live = ALIVE;
    free(search.path);
    free(search.seen);
    return is_live && !pool->failed;
}
