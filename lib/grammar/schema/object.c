/* Keywords about objects. */
#include <string.h>

#include "schema/schema.h"
#include "sources/regex.h"

static wefti_term all_of_list(struct wefti_schema *s, wefti_term a, wefti_term b) {
    return wefti_term_and(&s->sets, a, b);
}

static wefti_expr keys_not(struct wefti_schema *s, wefti_expr keys) {
    return wefti_expr_and2(s->sets.pool, s->sets.all_keys, wefti_expr_not(s->sets.pool, keys));
}

/* Splits the classes of keys by a pattern: what it holds is of `value`, too. */
static void add_pattern(struct wefti_schema *s, struct wefti_object *shape, wefti_expr keys,
                        wefti_term value) {
    struct wefti_keys *others =
        wefti_sets_alloc(&s->sets, 2 * (size_t)shape->n_others + 1, sizeof *others);
    uint32_t n = 0;
    for (uint32_t i = 0; i < shape->n_others && others; i++) {
        struct wefti_keys in = shape->others[i], out = in;
        in.keys = wefti_expr_and2(s->sets.pool, in.keys, keys);
        in.value = all_of_list(s, in.value, value);
        out.keys = wefti_expr_and2(s->sets.pool, out.keys, keys_not(s, keys));
        if (wefti_expr_is_live(s->sets.pool, in.keys)) others[n++] = in;
        if (wefti_expr_is_live(s->sets.pool, out.keys)) others[n++] = out;
    }
    if (n > 256)
        (void)wefti_sets_fail(&s->sets, WEFT_E_TOOBIG,
                              "the patterns of an object overlap too much");
    shape->others = others;
    shape->n_others = n;
}

static wefti_expr keys_of_pattern(struct wefti_schema *s, const json_t *schema, const char *pattern,
                                  size_t len) {
    struct weft_errmsg why = {""};
    wefti_expr inner, quote = wefti_expr_literal(s->sets.pool, "\"", 1);
    weft_err err = wefti_regex_expr(s->sets.pool, (struct weft_str){pattern, len},
                                    WEFTI_REGEX_SEARCH, WEFTI_IN_JSON, &inner, &why);
    if (err) (void)wefti_schema_refuse(s, err, schema, "patternProperties", why.text);
    inner = wefti_expr_cat(s->sets.pool, quote, wefti_expr_cat(s->sets.pool, inner, quote));
    wefti_expr_within(s->sets.pool, inner, s->sets.all_keys);
    return inner;
}

/* `additionalProperties` is for keys that nothing else is said of: so it comes first, as what all keys are
 * of, and the patterns take theirs out of it. */
static void read_others(struct wefti_schema *s, const json_t *schema, struct wefti_object *shape) {
    const json_t *additional = json_object_get(schema, "additionalProperties");
    json_t *patterns = json_object_get(schema, "patternProperties"), *value;
    const char *pattern;
    size_t len;
    wefti_expr named = WEFTI_EXPR_NONE;
    if (!additional) additional = wefti_schema_get(s, schema, "unevaluatedProperties");
    json_object_keylen_foreach(patterns, pattern, len, value) {
        wefti_expr keys = keys_of_pattern(s, schema, pattern, len);
        if (s->sets.err) return;
        named = wefti_expr_alt2(s->sets.pool, named, keys);
        add_pattern(s, shape, keys, wefti_term_schema(&s->sets, value));
    }
    if (!additional || s->sets.err) return;
    add_pattern(s, shape, keys_not(s, named), wefti_term_schema(&s->sets, additional));
}

/* What the patterns say of a name. */
static wefti_term value_by_patterns(struct wefti_schema *s, const json_t *schema,
                                    struct weft_str name) {
    json_t *patterns = json_object_get(schema, "patternProperties"), *value;
    const char *pattern;
    size_t len;
    wefti_term whole = WEFTI_TERM_TRUE;
    json_object_keylen_foreach(patterns, pattern, len, value) {
        wefti_expr keys = keys_of_pattern(s, schema, pattern, len);
        if (!s->sets.err && wefti_keys_hold(&s->sets, keys, name))
            whole = all_of_list(s, whole, wefti_term_schema(&s->sets, value));
    }
    return whole;
}

