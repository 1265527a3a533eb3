/* Sets as rules: one for each term that somebody needs, made in the order in which they are met. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "schema/number.h"
#include "schema/schema.h"

#define TIDIED 64u
#define CONTAINS_MAX 64u /* items of an array whose count and content are bounded at once */

struct emitter {
    struct wefti_schema *s;
    struct wefti_tree *tree;
    uint32_t *rule_of; /* by term; NONE: not yet */
    uint32_t cap;
    wefti_term *queue; /* whose bodies are to be made */
    uint32_t n_queue, cap_queue;
    wefti_expr comma, colon;
    struct {
        wefti_expr from, to;
    } tidied[TIDIED]; /* what is known, by the expression's last bits */
};

static struct wefti_sets *sets_of(struct emitter *e) {
    return &e->s->sets;
}

static bool make_room(struct emitter *e, wefti_term term) {
    if (term >= e->cap) {
        uint32_t cap = 2 * term + 64;
        uint32_t *rule_of = realloc(e->rule_of, cap * sizeof *rule_of);
        if (!rule_of) return false;
        memset(rule_of + e->cap, 0xff, (cap - e->cap) * sizeof *rule_of);
        e->rule_of = rule_of;
        e->cap = cap;
    }
    if (e->n_queue == e->cap_queue) {
        uint32_t cap = e->cap_queue ? 2 * e->cap_queue : 64;
        wefti_term *queue = realloc(e->queue, cap * sizeof *queue);
        if (!queue) return false;
        e->queue = queue;
        e->cap_queue = cap;
    }
    return true;
}

/* Of scalars numbers are those that begin so, which is known behind one byte. */
static wefti_expr find_tidy(struct emitter *e, wefti_expr scalars) {
    wefti_expr_pool *pool = e->tree->pool;
    wefti_expr first =
        wefti_expr_alt2(pool, wefti_expr_range(pool, '0', '9'), wefti_expr_literal(pool, "-", 1));
    wefti_expr plain = wefti_expr_cat(pool, first, WEFTI_EXPR_ALL);
    wefti_expr numbers = wefti_expr_and2(pool, scalars, plain);
    wefti_expr broken = wefti_expr_and2(
        pool, numbers, wefti_expr_not(pool, wefti_numbers_integers(&sets_of(e)->numbers)));
    if (!wefti_expr_is_live(pool, numbers)) return scalars;
    if (wefti_expr_is_live(pool, broken)) return scalars;
    wefti_expr others = wefti_expr_and2(pool, scalars, wefti_expr_not(pool, plain));
    wefti_expr whole =
        wefti_expr_and2(pool, numbers, wefti_numbers_without_point(&sets_of(e)->numbers));
    return wefti_expr_is_live(pool, others) ? wefti_expr_alt2(pool, others, whole) : whole;
}

/* Integers are written without a point, though 1.0 is one, too. */
static wefti_expr tidy(struct emitter *e, wefti_expr scalars) {
    uint32_t slot = scalars % TIDIED;
    if (scalars == WEFTI_EXPR_NONE || scalars == e->s->strings ||
        scalars == sets_of(e)->all_scalars)
        return scalars;
    if (e->tidied[slot].from != scalars) {
        e->tidied[slot].to = find_tidy(e, scalars);
        e->tidied[slot].from = scalars;
    }
    return e->tidied[slot].to;
}

static uint32_t rule_for(struct emitter *e, wefti_term term) {
    if (!make_room(e, term)) {
        (void)wefti_sets_fail(sets_of(e), WEFT_E_NOMEM, "no memory for a schema");
        return WEFTI_TREE_NONE;
    }
    if (e->rule_of[term] == WEFTI_TREE_NONE) {
        e->rule_of[term] = wefti_tree_new_rule(e->tree);
        e->queue[e->n_queue++] = term;
    }
    return e->rule_of[term];
}

/* A value of the term: an expression where that is all of it, else a rule. Terms with the same set, as all that
 * refer to one definition, have one rule. */
static uint32_t value(struct emitter *e, wefti_term term) {
    const struct wefti_set *set = wefti_term_value(sets_of(e), term);
    if (!set) return WEFTI_TREE_NONE;
    if (!set->arrays && !set->objects) return wefti_tree_expr(e->tree, tidy(e, set->scalars));
    uint32_t rule = rule_for(e, wefti_term_set(sets_of(e), set));
    return rule == WEFTI_TREE_NONE ? rule : wefti_tree_rule(e->tree, rule);
}

