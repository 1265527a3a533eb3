/* The algebra of sets: unions of shapes, shape by shape. */
#include "schema/set.h"

#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "expr/chars.h"

#define MEMBERS_MAX 16384u /* of an object: a mask looks at each */

#define SHAPES_MAX 200000u
#define FEW 16u /* members, which are looked at one by one */

/* Counts what is made, so that a schema of many choices in many places ends somewhere. */
static bool may_add(struct wefti_sets *sets) {
    if (!sets->err && ++sets->n_shapes > SHAPES_MAX)
        (void)wefti_sets_fail(sets, WEFT_E_TOOBIG, "too many combinations");
    return !sets->err;
}

/* What is not of the set is in none of these. */
static wefti_expr upper(struct wefti_sets *sets, const struct wefti_set *set) {
    return wefti_expr_alt2(sets->pool, set->scalars, set->doubtful);
}

static bool may_have_odd(const struct wefti_set *set) {
    return set->odd != WEFTI_NO_ODD || set->has_more_odd;
}

static wefti_expr without(struct wefti_sets *sets, wefti_expr doubtful, wefti_expr sure) {
    if (doubtful == WEFTI_EXPR_NONE) return doubtful;
    return wefti_expr_and2(sets->pool, doubtful, wefti_expr_not(sets->pool, sure));
}

static struct wefti_set *new_set(struct wefti_sets *sets) {
    return wefti_sets_alloc(sets, 1, sizeof(struct wefti_set));
}

/* -------------------------------------------------------------------------------- made by hand --- */

struct wefti_array *wefti_array_any(struct wefti_sets *sets) {
    struct wefti_array *shape = wefti_sets_alloc(sets, 1, sizeof *shape);
    if (!shape || !may_add(sets)) return NULL;
    shape->rest = WEFTI_TERM_TRUE;
    shape->max = WEFTI_MANY;
    return shape;
}

struct wefti_object *wefti_object_any(struct wefti_sets *sets) {
    struct wefti_object *shape = wefti_sets_alloc(sets, 1, sizeof *shape);
    struct wefti_keys *others = wefti_sets_alloc(sets, 1, sizeof *others);
    if (!others || !may_add(sets)) return NULL;
    *others = (struct wefti_keys){sets->all_keys, WEFTI_TERM_TRUE};
    shape->others = others;
    shape->n_others = 1;
    shape->max = WEFTI_MANY;
    return shape;
}

const struct wefti_set *wefti_set_scalars(struct wefti_sets *sets, wefti_expr scalars) {
    struct wefti_set *set = new_set(sets);
    if (set) set->scalars = scalars;
    return set;
}

const struct wefti_set *wefti_set_array(struct wefti_sets *sets, struct wefti_array *shape) {
    struct wefti_set *set = shape ? new_set(sets) : NULL;
    if (set) set->arrays = shape;
    return set;
}

const struct wefti_set *wefti_set_object(struct wefti_sets *sets, struct wefti_object *shape) {
    struct wefti_set *set = shape ? new_set(sets) : NULL;
    if (set) set->objects = shape;
    return set;
}

const struct wefti_set *wefti_set_none(struct wefti_sets *sets) {
    return new_set(sets);
}

const struct wefti_set *wefti_set_all(struct wefti_sets *sets) {
    struct wefti_set *set = sets->all || sets->err ? NULL : new_set(sets);
    if (set) {
        set->scalars = sets->all_scalars;
        set->odd = WEFTI_ALL_ODD;
        set->arrays = wefti_array_any(sets);
        set->objects = wefti_object_any(sets);
        sets->all = set;
    }
    return sets->err ? NULL : sets->all;
}

/* --------------------------------------------------------------------------------------- keys --- */

