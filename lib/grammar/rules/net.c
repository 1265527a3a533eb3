#include "rules/net.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define STATES_MAX 1000000u
#define DEPTH_MAX 2000u

/* What is known of a rule. */
enum form { UNKNOWN, UNDER_WAY, REGULAR, IRREGULAR };

struct maker {
    struct wefti_tree *tree;
    struct wefti_net *net;
    struct weft_errmsg *why;
    weft_err err;
    unsigned char *forms; /* by rule of the tree */
    wefti_expr *exprs;    /* of regular ones */
    uint32_t *index;      /* in the net, of irregular ones */
    uint32_t *order;      /* the tree's rule of each of the net's */
    uint32_t depth;
};

static void too_large(struct maker *m) {
    if (!m->err) (void)weft_err_set(m->why, WEFT_E_TOOBIG, "the grammar is too large");
    if (!m->err) m->err = WEFT_E_TOOBIG;
}

static const struct wefti_tree_node *node_of(const struct maker *m, uint32_t node) {
    WEFT_ASSERT(node < m->tree->n_nodes);
    return &m->tree->nodes[node];
}

/* --------------------------------------------------------------------------- which are regular --- */

static bool is_regular(struct maker *m, uint32_t node, uint32_t self);

/* Whether `self` stands nowhere in it but as the last (or first) part of an alternative, and all else
 * is regular. */
static bool is_linear(struct maker *m, uint32_t node, uint32_t self, bool at_end) {
    const struct wefti_tree_node *at = node_of(m, node);
    if (at->kind == WEFTI_TREE_RULE && at->what == self) return true;
    if (at->kind != WEFTI_TREE_CAT && at->kind != WEFTI_TREE_ALT) return is_regular(m, node, self);
    for (uint32_t child = at->child; child != WEFTI_TREE_NONE; child = node_of(m, child)->next) {
        bool may_hold = at->kind == WEFTI_TREE_ALT ||
                        (at_end ? node_of(m, child)->next == WEFTI_TREE_NONE : child == at->child);
        if (!(may_hold ? is_linear(m, child, self, at_end) : is_regular(m, child, self)))
            return false;
    }
    return true;
}

static enum form form_of(struct maker *m, uint32_t rule);

static bool is_regular(struct maker *m, uint32_t node, uint32_t self) {
    const struct wefti_tree_node *at = node_of(m, node);
    if (at->kind == WEFTI_TREE_EXPR) return true;
    if (at->kind == WEFTI_TREE_CHAIN || at->has_words) return false;
    if (at->kind == WEFTI_TREE_RULE) return at->what != self && form_of(m, at->what) == REGULAR;
    for (uint32_t child = at->child; child != WEFTI_TREE_NONE; child = node_of(m, child)->next) {
        if (!is_regular(m, child, self)) return false;
    }
    return true;
}

/* The expression of a node; where `self` stands it is EMPTY or NONE, as `with_self` asks for the
 * alternatives that have it, or for those that have not. */
static wefti_expr expr_of(struct maker *m, uint32_t node, uint32_t self, bool with_self);

static bool holds(const struct maker *m, uint32_t node, uint32_t self) {
    const struct wefti_tree_node *at = node_of(m, node);
    if (at->kind == WEFTI_TREE_RULE) return at->what == self;
    for (uint32_t child = at->kind == WEFTI_TREE_EXPR ? WEFTI_TREE_NONE : at->child;
         child != WEFTI_TREE_NONE; child = node_of(m, child)->next) {
        if (holds(m, child, self)) return true;
    }
    return false;
}

static wefti_expr expr_of_alt(struct maker *m, uint32_t node, uint32_t self, bool with_self) {
    size_t n = 0;
    wefti_expr whole = WEFTI_EXPR_NONE;
    for (uint32_t child = node_of(m, node)->child; child != WEFTI_TREE_NONE;
         child = node_of(m, child)->next)
        n++;
    wefti_expr *list = n ? malloc(n * sizeof *list) : NULL;
    if (n && !list) too_large(m);
    n = 0;
    for (uint32_t child = node_of(m, node)->child; list && child != WEFTI_TREE_NONE;
         child = node_of(m, child)->next)
        list[n++] = expr_of(m, child, self, with_self);
    if (list) whole = wefti_expr_alt(m->tree->pool, list, n);
    free(list);
    return whole;
}

