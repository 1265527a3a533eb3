/* Alternatives by how they begin. */
#include <stdlib.h>
#include <string.h>

#include "expr/pool.h"

#define VISITS_MAX 200u /* nodes looked at for one alternative */

enum begins { NEVER, MAYBE, ALWAYS };

/* How texts begin, as far as it is seen without derivatives. */
static enum begins begins(const wefti_expr_pool *pool, wefti_expr a, unsigned char byte,
                          unsigned *n_visits) {
    const struct node *node = &pool->nodes[a];
    if (++*n_visits > VISITS_MAX) return MAYBE;
    enum begins all = MAYBE;
    switch (node->kind) {
    case SET: {
        struct wefti_byte_set rest = pool->sets[node->a];
        uint64_t bit = (uint64_t)1 << (byte % 64), *word = &rest.bits[byte / 64];
        if (!(*word & bit)) return NEVER;
        *word &= ~bit;
        return rest.bits[0] | rest.bits[1] | rest.bits[2] | rest.bits[3] ? MAYBE : ALWAYS;
    }
    case CAT:
        return pool->nodes[node->a].takes_empty ? MAYBE : begins(pool, node->a, byte, n_visits);
    case REPEAT:
        return node->takes_empty ? MAYBE : begins(pool, node->a, byte, n_visits);
    case ALT:
        for (uint32_t i = 0; i < node->b; i++) {
            enum begins one = begins(pool, pool->children[node->a + i], byte, n_visits);
            if (one == MAYBE || (i > 0 && one != all)) return MAYBE;
            all = one;
        }
        return all;
    case AND: /* any of them may decide */
        for (uint32_t i = 0; i < node->b && all == MAYBE; i++)
            all = begins(pool, pool->children[node->a + i], byte, n_visits);
        return all;
    default:
        return MAYBE;
    }
}

bool wefti_expr_part(wefti_expr_pool *pool, wefti_expr a, unsigned char byte,
                     struct wefti_expr_parts *parts_out) {
    struct node node = pool->nodes[a];
    uint32_t n = node.kind == ALT ? node.b : node.kind == NONE ? 0 : 1, n_with = 0, n_without = 0;
    wefti_expr *list = malloc((n + 1) * sizeof *list);
    *parts_out = (struct wefti_expr_parts){WEFTI_EXPR_NONE, WEFTI_EXPR_NONE};
    if (!list) return false;
    bool is_sure = true;
    for (uint32_t i = 0; i < n && is_sure; i++) {
        wefti_expr one = node.kind == ALT ? pool->children[node.a + i] : a;
        unsigned n_visits = 0;
        enum begins how = begins(pool, one, byte, &n_visits);
        is_sure = how != MAYBE;
        list[how == ALWAYS ? n_with++ : n - ++n_without] = one;
    }
    if (is_sure) {
        parts_out->with = wefti_expr_alt(pool, list, n_with);
        parts_out->without = wefti_expr_alt(pool, list + n - n_without, n_without);
    }
    free(list);
    return is_sure;
}