/* From its end, so that tails are shared. */
wefti_expr wefti_key_expr(struct wefti_sets *sets, struct weft_str name) {
    wefti_expr_pool *pool = sets->pool;
    wefti_expr quote = wefti_expr_literal(pool, "\"", 1), key = quote;
    for (size_t i = name.len; i-- > 0;) {
        unsigned char c = (unsigned char)name.data[i];
        bool is_plain = c >= 0x20 && c != '"' && c != '\\' && c != '/';
        wefti_expr one = wefti_expr_range(pool, c, c);
        if (!is_plain) {
            struct wefti_chars set = {0};
            wefti_chars_add(&set, c, c);
            one = wefti_chars_expr(pool, &set, WEFTI_IN_JSON);
            wefti_chars_fini(&set);
        }
        key = wefti_expr_cat(pool, one, key);
    }
    key = wefti_expr_cat(pool, quote, key);
    wefti_expr_within(pool, key, sets->all_keys);
    return key;
}

static wefti_expr step_escaped(struct wefti_sets *sets, wefti_expr keys, unsigned char c) {
    static const char digits[] = "0123456789abcdef";
    const char text[] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    for (size_t i = 0; i < sizeof text; i++)
        keys = wefti_expr_step(sets->pool, keys, (unsigned char)text[i]);
    return keys;
}

/* By one of the ways to write it: keys are sets of names, not of their writings. */
bool wefti_keys_hold(struct wefti_sets *sets, wefti_expr keys, struct weft_str name) {
    if (keys == sets->all_keys) return true;
    keys = wefti_expr_step(sets->pool, keys, '"');
    for (size_t i = 0; i < name.len && keys != WEFTI_EXPR_NONE; i++) {
        unsigned char c = (unsigned char)name.data[i];
        if (c == '"' || c == '\\') keys = wefti_expr_step(sets->pool, keys, '\\');
        keys = c < 0x20 ? step_escaped(sets, keys, c) : wefti_expr_step(sets->pool, keys, c);
    }
    keys = wefti_expr_step(sets->pool, keys, '"');
    return wefti_expr_takes_empty(sets->pool, keys);
}

wefti_expr wefti_keys_without(struct wefti_sets *sets, wefti_expr keys,
                              const struct wefti_object *shape) {
    wefti_expr *list = wefti_sets_alloc(sets, shape->n_members + 1, sizeof *list);
    uint32_t n = 0;
    if (!list) return WEFTI_EXPR_NONE;
    for (uint32_t i = 0; i < shape->n_members; i++)
        list[n++] = shape->members[i].key;
    if (n == 0) return keys;
    wefti_expr named = wefti_expr_alt(sets->pool, list, n);
    return wefti_expr_and2(sets->pool, keys, wefti_expr_not(sets->pool, named));
}

/* Where the key is, or would be. Keys are numbers that are given out one after the other. */
static uint32_t *slot_of(const struct wefti_finder *finder, wefti_expr key) {
    for (uint32_t at = key * 2654435769u >> 8;; at++) {
        uint32_t *slot = &finder->slots[at & (finder->n_slots - 1)];
        if (!*slot || finder->shape->members[*slot - 1].key == key) return slot;
    }
}

static void fill_slots(struct wefti_sets *sets, struct wefti_finder *finder) {
    uint32_t n = finder->shape->n_members;
    if (2 * (uint64_t)n > finder->n_slots) {
        uint32_t n_slots = 4 * FEW;
        while (n_slots < 4 * (uint64_t)n)
            n_slots *= 2;
        finder->slots = wefti_sets_alloc(sets, n_slots, sizeof *finder->slots);
        finder->n_slots = finder->slots ? n_slots : 0;
        finder->n_in = 0;
    }
    for (; finder->slots && finder->n_in < n; finder->n_in++)
        *slot_of(finder, finder->shape->members[finder->n_in].key) = finder->n_in + 1;
}