static wefti_expr expr_of_cat(struct maker *m, uint32_t node, uint32_t self, bool with_self) {
    wefti_expr whole = WEFTI_EXPR_EMPTY;
    bool has_self = !with_self; /* without: no part of it may have any */
    for (uint32_t child = node_of(m, node)->child; child != WEFTI_TREE_NONE;
         child = node_of(m, child)->next) {
        bool is_here = with_self && self != WEFTI_TREE_NONE && holds(m, child, self);
        has_self = has_self || is_here;
        whole = wefti_expr_cat(m->tree->pool, whole, expr_of(m, child, self, is_here));
    }
    return has_self ? whole : WEFTI_EXPR_NONE;
}

static wefti_expr expr_of(struct maker *m, uint32_t node, uint32_t self, bool with_self) {
    const struct wefti_tree_node *at = node_of(m, node);
    switch (at->kind) {
    case WEFTI_TREE_EXPR:
        return with_self ? WEFTI_EXPR_NONE : at->what;
    case WEFTI_TREE_RULE:
        if (at->what == self) return with_self ? WEFTI_EXPR_EMPTY : WEFTI_EXPR_NONE;
        return with_self ? WEFTI_EXPR_NONE : m->exprs[at->what];
    case WEFTI_TREE_CAT:
        return expr_of_cat(m, node, self, with_self);
    case WEFTI_TREE_ALT:
        return expr_of_alt(m, node, self, with_self);
    case WEFTI_TREE_CHAIN:
        break;
    case WEFTI_TREE_REPEAT:
        if (with_self) return WEFTI_EXPR_NONE;
        return wefti_expr_repeat(m->tree->pool, expr_of(m, at->child, self, false), at->min,
                                 at->max);
    }
    WEFT_ASSERT(false);
    return WEFTI_EXPR_NONE;
}

/* Marked UNDER_WAY while its body is looked at: who meets it there needs itself through others. */
static enum form form_of(struct maker *m, uint32_t rule) {
    uint32_t body = m->tree->bodies[rule];
    if (m->forms[rule] == UNDER_WAY) return IRREGULAR;
    if (m->forms[rule] != UNKNOWN || m->err) return m->forms[rule];
    if (++m->depth > DEPTH_MAX) too_large(m);
    m->forms[rule] = UNDER_WAY;
    bool needs_itself = holds(m, body, rule);
    bool at_end = !m->err && needs_itself && is_linear(m, body, rule, true);
    bool is_reg = !m->err && (needs_itself ? at_end || is_linear(m, body, rule, false)
                                           : is_regular(m, body, rule));
    m->depth--;
    m->forms[rule] = is_reg ? REGULAR : IRREGULAR;
    if (!is_reg) return IRREGULAR;
    wefti_expr_pool *pool = m->tree->pool;
    wefti_expr others = expr_of(m, body, needs_itself ? rule : WEFTI_TREE_NONE, false);
    if (needs_itself) {
        wefti_expr again =
            wefti_expr_repeat(pool, expr_of(m, body, rule, true), 0, WEFTI_EXPR_MANY);
        others = at_end ? wefti_expr_cat(pool, again, others) : wefti_expr_cat(pool, others, again);
    }
    m->exprs[rule] = others;
    return REGULAR;
}

/* ------------------------------------------------------------------------------------ states --- */

static uint32_t add_state(struct maker *m, enum wefti_net_kind kind, uint32_t what, uint32_t next) {
    struct wefti_net *net = m->net;
    if (net->n_states == net->cap_states) {
        uint32_t cap = net->cap_states ? 2 * net->cap_states : 64;
        struct wefti_net_state *states =
            net->n_states < STATES_MAX ? realloc(net->states, cap * sizeof *states) : NULL;
        if (!states) {
            too_large(m);
            return 0;
        }
        net->states = states;
        net->cap_states = cap;
    }
    net->states[net->n_states] = (struct wefti_net_state){kind, what, next};
    return net->n_states++;
}

static uint32_t add_expr(struct maker *m, wefti_expr expr, uint32_t next) {
    if (expr == WEFTI_EXPR_EMPTY || next == WEFTI_NET_NONE) return next;
    bool is_live = wefti_expr_is_live(m->tree->pool, expr);
    if (wefti_expr_pool_failed(m->tree->pool)) too_large(m);
    if (!is_live) return WEFTI_NET_NONE;
    uint32_t state = add_state(m, WEFTI_NET_EXPR, expr, next);
    bool takes_empty = wefti_expr_takes_empty(m->tree->pool, expr);
    return takes_empty ? add_state(m, WEFTI_NET_SPLIT, next, state) : state;
}

