/* What a tag's value means: text or JSON, as the tool's schema says. */
#include <jansson.h>

#include "base/utf8.h"
#include "codec/json_out.h"
#include "read/parser.h"

/* A schema is looked through this far, and at so many places: $ref may go round. */
#define LOOKS_MAX 64

enum type {
    T_TEXT = 1,
    T_INTEGER = 2,
    T_NUMBER = 4,
    T_BOOLEAN = 8,
    T_OBJECT = 16,
    T_ARRAY = 32,
    T_NULL = 64,
};

/* ------------------------------------------------------------------------------------- types --- */

static unsigned types_named(const json_t *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", T_TEXT},     {"integer", T_INTEGER}, {"number", T_NUMBER | T_INTEGER},
                 {"boolean", T_BOOLEAN}, {"object", T_OBJECT},   {"array", T_ARRAY},
                 {"null", T_NULL}};
    for (size_t i = 0; json_is_string(name) && i < sizeof types / sizeof *types; i++) {
        if (strcmp(json_string_value(name), types[i].name) == 0) return types[i].type;
    }
    return 0;
}

static unsigned type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        return T_TEXT;
    case JSON_INTEGER:
        return T_INTEGER;
    case JSON_REAL:
        return T_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return T_BOOLEAN;
    case JSON_OBJECT:
        return T_OBJECT;
    case JSON_ARRAY:
        return T_ARRAY;
    case JSON_NULL:
        return T_NULL;
    }
    return 0;
}

/* "#/$defs/NAME"; NULL: no such place. Keys are short, and escapes in them rare. */
static const json_t *follow(const json_t *root, const json_t *ref) {
    const char *at = json_string_value(ref);
    if (!at || at[0] != '#') return NULL;
    const json_t *place = root;
    for (at++; place && *at == '/';) {
        char key[256];
        size_t n = 0;
        for (at++; *at && *at != '/' && n < sizeof key - 1; at++) {
            bool is_escape = at[0] == '~' && (at[1] == '0' || at[1] == '1');
            key[n++] = !is_escape ? *at : at[1] == '0' ? '~' : '/';
            if (is_escape) at++;
        }
        key[n] = '\0';
        place = json_object_get(place, key);
    }
    return *at ? NULL : place;
}

static unsigned types_of(const json_t *root, const json_t *schema, unsigned *looks_left);

static unsigned types_of_any(const json_t *root, const json_t *list, unsigned *looks_left) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        types |= types_of(root, json_array_get(list, i), looks_left);
    return types;
}

static unsigned types_of_values(const json_t *list) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        types |= type_of(json_array_get(list, i));
    return types;
}

/* Of what a schema takes; 0: nothing is said about it. */
static unsigned types_of(const json_t *root, const json_t *schema, unsigned *looks_left) {
    if (*looks_left == 0 || !json_is_object(schema)) return 0;
    --*looks_left;
    const json_t *type = json_object_get(schema, "type"), *value;
    unsigned types = types_named(type);
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= types_named(json_array_get(type, i));
    if (types) return types;
    value = json_object_get(schema, "const");
    if (value) return type_of(value);
    types = types_of_values(json_object_get(schema, "enum"));
    if (types) return types;
    value = follow(root, json_object_get(schema, "$ref"));
    if (value) return types_of(root, value, looks_left);
    static const char *const ways[] = {"anyOf", "oneOf", "allOf"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !types; i++)
        types = types_of_any(root, json_object_get(schema, ways[i]), looks_left);
    if (!types && json_object_get(schema, "properties")) types = T_OBJECT;
    if (!types && json_object_get(schema, "items")) types = T_ARRAY;
    return types;
}

static unsigned types_in(const json_t *parameters, struct weft_str key) {
    const json_t *properties = json_object_get(parameters, "properties");
    unsigned looks_left = LOOKS_MAX;
    return types_of(parameters, json_object_getn(properties, key.data, key.len), &looks_left);
}

static unsigned types_of_key(const weft_msg_parser *p, struct weft_str key) {
    return p->tool && p->tool->parameters ? types_in(p->tool->parameters, key) : 0;
}

bool wefti_msg_key_is_text(const json_t *parameters, struct weft_str key) {
    return types_in(parameters, key) == T_TEXT;
}

bool wefti_msg_is_text(const weft_msg_parser *p, struct weft_str key) {
    if (p->string >= 0) return p->string == 1;
    return types_of_key(p, key) == T_TEXT;
}

/* ------------------------------------------------------------------------------------ values --- */