static void read_members(struct wefti_schema *s, const json_t *schema, struct wefti_object *shape) {
    json_t *properties = json_object_get(schema, "properties"), *value;
    const char *key;
    size_t len;
    json_object_keylen_foreach(properties, key, len, value) {
        struct weft_str name = {key, len};
        wefti_term term = wefti_term_schema(&s->sets, value);
        if (s->sets.err) return;
        shape->members[shape->n_members++] =
            (struct wefti_member){.name = name,
                                  .key = wefti_key_expr(&s->sets, name),
                                  .value = all_of_list(s, term, value_by_patterns(s, schema, name)),
                                  .is_declared = true};
    }
}

/* A name that only "required" has is a member of what the patterns and additionalProperties say. */
static void read_required(struct wefti_schema *s, const json_t *schema,
                          struct wefti_object *shape) {
    const json_t *list = json_object_get(schema, "required"), *one;
    struct wefti_finder finder = {.shape = shape};
    for (size_t i = 0; i < json_array_size(list) && !s->sets.err; i++) {
        one = json_array_get(list, i);
        struct weft_str name = {json_string_value(one), json_string_length(one)};
        wefti_expr key = wefti_key_expr(&s->sets, name);
        const struct wefti_member *found = wefti_object_find(&s->sets, &finder, key);
        uint32_t idx = found ? (uint32_t)(found - shape->members) : shape->n_members;
        if (!found) {
            wefti_term value = WEFTI_TERM_FALSE;
            for (uint32_t k = 0; k < shape->n_others; k++) {
                if (wefti_keys_hold(&s->sets, shape->others[k].keys, name))
                    value = shape->others[k].value;
            }
            shape->members[shape->n_members++] =
                (struct wefti_member){.name = name, .key = key, .value = value};
        }
        shape->members[idx].is_required = true;
    }
}

static const struct wefti_set *with_objects(struct wefti_schema *s,
                                            const struct wefti_set *objects) {
    const struct wefti_set *all = wefti_set_all(&s->sets);
    struct wefti_set *out = all && objects ? wefti_sets_alloc(&s->sets, 1, sizeof *out) : NULL;
    if (!out) return NULL;
    *out = *all;
    out->objects = objects->objects;
    out->has_more_objects = objects->has_more_objects;
    return out;
}

/* Objects with this one member: there, or forbidden. */
static const struct wefti_set *with_member(struct wefti_schema *s, struct weft_str name,
                                           bool is_there) {
    struct wefti_object *shape = wefti_object_any(&s->sets);
    struct wefti_member *member = wefti_sets_alloc(&s->sets, 1, sizeof *member);
    if (!shape || !member) return NULL;
    *member = (struct wefti_member){.name = name,
                                    .key = wefti_key_expr(&s->sets, name),
                                    .value = is_there ? WEFTI_TERM_TRUE : WEFTI_TERM_FALSE,
                                    .is_required = is_there};
    shape->members = member;
    shape->n_members = 1;
    return with_objects(s, wefti_set_object(&s->sets, shape));
}

/* Where `name` is there, so are those of the list. */
static const struct wefti_set *needs_all(struct wefti_schema *s, const json_t *list) {
    const struct wefti_set *whole = wefti_set_all(&s->sets);
    for (size_t i = 0; i < json_array_size(list) && whole; i++) {
        const json_t *one = json_array_get(list, i);
        struct weft_str name = {json_string_value(one), json_string_length(one)};
        const struct wefti_set *more = with_member(s, name, true);
        whole = more ? wefti_set_and(&s->sets, whole, more) : NULL;
    }
    return whole;
}

