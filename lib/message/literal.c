/* One value of a call. Where a format writes strings as they are, what a schema says of strings is said by a regular
 * expression over the text: each keyword is a look-ahead, and what would end the value or be read as another type is
 * looked ahead for, too, and must not be there. */
#include "params.h"

#include <string.h>

#define REGEX_BYTES_MAX ((size_t)1 << 20)
#define DEPTH_MAX 8u

/* Less than the standard's, so that each is of the format whoever checks it. */
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"},
    {"time", "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?Z"},
    {"date-time", "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
                  "T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?Z"},
    {"duration", "P(?:[0-9]{1,9}D|[0-9]{1,9}W|(?:[0-9]{1,9}D)?T[0-9]{1,9}[HMS])"},
    {"email",
     "[A-Za-z0-9]{1,20}(?:[.+_-][A-Za-z0-9]{1,20}){0,2}@"
     "[A-Za-z0-9]{1,30}(?:-[A-Za-z0-9]{1,10})?(?:\\.[A-Za-z0-9]{1,20}){0,3}\\.[a-z]{2,10}"},
    {"hostname", "[A-Za-z0-9]{1,30}(?:-[A-Za-z0-9]{1,10})?(?:\\.[A-Za-z0-9]{1,20}){0,4}"},
    {"ipv4", "(?:(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\\.){3}"
             "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"},
    {"ipv6", "[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}"},
    {"uri", "[a-z]{1,10}://[A-Za-z0-9.-]{1,100}(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*"
            "(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
};

struct regex {
    struct wefti_msg_build *b;
    const json_t *root;
    struct weft_buf text;
    bool is_sound; /* what matches satisfies the schema */
};

/* ------------------------------------------------------------------------------------ strings --- */

static void add_escaped(struct weft_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strchr("\\^$.|?*+()[]{}/-", text[i]) && text[i])
            weft_buf_printf(out, "\\%c", text[i]);
        else
            weft_buf_add_char(out, text[i]);
    }
}

static void add_texts(struct regex *r, const json_t *list) {
    size_t i;
    json_t *one;
    const char *between = "(?=(?:";
    json_array_foreach(list, i, one) {
        if (!json_is_string(one)) continue;
        weft_buf_add_str(&r->text, between);
        add_escaped(&r->text, json_string_value(one), json_string_length(one));
        between = "|";
    }
    if (*between == '|')
        weft_buf_add_str(&r->text, ")$)");
    else
        r->is_sound = false;
}

static void add_length(struct regex *r, const json_t *schema) {
    json_int_t min = json_integer_value(json_object_get(schema, "minLength"));
    const json_t *max = json_object_get(schema, "maxLength");
    if (min <= 0 && !json_is_integer(max)) return;
    weft_buf_printf(&r->text, "(?=[\\s\\S]{%lld,", (long long)(min > 0 ? min : 0));
    if (json_is_integer(max)) weft_buf_printf(&r->text, "%lld", (long long)json_integer_value(max));
    weft_buf_add_str(&r->text, "}$)");
}

/* A pattern is found anywhere. One that this syntax does not have can't be said. */
static void add_pattern(struct regex *r, const json_t *pattern) {
    struct weft_buf whole;
    weft_buf_init(&whole, REGEX_BYTES_MAX);
    weft_buf_printf(&whole, "(?=[\\s\\S]*(?:%s)[\\s\\S]*$)", json_string_value(pattern));
    json_t *schema = json_pack("{s:s, s:s}", "type", "string", "pattern", weft_buf_cstr(&whole));
    bool can = !whole.failed && schema && wefti_msg_can(r->b, schema);
    json_decref(schema);
    if (can)
        weft_buf_add(&r->text, whole.data, whole.len);
    else
        r->is_sound = false;
    weft_buf_fini(&whole);
}

static void add_format(struct regex *r, const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!strcmp(name, formats[i].name))
            weft_buf_printf(&r->text, "(?=(?:%s)$)", formats[i].regex);
    }
}

static void add_strings(struct regex *r, const json_t *schema, unsigned depth);