const struct wefti_member *wefti_object_find(struct wefti_sets *sets, struct wefti_finder *finder,
                                             wefti_expr key) {
    const struct wefti_object *shape = finder->shape;
    if (shape->n_members > FEW) {
        fill_slots(sets, finder);
        uint32_t idx = finder->slots ? *slot_of(finder, key) : 0;
        return idx ? &shape->members[idx - 1] : NULL;
    }
    for (uint32_t i = 0; i < shape->n_members; i++)
        if (shape->members[i].key == key) return &shape->members[i];
    return NULL;
}

/* What the shape says of a member whose name is none of its own. */
static wefti_term term_of_others(struct wefti_sets *sets, const struct wefti_object *shape,
                                 struct weft_str name) {
    for (uint32_t i = 0; i < shape->n_others; i++) {
        if (wefti_keys_hold(sets, shape->others[i].keys, name)) return shape->others[i].value;
    }
    return WEFTI_TERM_FALSE;
}

/* --------------------------------------------------------------------------------------- both --- */

static wefti_term item_of(const struct wefti_array *shape, uint32_t idx) {
    return idx < shape->n_items ? shape->items[idx] : shape->rest;
}

static bool join_some_items(struct wefti_sets *sets, const struct wefti_array *b,
                            struct wefti_array *out) {
    if (!b->has_some) return true;
    if (out->has_some) {
        if (out->some == b->some && out->some_from == b->some_from) {
            out->some_min = weft_max_u32(out->some_min, b->some_min);
            out->some_max = weft_min_u32(out->some_max, b->some_max);
            return out->some_min <= out->some_max;
        }
        (void)wefti_sets_fail(sets, WEFT_E_UNSUPPORTED,
                              "two \"contains\" (or complements of \"items\") for one array are "
                              "not supported");
        return false;
    }
    out->has_some = true;
    out->some = b->some;
    out->some_from = b->some_from;
    out->some_min = b->some_min;
    out->some_max = b->some_max;
    return true;
}

/* NULL: there is none, or a failure. */
static struct wefti_array *both_arrays(struct wefti_sets *sets, const struct wefti_array *a,
                                       const struct wefti_array *b) {
    struct wefti_array *out = wefti_array_any(sets);
    if (!out) return NULL;
    *out = *a;
    out->next = NULL;
    out->min = weft_max_u32(a->min, b->min);
    out->max = weft_min_u32(a->max, b->max);
    if (!out->unique_at) out->unique_at = b->unique_at;
    out->n_items = weft_max_u32(a->n_items, b->n_items);
    out->items = wefti_sets_alloc(sets, out->n_items + 1, sizeof *out->items);
    out->rest = wefti_term_and(sets, a->rest, b->rest);
    if (!out->items || !join_some_items(sets, b, out)) return NULL;
    for (uint32_t i = 0; i < out->n_items; i++) {
        out->items[i] = wefti_term_and(sets, item_of(a, i), item_of(b, i));
        if (out->items[i] == WEFTI_TERM_FALSE) out->max = weft_min_u32(out->max, i);
    }
    if (out->rest == WEFTI_TERM_FALSE) out->max = weft_min_u32(out->max, out->n_items);
    return out->min <= out->max && !sets->err ? out : NULL;
}

/* The value of a term that is worked out already, or is soon: a list of constants. */
static const struct wefti_set *known_value(struct wefti_sets *sets, wefti_term term) {
    const struct wefti_term_node *node = &sets->terms[term];
    if (node->set || node->kind != WEFTI_TERM_SCHEMA || node->is_open) return node->set;
    bool is_soon = json_object_get(node->what, "const") || json_object_get(node->what, "enum");
    return is_soon ? wefti_term_value(sets, term) : NULL;
}

/* Whether two members that tell choices apart ("kind": "a" and "kind": "b") exclude each other: seen here, a
 * product of choices does not grow beyond those that there are. */