/* ------------------------------------------------------------------------------------- arrays --- */

static uint32_t cat2(struct emitter *e, uint32_t a, uint32_t b) {
    uint32_t cat = wefti_tree_parent(e->tree, WEFTI_TREE_CAT);
    wefti_tree_add(e->tree, cat, a);
    wefti_tree_add(e->tree, cat, b);
    return cat;
}

/* "," and a value. */
static uint32_t more(struct emitter *e, wefti_term term) {
    return cat2(e, wefti_tree_expr(e->tree, e->comma), value(e, term));
}

static uint32_t empty(struct emitter *e) {
    return wefti_tree_parent(e->tree, WEFTI_TREE_CAT);
}

/* Items from `at` on, each behind a comma unless it is the first of all. */
static uint32_t items_from(struct emitter *e, const struct wefti_array *a, uint32_t at) {
    uint32_t n_min = a->min > at ? a->min - at : 0;
    uint32_t n_max = a->max == WEFTI_MANY ? WEFTI_MANY : a->max - at;
    uint32_t all;
    if (n_max == 0 || sets_of(e)->err) return empty(e);
    if (at < a->n_items) {
        uint32_t first = at ? more(e, a->items[at]) : value(e, a->items[at]);
        all = cat2(e, first, items_from(e, a, at + 1));
    } else if (at > 0) {
        return wefti_tree_repeat(e->tree, more(e, a->rest), n_min, n_max);
    } else {
        uint32_t others = n_max == WEFTI_MANY ? n_max : n_max - 1;
        all = cat2(e, value(e, a->rest),
                   wefti_tree_repeat(e->tree, more(e, a->rest), n_min ? n_min - 1 : 0, others));
    }
    return n_min ? all : wefti_tree_repeat(e->tree, all, 0, 1);
}

/* Items from `at` on of which `n_some` have been of `some`: for short arrays, place by place. */
static uint32_t items_counted(struct emitter *e, const struct wefti_array *a, uint32_t at,
                              uint32_t n_some, uint32_t *made) {
    uint32_t n_counts = CONTAINS_MAX + 2, *known = &made[at * n_counts + n_some];
    struct wefti_sets *sets = sets_of(e);
    if (*known != WEFTI_TREE_NONE || sets->err) return *known;
    uint32_t alt = wefti_tree_parent(e->tree, WEFTI_TREE_ALT);
    uint32_t rule = wefti_tree_new_rule(e->tree);
    *known = rule;
    if (at >= a->min && n_some >= a->some_min) wefti_tree_add(e->tree, alt, empty(e));
    for (int is_some = 0; is_some < 2 && at < a->max; is_some++) {
        wefti_term item = at < a->n_items ? a->items[at] : a->rest, some = a->some;
        bool counts = at >= a->some_from;
        uint32_t n = n_some + (uint32_t)(is_some && counts);
        if (is_some && !counts) continue;
        if (!is_some && counts) some = wefti_term_not(sets, some);
        if (counts) item = wefti_term_and(sets, item, some);
        if (n > a->some_max || item == WEFTI_TERM_FALSE) continue;
        if (a->some_max == WEFTI_MANY && n > a->some_min) n = a->some_min;
        uint32_t next = items_counted(e, a, at + 1, n, made);
        if (sets->err || next == WEFTI_TREE_NONE) return *known;
        uint32_t one = at ? more(e, item) : value(e, item);
        wefti_tree_add(e->tree, alt, cat2(e, one, wefti_tree_rule(e->tree, next)));
    }
    if (!e->tree->failed) e->tree->bodies[rule] = alt;
    return rule;
}