/* One of them, or with `is_all` each. */
static void add_branches(struct regex *r, const json_t *list, bool is_all, unsigned depth) {
    size_t i;
    json_t *one;
    const char *between = "(?:";
    json_array_foreach(list, i, one) {
        if (!is_all && !(wefti_msg_types(r->b, r->root, one) & WEFTI_MSG_STRING)) continue;
        if (!is_all) weft_buf_add_str(&r->text, between);
        add_strings(r, one, depth + 1);
        between = "|";
    }
    if (!is_all && *between == '|') weft_buf_add_str(&r->text, ")");
}

/* Keywords that say nothing of strings. */
static bool is_about_strings(const char *key) {
    static const char *const keys[] = {"not", "if", "then", "else", "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

/* Look-aheads; what they look at begins here and is all of the text. */
static void add_strings(struct regex *r, const json_t *schema, unsigned depth) {
    const char *key;
    json_t *value;
    if (json_object_get(schema, "$ref")) {
        const json_t *to = wefti_msg_resolve(r->root, schema);
        if (to == schema) r->is_sound = false;
        schema = to;
    }
    if (depth > DEPTH_MAX || r->text.failed || !wefti_msg_look_at(r->b, 1)) {
        r->is_sound = false;
        return;
    }
    json_object_foreach((json_t *)schema, key, value) {
        if (!strcmp(key, "enum")) add_texts(r, value);
        if (!strcmp(key, "const")) {
            json_t *list = json_pack("[O]", value);
            add_texts(r, list);
            json_decref(list);
        }
        if (!strcmp(key, "pattern") && json_is_string(value)) add_pattern(r, value);
        if (!strcmp(key, "format") && json_is_string(value))
            add_format(r, json_string_value(value));
        if (!strcmp(key, "anyOf")) add_branches(r, value, false, depth);
        if (!strcmp(key, "oneOf")) add_branches(r, value, false, depth);
        if (!strcmp(key, "allOf")) add_branches(r, value, true, depth);
        if (is_about_strings(key)) r->is_sound = false;
    }
    add_length(r, schema);
}

/* Text that could be read as a value of one of the other types must not be there. */
static void add_other_types(struct regex *r, unsigned types) {
    static const char *const word = "(?!\\s*(?:%s)\\s*$)";
    if (types) weft_buf_add_str(&r->text, "(?!\\s*\")");
    if (types & WEFTI_MSG_NULL) weft_buf_printf(&r->text, word, "null|None");
    if (types & WEFTI_MSG_BOOLEAN) weft_buf_printf(&r->text, word, "[tT]rue|[fF]alse");
    if (types & WEFTI_MSG_NUMBERS)
        weft_buf_printf(&r->text, word, "-?[0-9]+(?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?");
    if (types & WEFTI_MSG_ARRAY) weft_buf_add_str(&r->text, "(?!\\s*[\\[(])");
    if (types & WEFTI_MSG_OBJECT) weft_buf_add_str(&r->text, "(?!\\s*\\{)");
}

/* Strings of the schema as they are; `others`: types that a text is read as where it can be. Only what the schema says
 * needs a check that there is such a text. */
static json_t *string_text(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                           const struct wefti_msg_reading *reading, unsigned others) {
    struct regex r = {.b = b, .root = root, .is_sound = true};
    json_t *node = NULL, *check = NULL;
    weft_buf_init(&r.text, REGEX_BYTES_MAX);
    weft_buf_add_str(&r.text, "(?![\\s\\S]*");
    add_escaped(&r.text, reading->end, strlen(reading->end));
    weft_buf_add_str(&r.text, ")");
    if (reading->loses_lines) weft_buf_add_str(&r.text, "(?!\\n)(?![\\s\\S]*\\n$)");
    add_other_types(&r, others);
    size_t usual = r.text.len;
    add_strings(&r, schema, 0);
    bool is_usual = r.text.len == usual && r.is_sound;
    weft_buf_add_str(&r.text, "[\\s\\S]*");
    if (!is_usual && r.is_sound && !r.text.failed)
        check = json_pack("{s:s, s:s+}", "type", "string", "pattern", "^", weft_buf_cstr(&r.text));
    if (is_usual || (check && wefti_msg_can(b, check)))
        node = wefti_msg_regex(b, weft_buf_cstr(&r.text));
    json_decref(check);
    weft_buf_fini(&r.text);
    return node;
}

/* -------------------------------------------------------------------------------------- values --- */

json_t *wefti_msg_json_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                             unsigned types) {
    bool is_whole;
    unsigned has = wefti_msg_types(b, root, schema);
    json_t *alone = wefti_msg_alone(b, root, schema, &is_whole);
    json_t *some = wefti_msg_typed(b, has & types), *both = alone;
    if (!is_whole || (has & types) == 0) goto none;
    if (has & ~types) {
        if (!json_is_object(alone) || !wefti_msg_can_both(b, alone, some)) goto none;
        both = json_object();
        static const char *const maps[] = {"$defs", "definitions"};
        for (size_t i = 0; i < 2; i++) {
            json_t *map = json_object_get(alone, maps[i]);
            if (map) wefti_msg_set(b, both, maps[i], json_incref(map));
            (void)json_object_del(alone, maps[i]);
        }
        json_t *all = json_array();
        wefti_msg_append(b, all, alone);
        wefti_msg_append(b, all, json_incref(some));
        wefti_msg_set(b, both, "allOf", all);
    }
    json_decref(some);
    return wefti_msg_schema(b, both);
none:
    json_decref(alone);
    json_decref(some);
    return NULL;
}

json_t *wefti_msg_either(struct wefti_msg_build *b, json_t *one, json_t *other) {
    if (!one || !other) return one ? one : other;
    json_t *any = wefti_msg_or(b);
    wefti_msg_add(b, any, one);
    wefti_msg_add(b, any, other);
    return any;
}

json_t *wefti_msg_string_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                               const struct wefti_msg_reading *reading) {
    unsigned types = wefti_msg_types(b, root, schema);
    return types & WEFTI_MSG_STRING ? string_text(b, root, schema, reading, 0) : NULL;
}