static uint32_t index_of(struct maker *m, uint32_t rule) {
    WEFT_ASSERT(rule < m->tree->n_rules);
    if (m->index[rule] == WEFTI_NET_NONE) {
        m->order[m->net->n_rules] = rule;
        m->index[rule] = m->net->n_rules++;
    }
    return m->index[rule];
}

/* The first state of what takes a text of `node` and goes on at `next`. */
static uint32_t build(struct maker *m, uint32_t node, uint32_t next);

/* Parts side by side that are regular are one expression. */
static uint32_t build_cat(struct maker *m, uint32_t node, uint32_t next) {
    size_t n = 0;
    uint32_t first = node_of(m, node)->child;
    for (uint32_t at = first; at != WEFTI_TREE_NONE; at = node_of(m, at)->next)
        n++;
    uint32_t *list = n ? malloc(n * sizeof *list) : NULL;
    if (n && !list) too_large(m);
    n = 0;
    for (uint32_t at = first; list && at != WEFTI_TREE_NONE; at = node_of(m, at)->next)
        list[n++] = at;
    wefti_expr expr = WEFTI_EXPR_EMPTY;
    bool has_words = node_of(m, node)->has_words;
    while (list && n-- > 0 && !m->err) {
        if (!has_words && is_regular(m, list[n], WEFTI_TREE_NONE)) {
            expr = wefti_expr_cat(m->tree->pool, expr_of(m, list[n], WEFTI_TREE_NONE, false), expr);
            continue;
        }
        next = add_expr(m, expr, next);
        next = build(m, list[n], next);
        expr = WEFTI_EXPR_EMPTY;
    }
    free(list);
    return add_expr(m, expr, next);
}

static uint32_t build_alt(struct maker *m, uint32_t node, uint32_t next) {
    uint32_t whole = WEFTI_NET_NONE;
    wefti_expr expr = WEFTI_EXPR_NONE;
    for (uint32_t at = node_of(m, node)->child; at != WEFTI_TREE_NONE && !m->err;
         at = node_of(m, at)->next) {
        if (is_regular(m, at, WEFTI_TREE_NONE))
            expr = wefti_expr_alt2(m->tree->pool, expr, expr_of(m, at, WEFTI_TREE_NONE, false));
        else
            whole = add_state(m, WEFTI_NET_SPLIT, build(m, at, next), whole);
    }
    if (expr == WEFTI_EXPR_NONE) return whole;
    return add_state(m, WEFTI_NET_SPLIT, add_expr(m, expr, next), whole);
}

static uint32_t build_repeat(struct maker *m, uint32_t node, uint32_t next) {
    const struct wefti_tree_node *at = node_of(m, node);
    uint32_t child = at->child, min = at->min, max = at->max, first = next;
    if (max == WEFTI_EXPR_MANY) { /* a split that the child leads back to */
        uint32_t split = add_state(m, WEFTI_NET_SPLIT, WEFTI_NET_NONE, next);
        uint32_t again = build(m, child, split);
        if (m->err) return 0;
        m->net->states[split].what = again;
        first = split;
        max = min;
    }
    for (uint32_t i = min; i < max && !m->err; i++)
        first = add_state(m, WEFTI_NET_SPLIT, build(m, child, first), next);
    for (uint32_t i = 0; i < min && !m->err; i++)
        first = build(m, child, first);
    return first;
}

/* The states behind `idx` members of a chain: `n` of them are there, and none if `n` is 0. What is there
 * beyond all bounds is counted no further. */
struct chain {
    const struct wefti_tree_node *node;
    uint32_t *members;
    uint32_t n_members, n_counts; /* counts go from 0 to n_counts - 1 */
    uint32_t *states; /* by member and count; those behind the last are `next` or NONE */
};

static uint32_t *chain_state(const struct chain *c, uint32_t idx, uint32_t count) {
    return &c->states[idx * c->n_counts + count];
}

static uint32_t build_member(struct maker *m, const struct chain *c, uint32_t member,
                             uint32_t count, uint32_t next) {
    if (next == WEFTI_NET_NONE) return next;
    uint32_t first = build(m, member, next);
    return count ? add_expr(m, c->node->separator, first) : first;
}

static uint32_t count_on(const struct chain *c, uint32_t count) {
    bool is_open = c->node->max == WEFTI_EXPR_MANY;
    return is_open && count + 1 == c->n_counts ? count : count + 1;
}