/* Items without bounds on how many there are, of which some_min or more (up to some_max) are of `some`. */
static uint32_t items_with_some(struct emitter *e, const struct wefti_array *a) {
    struct wefti_sets *sets = sets_of(e);
    wefti_term some = wefti_term_and(sets, a->rest, a->some), other = a->rest;
    if (a->some_max < WEFTI_MANY)
        other = wefti_term_and(sets, other, wefti_term_not(sets, a->some));
    uint32_t n_more = a->some_max == WEFTI_MANY ? WEFTI_MANY : a->some_max - 1;
    if (sets->err) return WEFTI_TREE_NONE;
    uint32_t others = wefti_tree_repeat(e->tree, more(e, other), 0, WEFTI_EXPR_MANY);
    uint32_t again = cat2(e, others, more(e, some));
    uint32_t n_min = a->some_min ? a->some_min - 1 : 0;
    uint32_t tail = cat2(
        e, wefti_tree_repeat(e->tree, again, n_min, a->some_max == WEFTI_MANY ? n_min : n_more),
        wefti_tree_repeat(e->tree, more(e, other), 0, WEFTI_EXPR_MANY));
    uint32_t alt = wefti_tree_parent(e->tree, WEFTI_TREE_ALT);
    wefti_tree_add(e->tree, alt, cat2(e, value(e, some), tail));
    uint32_t late = cat2(
        e, value(e, other),
        cat2(e, wefti_tree_repeat(e->tree, more(e, other), 0, WEFTI_EXPR_MANY), more(e, some)));
    wefti_tree_add(e->tree, alt, cat2(e, late, tail));
    if (a->some_min > 0) return alt;
    wefti_tree_add(e->tree, alt, empty(e));
    wefti_tree_add(
        e->tree, alt,
        cat2(e, value(e, other), wefti_tree_repeat(e->tree, more(e, other), 0, WEFTI_EXPR_MANY)));
    return alt;
}

static uint32_t counted(struct emitter *e, const struct wefti_array *a) {
    size_t n = (size_t)(CONTAINS_MAX + 2) * (CONTAINS_MAX + 2);
    uint32_t *made = malloc(n * sizeof *made);
    if (!made) {
        (void)wefti_sets_fail(sets_of(e), WEFT_E_NOMEM, "no memory for a schema");
        return WEFTI_TREE_NONE;
    }
    memset(made, 0xff, n * sizeof *made);
    uint32_t rule = items_counted(e, a, 0, 0, made);
    free(made);
    return sets_of(e)->err || e->tree->failed ? WEFTI_TREE_NONE : wefti_tree_rule(e->tree, rule);
}

/* Items that all differ: which values have been there, a bit each, says how many items there are. */
struct unique {
    const struct wefti_set *values[WEFTI_UNIQUE_VALUES_MAX];
    uint32_t n;
    uint32_t
        rule_of[1u << WEFTI_UNIQUE_VALUES_MAX]; /* by those that have been there; NONE: not yet */
};

static uint32_t items_behind(struct emitter *e, const struct wefti_array *a, struct unique *u,
                             uint32_t been) {
    uint32_t at = (uint32_t)__builtin_popcount(been);
    struct wefti_sets *sets = sets_of(e);
    if (u->rule_of[been] != WEFTI_TREE_NONE || e->tree->failed) return u->rule_of[been];
    uint32_t alt = wefti_tree_parent(e->tree, WEFTI_TREE_ALT);
    uint32_t rule = u->rule_of[been] = wefti_tree_new_rule(e->tree);
    if (at >= a->min) wefti_tree_add(e->tree, alt, empty(e));
    for (uint32_t i = 0; i < u->n && at < a->max && !sets->err; i++) {
        if (been >> i & 1) continue;
        wefti_term item = at < a->n_items ? a->items[at] : a->rest;
        item = wefti_term_and(sets, item, wefti_term_set(sets, u->values[i]));
        const struct wefti_set *set = wefti_term_value(sets, item);
        if (!set || wefti_set_is_empty(sets, set, 0)) continue;
        uint32_t next = items_behind(e, a, u, been | 1u << i);
        if (sets->err || next == WEFTI_TREE_NONE) return rule;
        uint32_t one = at ? more(e, item) : value(e, item);
        wefti_tree_add(e->tree, alt, cat2(e, one, wefti_tree_rule(e->tree, next)));
    }
    if (!e->tree->failed) e->tree->bodies[rule] = alt;
    return rule;
}

static uint32_t items_apart(struct emitter *e, const struct wefti_array *a) {
    struct unique u = {.n = 0};
    bool are_few = !a->has_some && wefti_unique_values(e->s, a, u.values, &u.n);
    if (!are_few)
        (void)wefti_schema_refuse(e->s, WEFT_E_UNSUPPORTED, a->unique_at, "uniqueItems",
                                  "is not supported for more than one item, unless they are of few "
                                  "values: no grammar remembers what was there");
    if (sets_of(e)->err) return WEFTI_TREE_NONE;
    memset(u.rule_of, 0xff, sizeof u.rule_of);
    uint32_t rule = items_behind(e, a, &u, 0);
    return sets_of(e)->err || e->tree->failed ? WEFTI_TREE_NONE : wefti_tree_rule(e->tree, rule);
}

