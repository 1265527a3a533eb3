/* Keywords about any value, about scalars, and those that combine schemas. */
#include "schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "schema/format.h"
#include "schema/number.h"
#include "sources/regex.h"

#define LIST_LONG 64u /* an "enum" */

static wefti_expr alt(struct wefti_schema *s, wefti_expr a, wefti_expr b) {
    return wefti_expr_alt2(s->sets.pool, a, b);
}

/* All values but scalars that are not of `scalars`. */
static const struct wefti_set *with_scalars(struct wefti_schema *s, wefti_expr scalars) {
    const struct wefti_set *all = wefti_set_all(&s->sets);
    struct wefti_set *out = all ? wefti_sets_alloc(&s->sets, 1, sizeof *out) : NULL;
    if (!out) return NULL;
    *out = *all;
    out->scalars = scalars;
    return out;
}

/* ------------------------------------------------------------------------------------ scalars --- */

/* "" for what is no string, or has a zero character: it is none of the words that we know. */
static const char *word_of(const json_t *value) {
    const char *word = json_string_value(value);
    return word && strlen(word) == json_string_length(value) ? word : "";
}

static const struct wefti_set *scalars_of(struct wefti_schema *s, wefti_expr scalars,
                                          enum wefti_odd odd) {
    struct wefti_set *set = wefti_sets_alloc(&s->sets, 1, sizeof *set);
    if (!set) return NULL;
    set->scalars = scalars;
    set->odd = odd;
    return set;
}

static const struct wefti_set *type_named(struct wefti_schema *s, const json_t *schema,
                                          const char *name) {
    static const char *const literals[] = {"null", "true", "false"};
    wefti_expr_pool *pool = s->sets.pool;
    if (!strcmp(name, "string")) return wefti_set_scalars(&s->sets, s->strings);
    if (!strcmp(name, "number")) return scalars_of(s, s->numbers, WEFTI_ALL_ODD);
    if (!strcmp(name, "integer"))
        return wefti_set_scalars(&s->sets, wefti_numbers_integers(&s->sets.numbers));
    if (!strcmp(name, "null"))
        return wefti_set_scalars(&s->sets, wefti_expr_literal(pool, literals[0], 4));
    if (!strcmp(name, "boolean"))
        return wefti_set_scalars(&s->sets, alt(s, wefti_expr_literal(pool, literals[1], 4),
                                               wefti_expr_literal(pool, literals[2], 5)));
    if (!strcmp(name, "array")) return wefti_set_array(&s->sets, wefti_array_any(&s->sets));
    if (!strcmp(name, "object")) return wefti_set_object(&s->sets, wefti_object_any(&s->sets));
    if (!strcmp(name, "any")) return wefti_set_all(&s->sets); /* of draft 3, and still met */
    char what[160];
    (void)snprintf(what, sizeof what,
                   "there is no type \"%.40s\", but null, boolean, object, array, number, string "
                   "and integer",
                   name);
    (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, "type", what);
    return NULL;
}

static const struct wefti_set *read_type(struct wefti_schema *s, const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    const struct wefti_set *whole = wefti_set_none(&s->sets);
    json_t *one;
    size_t i;
    if (!json_is_array(type)) return type_named(s, schema, word_of(type));
    json_array_foreach(type, i, one) {
        const struct wefti_set *more = type_named(s, schema, word_of(one));
        if (!more) return NULL;
        whole = wefti_set_or(&s->sets, whole, more);
    }
    return whole;
}

static const struct wefti_set *const_array(struct wefti_schema *s, const json_t *value) {
    struct wefti_array *shape = wefti_array_any(&s->sets);
    size_t n = json_array_size(value);
    if (!shape) return NULL;
    shape->items = wefti_sets_alloc(&s->sets, n + 1, sizeof *shape->items);
    for (size_t i = 0; i < n && shape->items; i++) {
        const struct wefti_set *item = wefti_schema_const(s, json_array_get(value, i));
        shape->items[i] = item ? wefti_term_set(&s->sets, item) : WEFTI_TERM_FALSE;
    }
    shape->n_items = shape->min = shape->max = (uint32_t)n;
    shape->rest = WEFTI_TERM_FALSE;
    return s->sets.err ? NULL : wefti_set_array(&s->sets, shape);
}

