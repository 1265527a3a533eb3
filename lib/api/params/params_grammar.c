/* What the output must be: every name by which engines let clients ask for it becomes one grammar.
 * Whether it can be honoured is asked when it is compiled (call/prepare.c). */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"
#include "params/schema_forms.h"

#define INVALID "invalid_grammar"

/* Who asks, for refusals: "structured_outputs.json". */
struct wish {
    const struct reader *r;
    const char *field; /* of the request */
    const char *name;  /* the same, or one within it; static */
    bool is_closed;    /* objects of schemas take no members that they do not name */
};

static void refuse_type(const struct wish *wish, const char *wanted, const json_t *got) {
    weft_api_error_set(wish->r->error, 400, wish->field, INVALID, "'%s' must be %s, got %s",
                       wish->name, wanted, got ? wefti_api_json_type_name(got) : "nothing");
}

/* `text`, of malloc, is the request's from here on. */
static void set(const struct wish *wish, enum weft_grammar_kind kind, char *text, size_t len,
                struct params *params) {
    struct weft_grammar *grammar = &params->sampling.grammar;
    if (!text)
        weft_api_error_set(wish->r->error, 500, NULL, NULL, "out of memory");
    else if (len > WEFT_GRAMMAR_BYTES_MAX)
        weft_api_error_set(wish->r->error, 400, wish->field, "grammar_too_large",
                           "'%s' has %zu bytes, at most %u are allowed", wish->name, len,
                           WEFT_GRAMMAR_BYTES_MAX);
    else if (grammar->kind != WEFT_GRAMMAR_NONE)
        weft_api_error_set(wish->r->error, 400, wish->field, INVALID,
                           "'%s' and '%s' cannot both say what the output must be",
                           params->grammar_field, wish->name);
    if (!wefti_api_json_ok(wish->r)) {
        free(text);
        return;
    }
    WEFT_ASSERT(!params->grammar_text);
    params->grammar_text = text;
    params->grammar_field = wish->name;
    params->grammar_param = wish->field;
    grammar->kind = kind;
    grammar->text = text;
    grammar->n_bytes = (uint32_t)len;
}

static void set_json(const struct wish *wish, enum weft_grammar_kind kind, const json_t *value,
                     struct params *params) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    set(wish, kind, text, text ? strlen(text) : 0, params);
}

static void set_string(const struct wish *wish, enum weft_grammar_kind kind, const json_t *value,
                       struct params *params) {
    if (!json_is_string(value)) {
        refuse_type(wish, "a string", value);
        return;
    }
    size_t len = json_string_length(value);
    char *text = malloc(len + 1);
    if (text) memcpy(text, json_string_value(value), len + 1);
    set(wish, kind, text, len, params);
}

static void set_closed(const struct wish *wish, const json_t *value, struct params *params) {
    char *text = wefti_api_schema_closed(value);
    set(wish, WEFT_GRAMMAR_SCHEMA, text, text ? strlen(text) : 0, params);
}

/* A schema: an object, true or false, or the text of one. */
static void set_schema(const struct wish *wish, const json_t *value, struct params *params) {
    bool is_empty = false;
    value = wefti_api_schema_unwrap(value, &is_empty);
    if (is_empty)
        weft_api_error_set(wish->r->error, 400, wish->field, INVALID,
                           "'%s' is not a JSON Schema: it has nothing but a name for one",
                           wish->name);
    else if (wish->is_closed && (json_is_string(value) || json_is_object(value)))
        set_closed(wish, value, params);
    else if (json_is_string(value))
        set_string(wish, WEFT_GRAMMAR_SCHEMA, value, params);
    else if (json_is_object(value) || json_is_boolean(value))
        set_json(wish, WEFT_GRAMMAR_SCHEMA, value, params);
    else
        refuse_type(wish, "a JSON Schema", value);
}

/* Structural tags: an object, or the text of one. */
static void set_tags(const struct wish *wish, const json_t *value, struct params *params) {
    if (json_is_object(value))
        set_json(wish, WEFT_GRAMMAR_TAGS, value, params);
    else
        set_string(wish, WEFT_GRAMMAR_TAGS, value, params);
}