static void build_chain_states(struct maker *m, const struct chain *c, uint32_t idx) {
    const struct wefti_tree_node *at = node_of(m, c->members[idx]);
    bool is_repeat = at->kind == WEFTI_TREE_REPEAT && at->min == 0;
    bool is_many = is_repeat && at->max == WEFTI_EXPR_MANY;
    uint32_t what = is_repeat ? at->child : c->members[idx];
    for (uint32_t count = c->n_counts; count-- > 0 && !m->err;) {
        uint32_t more = count_on(c, count), behind = *chain_state(c, idx + 1, count);
        uint32_t *state = chain_state(c, idx, count);
        *state = is_repeat ? behind : WEFTI_NET_NONE;
        if (more == c->n_counts) continue;
        if (is_many) { /* a split that leads back to itself, or on to the next count */
            *state = add_state(m, WEFTI_NET_SPLIT, WEFTI_NET_NONE, behind);
            uint32_t again = build_member(m, c, what, count, *chain_state(c, idx, more));
            if (!m->err) m->net->states[*state].what = again;
            continue;
        }
        uint32_t taken = build_member(m, c, what, count, *chain_state(c, idx + 1, more));
        *state = is_repeat ? add_state(m, WEFTI_NET_SPLIT, taken, behind) : taken;
    }
}

static uint32_t build_chain(struct maker *m, uint32_t node, uint32_t next) {
    const struct wefti_tree_node *at = node_of(m, node);
    struct chain c = {.node = at};
    bool is_open = at->max == WEFTI_EXPR_MANY;
    for (uint32_t child = at->child; child != WEFTI_TREE_NONE; child = node_of(m, child)->next)
        c.n_members++;
    uint64_t n_counts = is_open ? (at->min > 1 ? (uint64_t)at->min : 1) + 1 : (uint64_t)at->max + 1;
    if (n_counts > c.n_members && !is_open && n_counts > STATES_MAX) n_counts = STATES_MAX;
    if (n_counts * (c.n_members + 1) > STATES_MAX) {
        too_large(m);
        return 0;
    }
    c.n_counts = (uint32_t)n_counts;
    c.members = calloc(c.n_members + 1, sizeof *c.members);
    c.states = calloc((size_t)c.n_counts * (c.n_members + 1), sizeof *c.states);
    if (!c.members || !c.states) {
        too_large(m);
        free(c.members);
        free(c.states);
        return 0;
    }
    for (uint32_t child = at->child, i = 0; child != WEFTI_TREE_NONE && !m->err;
         child = node_of(m, child)->next)
        c.members[i++] = child;
    for (uint32_t count = 0; count < c.n_counts && !m->err; count++)
        *chain_state(&c, c.n_members, count) = count >= at->min ? next : WEFTI_NET_NONE;
    for (uint32_t i = c.n_members; i-- > 0 && !m->err;)
        build_chain_states(m, &c, i);
    uint32_t first = m->err ? 0 : *chain_state(&c, 0, 0);
    free(c.members);
    free(c.states);
    return first;
}

static uint32_t build(struct maker *m, uint32_t node, uint32_t next) {
    const struct wefti_tree_node *at = node_of(m, node);
    uint32_t first = 0;
    if (++m->depth > DEPTH_MAX) too_large(m);
    if (m->err) return 0;
    if (is_regular(m, node, WEFTI_TREE_NONE))
        first = add_expr(m, expr_of(m, node, WEFTI_TREE_NONE, false), next);
    else if (at->kind == WEFTI_TREE_RULE)
        first = add_state(m, WEFTI_NET_RULE, index_of(m, at->what), next);
    else if (at->kind == WEFTI_TREE_CAT)
        first = build_cat(m, node, next);
    else if (at->kind == WEFTI_TREE_ALT)
        first = build_alt(m, node, next);
    else if (at->kind == WEFTI_TREE_CHAIN)
        first = build_chain(m, node, next);
    else
        first = build_repeat(m, node, next);
    m->depth--;
    return first;
}

static void build_rule(struct maker *m, uint32_t idx) {
    uint32_t end = add_state(m, WEFTI_NET_END, idx, WEFTI_NET_NONE);
    uint32_t start = build(m, m->tree->bodies[m->order[idx]], end);
    m->net->rules[idx].start = start;
}

/* ------------------------------------------------------------------- what can be finished --- */

/* Whether an end is reached from a state (`empty`: without any text), by what is known of the others. */
static bool reaches_end(const struct wefti_net *net, const bool *marks, uint32_t state,
                        bool empty) {
    const struct wefti_net_state *s = &net->states[state];
    if (s->kind == WEFTI_NET_END) return true;
    bool next = s->next != WEFTI_NET_NONE && marks[s->next];
    if (s->kind == WEFTI_NET_EXPR) return next && !empty;
    if (s->kind == WEFTI_NET_SPLIT) return next || (s->what != WEFTI_NET_NONE && marks[s->what]);
    uint32_t start = net->rules[s->what].start;
    return next && start != WEFTI_NET_NONE && marks[start];
}