static const struct wefti_set *const_object(struct wefti_schema *s, const json_t *value) {
    struct wefti_object *shape = wefti_object_any(&s->sets);
    const char *key;
    size_t len;
    json_t *child;
    if (!shape) return NULL;
    shape->members =
        wefti_sets_alloc(&s->sets, json_object_size(value) + 1, sizeof *shape->members);
    shape->n_others = 0;
    json_object_keylen_foreach((json_t *)value, key, len, child) {
        const struct wefti_set *set = shape->members ? wefti_schema_const(s, child) : NULL;
        struct weft_str name = {key, len};
        if (!set) return NULL;
        shape->members[shape->n_members++] =
            (struct wefti_member){.name = name,
                                  .key = wefti_key_expr(&s->sets, name),
                                  .value = wefti_term_set(&s->sets, set),
                                  .is_required = true,
                                  .is_declared = true};
    }
    return wefti_set_object(&s->sets, shape);
}

const struct wefti_set *wefti_schema_const(struct wefti_schema *s, const json_t *value) {
    struct wefti_decimal number;
    wefti_expr_pool *pool = s->sets.pool;
    if (++s->sets.depth > 500)
        (void)wefti_sets_fail(&s->sets, WEFT_E_TOOBIG, "a constant is nested too deeply");
    const struct wefti_set *set = NULL;
    if (s->sets.err) return NULL;
    if (json_is_array(value)) {
        set = const_array(s, value);
    } else if (json_is_object(value)) {
        set = const_object(s, value);
    } else if (json_is_string(value)) {
        struct weft_str text = {json_string_value(value), json_string_length(value)};
        set = wefti_set_scalars(&s->sets, wefti_key_expr(&s->sets, text));
    } else if (!json_is_number(value)) {
        const char *word = json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null";
        set = wefti_set_scalars(&s->sets, wefti_expr_literal(pool, word, strlen(word)));
    } else if (wefti_decimal_read(&number, value)) {
        set = scalars_of(s, wefti_numbers_equal(&s->sets.numbers, &number),
                         wefti_decimal_is_odd(&number) ? WEFTI_SOME_ODD : WEFTI_NO_ODD);
    } else {
        (void)wefti_sets_fail(&s->sets, WEFT_E_UNSUPPORTED,
                              "a number has more digits than we keep exactly");
    }
    s->sets.depth--;
    return set;
}

/* A long list of texts shares what they begin with: one by one they would fill the pool, and be searched one by one. */
static const struct wefti_set *read_enum(struct wefti_schema *s, const json_t *schema) {
    const json_t *list = json_object_get(schema, "enum");
    const struct wefti_set *whole = wefti_set_none(&s->sets);
    size_t n = json_array_size(list), n_scalars = 0, n_texts = 0;
    wefti_expr *scalars = wefti_sets_alloc(&s->sets, n + 1, sizeof *scalars);
    struct weft_str *texts = wefti_sets_alloc(&s->sets, n + 1, sizeof *texts);
    enum wefti_odd odd = WEFTI_NO_ODD;
    for (size_t i = 0; i < n && texts && !s->sets.err; i++) {
        const json_t *value = json_array_get(list, i);
        if (n > LIST_LONG && json_is_string(value)) {
            texts[n_texts++] =
                (struct weft_str){json_string_value(value), json_string_length(value)};
            continue;
        }
        const struct wefti_set *one = wefti_schema_const(s, value);
        if (!one) return NULL;
        if (json_is_array(value) || json_is_object(value))
            whole = wefti_set_or(&s->sets, whole, one);
        else
            scalars[n_scalars++] = one->scalars;
        if (one->odd != WEFTI_NO_ODD) odd = one->odd;
    }
    if (s->sets.err) return NULL;
    if (n_texts > 0) scalars[n_scalars++] = wefti_expr_json_strings(s->sets.pool, texts, n_texts);
    wefti_expr all = wefti_expr_alt(s->sets.pool, scalars, n_scalars);
    return wefti_set_or(&s->sets, whole, scalars_of(s, all, odd));
}

static bool read_decimal(struct wefti_schema *s, const json_t *schema, const char *keyword,
                         struct wefti_decimal *out) {
    const json_t *value = json_object_get(schema, keyword);
    if (!wefti_decimal_read(out, value))
        (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, keyword,
                                  "has more digits than we keep exactly");
    return !s->sets.err;
}