json_t *wefti_msg_text_value(struct wefti_msg_build *b, const json_t *root, const json_t *schema,
                             const struct wefti_msg_reading *reading) {
    unsigned types = wefti_msg_types(b, root, schema);
    unsigned others = reading->types ? reading->types : WEFTI_MSG_ALL;
    json_t *text = NULL, *rest = NULL;
    others &= ~(unsigned)WEFTI_MSG_STRING;
    if (types & WEFTI_MSG_STRING) text = string_text(b, root, schema, reading, others);
    if (types & others) rest = wefti_msg_json_value(b, root, schema, others);
    return wefti_msg_either(b, text, rest);
}

json_t *wefti_msg_python_value(struct wefti_msg_build *b, const json_t *root,
                               const json_t *schema) {
    static const struct {
        const char *json, *python;
        unsigned type;
    } words[] = {{"true", "True", WEFTI_MSG_BOOLEAN},
                 {"false", "False", WEFTI_MSG_BOOLEAN},
                 {"null", "None", WEFTI_MSG_NULL}};
    bool is_whole;
    unsigned types = wefti_msg_types(b, root, schema);
    json_t *alone = wefti_msg_alone(b, root, schema, &is_whole), *value = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && is_whole; i++) {
        if (!(types & words[i].type)) continue;
        json_t *word =
            json_pack("{s:o}", "const", json_loads(words[i].json, JSON_DECODE_ANY, NULL));
        if (wefti_msg_can_both(b, alone, word))
            value = wefti_msg_either(b, value,
                                     wefti_msg_const(b, words[i].python, strlen(words[i].python)));
        json_decref(word);
    }
    json_decref(alone);
    const unsigned plain =
        WEFTI_MSG_STRING | WEFTI_MSG_NUMBERS | WEFTI_MSG_ARRAY | WEFTI_MSG_OBJECT;
    return wefti_msg_either(b, value, wefti_msg_json_value(b, root, schema, plain));
}