/* 7.0 is an integer, too. */
static unsigned type_of_number(struct weft_str text) {
    const char *point = memchr(text.data, '.', text.len);
    bool is_whole = true;
    for (const char *c = point ? point + 1 : text.data; c < text.data + text.len; c++) {
        if (*c == 'e' || *c == 'E') return T_NUMBER;
        if (point && *c != '0') is_whole = false;
    }
    return !point ? T_INTEGER : is_whole ? T_INTEGER | T_NUMBER : T_NUMBER;
}

/* The type that a valid JSON or JSON-like text has. */
static unsigned type_by_look(struct weft_str text) {
    switch (text.data[0]) {
    case '{':
        return T_OBJECT;
    case '[':
        return T_ARRAY;
    case '"':
        return T_TEXT;
    case 't':
    case 'f':
        return T_BOOLEAN;
    case 'n':
        return T_NULL;
    default:
        return type_of_number(text);
    }
}

static bool is_json(struct weft_str text) {
    struct wefti_msg_json json = {0};
    for (size_t i = 0; i < text.len; i++) {
        unsigned marks = json.is_over ? WEFTI_MSG_BAD : wefti_msg_json_feed(&json, text.data[i]);
        bool is_behind = json.is_over && !(marks & WEFTI_MSG_END); /* of a number alone */
        if (marks & WEFTI_MSG_BAD || is_behind) return false;
    }
    if (!json.is_over)
        (void)wefti_msg_json_feed(&json, ' '); /* a number ends where its text does */
    return json.is_over;
}

/* A Python literal as JSON. */
static bool is_python(struct weft_str text, struct weft_buf *out) {
    struct wefti_msg_python py = {0};
    for (size_t i = 0; i < text.len; i++) {
        enum wefti_msg_python_verdict verdict = wefti_msg_python_feed(&py, text.data[i], out);
        if (verdict == WEFTI_MSG_PY_END) return i + 1 == text.len;
        if (verdict != WEFTI_MSG_PY_MORE) return false;
    }
    return wefti_msg_python_feed(&py, ' ', out) == WEFTI_MSG_PY_BEFORE;
}

static struct weft_str trim(struct weft_str text) {
    while (text.len > 0 && wefti_msg_is_blank(text.data[0]))
        text.data++, text.len--;
    while (text.len > 0 && wefti_msg_is_blank(text.data[text.len - 1]))
        text.len--;
    return text;
}

/* JSON of one of these types, into args. Unknown keys take JSON as it stands, but for a string's quotes. */
static bool write_json(weft_msg_parser *p, unsigned types, struct weft_str text) {
    struct weft_buf out;
    weft_buf_init(&out, 8 * WEFT_MSG_CALL_BYTES_MAX);
    bool is_good = text.len > 0 && is_json(text);
    if (is_good)
        weft_buf_add(&out, text.data, text.len);
    else if (text.len > 0 && types)
        is_good = is_python(text, &out);
    if (out.failed) p->err = WEFT_E_NOMEM;
    struct weft_str json = {out.data, out.len};
    unsigned wanted = types ? types : ~(unsigned)T_TEXT;
    bool is_wanted = is_good && json.len > 0 && (type_by_look(json) & wanted);
    if (is_wanted && type_by_look(json) == T_TEXT && p->string != 0) is_wanted = false;
    if (is_wanted) wefti_msg_args(p, json.data, json.len);
    weft_buf_fini(&out);
    return is_wanted;
}

void wefti_msg_value(weft_msg_parser *p, struct weft_str key, struct weft_str value) {
    unsigned types = types_of_key(p, key);
    if (p->string == 0) types = ~0u; /* the tag says: JSON */
    if (write_json(p, types, trim(value))) return;
    wefti_msg_args(p, "\"", 1);
    (void)wefti_msg_write_text(p, value.data, value.len, true);
    wefti_msg_args(p, "\"", 1);
}

/* Where a last character that is not all there begins. */
static size_t whole_end(const char *bytes, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        bool is_whole = true;
        if (((unsigned char)bytes[len - back] & 0xc0) == 0x80) continue;
        size_t n = weft_utf8_start(bytes + len - back, back, &is_whole);
        return n == back && !is_whole ? len - back : len;
    }
    return len;
}

size_t wefti_msg_write_text(weft_msg_parser *p, const char *bytes, size_t len, bool is_last) {
    if (!is_last) len = whole_end(bytes, len);
    if (len == 0) return 0;
    struct weft_buf text;
    weft_buf_init(&text, 8 * WEFT_MSG_CALL_BYTES_MAX);
    weft_json_text(&text, bytes, len);
    if (text.failed) p->err = WEFT_E_NOMEM;
    wefti_msg_args(p, text.data, text.len);
    weft_buf_fini(&text);
    return len;
}