static uint32_t array_body(struct emitter *e, const struct wefti_array *a) {
    if (a->unique_at && a->max > 1) return items_apart(e, a);
    if (!a->has_some) return items_from(e, a, 0);
    bool is_free = a->n_items == 0 && a->some_from == 0 && a->max == WEFTI_MANY &&
                   a->min <= a->some_min && a->some_max > 0;
    if (is_free) return items_with_some(e, a);
    if (a->max <= CONTAINS_MAX) return counted(e, a);
    (void)wefti_sets_fail(sets_of(e), WEFT_E_UNSUPPORTED,
                          "\"contains\" (or a complement of \"items\") beside other "
                          "conditions on an array of more than %u items is not supported",
                          CONTAINS_MAX);
    return WEFTI_TREE_NONE;
}

/* ------------------------------------------------------------------------------------ objects --- */

static uint32_t member(struct emitter *e, wefti_expr key, wefti_term term) {
    wefti_expr name = wefti_expr_cat(e->tree->pool, key, e->colon);
    return cat2(e, wefti_tree_expr(e->tree, name), value(e, term));
}

/* Keys that may come again would not be two of minProperties. */
static bool may_count(const struct wefti_object *o) {
    uint32_t n_sure = 0;
    for (uint32_t i = 0; i < o->n_members; i++)
        n_sure += o->members[i].is_required;
    return o->min <= n_sure + 1 || o->n_others == 0;
}

/* `some` is among the others: one of them, with any before and behind it. */
static void add_others(struct emitter *e, const struct wefti_object *o, uint32_t chain,
                       bool has_some) {
    wefti_expr_pool *pool = e->tree->pool;
    uint32_t all = wefti_tree_parent(e->tree, WEFTI_TREE_ALT), n = 0, n_some = 0;
    uint32_t some = wefti_tree_parent(e->tree, WEFTI_TREE_ALT);
    for (uint32_t i = 0; i < o->n_others && !sets_of(e)->err; i++) {
        const struct wefti_keys *keys = &o->others[i];
        wefti_expr own = wefti_keys_without(sets_of(e), keys->keys, o);
        if (keys->value == WEFTI_TERM_FALSE || !wefti_expr_is_live(pool, own)) continue;
        wefti_tree_add(e->tree, all, member(e, own, keys->value));
        n++;
        if (!has_some) continue;
        own = wefti_expr_and2(pool, own, o->some.keys);
        wefti_term term = wefti_term_and(sets_of(e), keys->value, o->some.value);
        if (term == WEFTI_TERM_FALSE || !wefti_expr_is_live(pool, own)) continue;
        wefti_tree_add(e->tree, some, member(e, own, term));
        n_some++;
    }
    if (n == 0 && !has_some) return;
    uint32_t many = wefti_tree_repeat(e->tree, all, 0, WEFTI_EXPR_MANY);
    if (n > 0) wefti_tree_add(e->tree, chain, many);
    if (!has_some) return;
    wefti_tree_add(e->tree, chain,
                   some); /* an alternative without any is one that is never taken */
}

/* With `through` a member that is to be of `some`; MANY: one of the others is. */
static uint32_t chain_of(struct emitter *e, const struct wefti_object *o, bool has_some,
                         uint32_t through) {
    uint32_t chain = wefti_tree_chain(e->tree, e->comma, o->min, o->max);
    for (uint32_t i = 0; i < o->n_members && !sets_of(e)->err; i++) {
        wefti_term term = o->members[i].value;
        bool is_some = has_some && i == through;
        if (is_some) term = wefti_term_and(sets_of(e), term, o->some.value);
        if (term == WEFTI_TERM_FALSE && !is_some && !o->members[i].is_required) continue;
        uint32_t one = member(e, o->members[i].key, term);
        bool must = is_some || o->members[i].is_required;
        wefti_tree_add(e->tree, chain, must ? one : wefti_tree_repeat(e->tree, one, 0, 1));
    }
    if (sets_of(e)->err) return WEFTI_TREE_NONE;
    add_others(e, o, chain, has_some && through == WEFTI_MANY);
    return chain;
}

