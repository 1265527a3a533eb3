/* Which keywords a draft has, and what each one's value must be. A value of another type says
 * nothing that could be honoured, so it is refused where it stands; the readers of keywords rely on
 * it. */
#include "schema/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_SHOWN 60
#define A_SCHEMA "must be a schema (an object, true or false)"
#define NAMES_WANTED "must be a list of names"

enum shape {
    SCHEMA,
    SCHEMAS,       /* a list of them */
    TUPLE,         /* likewise, and it may be empty */
    NAMED_SCHEMAS, /* an object of them */
    ITEMS,         /* a schema, or until 2019 a tuple */
    NAMES,
    NAMED_NAMES, /* an object of lists of names */
    NEEDS,       /* an object of schemas and lists of names */
    COUNT,
    NUMBER,
    BOUND, /* a number, or in draft 4 a Boolean beside the bound */
    DIVISOR,
    BOOLEAN,
    STRING,
    TYPES,
    LIST,
};

static const struct {
    const char *keyword;
    enum shape shape;
} keywords[] = {
    {"$anchor", STRING},
    {"$defs", NAMED_SCHEMAS},
    {"$dynamicAnchor", STRING},
    {"$dynamicRef", STRING},
    {"$id", STRING},
    {"$ref", STRING},
    {"$schema", STRING},
    {"additionalItems", SCHEMA},
    {"additionalProperties", SCHEMA},
    {"allOf", SCHEMAS},
    {"anyOf", SCHEMAS},
    {"contains", SCHEMA},
    {"definitions", NAMED_SCHEMAS},
    {"dependencies", NEEDS},
    {"dependentRequired", NAMED_NAMES},
    {"dependentSchemas", NAMED_SCHEMAS},
    {"else", SCHEMA},
    {"enum", LIST},
    {"exclusiveMaximum", BOUND},
    {"exclusiveMinimum", BOUND},
    {"format", STRING},
    {"if", SCHEMA},
    {"items", ITEMS},
    {"maxContains", COUNT},
    {"maxItems", COUNT},
    {"maxLength", COUNT},
    {"maxProperties", COUNT},
    {"maximum", NUMBER},
    {"minContains", COUNT},
    {"minItems", COUNT},
    {"minLength", COUNT},
    {"minProperties", COUNT},
    {"minimum", NUMBER},
    {"multipleOf", DIVISOR},
    {"not", SCHEMA},
    {"oneOf", SCHEMAS},
    {"pattern", STRING},
    {"patternProperties", NAMED_SCHEMAS},
    {"prefixItems", TUPLE},
    {"properties", NAMED_SCHEMAS},
    {"propertyNames", SCHEMA},
    {"required", NAMES},
    {"then", SCHEMA},
    {"type", TYPES},
    {"unevaluatedItems", SCHEMA},
    {"unevaluatedProperties", SCHEMA},
    {"uniqueItems", BOOLEAN},
};

/* Keywords that not every draft has; in the others they are annotations, as any word is that nobody knows. */
static const struct {
    const char *keyword;
    enum wefti_draft first, last;
} of_drafts[] = {
    {"additionalItems", WEFTI_DRAFT_4, WEFTI_DRAFT_2019},
    {"const", WEFTI_DRAFT_6, WEFTI_DRAFT_2020},
    {"contains", WEFTI_DRAFT_6, WEFTI_DRAFT_2020},
    {"dependencies", WEFTI_DRAFT_4, WEFTI_DRAFT_7},
    {"dependentRequired", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"dependentSchemas", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"else", WEFTI_DRAFT_7, WEFTI_DRAFT_2020},
    {"if", WEFTI_DRAFT_7, WEFTI_DRAFT_2020},
    {"maxContains", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"minContains", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"prefixItems", WEFTI_DRAFT_2020, WEFTI_DRAFT_2020},
    {"propertyNames", WEFTI_DRAFT_6, WEFTI_DRAFT_2020},
    {"then", WEFTI_DRAFT_7, WEFTI_DRAFT_2020},
    {"unevaluatedItems", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"unevaluatedProperties", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"$anchor", WEFTI_DRAFT_2019, WEFTI_DRAFT_2020},
    {"$dynamicAnchor", WEFTI_DRAFT_2020, WEFTI_DRAFT_2020},
    {"$dynamicRef", WEFTI_DRAFT_2020, WEFTI_DRAFT_2020},
    {"$recursiveRef", WEFTI_DRAFT_2019, WEFTI_DRAFT_2019},
};

static bool has_keyword(enum wefti_draft draft, const char *keyword) {
    if (draft == WEFTI_DRAFT_ANY || draft == WEFTI_DRAFT_3)
        return true; /* the mixture that is met */
    for (size_t i = 0; i < sizeof of_drafts / sizeof *of_drafts; i++) {
        if (strcmp(keyword, of_drafts[i].keyword) == 0)
            return draft >= of_drafts[i].first && draft <= of_drafts[i].last;
    }
    return true;
}

json_t *wefti_schema_get(const struct wefti_schema *s, const json_t *schema, const char *keyword) {
    json_t *value = json_object_get(schema, keyword);
    return value && has_keyword(wefti_refs_draft(&s->refs, schema), keyword) ? value : NULL;
}