/* Within a rule states lead to lower numbers, between rules to higher ones: rounds go both ways. */
static void mark_ends(const struct wefti_net *net, bool *marks, bool empty) {
    for (bool more = true, is_up = true; more; is_up = !is_up) {
        more = false;
        for (uint32_t i = 0; i < net->n_states; i++) {
            uint32_t at = is_up ? i : net->n_states - 1 - i;
            if (marks[at] || !reaches_end(net, marks, at, empty)) continue;
            marks[at] = more = true;
        }
    }
}

static uint32_t if_marked(const bool *marks, uint32_t state) {
    return state != WEFTI_NET_NONE && marks[state] ? state : WEFTI_NET_NONE;
}

/* Rules that nothing leads to are not in the net: no text has them anyway. */
static void check_needs(struct maker *m) {
    const struct wefti_tree *tree = m->tree;
    for (uint32_t i = 0; i < tree->n_needs && !m->err; i++) {
        uint32_t idx = m->index[tree->needs[i].rule];
        if (idx != WEFTI_NET_NONE && m->net->rules[idx].start == WEFTI_NET_NONE)
            m->err = weft_err_set(m->why, WEFT_E_INVAL, "%s: no text fits", tree->needs[i].name);
    }
}

/* States that finish nothing are left where nobody leads to. */
static void prune(struct maker *m) {
    struct wefti_net *net = m->net;
    bool *marks = calloc(net->n_states, sizeof *marks);
    if (!marks) {
        too_large(m);
        return;
    }
    mark_ends(net, marks, false);
    for (uint32_t i = 0; i < net->n_states; i++) {
        struct wefti_net_state *s = &net->states[i];
        if (s->kind == WEFTI_NET_SPLIT) s->what = if_marked(marks, s->what);
        s->next = if_marked(marks, s->next);
    }
    for (uint32_t i = 0; i < net->n_rules; i++)
        net->rules[i].start = if_marked(marks, net->rules[i].start);
    for (uint32_t i = 0; i < net->n_states; i++) {
        struct wefti_net_state *s = &net->states[i];
        if (!marks[i])
            *s = (struct wefti_net_state){WEFTI_NET_SPLIT, WEFTI_NET_NONE, WEFTI_NET_NONE};
    }
    check_needs(m);
    if (!m->err && net->rules[0].start == WEFTI_NET_NONE)
        m->err = weft_err_set(m->why, WEFT_E_INVAL, "no text fits the grammar");
    memset(marks, 0, net->n_states * sizeof *marks);
    if (!m->err) mark_ends(net, marks, true);
    for (uint32_t i = 0; i < net->n_rules && !m->err; i++)
        net->rules[i].takes_empty =
            net->rules[i].start != WEFTI_NET_NONE && marks[net->rules[i].start];
    free(marks);
}

weft_err wefti_net_make(struct wefti_net *net, struct wefti_tree *tree, uint32_t root,
                        struct weft_errmsg *why) {
    uint32_t n = tree->n_rules;
    struct maker m = {.tree = tree, .net = net, .why = why};
    WEFT_ASSERT(root < n);
    *net = (struct wefti_net){0};
    m.forms = calloc(n, 1);
    m.exprs = calloc(n, sizeof *m.exprs);
    m.index = malloc(n * sizeof *m.index);
    m.order = calloc(n, sizeof *m.order);
    net->rules = calloc(n, sizeof *net->rules);
    if (!m.forms || !m.exprs || !m.index || !m.order || !net->rules || tree->failed) too_large(&m);
    for (uint32_t i = 0; i < n && !m.err; i++)
        m.index[i] = WEFTI_NET_NONE;
    if (!m.err) (void)index_of(&m, root);
    for (uint32_t i = 0; i < net->n_rules && !m.err; i++)
        build_rule(&m, i);
    if (!m.err && wefti_expr_pool_failed(tree->pool)) too_large(&m);
    if (!m.err) prune(&m);
    free(m.forms);
    free(m.exprs);
    free(m.index);
    free(m.order);
    uint32_t n_made = net->n_states;
    if (m.err) wefti_net_fini(net);
    net->n_made = n_made;
    return m.err;
}

void wefti_net_fini(struct wefti_net *net) {
    free(net->states);
    free(net->rules);
    *net = (struct wefti_net){0};
}
