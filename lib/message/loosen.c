#include "loosen.h"

#include <string.h>

#include "base/limits.h"

#define DEPTH_MAX 64u
#define REF_BYTES_MAX 1024u
#define BYTES_PER_LOOK 64u /* of a schema's text */

/* What is taken away together, the likelier cause first. */
static const char *const groups[][5] = {
    {"format"},
    {"pattern"},
    {"uniqueItems"},
    {"contains", "minContains", "maxContains"},
    {"unevaluatedProperties", "unevaluatedItems"},
    {"not"},
    {"if", "then", "else"},
    {"dependentRequired", "dependentSchemas", "dependencies"},
    {"propertyNames"},
    {"minProperties", "maxProperties"},
    {"patternProperties"},
    {"minLength", "maxLength"},
    {"minItems", "maxItems"},
    {"multipleOf"},
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    {"oneOf"},
    {"allOf"},
    {"anyOf"},
    {"$ref", "$dynamicRef", "$recursiveRef"},
    {"enum", "const"},
    {"additionalProperties", "additionalItems"},
    {"required"},
    {"items", "prefixItems"},
    {"$schema", "$id", "id", "$vocabulary"},
    {"type"},
};
#define N_GROUPS (sizeof groups / sizeof *groups)
_Static_assert(N_GROUPS <= 32, "a bit each");

static const char *const known_formats[] = {"date-time", "date", "time", "duration", "email",
                                            "hostname",  "ipv4", "ipv6", "uri",      "uuid"};

struct loss {
    uint32_t groups;  /* bits: those that are gone */
    bool looks_ahead; /* patterns with look-ahead and formats that are not known are gone */
};

static bool is_one_of(const char *text, const char *const *list, size_t n) {
    for (size_t i = 0; i < n && list[i]; i++)
        if (!strcmp(text, list[i])) return true;
    return false;
}

static const struct {
    const char *name;
    unsigned bit;
} type_names[] = {
    {"string", WEFTI_MSG_STRING},   {"number", WEFTI_MSG_NUMBERS}, {"integer", WEFTI_MSG_NUMBERS},
    {"boolean", WEFTI_MSG_BOOLEAN}, {"null", WEFTI_MSG_NULL},      {"array", WEFTI_MSG_ARRAY},
    {"object", WEFTI_MSG_OBJECT},
};
#define N_TYPES (sizeof type_names / sizeof *type_names)

static bool is_type(const char *name) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (!strcmp(name, type_names[i].name)) return true;
    return false;
}

/* ------------------------------------------------------------------------------ copies with losses --- */

/* What is for readers only, and most of what is there. */
static bool is_remark(const char *key) {
    static const char *const keys[] = {"description", "title", "$comment", "examples", "example"};
    return is_one_of(key, keys, sizeof keys / sizeof *keys);
}

static bool is_lost(const struct loss *loss, const char *key, const json_t *value) {
    if (is_remark(key)) return true;
    if (json_is_null(value)) return strcmp(key, "const") != 0 && strcmp(key, "default") != 0;
    if (!strcmp(key, "required") && !json_is_array(value)) return true;
    if (!strcmp(key, "type") && json_is_string(value)) return !is_type(json_string_value(value));
    if (loss->looks_ahead && !strcmp(key, "pattern"))
        return json_is_string(value) && strstr(json_string_value(value), "(?");
    if (loss->looks_ahead && !strcmp(key, "format") && json_is_string(value))
        return !is_one_of(json_string_value(value), known_formats,
                          sizeof known_formats / sizeof *known_formats);
    for (size_t i = 0; i < N_GROUPS; i++) {
        if (loss->groups >> i & 1 && is_one_of(key, groups[i], 5)) return true;
    }
    return false;
}

static bool is_map_of_schemas(const char *key) {
    static const char *const keys[] = {"properties", "patternProperties", "$defs", "definitions",
                                       "dependentSchemas"};
    return is_one_of(key, keys, sizeof keys / sizeof *keys);
}

static bool is_value(const char *key) {
    static const char *const keys[] = {"const", "enum", "default", "examples", "example"};
    return is_one_of(key, keys, sizeof keys / sizeof *keys);
}

static json_t *copy(struct wefti_msg_build *b, const json_t *schema, const struct loss *loss,
                    unsigned depth);

static json_t *copy_map(struct wefti_msg_build *b, const json_t *map, const struct loss *loss,
                        unsigned depth) {
    json_t *out = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value) {
        wefti_msg_set(b, out, key, copy(b, value, loss, depth));
    }
    return out;
}

