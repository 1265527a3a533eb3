/* Schemas as clients send them: within OpenAI's wrapper, or for objects that are to be closed. */
#include "params/schema_forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++) {
        if (strcmp(name, *list) == 0) return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------- the wrapper --- */

/* A wrapper read as a schema has no keyword, so any JSON would be of it. */
const json_t *wefti_api_schema_unwrap(const json_t *value, bool *is_empty_out) {
    static const char *const fields[] = {"name", "description", "strict", "schema", NULL};
    const json_t *schema = json_object_get(value, "schema");
    bool has_schema = json_is_object(schema) || json_is_boolean(schema);
    bool has_name = json_object_get(value, "name"), has_others = false;
    const char *key;
    json_t *one;
    json_object_foreach((json_t *)value, key, one) {
        has_others = has_others || !is_one_of(key, fields);
    }
    *is_empty_out =
        !has_schema && !has_others && (has_name || schema || json_object_get(value, "strict"));
    return has_schema && (has_name || !has_others) ? schema : value;
}

/* -------------------------------------------------------------------------------- closing --- */

static void close_schema(json_t *schema);

static void close_members(json_t *members) {
    const char *key;
    json_t *one;
    json_object_foreach(members, key, one) {
        close_schema(one);
    }
}

/* Keywords that nobody knows may hold schemas, too: a "$ref" leads anywhere. */
static void close_schema(json_t *schema) {
    static const char *const data[] = {"enum", "const", "default", "examples", NULL};
    static const char *const maps[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies",
                                       NULL};
    const char *key;
    json_t *value;
    size_t i;
    json_array_foreach(schema, i, value) {
        close_schema(value);
    }
    json_object_foreach(schema, key, value) {
        if (is_one_of(key, data)) continue;
        if (is_one_of(key, maps))
            close_members(value);
        else
            close_schema(value);
    }
    bool has_members =
        json_object_get(schema, "properties") || json_object_get(schema, "patternProperties");
    bool says_more = json_object_get(schema, "additionalProperties") ||
                     json_object_get(schema, "unevaluatedProperties");
    if (has_members && !says_more)
        (void)json_object_set_new(schema, "additionalProperties", json_false());
}

char *wefti_api_schema_closed(const json_t *value) {
    const char *text = json_string_value(value);
    size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t where;
    json_t *schema =
        text ? json_loadb(text, json_string_length(value), flags, &where) : json_deep_copy(value);
    if (!schema && text && json_error_code(&where) == json_error_numeric_overflow)
        schema =
            json_loadb(text, json_string_length(value), flags | JSON_DECODE_INT_AS_REAL, &where);
    if (!schema && text) return strdup(text); /* no JSON, and refused as that */
    close_schema(schema);
    char *out = schema ? json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(schema);
    return out;
}