/* What is not plain is not compared. */
static const struct wefti_set *with_numbers(struct wefti_schema *s, wefti_expr numbers) {
    struct wefti_set *set = wefti_sets_alloc(&s->sets, 1, sizeof *set);
    const struct wefti_set *sure = with_scalars(s, alt(s, alt(s, s->words, s->strings), numbers));
    if (!set || !sure) return NULL;
    *set = *sure;
    set->odd = WEFTI_NO_ODD;
    set->has_more_odd = true;
    return set;
}

/* In draft 4 "exclusiveMinimum" is a Boolean beside "minimum". */
static const struct wefti_set *read_bound(struct wefti_schema *s, const json_t *schema,
                                          const char *keyword) {
    struct wefti_decimal bound;
    bool is_least = strstr(keyword, "inimum") != NULL, is_beyond = keyword[0] == 'e';
    const json_t *beside =
        json_object_get(schema, is_least ? "exclusiveMinimum" : "exclusiveMaximum");
    if (is_beyond && json_is_boolean(beside)) return wefti_set_all(&s->sets);
    if (!is_beyond && json_is_true(beside)) is_beyond = true;
    if (!read_decimal(s, schema, keyword, &bound)) return NULL;
    return with_numbers(s, wefti_numbers_from(&s->sets.numbers, &bound, is_least, is_beyond));
}

static const struct wefti_set *read_multiple(struct wefti_schema *s, const json_t *schema) {
    struct wefti_decimal of;
    if (!read_decimal(s, schema, "multipleOf", &of)) return NULL;
    wefti_expr numbers = wefti_numbers_multiples(&s->sets.numbers, &of);
    if (numbers == WEFTI_EXPR_NONE) {
        (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, "multipleOf",
                                  "is not from 1 to 1000000 without its point");
        return NULL;
    }
    return with_numbers(s, numbers);
}

static wefti_expr in_quotes(struct wefti_schema *s, wefti_expr inner) {
    wefti_expr quote = wefti_expr_literal(s->sets.pool, "\"", 1);
    wefti_expr strings =
        wefti_expr_cat(s->sets.pool, quote, wefti_expr_cat(s->sets.pool, inner, quote));
    wefti_expr_within(s->sets.pool, strings, s->strings);
    return strings;
}

static const struct wefti_set *with_strings(struct wefti_schema *s, wefti_expr strings) {
    return with_scalars(s, alt(s, alt(s, s->words, s->numbers), strings));
}

static const struct wefti_set *read_length(struct wefti_schema *s, const json_t *schema) {
    uint32_t min = wefti_schema_count(s, schema, "minLength", 0);
    uint32_t max = wefti_schema_count(s, schema, "maxLength", WEFTI_EXPR_MANY);
    if (min > max) return with_scalars(s, alt(s, s->words, s->numbers));
    return with_strings(s,
                        in_quotes(s, wefti_expr_repeat(s->sets.pool, s->sets.any_char, min, max)));
}

/* Strings that match; NONE after a refusal. */
static wefti_expr read_regex(struct wefti_schema *s, const json_t *schema, const char *keyword,
                             struct weft_str regex, enum wefti_regex_kind kind) {
    struct weft_errmsg why = {""};
    wefti_expr inner;
    weft_err err = wefti_regex_expr(s->sets.pool, regex, kind, WEFTI_IN_JSON, &inner, &why);
    if (err) (void)wefti_schema_refuse(s, err, schema, keyword, why.text);
    return err ? WEFTI_EXPR_NONE : in_quotes(s, inner);
}

static const struct wefti_set *read_pattern(struct wefti_schema *s, const json_t *schema) {
    const json_t *value = json_object_get(schema, "pattern");
    const struct weft_str pattern = {json_string_value(value), json_string_length(value)};
    return with_strings(s, read_regex(s, schema, "pattern", pattern, WEFTI_REGEX_SEARCH));
}