static json_t *copy_list(struct wefti_msg_build *b, const json_t *list, const struct loss *loss,
                         unsigned depth) {
    json_t *out = json_array(), *value;
    size_t i;
    json_array_foreach(list, i, value) {
        json_t *one = json_is_object(value) || json_is_boolean(value) || json_is_null(value)
                          ? copy(b, value, loss, depth)
                          : json_deep_copy(value);
        wefti_msg_append(b, out, one);
    }
    return out;
}

/* What stands under one keyword. */
static json_t *copy_keyword(struct wefti_msg_build *b, const char *key, const json_t *value,
                            const struct loss *loss, unsigned depth) {
    if (is_value(key)) return json_deep_copy(value);
    if (json_is_object(value))
        return is_map_of_schemas(key) ? copy_map(b, value, loss, depth)
                                      : copy(b, value, loss, depth);
    if (json_is_array(value)) return copy_list(b, value, loss, depth);
    return json_deep_copy(value);
}

/* null stands for any schema, as does what lies too deep. */
static json_t *copy(struct wefti_msg_build *b, const json_t *schema, const struct loss *loss,
                    unsigned depth) {
    if (json_is_boolean(schema)) return json_deep_copy(schema);
    json_t *out = json_object(), *value;
    const char *key;
    if (depth == DEPTH_MAX) return out;
    json_object_foreach((json_t *)schema, key, value) {
        if (!is_lost(loss, key, value))
            wefti_msg_set(b, out, key, copy_keyword(b, key, value, loss, depth + 1));
    }
    if (!out) b->failed = true;
    return out;
}

/* ---------------------------------------------------------------------------------------- checks --- */

bool wefti_msg_can(struct wefti_msg_build *b, const json_t *schema) {
    struct weft_buf text;
    if (b->n_checks == 0 || b->failed) return false;
    b->n_checks--;
    weft_buf_init(&text, WEFT_GRAMMAR_BYTES_MAX); /* no more can be honoured */
    bool is_text = wefti_msg_dump(b, schema, &text);
    bool can = wefti_msg_look_at(b, text.len / BYTES_PER_LOOK) && is_text &&
               b->wish->can_honour(b->wish->context, (struct weft_str){text.data, text.len});
    weft_buf_fini(&text);
    return can;
}

/* "#/..." leads to the document's root, so definitions go there. */
static void move_definitions(struct wefti_msg_build *b, json_t *from, json_t *to) {
    static const char *const keys[] = {"$defs", "definitions"};
    for (size_t i = 0; i < 2; i++) {
        json_t *map = json_object_get(from, keys[i]);
        if (!map) continue;
        wefti_msg_set(b, to, keys[i], json_incref(map));
        (void)json_object_del(from, keys[i]);
    }
}

bool wefti_msg_can_both(struct wefti_msg_build *b, const json_t *schema, json_t *other) {
    json_t *both = json_object(), *all = json_array(), *first = json_copy((json_t *)schema);
    if (json_is_object(first)) move_definitions(b, first, both);
    wefti_msg_append(b, all, first);
    wefti_msg_append(b, all, json_incref(other));
    wefti_msg_set(b, both, "allOf", all);
    bool can = wefti_msg_can(b, both);
    json_decref(both);
    return can;
}

/* ---------------------------------------------------------------------------------------- places --- */

/* The definition that a reference names: "#/$defs/NAME". */
static const json_t *definition(const json_t *root, const json_t *ref, const char **map_out,
                                const char **name_out) {
    static const char *const keys[] = {"$defs", "definitions"};
    const char *text = json_string_length(ref) <= REF_BYTES_MAX ? json_string_value(ref) : NULL;
    for (size_t i = 0; text && i < 2; i++) {
        size_t n = strlen(keys[i]);
        if (strncmp(text, "#/", 2) != 0 || strncmp(text + 2, keys[i], n) != 0) continue;
        if (text[2 + n] != '/' || strchr(text + n + 3, '/') || strpbrk(text + n + 3, "~%"))
            continue;
        *map_out = keys[i];
        *name_out = text + n + 3;
        return json_object_get(json_object_get(root, keys[i]), *name_out);
    }
    return NULL;
}