/* Types that a keyword has in some drafts alone. */
static const char *missed_in_draft(enum wefti_draft draft, const json_t *value, enum shape shape) {
    bool is_4 = draft == WEFTI_DRAFT_4, is_later = draft >= WEFTI_DRAFT_6;
    if (shape == BOUND && is_4 && json_is_number(value))
        return "must be true or false in draft 4, beside the bound";
    if (shape == BOUND && is_later && json_is_boolean(value))
        return "must be a number since draft 6";
    if (shape == ITEMS && draft == WEFTI_DRAFT_2020 && json_is_array(value))
        return "must be a schema: a list of them is \"prefixItems\" since 2020-12";
    return NULL;
}

static bool is_schema(const json_t *value) {
    return json_is_object(value) || json_is_boolean(value);
}

static bool is_names(const json_t *value) {
    size_t i;
    json_t *one;
    json_array_foreach(value, i, one) {
        if (!json_is_string(one)) return false;
    }
    return json_is_array(value);
}

static bool is_count(const json_t *value) {
    double count = json_number_value(value);
    return json_is_number(value) && count >= 0 && count == floor(count);
}

/* What is wanted; NULL: the value is that. */
static const char *missed_by(const json_t *value, enum shape shape) {
    switch (shape) {
    case SCHEMA:
        return is_schema(value) ? NULL : A_SCHEMA;
    case SCHEMAS:
        return json_array_size(value) > 0 ? NULL : "must be a list of schemas, at least one";
    case TUPLE:
        return json_is_array(value) ? NULL : "must be a list of schemas";
    case NAMED_SCHEMAS:
        return json_is_object(value) ? NULL : "must be an object of schemas";
    case ITEMS:
        return is_schema(value) || json_is_array(value) ? NULL : A_SCHEMA;
    case NAMES:
        return is_names(value) ? NULL : NAMES_WANTED;
    case NAMED_NAMES:
        return json_is_object(value) ? NULL : "must be an object of lists of names";
    case NEEDS:
        return json_is_object(value) ? NULL : "must be an object of schemas or lists of names";
    case COUNT:
        return is_count(value) ? NULL : "must be a whole number from 0 on";
    case NUMBER:
        return json_is_number(value) ? NULL : "must be a number";
    case BOUND:
        return json_is_number(value) || json_is_boolean(value) ? NULL : "must be a number";
    case DIVISOR:
        return json_number_value(value) > 0 ? NULL : "must be a number above 0";
    case BOOLEAN:
        return json_is_boolean(value) ? NULL : "must be true or false";
    case STRING:
        return json_is_string(value) ? NULL : "must be a string";
    case TYPES:
        return json_is_string(value) || (is_names(value) && json_array_size(value) > 0)
                   ? NULL
                   : "must be the name of a type, or a list of them";
    case LIST:
        return json_is_array(value) ? NULL : "must be a list";
    }
    return NULL;
}

/* Likewise of what is in an object or in a list of schemas. */
static const char *missed_within(const json_t *value, enum shape shape) {
    if (shape == NAMED_NAMES) return is_names(value) ? NULL : NAMES_WANTED;
    if (shape == NEEDS && is_names(value)) return NULL;
    if (is_schema(value)) return NULL;
    return shape == NEEDS ? "must be a schema or a list of names" : A_SCHEMA;
}

static void check_within(struct wefti_schema *s, const json_t *schema, const char *keyword,
                         enum shape shape) {
    json_t *value = json_object_get(schema, keyword), *one;
    bool is_list = shape == SCHEMAS || shape == TUPLE || (shape == ITEMS && json_is_array(value));
    bool is_object = shape == NAMED_SCHEMAS || shape == NAMED_NAMES || shape == NEEDS;
    char what[NAME_SHOWN + 100];
    const char *key, *missed;
    size_t i;
    for (i = 0; is_list && i < json_array_size(value); i++) {
        if (!(missed = missed_within(json_array_get(value, i), shape))) continue;
        (void)snprintf(what, sizeof what, "[%zu] %s", i, missed);
        (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, keyword, what);
    }
    if (!is_object) return;
    json_object_foreach(value, key, one) {
        if (!(missed = missed_within(one, shape))) continue;
        (void)snprintf(what, sizeof what, "\"%.*s\" %s", NAME_SHOWN, key, missed);
        (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, keyword, what);
    }
}

static void check_keyword(struct wefti_schema *s, const json_t *schema, const char *keyword,
                          const json_t *value) {
    enum wefti_draft draft = wefti_refs_draft(&s->refs, schema);
    if (!has_keyword(draft, keyword)) return;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (strcmp(keyword, keywords[i].keyword) != 0) continue;
        const char *missed = missed_by(value, keywords[i].shape);
        if (!missed) missed = missed_in_draft(draft, value, keywords[i].shape);
        if (!missed)
            check_within(s, schema, keyword, keywords[i].shape);
        else if (keywords[i].shape == NAMES && json_is_boolean(value))
            (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, keyword,
                                      "must be a list of names, in the object's schema and not "
                                      "in the member's");
        else
            (void)wefti_schema_refuse(s, WEFT_E_INVAL, schema, keyword, missed);
        return;
    }
}

bool wefti_schema_check(struct wefti_schema *s, const json_t *schema) {
    const char *keyword;
    json_t *value;
    json_object_foreach((json_t *)schema, keyword, value) {
        if (s->sets.err) break;
        check_keyword(s, schema, keyword, value);
    }
    return !s->sets.err;
}

uint32_t wefti_schema_count(const struct wefti_schema *s, const json_t *schema, const char *keyword,
                            uint32_t otherwise) {
    const json_t *value = wefti_schema_get(s, schema, keyword);
    double count = json_number_value(value);
    if (!value) return otherwise;
    return count > 1e9 ? 1000000000u : (uint32_t)count;
}