static const struct wefti_set *read_format(struct wefti_schema *s, const json_t *schema) {
    const char *name = word_of(json_object_get(schema, "format")), *wide;
    bool is_standard = false;
    weft_buf_clear(&s->path);
    if (wefti_format_regex(name, s->sets.numbers.n_digits, &s->path, &wide, &is_standard)) {
        const struct weft_str regex = {weft_buf_cstr(&s->path), s->path.len};
        struct wefti_set *set = wefti_sets_alloc(&s->sets, 1, sizeof *set);
        wefti_expr sure = read_regex(s, schema, "format", regex, WEFTI_REGEX_MATCH);
        const struct wefti_set *strings = with_strings(s, sure);
        if (!set || !strings) return NULL;
        *set = *strings;
        if (wide) {
            const struct weft_str text = {wide, strlen(wide)};
            wefti_expr may_be = read_regex(s, schema, "format", text, WEFTI_REGEX_MATCH);
            set->doubtful =
                wefti_expr_and2(s->sets.pool, may_be, wefti_expr_not(s->sets.pool, sure));
        }
        return s->sets.err ? NULL : set;
    }
    if (!is_standard) return wefti_set_all(&s->sets);
    char what[64];
    (void)snprintf(what, sizeof what, "'%s' is not supported", name);
    (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, "format", what);
    return NULL;
}

/* ------------------------------------------------------------------------------- combinations --- */

static const struct wefti_set *value_of(struct wefti_schema *s, const json_t *schema) {
    return wefti_term_value(&s->sets, wefti_term_schema(&s->sets, schema));
}

static const struct wefti_set *read_list(struct wefti_schema *s, const json_t *schema,
                                         const char *keyword) {
    const json_t *list = json_object_get(schema, keyword);
    bool is_all = !strcmp(keyword, "allOf");
    const struct wefti_set *whole = is_all ? wefti_set_all(&s->sets) : wefti_set_none(&s->sets);
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        const struct wefti_set *more = s->sets.err ? NULL : value_of(s, one);
        if (!more) return NULL;
        whole = is_all ? wefti_set_and(&s->sets, whole, more) : wefti_set_or(&s->sets, whole, more);
    }
    return s->sets.err ? NULL : whole;
}

/* Whether surely no value is in both. A failure on the way is no answer. */
static bool are_apart(struct wefti_schema *s, const struct wefti_set *a,
                      const struct wefti_set *b) {
    struct weft_errmsg *why = s->sets.why, ignored;
    s->sets.why = &ignored;
    const struct wefti_set *shared = wefti_set_and(&s->sets, a, b);
    bool is_empty = shared && wefti_set_is_empty(&s->sets, shared, 4);
    s->sets.why = why;
    if (s->sets.err == WEFT_E_UNSUPPORTED) s->sets.err = WEFT_OK;
    if (s->sets.err) *why = ignored;
    return is_empty && !s->sets.err;
}

static const struct wefti_set *read_one_of(struct wefti_schema *s, const json_t *schema) {
    const json_t *list = json_object_get(schema, "oneOf");
    const struct wefti_set *whole = wefti_set_none(&s->sets);
    size_t n = json_array_size(list);
    const struct wefti_set **values = wefti_sets_alloc(&s->sets, n + 1, sizeof(void *));
    for (size_t i = 0; i < n && values && !s->sets.err; i++)
        values[i] = value_of(s, json_array_get(list, i));
    for (size_t i = 0; i < n && values && !s->sets.err; i++) {
        const struct wefti_set *alone = values[i];
        for (size_t k = 0; k < n && !s->sets.err; k++) {
            if (k != i && !are_apart(s, values[i], values[k]))
                alone = wefti_set_and(&s->sets, alone, wefti_set_not(&s->sets, values[k]));
        }
        if (!s->sets.err) whole = wefti_set_or(&s->sets, whole, alone);
    }
    return s->sets.err ? NULL : whole;
}

static const struct wefti_set *read_not(struct wefti_schema *s, const json_t *schema) {
    const struct wefti_set *value = value_of(s, json_object_get(schema, "not"));
    return value ? wefti_set_not(&s->sets, value) : NULL;
}

static const struct wefti_set *read_if(struct wefti_schema *s, const json_t *schema) {
    const json_t *then = json_object_get(schema, "then"), *other = json_object_get(schema, "else");
    if (!then && !other) return wefti_set_all(&s->sets);
    const struct wefti_set *test = value_of(s, json_object_get(schema, "if"));
    const struct wefti_set *yes = test, *no = test ? wefti_set_not(&s->sets, test) : NULL;
    if (then && yes) yes = wefti_set_and(&s->sets, yes, value_of(s, then));
    if (other && no) no = wefti_set_and(&s->sets, no, value_of(s, other));
    return s->sets.err ? NULL : wefti_set_or(&s->sets, yes, no);
}

