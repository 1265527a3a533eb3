/* Keywords about arrays. */
#include <string.h>

#include "schema/schema.h"

static const struct wefti_set *with_arrays(struct wefti_schema *s, const struct wefti_set *arrays) {
    const struct wefti_set *all = wefti_set_all(&s->sets);
    struct wefti_set *out = all && arrays ? wefti_sets_alloc(&s->sets, 1, sizeof *out) : NULL;
    if (!out) return NULL;
    *out = *all;
    out->arrays = arrays->arrays;
    return out;
}

/* prefixItems and items, or, as until 2019, a list of items and additionalItems. */
static void read_items(struct wefti_schema *s, const json_t *schema, struct wefti_array *shape) {
    const json_t *items = json_object_get(schema, "items"), *rest = items;
    const json_t *first = wefti_schema_get(s, schema, "prefixItems");
    if (json_is_array(items)) {
        first = items;
        rest = wefti_schema_get(s, schema, "additionalItems");
    }
    if (!rest) rest = wefti_schema_get(s, schema, "unevaluatedItems");
    size_t n = json_array_size(first);
    shape->items = wefti_sets_alloc(&s->sets, n + 1, sizeof *shape->items);
    for (size_t i = 0; i < n && shape->items; i++)
        shape->items[i] = wefti_term_schema(&s->sets, json_array_get(first, i));
    shape->n_items = (uint32_t)n;
    if (rest) shape->rest = wefti_term_schema(&s->sets, rest);
}

static void read_contains(struct wefti_schema *s, const json_t *schema, struct wefti_array *shape) {
    const json_t *contains = wefti_schema_get(s, schema, "contains");
    if (!contains) return;
    if (wefti_schema_get(s, schema, "unevaluatedItems"))
        (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, "unevaluatedItems",
                                  "is not supported beside \"contains\"");
    shape->some = wefti_term_schema(&s->sets, contains);
    shape->some_min = wefti_schema_count(s, schema, "minContains", 1);
    shape->some_max = wefti_schema_count(s, schema, "maxContains", WEFTI_MANY);
    shape->has_some = shape->some_min > 0 || shape->some_max < WEFTI_MANY;
}

const struct wefti_set *wefti_schema_array(struct wefti_schema *s, const json_t *schema) {
    struct wefti_array *shape = wefti_array_any(&s->sets);
    if (!shape) return NULL;
    read_items(s, schema, shape);
    read_contains(s, schema, shape);
    shape->min = wefti_schema_count(s, schema, "minItems", 0);
    shape->max = wefti_schema_count(s, schema, "maxItems", WEFTI_MANY);
    if (json_is_true(json_object_get(schema, "uniqueItems"))) shape->unique_at = schema;
    if (s->sets.err) return NULL;
    for (uint32_t i = 0; i < shape->n_items; i++) {
        if (shape->items[i] == WEFTI_TERM_FALSE && i < shape->max) shape->max = i;
    }
    if (shape->rest == WEFTI_TERM_FALSE && shape->n_items < shape->max) shape->max = shape->n_items;
    bool is_dead = shape->min > shape->max ||
                   (shape->has_some && (shape->some_min > shape->some_max ||
                                        (shape->some == WEFTI_TERM_FALSE && shape->some_min > 0)));
    return with_arrays(s, is_dead ? wefti_set_none(&s->sets) : wefti_set_array(&s->sets, shape));
}