static void set_any_object(const struct wish *wish, struct params *params) {
    set(wish, WEFT_GRAMMAR_JSON_OBJECT, calloc(1, 1), 0, params);
}

static void set_choice(const struct wish *wish, const json_t *value, struct params *params) {
    if (!json_is_array(value)) {
        refuse_type(wish, "an array of strings", value);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (json_is_string(item)) continue;
        refuse_type(wish, "an array of strings", item);
        return;
    }
    set_json(wish, WEFT_GRAMMAR_CHOICE, value, params);
}

/* ------------------------------------------------------------------------------- the fields --- */

/* OpenAI's "json_schema", its schema: those who send it with the type json_object mean it all the same. */
static void read_json_schema(const struct reader *r, struct wish *wish, struct params *params) {
    json_t *wrapper = wefti_api_json_get(r, "json_schema");
    const json_t *schema = wefti_api_json_get(r, "schema");
    struct fields_known known;
    if (wrapper && !json_is_object(wrapper)) {
        wish->name = "response_format.json_schema";
        refuse_type(wish, "an object", wrapper);
    } else if (wrapper) {
        const struct reader inner = wefti_api_json_within(r, wrapper, &known);
        schema = wefti_api_json_get(&inner, "schema");
        wefti_api_json_note(&inner, "name");
        wefti_api_json_note(&inner, "description");
        wefti_api_json_note(&inner, "strict");
        wefti_api_json_look_for_unknown(&inner, "response_format.json_schema.");
    }
    wish->name = "response_format.json_schema.schema";
    set_schema(wish, schema, params);
}

/* OpenAI's, with llama-server's "schema" beside the type json_object. */
static void read_response_format(const struct reader *r, struct params *params) {
    struct wish wish = {r, "response_format", "response_format", false};
    json_t *value = wefti_api_json_get(r, wish.field);
    if (!value) return;
    if (!json_is_object(value)) {
        refuse_type(&wish, "an object", value);
        return;
    }
    struct fields_known known;
    const struct reader inner = wefti_api_json_within(r, value, &known);
    const json_t *type = wefti_api_json_get(&inner, "type");
    const json_t *schema = wefti_api_json_get(&inner, "schema");
    wefti_api_json_note(&inner, "json_schema");
    if (wefti_api_json_is_text(type, "structural_tag")) {
        set_tags(&wish, value, params); /* whose reader knows all the fields */
        return;
    }
    if (wefti_api_json_is_text(type, "json_object") && schema) {
        wish.name = "response_format.schema";
        set_schema(&wish, schema, params);
    } else if (wefti_api_json_is_text(type, "json_schema") ||
               (wefti_api_json_is_text(type, "json_object") &&
                wefti_api_json_get(&inner, "json_schema"))) {
        read_json_schema(&inner, &wish, params);
    } else if (wefti_api_json_is_text(type, "json_object")) {
        set_any_object(&wish, params);
    } else if (!wefti_api_json_is_text(type, "text")) {
        weft_api_error_set(r->error, 400, wish.field, INVALID,
                           "'response_format.type' must be \"text\", \"json_object\", "
                           "\"json_schema\" or \"structural_tag\"");
    }
    wefti_api_json_look_for_unknown(&inner, "response_format.");
}

static void refuse_present(const struct reader *r, const char *field, const char *name,
                           const json_t *value) {
    if (!value || json_is_null(value) || json_is_false(value)) return;
    weft_api_error_set(r->error, 400, field, "unsupported_parameter",
                       "'%s' is not supported by this server", name);
}

/* A Boolean of vLLM's object; `name` has that before it. */
static bool get_flag(const struct reader *r, const struct reader *inner, const char *key,
                     const char *name) {
    const json_t *value = wefti_api_json_get(inner, key);
    if (value && !json_is_boolean(value))
        refuse_type(&(struct wish){r, "structured_outputs", name, false}, "a boolean", value);
    return json_is_true(value);
}