static const struct wefti_set *read_ref(struct wefti_schema *s, const json_t *schema,
                                        const char *keyword) {
    const json_t *ref = json_object_get(schema, keyword);
    const json_t *target = wefti_refs_find(&s->refs, schema, ref);
    if (target) return value_of(s, target);
    if (!json_is_string(
            ref)) /* beside it nothing was checked, in drafts where it is all there is */
        (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, keyword, "must be a string");
    if (s->refs.is_over)
        (void)wefti_schema_refuse(s, WEFT_E_TOOBIG, schema, keyword, "names are too long");
    (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, keyword,
                              "names nothing in this document, and no other is fetched");
    return NULL;
}

/* ---------------------------------------------------------------------------------- keywords --- */

static const struct wefti_set *read_dynamic(struct wefti_schema *s, const json_t *schema,
                                            const char *key) {
    if (!s->refs.has_dynamic && !strcmp(key, "$dynamicRef")) return read_ref(s, schema, key);
    (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, key, "is not supported");
    return NULL;
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++) {
        if (!strcmp(name, *list)) return true;
    }
    return false;
}

static bool has_any(const json_t *schema, const char *const *list) {
    for (; *list; list++) {
        if (json_object_get(schema, *list)) return true;
    }
    return false;
}

static const char *const about_objects[] = {
    "properties",    "patternProperties", "additionalProperties",  "required",
    "minProperties", "maxProperties",     "propertyNames",         "dependentRequired",
    "dependencies",  "dependentSchemas",  "unevaluatedProperties", NULL};
static const char *const about_arrays[] = {
    "items",    "prefixItems", "additionalItems", "contains",         "minContains", "maxContains",
    "minItems", "maxItems",    "uniqueItems",     "unevaluatedItems", NULL};
static const char *const about_lengths[] = {"minLength", "maxLength", NULL};
static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                     NULL};
/* What "unevaluated..." would have to look into. */
static const char *const in_place[] = {
    "$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependencies", "dependentSchemas", NULL};

static const struct wefti_set *read_keyword(struct wefti_schema *s, const json_t *schema,
                                            const char *key) {
    if (!strcmp(key, "type")) return read_type(s, schema);
    if (!strcmp(key, "enum")) return read_enum(s, schema);
    if (!strcmp(key, "const")) return wefti_schema_const(s, json_object_get(schema, key));
    if (!strcmp(key, "multipleOf")) return read_multiple(s, schema);
    if (!strcmp(key, "pattern")) return read_pattern(s, schema);
    if (!strcmp(key, "format")) return read_format(s, schema);
    if (!strcmp(key, "allOf") || !strcmp(key, "anyOf")) return read_list(s, schema, key);
    if (!strcmp(key, "oneOf")) return read_one_of(s, schema);
    if (!strcmp(key, "not")) return read_not(s, schema);
    if (!strcmp(key, "if")) return read_if(s, schema);
    if (!strcmp(key, "$ref")) return read_ref(s, schema, key);
    if (!strcmp(key, "$dynamicRef") || !strcmp(key, "$recursiveRef"))
        return read_dynamic(s, schema, key);
    if (is_one_of(key, bounds)) return read_bound(s, schema, key);
    return wefti_set_all(&s->sets); /* an annotation */
}

static void check_unevaluated(struct wefti_schema *s, const json_t *schema) {
    static const char *const names[] = {"unevaluatedProperties", "unevaluatedItems", NULL};
    for (int i = 0; names[i]; i++) {
        const json_t *value = wefti_schema_get(s, schema, names[i]);
        if (value && !json_is_true(value) && has_any(schema, in_place))
            (void)wefti_schema_refuse(s, WEFT_E_UNSUPPORTED, schema, names[i],
                                      "is not supported beside schemas that are combined");
    }
}