static bool excludes_itself(struct wefti_sets *sets, wefti_term term) {
    struct wefti_term_node node = sets->terms[term];
    wefti_expr scalars = sets->all_scalars;
    bool is_scalar = false, has_odd = true, has_more_odd = false;
    if (node.kind != WEFTI_TERM_AND) return term == WEFTI_TERM_FALSE;
    for (uint32_t i = 0; i < node.n_parts; i++) {
        const struct wefti_set *part = known_value(sets, node.parts[i]);
        if (!part) continue;
        has_odd = has_odd && may_have_odd(part);
        has_more_odd = has_more_odd || part->has_more_odd;
        is_scalar = is_scalar || (!part->arrays && !part->objects);
        scalars = wefti_expr_and2(sets->pool, scalars, upper(sets, part));
    }
    if (has_odd && has_more_odd) return false;
    return is_scalar && !sets->err && !wefti_expr_is_live(sets->pool, scalars);
}

bool wefti_object_may_have(struct wefti_sets *sets, size_t n_members) {
    if (n_members <= MEMBERS_MAX) return true;
    (void)wefti_sets_fail(sets, WEFT_E_TOOBIG,
                          "\"properties\" has %zu members, at most %u are supported", n_members,
                          MEMBERS_MAX);
    return false;
}

/* Members of both, in this order: declared in `a`, declared in `b` alone, then those only required. */
static bool join_members(struct wefti_sets *sets, const struct wefti_object *a,
                         const struct wefti_object *b, struct wefti_object *out) {
    struct wefti_finder in[] = {{.shape = a}, {.shape = b}};
    uint32_t n_max = a->n_members + b->n_members;
    out->members = wefti_sets_alloc(sets, n_max + 1, sizeof *out->members);
    out->n_members = 0;
    for (int round = 0; round < 4 && out->members; round++) {
        const struct wefti_object *one = in[round % 2].shape, *other = in[1 - round % 2].shape;
        for (uint32_t i = 0; i < one->n_members; i++) {
            struct wefti_member m = one->members[i];
            const struct wefti_member *same = wefti_object_find(sets, &in[1 - round % 2], m.key);
            bool is_declared = m.is_declared || (same && same->is_declared);
            bool is_now = round < 2 ? m.is_declared : !is_declared;
            bool is_there = same && (round == 1 ? same->is_declared : round == 3);
            if (!is_now || is_there) continue;
            wefti_term value = same ? same->value : term_of_others(sets, other, m.name);
            m.value = wefti_term_and(sets, m.value, value);
            m.is_required = m.is_required || (same && same->is_required);
            m.is_declared = is_declared;
            if (m.is_required && excludes_itself(sets, m.value)) return false;
            out->members[out->n_members++] = m;
        }
    }
    return out->members && !sets->err;
}

static bool join_keys(struct wefti_sets *sets, const struct wefti_object *a,
                      const struct wefti_object *b, struct wefti_object *out) {
    out->others =
        wefti_sets_alloc(sets, (size_t)a->n_others * b->n_others + 1, sizeof *out->others);
    out->n_others = 0;
    for (uint32_t i = 0; i < a->n_others && out->others; i++) {
        for (uint32_t k = 0; k < b->n_others; k++) {
            const struct wefti_keys *x = &a->others[i], *y = &b->others[k];
            struct wefti_keys both = {wefti_expr_and2(sets->pool, x->keys, y->keys),
                                      wefti_term_and(sets, x->value, y->value)};
            if (both.value == WEFTI_TERM_FALSE || !wefti_expr_is_live(sets->pool, both.keys))
                continue;
            out->others[out->n_others++] = both;
        }
    }
    return out->others && !sets->err;
}