static void refuse_nothing_asked(const struct reader *r, const struct reader *inner) {
    static const char wanted[] = "\"json\", \"regex\", \"choice\", \"grammar\", "
                                 "\"structural_tag\" or \"json_object\"";
    const char *key = NULL, *one;
    json_t *value;
    char quoted[48] = "";
    json_object_foreach(inner->json, one, value) {
        bool is_option = !strncmp(one, "disable_", 8) || !strcmp(one, "backend");
        if (!key && !is_option && !json_is_null(value)) key = one;
    }
    if (key) weft_api_quote(key, strlen(key), quoted, sizeof quoted);
    weft_api_error_set(r->error, 400, "structured_outputs", INVALID,
                       "'structured_outputs' must have one of %s%s%s%s", wanted,
                       key ? ", got '" : "", quoted, key ? "'" : "");
}

/* vLLM's. */
static void read_structured_outputs(const struct reader *r, struct params *params) {
    static const char field[] = "structured_outputs";
    json_t *value = wefti_api_json_get(r, field);
    if (!value) return;
    if (!json_is_object(value)) {
        refuse_type(&(struct wish){r, field, field, false}, "an object", value);
        return;
    }
    struct fields_known known;
    const struct reader inner = wefti_api_json_within(r, value, &known);
    const json_t *item;
    bool is_closed = get_flag(r, &inner, "disable_additional_properties",
                              "structured_outputs.disable_additional_properties");
    if ((item = wefti_api_json_get(&inner, "json")))
        set_schema(&(struct wish){r, field, "structured_outputs.json", is_closed}, item, params);
    if ((item = wefti_api_json_get(&inner, "regex")))
        set_string(&(struct wish){r, field, "structured_outputs.regex", false}, WEFT_GRAMMAR_REGEX,
                   item, params);
    if ((item = wefti_api_json_get(&inner, "choice")))
        set_choice(&(struct wish){r, field, "structured_outputs.choice", false}, item, params);
    if ((item = wefti_api_json_get(&inner, "grammar")))
        set_string(&(struct wish){r, field, "structured_outputs.grammar", false},
                   WEFT_GRAMMAR_RULES, item, params);
    if ((item = wefti_api_json_get(&inner, "structural_tag"))) {
        set_tags(&(struct wish){r, field, "structured_outputs.structural_tag", false}, item,
                 params);
        if (is_closed) /* its schemas stay as they are */
            refuse_present(r, field, "structured_outputs.disable_additional_properties", item);
    }
    if (get_flag(r, &inner, "json_object", "structured_outputs.json_object"))
        set_any_object(&(struct wish){r, field, "structured_outputs.json_object", false}, params);
    refuse_present(r, field, "structured_outputs.whitespace_pattern",
                   wefti_api_json_get(&inner, "whitespace_pattern"));
    params->is_compact =
        get_flag(r, &inner, "disable_any_whitespace", "structured_outputs.disable_any_whitespace");
    wefti_api_json_note(&inner, "disable_fallback"); /* there is nothing to fall back to */
    wefti_api_json_note(&inner, "backend");
    wefti_api_json_look_for_unknown(&inner, "structured_outputs.");
    if (wefti_api_json_ok(r) && params->grammar_param != field) refuse_nothing_asked(r, &inner);
}

/* vLLM's older names. */
static void read_guided(const struct reader *r, struct params *params) {
    const json_t *item;
    if ((item = wefti_api_json_get(r, "guided_json")))
        set_schema(&(struct wish){r, "guided_json", "guided_json", false}, item, params);
    if ((item = wefti_api_json_get(r, "guided_regex")))
        set_string(&(struct wish){r, "guided_regex", "guided_regex", false}, WEFT_GRAMMAR_REGEX,
                   item, params);
    if ((item = wefti_api_json_get(r, "guided_choice")))
        set_choice(&(struct wish){r, "guided_choice", "guided_choice", false}, item, params);
    if ((item = wefti_api_json_get(r, "guided_grammar")))
        set_string(&(struct wish){r, "guided_grammar", "guided_grammar", false}, WEFT_GRAMMAR_RULES,
                   item, params);
    if ((item = wefti_api_json_get(r, "structural_tag")))
        set_tags(&(struct wish){r, "structural_tag", "structural_tag", false}, item, params);
    wefti_api_json_note(r, "guided_decoding_backend");
}