/* Keywords of one room (objects, arrays, lengths) are read together, where the first of them stands. */
static const struct wefti_set *read_group(struct wefti_schema *s, const json_t *schema,
                                          const char *key, unsigned *done) {
    static const char *const *const groups[] = {about_objects, about_arrays, about_lengths};
    for (unsigned g = 0; g < 3; g++) {
        if (!is_one_of(key, groups[g])) continue;
        if (*done >> g & 1) return wefti_set_all(&s->sets);
        *done |= 1u << g;
        return g == 0   ? wefti_schema_object(s, schema)
               : g == 1 ? wefti_schema_array(s, schema)
                        : read_length(s, schema);
    }
    return read_keyword(s, schema, key);
}

static const struct wefti_set *read_schema(struct wefti_sets *sets, const json_t *schema,
                                           struct wefti_schema *s) {
    const struct wefti_set *whole = wefti_set_all(sets);
    const char *key;
    json_t *value;
    unsigned done = 0;
    if (json_is_boolean(schema)) return json_is_true(schema) ? whole : wefti_set_none(sets);
    if (!json_is_object(schema)) {
        (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, NULL,
                                  "must be a schema (an object, true or false)");
        return NULL;
    }
    if (wefti_draft_is_old(wefti_refs_draft(&s->refs, schema)) && json_object_get(schema, "$ref"))
        return read_ref(s, schema, "$ref");
    if (!wefti_schema_check(s, schema)) return NULL;
    check_unevaluated(s, schema);
    json_object_foreach((json_t *)schema, key, value) {
        if (!wefti_schema_get(s, schema, key)) continue;
        const struct wefti_set *more = whole ? read_group(s, schema, key, &done) : NULL;
        if (!more || sets->err) return NULL;
        whole = wefti_set_and(sets, whole, more);
    }
    if (wefti_expr_pool_failed(sets->pool))
        (void)wefti_sets_fail(sets, WEFT_E_TOOBIG, "the schema is too large");
    return sets->err ? NULL : whole;
}

const struct wefti_set *wefti_schema_value(struct wefti_sets *sets, const json_t *schema,
                                           void *context) {
    const json_t *around = sets->at;
    sets->at = schema;
    const struct wefti_set *whole = read_schema(sets, schema, context);
    sets->at = around;
    return whole;
}

/* ------------------------------------------------------------------------------------ document --- */

weft_err wefti_schema_rules(struct wefti_tree *tree, const json_t *root, uint32_t *root_out,
                            struct weft_errmsg *why) {
    struct wefti_schema s = {0};
    bool had_words = tree->has_words;
    *root_out = WEFTI_TREE_NONE;
    tree->has_words = true;
    weft_buf_init(&s.path, (size_t)1 << 20);
    struct wefti_numbers numbers;
    wefti_numbers_init(&numbers, tree->pool, tree->json_digits);
    wefti_sets_init(&s.sets, &numbers, why);
    s.sets.read = wefti_schema_value;
    s.sets.context = &s;
    wefti_expr words[] = {wefti_expr_literal(tree->pool, "null", 4),
                          wefti_expr_literal(tree->pool, "true", 4),
                          wefti_expr_literal(tree->pool, "false", 5)};
    s.words = wefti_expr_alt(tree->pool, words, 3);
    s.strings = s.sets.all_keys;
    s.numbers = wefti_numbers_all(&s.sets.numbers);
    weft_err err = s.sets.err;
    if (!err) err = wefti_refs_init(&s.refs, root, why);
    wefti_term term = err ? WEFTI_TERM_FALSE : wefti_term_schema(&s.sets, root);
    if (!err) err = wefti_schema_emit(&s, tree, term, root_out);
    if (!err) err = wefti_schema_need_values(&s, term);
    wefti_schema_add_place(&s);
    if (!err && (wefti_expr_pool_failed(tree->pool) || tree->failed))
        err = weft_err_set(why, WEFT_E_TOOBIG, "the schema is too large");
    wefti_sets_fini(&s.sets);
    wefti_refs_fini(&s.refs);
    weft_buf_fini(&s.path);
    tree->has_words = had_words;
    return err;
}

weft_err wefti_schema_read(struct wefti_tree *tree, struct weft_str text, uint32_t *root_out,
                           struct weft_errmsg *why) {
    json_t *root;
    *root_out = WEFTI_TREE_NONE;
    weft_err err = wefti_schema_load(text, NULL, &root, why);
    if (!err) err = wefti_schema_rules(tree, root, root_out, why);
    json_decref(root);
    return err;
}