static struct wefti_object *both_objects(struct wefti_sets *sets, const struct wefti_object *a,
                                         const struct wefti_object *b) {
    struct wefti_object *out = wefti_sets_alloc(sets, 1, sizeof *out);
    if (!out || !may_add(sets)) return NULL;
    *out = *a;
    out->next = NULL;
    out->min = weft_max_u32(a->min, b->min);
    out->max = weft_min_u32(a->max, b->max);
    if (b->min > a->min) out->min_at = b->min_at;
    if (a->has_some && b->has_some) {
        (void)wefti_sets_fail(sets, WEFT_E_UNSUPPORTED,
                              "two complements of \"additionalProperties\" for one object are not "
                              "supported");
        return NULL;
    }
    if (b->has_some) {
        out->has_some = true;
        out->some = b->some;
    }
    if (!join_members(sets, a, b, out) || !join_keys(sets, a, b, out)) return NULL;
    return out->min <= out->max ? out : NULL;
}

/* Strings, words and numbers, each with its like. */
static wefti_expr both_scalars(struct wefti_sets *sets, wefti_expr a, wefti_expr b) {
    static const unsigned char first[] = {'"', 'n', 't', 'f'};
    wefti_expr_pool *pool = sets->pool;
    wefti_expr whole = WEFTI_EXPR_NONE;
    if (a == sets->all_scalars || a == b) return b;
    if (b == sets->all_scalars) return a;
    for (size_t i = 0; i < sizeof first; i++) {
        struct wefti_expr_parts x, y;
        if (!wefti_expr_part(pool, a, first[i], &x) || !wefti_expr_part(pool, b, first[i], &y))
            break;
        whole = wefti_expr_alt2(pool, whole, wefti_expr_and2(pool, x.with, y.with));
        a = x.without;
        b = y.without;
    }
    return wefti_expr_alt2(pool, whole, wefti_expr_and2(pool, a, b));
}

/* Lists of shapes are never changed once they are a set's, so sets may share one. */
static struct wefti_array *all_arrays(struct wefti_sets *sets, struct wefti_array *a,
                                      struct wefti_array *b) {
    struct wefti_array *list = NULL, **last = &list;
    if (a == sets->all->arrays) return b;
    if (b == sets->all->arrays) return a;
    for (; a && !sets->err; a = a->next) {
        for (const struct wefti_array *y = b; y && !sets->err; y = y->next) {
            *last = both_arrays(sets, a, y);
            if (*last) last = &(*last)->next;
        }
    }
    return list;
}

static struct wefti_object *all_objects(struct wefti_sets *sets, struct wefti_object *a,
                                        struct wefti_object *b) {
    struct wefti_object *list = NULL, **last = &list;
    if (a == sets->all->objects) return b;
    if (b == sets->all->objects) return a;
    for (; a && !sets->err; a = a->next) {
        for (const struct wefti_object *y = b; y && !sets->err; y = y->next) {
            *last = both_objects(sets, a, y);
            if (*last) last = &(*last)->next;
        }
    }
    return list;
}

const struct wefti_set *wefti_set_and(struct wefti_sets *sets, const struct wefti_set *a,
                                      const struct wefti_set *b) {
    if (!a || !b || a == sets->all) return a ? b : NULL;
    if (b == sets->all) return a;
    struct wefti_set *out = new_set(sets);
    if (!out) return NULL;
    out->scalars = both_scalars(sets, a->scalars, b->scalars);
    if (b->doubtful != WEFTI_EXPR_NONE)
        out->doubtful = both_scalars(sets, upper(sets, a), b->doubtful);
    if (a->doubtful != WEFTI_EXPR_NONE)
        out->doubtful =
            wefti_expr_alt2(sets->pool, out->doubtful, both_scalars(sets, a->doubtful, b->scalars));
    out->odd = a->odd < b->odd ? a->odd : b->odd;
    out->has_more_odd =
        (a->has_more_odd && may_have_odd(b)) || (b->has_more_odd && may_have_odd(a));
    out->arrays = all_arrays(sets, a->arrays, b->arrays);
    out->objects = all_objects(sets, a->objects, b->objects);
    out->has_more_objects = (a->has_more_objects && (b->objects || b->has_more_objects)) ||
                            (b->has_more_objects && a->objects);
    return sets->err ? NULL : out;
}