const json_t *wefti_msg_resolve(const json_t *root, const json_t *schema) {
    const char *map, *name;
    for (unsigned i = 0; i < DEPTH_MAX; i++) {
        const json_t *ref = json_object_get(schema, "$ref");
        const json_t *to = ref ? definition(root, ref, &map, &name) : NULL;
        if (!to) break;
        schema = to;
    }
    return schema;
}

/* Copies what `value` refers to into the maps of `out`, once each. */
static bool bring(struct wefti_msg_build *b, const json_t *root, const json_t *value, json_t *out,
                  unsigned depth) {
    const char *key, *map, *name;
    json_t *part;
    size_t i;
    bool is_whole = depth < DEPTH_MAX && wefti_msg_look_at(b, 1);
    if (!is_whole) return false;
    json_array_foreach(value, i, part) {
        is_whole = bring(b, root, part, out, depth + 1) && is_whole;
    }
    json_object_foreach((json_t *)value, key, part) {
        if (!json_is_string(part) || strcmp(key, "$ref") != 0) {
            is_whole = bring(b, root, part, out, depth + 1) && is_whole;
            continue;
        }
        const json_t *to = definition(root, part, &map, &name);
        if (!to) return false;
        if (!json_object_get(out, map)) wefti_msg_set(b, out, map, json_object());
        json_t *into = json_object_get(out, map);
        if (json_object_get(into, name)) continue;
        wefti_msg_set(b, into, name, json_incref((json_t *)to));
        is_whole = bring(b, root, to, out, depth + 1) && is_whole;
    }
    return is_whole;
}

json_t *wefti_msg_alone(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                        bool *is_whole_out) {
    json_t *out = json_copy((json_t *)schema);
    *is_whole_out = bring(b, root, schema, out, 0);
    if (!out) b->failed = true;
    return out;
}

/* ----------------------------------------------------------------------------------------- types --- */

static unsigned named_type(const json_t *name) {
    for (size_t i = 0; i < N_TYPES && json_is_string(name); i++)
        if (!strcmp(json_string_value(name), type_names[i].name)) return type_names[i].bit;
    return WEFTI_MSG_ALL;
}

static unsigned type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        return WEFTI_MSG_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return WEFTI_MSG_NUMBERS;
    case JSON_TRUE:
    case JSON_FALSE:
        return WEFTI_MSG_BOOLEAN;
    case JSON_NULL:
        return WEFTI_MSG_NULL;
    case JSON_ARRAY:
        return WEFTI_MSG_ARRAY;
    default:
        return WEFTI_MSG_OBJECT;
    }
}

static unsigned types_at(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                         unsigned depth);

/* Of one of a list of schemas, or of all of them. */
static unsigned types_in(struct wefti_msg_build *b, const json_t *root, const json_t *list,
                         bool is_all, unsigned depth) {
    unsigned types = is_all || json_array_size(list) == 0 ? WEFTI_MSG_ALL : 0;
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        unsigned these = types_at(b, root, one, depth + 1);
        types = is_all ? types & these : types | these;
    }
    return types;
}

static unsigned types_at(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                         unsigned depth) {
    if (json_is_false(schema)) return 0;
    if (depth > 8) return WEFTI_MSG_ALL;
    schema = wefti_msg_resolve(root, schema);
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    if (!wefti_msg_look_at(b, 1 + json_array_size(list))) return WEFTI_MSG_ALL;
    const json_t *value = json_object_get(schema, "const");
    unsigned types = json_is_array(type) ? 0 : type ? named_type(type) : WEFTI_MSG_ALL, some = 0;
    size_t i;
    json_t *one;
    json_array_foreach(type, i, one) {
        types |= named_type(one);
    }
    json_array_foreach(list, i, one) {
        some |= type_of(one);
    }
    if (list) types &= some;
    if (value) types &= type_of(value);
    types &= types_in(b, root, json_object_get(schema, "anyOf"), false, depth);
    types &= types_in(b, root, json_object_get(schema, "oneOf"), false, depth);
    return types & types_in(b, root, json_object_get(schema, "allOf"), true, depth);
}

unsigned wefti_msg_types(struct wefti_msg_build *b, const json_t *root, const json_t *schema) {
    return types_at(b, root, schema, 0);
}

json_t *wefti_msg_typed(struct wefti_msg_build *b, unsigned types) {
    json_t *schema = json_object(), *list = json_array();
    for (size_t i = 0; i < N_TYPES; i++) {
        bool is_twice = !strcmp(type_names[i].name, "integer");
        if (types & type_names[i].bit && !is_twice)
            wefti_msg_append(b, list, json_string(type_names[i].name));
    }
    if (types != WEFTI_MSG_ALL) wefti_msg_set(b, schema, "type", json_incref(list));
    json_decref(list);
    return schema;
}