static const struct wefti_set *read_dependencies(struct wefti_schema *s, const json_t *schema,
                                                 const char *keyword,
                                                 const struct wefti_set *whole) {
    json_t *list = wefti_schema_get(s, schema, keyword), *needs;
    const char *key;
    size_t len;
    json_object_keylen_foreach(list, key, len, needs) {
        struct weft_str name = {key, len};
        const struct wefti_set *value =
            json_is_array(needs) ? needs_all(s, needs)
                                 : wefti_term_value(&s->sets, wefti_term_schema(&s->sets, needs));
        const struct wefti_set *there = with_member(s, name, true),
                               *absent = with_member(s, name, false);
        if (!value || !there || !absent) return NULL;
        struct wefti_set objects = {.objects = there->objects};
        const struct wefti_set *kept = wefti_set_and(&s->sets, &objects, value);
        const struct wefti_set *either = kept ? wefti_set_or(&s->sets, kept, absent) : NULL;
        whole = either ? wefti_set_and(&s->sets, whole, either) : NULL;
        if (!whole) return NULL;
    }
    return whole;
}

/* Keys of which a schema holds as strings. True: perhaps of more than these. */
static bool read_names(struct wefti_schema *s, const json_t *schema, struct wefti_object *shape) {
    const json_t *names = wefti_schema_get(s, schema, "propertyNames");
    const struct wefti_set *set =
        names ? wefti_term_value(&s->sets, wefti_term_schema(&s->sets, names)) : NULL;
    if (!set) return false;
    wefti_expr keys = wefti_expr_and2(s->sets.pool, set->scalars, s->sets.all_keys);
    wefti_expr doubtful = wefti_expr_and2(s->sets.pool, set->doubtful, s->sets.all_keys);
    uint32_t n = 0;
    for (uint32_t i = 0; i < shape->n_others; i++) {
        struct wefti_keys one = shape->others[i];
        one.keys = wefti_expr_and2(s->sets.pool, one.keys, keys);
        if (wefti_expr_is_live(s->sets.pool, one.keys)) shape->others[n++] = one;
    }
    shape->n_others = n;
    for (uint32_t i = 0; i < shape->n_members; i++) {
        if (!wefti_keys_hold(&s->sets, keys, shape->members[i].name))
            shape->members[i].value = WEFTI_TERM_FALSE;
    }
    return wefti_expr_is_live(s->sets.pool, doubtful);
}

const struct wefti_set *wefti_schema_object(struct wefti_schema *s, const json_t *schema) {
    static const char *const dependencies[] = {"dependentRequired", "dependentSchemas",
                                               "dependencies"};
    struct wefti_object *shape = wefti_object_any(&s->sets);
    size_t n = json_object_size(json_object_get(schema, "properties"));
    if (!shape || !wefti_object_may_have(&s->sets, n)) return NULL;
    n += json_array_size(json_object_get(schema, "required"));
    shape->members = wefti_sets_alloc(&s->sets, n + 1, sizeof *shape->members);
    if (!shape->members) return NULL;
    read_members(s, schema, shape);
    if (!s->sets.err) read_others(s, schema, shape);
    bool has_more = !s->sets.err && read_names(s, schema, shape);
    if (!s->sets.err) read_required(s, schema, shape);
    shape->min = wefti_schema_count(s, schema, "minProperties", 0);
    shape->min_at = schema;
    shape->max = wefti_schema_count(s, schema, "maxProperties", WEFTI_MANY);
    if (s->sets.err) return NULL;
    bool is_dead = shape->min > shape->max;
    for (uint32_t i = 0; i < shape->n_members; i++) {
        const struct wefti_member *member = &shape->members[i];
        is_dead = is_dead || (member->is_required && member->value == WEFTI_TERM_FALSE);
    }
    const struct wefti_set *objects =
        is_dead ? wefti_set_none(&s->sets) : wefti_set_object(&s->sets, shape);
    struct wefti_set bare = {.has_more_objects = has_more};
    if (objects) bare.objects = objects->objects;
    const struct wefti_set *whole = objects ? with_objects(s, &bare) : NULL;
    for (size_t i = 0; i < 3 && whole; i++)
        whole = read_dependencies(s, schema, dependencies[i], whole);
    return whole;
}