/* --------------------------------------------------------------------------------------- either --- */

static void add_arrays(struct wefti_sets *sets, struct wefti_set *out,
                       const struct wefti_array *list) {
    struct wefti_array **last = &out->arrays;
    while (*last)
        last = &(*last)->next;
    for (; list && !sets->err; list = list->next) {
        *last = wefti_array_any(sets);
        if (!*last) return;
        **last = *list;
        (*last)->next = NULL;
        last = &(*last)->next;
    }
}

static void add_objects(struct wefti_sets *sets, struct wefti_set *out,
                        const struct wefti_object *list) {
    struct wefti_object **last = &out->objects;
    while (*last)
        last = &(*last)->next;
    for (; list && !sets->err; list = list->next) {
        *last = wefti_object_any(sets);
        if (!*last) return;
        **last = *list;
        (*last)->next = NULL;
        last = &(*last)->next;
    }
}

const struct wefti_set *wefti_set_or(struct wefti_sets *sets, const struct wefti_set *a,
                                     const struct wefti_set *b) {
    struct wefti_set *out = a && b ? new_set(sets) : NULL;
    if (!out) return NULL;
    out->scalars = wefti_expr_alt2(sets->pool, a->scalars, b->scalars);
    out->doubtful = wefti_expr_alt2(sets->pool, without(sets, a->doubtful, b->scalars),
                                    without(sets, b->doubtful, a->scalars));
    out->odd = a->odd > b->odd ? a->odd : b->odd;
    out->has_more_odd = a->has_more_odd || b->has_more_odd;
    out->has_more_objects = a->has_more_objects || b->has_more_objects;
    add_arrays(sets, out, a->arrays);
    add_arrays(sets, out, b->arrays);
    add_objects(sets, out, a->objects);
    add_objects(sets, out, b->objects);
    return sets->err ? NULL : out;
}

/* ------------------------------------------------------------------------------------- neither --- */

static struct wefti_array *add_array(struct wefti_sets *sets, struct wefti_set *to) {
    struct wefti_array *shape = wefti_array_any(sets);
    if (!shape) return NULL;
    shape->next = to->arrays;
    to->arrays = shape;
    return shape;
}

static void not_some_items(struct wefti_sets *sets, const struct wefti_array *a,
                           struct wefti_set *out) {
    for (int side = 0; side < 2; side++) {
        bool is_there = side ? a->some_max < WEFTI_MANY : a->some_min > 0;
        struct wefti_array *shape = is_there ? add_array(sets, out) : NULL;
        if (!shape) continue;
        shape->has_some = true;
        shape->some = a->some;
        shape->some_from = a->some_from;
        shape->some_min = side ? a->some_max + 1 : 0;
        shape->some_max = side ? WEFTI_MANY : a->some_min - 1;
    }
}

/* Arrays that the shape is not: too short, too long, one of the first items another one, one of the others
 * another one, too few or too many of what it contains. */
static const struct wefti_set *not_array(struct wefti_sets *sets, const struct wefti_array *a) {
    struct wefti_set *out = new_set(sets);
    struct wefti_array *shape;
    if (!out) return NULL;
    if (a->unique_at)
        (void)wefti_sets_fail(sets, WEFT_E_UNSUPPORTED,
                              "the complement of \"uniqueItems\" is not supported");
    if (a->min > 0 && (shape = add_array(sets, out))) shape->max = a->min - 1;
    if (a->max < WEFTI_MANY && (shape = add_array(sets, out))) shape->min = a->max + 1;
    for (uint32_t i = 0; i < a->n_items && !sets->err; i++) {
        if (a->items[i] == WEFTI_TERM_TRUE || !(shape = add_array(sets, out))) continue;
        shape->n_items = shape->min = i + 1;
        shape->items = wefti_sets_alloc(sets, i + 1, sizeof *shape->items);
        for (uint32_t k = 0; k < i && shape->items; k++)
            shape->items[k] = WEFTI_TERM_TRUE;
        if (shape->items) shape->items[i] = wefti_term_not(sets, a->items[i]);
    }
    if (a->rest != WEFTI_TERM_TRUE && (shape = add_array(sets, out))) {
        shape->has_some = true;
        shape->some = wefti_term_not(sets, a->rest);
        shape->some_from = a->n_items;
        shape->some_min = 1;
        shape->some_max = WEFTI_MANY;
    }
    if (a->has_some) not_some_items(sets, a, out);
    return sets->err ? NULL : out;
}