/* ------------------------------------------------------------------------------------- loosening --- */

static bool can_without(struct wefti_msg_build *b, const json_t *schema, const struct loss *loss,
                        json_t **out) {
    json_decref(*out);
    *out = copy(b, schema, loss, 0);
    return wefti_msg_can(b, *out);
}

/* Takes groups away until it can be honoured, and gives back those that were not the cause. */
static json_t *loosened(struct wefti_msg_build *b, const json_t *schema) {
    struct loss loss = {0};
    json_t *out = NULL;
    size_t n = 0;
    bool can = can_without(b, schema, &loss, &out);
    if (can) return out;
    loss.looks_ahead = true;
    can = can_without(b, schema, &loss, &out);
    for (; !can && n < N_GROUPS && b->n_checks > 0; n++) {
        loss.groups |= 1u << n;
        can = can_without(b, schema, &loss, &out);
    }
    for (size_t i = 0; can && i + 1 < n; i++) {
        json_t *more = NULL;
        struct loss less = {loss.groups & ~(1u << i), true};
        if (can_without(b, schema, &less, &more)) {
            loss = less;
            json_decref(out);
            out = json_incref(more);
        }
        json_decref(more);
    }
    if (can) return out;
    json_decref(out);
    return NULL;
}

/* Each for itself, but for those that need others. */
static void loosen_map(struct wefti_msg_build *b, json_t *root, const char *of) {
    json_t *map = json_object_get(root, of), *value;
    const char *key;
    json_object_foreach(map, key, value) {
        bool is_whole;
        json_t *alone = wefti_msg_alone(b, root, value, &is_whole);
        bool is_own = is_whole && json_is_object(value) && !json_object_get(alone, "$defs") &&
                      !json_object_get(alone, "definitions");
        if (is_own && !wefti_msg_can(b, value)) {
            json_t *loose = loosened(b, value);
            if (json_object_set_new(map, key, loose ? loose : json_object())) b->failed = true;
        }
        json_decref(alone);
    }
}

static json_t *as_object(struct wefti_msg_build *b, const json_t *parameters) {
    static const struct loss nothing = {0};
    json_t *root = parameters ? copy(b, parameters, &nothing, 0) : json_object();
    wefti_msg_set(b, root, "type", json_string("object"));
    if (!parameters)
        wefti_msg_set(b, root, "additionalProperties", json_false()); /* there are none */
    return root;
}

/* A tool that lists its properties and says nothing of others has no others, whatever JSON Schema makes of it. */
static bool names_all(const json_t *root) {
    static const char *const others[] = {"additionalProperties",
                                         "unevaluatedProperties",
                                         "patternProperties",
                                         "allOf",
                                         "anyOf",
                                         "oneOf",
                                         "$ref",
                                         "if"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (json_object_get(root, others[i])) return false;
    }
    return json_is_object(json_object_get(root, "properties"));
}

/* Where nothing but the properties may be, some of what can't be honoured can: "minProperties", for one. */
static bool can_closed(struct wefti_msg_build *b, json_t *root) {
    json_t *before = json_incref(json_object_get(root, "additionalProperties"));
    wefti_msg_set(b, root, "additionalProperties", json_false());
    bool can = json_object_size(json_object_get(root, "properties")) > 0 && wefti_msg_can(b, root);
    if (!can && before)
        wefti_msg_set(b, root, "additionalProperties", json_incref(before));
    else if (!can)
        (void)json_object_del(root, "additionalProperties");
    json_decref(before);
    return can;
}

json_t *wefti_msg_honoured(struct wefti_msg_build *b, const json_t *parameters) {
    json_t *root = as_object(b, parameters);
    if (names_all(root) && !b->failed) {
        wefti_msg_set(b, root, "additionalProperties", json_false());
        if (wefti_msg_can(b, root)) return root;
        (void)json_object_del(root, "additionalProperties");
    }
    if (b->failed || wefti_msg_can(b, root) || can_closed(b, root)) return root;
    loosen_map(b, root, "$defs");
    loosen_map(b, root, "definitions");
    loosen_map(b, root, "properties");
    json_t *loose = loosened(b, root);
    json_decref(root);
    if (!loose) loose = json_object();
    wefti_msg_set(b, loose, "type", json_string("object"));
    return loose;
}