static uint32_t object_body(struct emitter *e, const struct wefti_object *o) {
    if (!wefti_object_may_have(sets_of(e), o->n_members)) return WEFTI_TREE_NONE;
    if (!may_count(o)) {
        static const char what[] = "is not supported where names are free: one may come twice";
        if (o->min_at)
            (void)wefti_schema_refuse(e->s, WEFT_E_UNSUPPORTED, o->min_at, "minProperties", what);
        else /* the complement of "maxProperties" */
            (void)wefti_sets_fail(sets_of(e), WEFT_E_UNSUPPORTED, "\"minProperties\" %s", what);
        return WEFTI_TREE_NONE;
    }
    if (!o->has_some) return chain_of(e, o, false, WEFTI_MANY);
    uint32_t alt = wefti_tree_parent(e->tree, WEFTI_TREE_ALT);
    for (uint32_t i = 0; i < o->n_members && !sets_of(e)->err; i++) {
        if (wefti_keys_hold(sets_of(e), o->some.keys, o->members[i].name))
            wefti_tree_add(e->tree, alt, chain_of(e, o, true, i));
    }
    uint32_t last = chain_of(e, o, true, WEFTI_MANY);
    if (last != WEFTI_TREE_NONE) wefti_tree_add(e->tree, alt, last);
    return alt;
}

/* -------------------------------------------------------------------------------------- terms --- */

/* Wherever JSON has them: more than one may be anything blank. */
static wefti_expr blanks(struct emitter *e) {
    wefti_expr_pool *pool = e->tree->pool;
    struct wefti_byte_set set = {{(uint64_t)1 << ' '}};
    if (e->tree->json_blanks > 1)
        set.bits[0] |= (uint64_t)1 << '\t' | (uint64_t)1 << '\n' | (uint64_t)1 << '\r';
    return wefti_expr_repeat(pool, wefti_expr_set(pool, &set), 0, e->tree->json_blanks);
}

static wefti_expr mark(struct emitter *e, const char *text, bool has_before, bool has_behind) {
    wefti_expr_pool *pool = e->tree->pool;
    wefti_expr expr = wefti_expr_literal(pool, text, 1);
    if (has_before) expr = wefti_expr_cat(pool, blanks(e), expr);
    return has_behind ? wefti_expr_cat(pool, expr, blanks(e)) : expr;
}

static void between(struct emitter *e, uint32_t alt, const char *open, uint32_t body,
                    const char *close) {
    if (sets_of(e)->err || e->tree->failed) return;
    uint32_t cat = wefti_tree_parent(e->tree, WEFTI_TREE_CAT);
    bool is_wide = e->tree->json_blanks > 1;
    wefti_tree_add(e->tree, cat, wefti_tree_expr(e->tree, mark(e, open, false, is_wide)));
    wefti_tree_add(e->tree, cat, body);
    wefti_tree_add(e->tree, cat, wefti_tree_expr(e->tree, mark(e, close, is_wide, false)));
    wefti_tree_add(e->tree, alt, cat);
}

static void make_body(struct emitter *e, wefti_term term) {
    const struct wefti_set *set = wefti_term_value(sets_of(e), term);
    uint32_t alt = wefti_tree_parent(e->tree, WEFTI_TREE_ALT);
    if (!set || alt == WEFTI_TREE_NONE) return;
    if (set->scalars != WEFTI_EXPR_NONE)
        wefti_tree_add(e->tree, alt, wefti_tree_expr(e->tree, tidy(e, set->scalars)));
    for (const struct wefti_array *a = set->arrays; a && !sets_of(e)->err; a = a->next)
        between(e, alt, "[", array_body(e, a), "]");
    for (const struct wefti_object *o = set->objects; o && !sets_of(e)->err; o = o->next)
        between(e, alt, "{", object_body(e, o), "}");
    if (!e->tree->failed) e->tree->bodies[e->rule_of[term]] = alt;
}

weft_err wefti_schema_emit(struct wefti_schema *s, struct wefti_tree *tree, wefti_term root,
                           uint32_t *rule_out) {
    struct emitter e = {.s = s, .tree = tree};
    bool is_wide = tree->json_blanks > 1;
    e.comma = mark(&e, ",", is_wide, true);
    e.colon = mark(&e, ":", is_wide, true);
    *rule_out = s->sets.err ? WEFTI_TREE_NONE : rule_for(&e, root);
    for (uint32_t i = 0; i < e.n_queue && !s->sets.err && !tree->failed; i++) {
        if (wefti_expr_pool_failed(tree->pool)) break;
        make_body(&e, e.queue[i]);
        if (s->sets.err && !s->sets.failed_at)
            s->sets.failed_at = wefti_schema_of_set(&s->sets, s->sets.terms[e.queue[i]].set);
    }
    free(e.rule_of);
    free(e.queue);
    return s->sets.err;
}
