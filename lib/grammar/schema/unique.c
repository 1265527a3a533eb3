/* Which values the items of an array are, where these are few: "uniqueItems" is then a choice of those that are left.
 * They are looked for where schemas usually have them; that there are no others is then asked of the sets. */
#include <string.h>

#include "schema/schema.h"

#define VISITS_MAX 200u /* schemas and values; what refers to itself ends so, too */

struct search {
    struct wefti_schema *s;
    const struct wefti_set **values;
    uint32_t n, n_visits;
    wefti_expr all;
    bool failed; /* there are too many, or some are hard to tell apart */
};

static void add_value(struct search *search, const json_t *value) {
    struct wefti_sets *sets = &search->s->sets;
    if (json_is_array(value) || json_is_object(value)) return;
    const struct wefti_set *set = wefti_schema_const(search->s, value);
    if (!set || ++search->n_visits > VISITS_MAX) search->failed = true;
    for (uint32_t i = 0; i < search->n && !search->failed; i++) {
        if (search->values[i]->scalars == set->scalars) return; /* 1.0 is 1 */
    }
    if (search->failed) return;
    wefti_expr both = wefti_expr_and2(sets->pool, search->all, set->scalars);
    search->failed = search->n == WEFTI_UNIQUE_VALUES_MAX || wefti_expr_is_live(sets->pool, both);
    if (search->failed) return;
    search->values[search->n++] = set;
    search->all = wefti_expr_alt2(sets->pool, search->all, set->scalars);
}

static void add_type(struct search *search, const char *name) {
    if (name && !strcmp(name, "boolean")) {
        add_value(search, json_false());
        add_value(search, json_true());
    }
    if (name && !strcmp(name, "null")) add_value(search, json_null());
}

static void look_into(struct search *search, const json_t *schema);

static void look_into_all(struct search *search, const json_t *list) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        if (search->failed) return;
        look_into(search, one);
    }
}

static void look_into(struct search *search, const json_t *schema) {
    static const char *const combinations[] = {"anyOf", "oneOf", "allOf"};
    const json_t *values = json_object_get(schema, "enum"), *type = json_object_get(schema, "type");
    const json_t *value = json_object_get(schema, "const");
    const json_t *ref = json_object_get(schema, "$ref");
    size_t i;
    json_t *one;
    if (++search->n_visits > VISITS_MAX) search->failed = true;
    if (search->failed) return;
    if (value) {
        add_value(search, value);
        return;
    }
    if (json_is_array(values)) {
        json_array_foreach(values, i, one) {
            if (!search->failed) add_value(search, one);
        }
        return;
    }
    add_type(search, json_string_value(type));
    json_array_foreach(type, i, one) {
        add_type(search, json_string_value(one));
    }
    if (ref) look_into(search, wefti_refs_find(&search->s->refs, schema, ref));
    for (i = 0; i < sizeof combinations / sizeof *combinations; i++)
        look_into_all(search, json_object_get(schema, combinations[i]));
}

static void look_into_term(struct search *search, wefti_term term) {
    const struct wefti_term_node node = search->s->sets.terms[term];
    if (term == WEFTI_TERM_TRUE || ++search->n_visits > VISITS_MAX) search->failed = true;
    if (node.kind == WEFTI_TERM_SCHEMA) look_into(search, node.what);
    if (node.kind != WEFTI_TERM_AND && node.kind != WEFTI_TERM_OR) return;
    for (uint32_t i = 0; i < node.n_parts && !search->failed; i++)
        look_into_term(search, node.parts[i]);
}

static bool has_others(struct search *search, wefti_term term) {
    struct wefti_sets *sets = &search->s->sets;
    const struct wefti_set *set = wefti_term_value(sets, term);
    if (!set || set->arrays || set->objects) return true;
    wefti_expr others = wefti_expr_not(sets->pool, search->all);
    return wefti_expr_is_live(sets->pool, wefti_expr_and2(sets->pool, set->scalars, others));
}

/* Behind as many items as there are values there is no other one, so no more places need a look. */
bool wefti_unique_values(struct wefti_schema *s, const struct wefti_array *a,
                         const struct wefti_set **values, uint32_t *n_out) {
    struct search search = {.s = s, .values = values, .all = WEFTI_EXPR_NONE};
    uint32_t n_places = a->max < WEFTI_UNIQUE_VALUES_MAX ? a->max : WEFTI_UNIQUE_VALUES_MAX + 1;
    if (n_places > a->n_items + 1) n_places = a->n_items + 1;
    *n_out = 0;
    for (uint32_t i = 0; i < n_places && !search.failed; i++)
        look_into_term(&search, i < a->n_items ? a->items[i] : a->rest);
    for (uint32_t i = 0; i < n_places && !search.failed; i++)
        search.failed = has_others(&search, i < a->n_items ? a->items[i] : a->rest);
    if (search.failed || s->sets.err || wefti_expr_pool_failed(s->sets.pool)) return false;
    *n_out = search.n;
    return true;
}