static struct wefti_object *add_object(struct wefti_sets *sets, struct wefti_set *to) {
    struct wefti_object *shape = wefti_object_any(sets);
    if (!shape) return NULL;
    shape->next = to->objects;
    to->objects = shape;
    return shape;
}

/* Where it must be there, it is not, or is another value: one shape, not two, or a "oneOf" of 26 would be 2^25. */
static void add_without_member(struct wefti_sets *sets, struct wefti_set *out,
                               const struct wefti_member *member) {
    struct wefti_object *shape = add_object(sets, out);
    struct wefti_member *own = wefti_sets_alloc(sets, 1, sizeof *own);
    if (!shape || !own) return;
    *own = *member;
    own->value = wefti_term_not(sets, member->value);
    own->is_required = !member->is_required;
    own->is_declared = false;
    shape->members = own;
    shape->n_members = 1;
}

static void add_with_some(struct wefti_sets *sets, struct wefti_set *out, wefti_expr keys,
                          wefti_term value) {
    if (value == WEFTI_TERM_FALSE || !wefti_expr_is_live(sets->pool, keys)) return;
    struct wefti_object *shape = add_object(sets, out);
    if (!shape) return;
    shape->has_some = true;
    shape->some = (struct wefti_keys){keys, value};
}

/* None of some.keys has a value of some.value. */
static void add_without_some(struct wefti_sets *sets, const struct wefti_object *a,
                             struct wefti_set *out) {
    struct wefti_object *shape = add_object(sets, out);
    struct wefti_keys *keys = wefti_sets_alloc(sets, 2, sizeof *keys);
    if (!shape || !keys) return;
    keys[0] = (struct wefti_keys){a->some.keys, wefti_term_not(sets, a->some.value)};
    keys[1] = (struct wefti_keys){
        wefti_expr_and2(sets->pool, sets->all_keys, wefti_expr_not(sets->pool, a->some.keys)),
        WEFTI_TERM_TRUE};
    shape->others = keys;
    shape->n_others = 2;
}

static const struct wefti_set *not_object(struct wefti_sets *sets, const struct wefti_object *a) {
    struct wefti_set *out = new_set(sets);
    struct wefti_object *shape;
    if (!out) return NULL;
    wefti_expr rest = wefti_keys_without(sets, sets->all_keys, a);
    if (a->min > 0 && (shape = add_object(sets, out))) shape->max = a->min - 1;
    if (a->max < WEFTI_MANY && (shape = add_object(sets, out))) shape->min = a->max + 1;
    for (uint32_t i = 0; i < a->n_members && !sets->err; i++) {
        const struct wefti_member *member = &a->members[i];
        if (member->is_required || member->value != WEFTI_TERM_TRUE)
            add_without_member(sets, out, member);
    }
    for (uint32_t i = 0; i < a->n_others && !sets->err; i++) {
        wefti_expr keys = wefti_keys_without(sets, a->others[i].keys, a);
        rest = wefti_expr_and2(sets->pool, rest, wefti_expr_not(sets->pool, a->others[i].keys));
        add_with_some(sets, out, keys, wefti_term_not(sets, a->others[i].value));
    }
    add_with_some(sets, out, rest, WEFTI_TERM_TRUE);
    if (a->has_some) add_without_some(sets, a, out);
    return sets->err ? NULL : out;
}