/* llama-server's. */
static void read_llama(const struct reader *r, struct params *params) {
    const json_t *grammar = wefti_api_json_get(r, "grammar");
    const json_t *schema = wefti_api_json_get(r, "json_schema");
    if (grammar && !wefti_api_params_is_absent(grammar))
        set_string(&(struct wish){r, "grammar", "grammar", false}, WEFT_GRAMMAR_RULES, grammar,
                   params);
    if (schema) set_schema(&(struct wish){r, "json_schema", "json_schema", false}, schema, params);
}

void wefti_api_params_read_ollama_format(const struct reader *r, struct params *params) {
    struct wish wish = {r, "format", "format", false};
    const json_t *value = wefti_api_json_get(r, wish.field);
    if (!value || wefti_api_params_is_absent(value)) return;
    const char *text = json_string_value(value);
    if (text) text += strspn(text, " \t\r\n");
    if (wefti_api_json_is_text(value, "json")) {
        set_any_object(&wish, params);
    } else if (json_is_object(value) || (text && *text == '{')) {
        set_schema(&wish, value, params);
    } else if (text) {
        char quoted[48];
        weft_api_quote(json_string_value(value), json_string_length(value), quoted, sizeof quoted);
        weft_api_error_set(r->error, 400, wish.field, INVALID,
                           "'format' must be \"json\" or a JSON Schema, got \"%s\"", quoted);
    } else {
        refuse_type(&wish, "\"json\" or a JSON Schema", value);
    }
}

void wefti_api_params_set_schema(const struct reader *r, const char *field, const json_t *schema,
                                 struct params *params) {
    set_schema(&(struct wish){r, field, field, false}, schema, params);
}

/* The same as "response_format", but that what is within "json_schema" there stands beside the type. */
void wefti_api_params_read_text_format(const struct reader *r, struct params *params) {
    struct wish wish = {r, "text", "text.format", false};
    json_t *text = wefti_api_json_get(r, "text");
    struct fields_known known, known_inner;
    if (!text) return;
    if (!json_is_object(text)) {
        wefti_api_json_wrong_type(r, "text", "an object", text);
        return;
    }
    const struct reader outer = wefti_api_json_within(r, text, &known);
    json_t *format = wefti_api_json_get(&outer, "format");
    wefti_api_json_note(&outer, "verbosity");
    wefti_api_json_look_for_unknown(&outer, "text.");
    if (!format) return;
    if (!json_is_object(format)) {
        refuse_type(&wish, "an object", format);
        return;
    }
    const struct reader inner = wefti_api_json_within(r, format, &known_inner);
    const json_t *type = wefti_api_json_get(&inner, "type");
    if (wefti_api_json_is_text(type, "json_object")) {
        set_any_object(&wish, params);
    } else if (wefti_api_json_is_text(type, "json_schema")) {
        wish.name = "text.format.schema";
        set_schema(&wish, wefti_api_json_get(&inner, "schema"), params);
        wefti_api_json_note(&inner, "name");
        wefti_api_json_note(&inner, "description");
        wefti_api_json_note(&inner, "strict");
    } else if (!wefti_api_json_is_text(type, "text")) {
        weft_api_error_set(
            r->error, 400, wish.field, INVALID,
            "'text.format.type' must be \"text\", \"json_object\" or \"json_schema\"");
    }
    wefti_api_json_look_for_unknown(&inner, "text.format.");
}

void wefti_api_params_read_grammar(const struct reader *r, struct params *params) {
    read_response_format(r, params);
    read_structured_outputs(r, params);
    read_guided(r, params);
    read_llama(r, params);
}