/* Numbers that are not plain are in no complement: what is known of others is not known of them. */
const struct wefti_set *wefti_set_not(struct wefti_sets *sets, const struct wefti_set *a) {
    const struct wefti_set *out = wefti_set_all(sets);
    wefti_expr others = a ? wefti_expr_not(sets->pool, upper(sets, a)) : WEFTI_EXPR_NONE;
    struct wefti_set *scalars = new_set(sets);
    if (!out || !a || !scalars) return NULL;
    if (a->has_more_objects) {
        (void)wefti_sets_fail(sets, WEFT_E_UNSUPPORTED,
                              "the complement of \"propertyNames\" with a \"format\" is not "
                              "supported");
        return NULL;
    }
    *scalars = *out;
    scalars->doubtful = a->doubtful;
    scalars->odd = a->scalars == WEFTI_EXPR_NONE ? WEFTI_ALL_ODD : WEFTI_NO_ODD;
    scalars->has_more_odd = a->scalars != WEFTI_EXPR_NONE && a->odd != WEFTI_ALL_ODD;
    scalars->scalars = wefti_expr_and2(
        sets->pool, a->scalars == WEFTI_EXPR_NONE ? sets->all_scalars : sets->plain_scalars,
        others);
    out = scalars;
    for (const struct wefti_array *x = a->arrays; x && out; x = x->next) {
        const struct wefti_set *none = not_array(sets, x);
        struct wefti_set *both = none ? new_set(sets) : NULL;
        if (!both) return NULL;
        const struct wefti_set arrays = {.arrays = out->arrays};
        const struct wefti_set *less = wefti_set_and(sets, &arrays, none);
        if (!less) return NULL;
        *both = *out;
        both->arrays = less->arrays;
        out = both;
    }
    for (const struct wefti_object *x = a->objects; x && out; x = x->next) {
        const struct wefti_set *none = not_object(sets, x);
        struct wefti_set *both = none ? new_set(sets) : NULL;
        if (!both) return NULL;
        const struct wefti_set objects = {.objects = out->objects};
        const struct wefti_set *less = wefti_set_and(sets, &objects, none);
        if (!less) return NULL;
        *both = *out;
        both->objects = less->objects;
        out = both;
    }
    return out;
}

/* -------------------------------------------------------------------------------------- empty --- */

static bool is_empty_term(struct wefti_sets *sets, wefti_term term, uint32_t depth) {
    if (term == WEFTI_TERM_FALSE) return true;
    if (term == WEFTI_TERM_TRUE || depth == 0 || sets->terms[term].is_open) return false;
    const struct wefti_set *set = wefti_term_value(sets, term);
    return set && wefti_set_is_empty(sets, set, depth - 1);
}

static bool is_empty_array(struct wefti_sets *sets, const struct wefti_array *a, uint32_t depth) {
    for (uint32_t i = 0; i < a->min && i <= a->n_items; i++) {
        if (is_empty_term(sets, item_of(a, i), depth)) return true;
    }
    return a->has_some && a->some_min > 0 && is_empty_term(sets, a->some, depth);
}

static bool is_empty_object(struct wefti_sets *sets, const struct wefti_object *a, uint32_t depth) {
    for (uint32_t i = 0; i < a->n_members; i++) {
        if (a->members[i].is_required && is_empty_term(sets, a->members[i].value, depth))
            return true;
    }
    return false;
}

bool wefti_set_is_empty(struct wefti_sets *sets, const struct wefti_set *set, uint32_t depth) {
    if (wefti_expr_is_live(sets->pool, upper(sets, set)) || set->has_more_odd ||
        set->has_more_objects)
        return false;
    for (const struct wefti_array *a = set->arrays; a; a = a->next) {
        if (!is_empty_array(sets, a, depth)) return false;
    }
    for (const struct wefti_object *a = set->objects; a; a = a->next) {
        if (!is_empty_object(sets, a, depth)) return false;
    }
    return !sets->err;
}
