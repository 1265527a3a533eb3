/* A conversation, as the variables of a chat template: each message has what templates read, under the names that
 * they read it by. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/json_out.h"
#include "params/params_internal.h"

#define CALLS_MAX 1024                      /* of a message, among them */
#define RESULTS_MAX 256                     /* looked back over for a call */
#define CONTENT_BYTES_MAX ((size_t)1 << 32) /* no more than the body, which is bounded */
/* Of all arguments that came as texts: to the body's bounds these are a value each. */
#define ARGUMENT_VALUES_MAX (1u << 20)
#define ARGUMENT_DEPTH_MAX 64

/* One message being read. */
struct place {
    const struct reader *r;
    const char *list; /* "messages" */
    size_t idx;
    struct chat *chat; /* that it becomes a part of */
};

static void bad_message(const struct place *at, const char *member, const char *text) {
    char param[96];
    (void)snprintf(param, sizeof param, "%s[%zu]%s%s", at->list, at->idx, *member ? "." : "",
                   member);
    weft_api_error_set(at->r->error, 400, param, NULL, "%s %s", param, text);
}

/* False: no memory. */
static bool put(const struct place *at, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) == 0) return true;
    weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
    return false;
}

/* ---------------------------------------------------------------------------------- content --- */

static bool is_media(const json_t *type) {
    const char *name = json_string_value(type);
    return name && (strstr(name, "image") || strstr(name, "audio") || strstr(name, "video") ||
                    strstr(name, "file"));
}

/* The text of a part; NULL: an error, or (of a thought) none. */
static const json_t *text_of_part(const struct place *at, const json_t *part, bool *is_thought) {
    static const char *const texts[] = {"text", "input_text", "output_text", "refusal"};
    const json_t *type = json_object_get(part, "type"), *text = NULL;
    *is_thought =
        wefti_api_json_is_text(type, "thinking") || wefti_api_json_is_text(type, "reasoning");
    if (json_is_string(part)) return part;
    if (!json_is_string(type)) {
        bad_message(at, "content", "holds a part without a type");
        return NULL;
    }
    bool is_text = *is_thought;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        is_text = is_text || wefti_api_json_is_text(type, texts[i]);
    if (is_media(type)) {
        bad_message(at, "content",
                    "holds an image, audio, video or file: the model reads text only");
        return NULL;
    }
    if (!is_text) {
        bad_message(at, "content", "may only hold parts of type 'text'");
        return NULL;
    }
    text = json_object_get(part, *is_thought || wefti_api_json_is_text(type, "refusal")
                                     ? json_string_value(type)
                                     : "text");
    if (!text && *is_thought) text = json_object_get(part, "text");
    if (!json_is_string(text)) {
        bad_message(at, "content", "holds a text part whose 'text' is not a string");
        return NULL;
    }
    return text;
}

struct joined {
    struct weft_buf text, thoughts;
    uint32_t n_texts, n_thoughts;
};

static void add_part(struct weft_buf *to, uint32_t n_before, const json_t *text) {
    if (n_before) weft_buf_add_str(to, "\n");
    weft_buf_add(to, json_string_value(text), json_string_length(text));
}

/* [{"type":"text","text":...}, ...] joined by newlines, as vLLM does for templates that expect strings. */
static void join_parts(const struct place *at, const json_t *parts, struct joined *out) {
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part) {
        bool is_thought = false;
        const json_t *text = text_of_part(at, part, &is_thought);
        if (!text) return;
        if (is_thought)
            add_part(&out->thoughts, out->n_thoughts++, text);
        else
            add_part(&out->text, out->n_texts++, text);
    }
}

static json_t *text_of_buf(const struct weft_buf *buf) {
    return json_stringn_nocheck(buf->data ? buf->data : "", buf->len);
}

static void read_content(const struct place *at, const json_t *json, bool may_lack, json_t *out) {
    json_t *content = json_object_get(json, "content");
    if (json_is_string(content)) {
        (void)put(at, out, "content", json_incref(content));
        return;
    }
    if (!json_is_array(content)) {
        if ((content && !json_is_null(content)) || !may_lack)
            bad_message(at, "content", "must be a string or a list of text parts");
        else
            (void)put(at, out, "content", json_string(""));
        return;
    }
    struct joined joined = {.n_texts = 0};
    weft_buf_init(&joined.text, CONTENT_BYTES_MAX);
    weft_buf_init(&joined.thoughts, CONTENT_BYTES_MAX);
    join_parts(at, content, &joined);
    bool may_think = wefti_api_json_is_text(json_object_get(json, "role"), "assistant");
    if (joined.n_thoughts > 0 && !may_think)
        bad_message(at, "content", "may only hold thoughts where the role is 'assistant'");
    if (joined.text.failed || joined.thoughts.failed)
        weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
    if (wefti_api_json_ok(at->r) && put(at, out, "content", text_of_buf(&joined.text)) &&
        joined.n_thoughts > 0)
        (void)put(at, out, "reasoning_content", text_of_buf(&joined.thoughts));
    weft_buf_fini(&joined.text);
    weft_buf_fini(&joined.thoughts);
}

/* -------------------------------------------------------------------------- calls, thoughts --- */

/* False: with these there would be too many. */
static bool count_values(const struct place *at, const char *text, size_t len) {
    size_t n = 1;
    for (size_t i = 0; i < len; i++)
        n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (n > ARGUMENT_VALUES_MAX - at->chat->n_argument_values) {
        weft_api_error_set(at->r->error, 400, at->list, "too_many_values",
                           "the arguments of calls in '%s' hold more than %u values", at->list,
                           ARGUMENT_VALUES_MAX);
        return false;
    }
    at->chat->n_argument_values += (uint32_t)n;
    return true;
}

/* The same with integers of any length. */
static json_t *widened(const char *text, size_t len) {
    char *copy = malloc(len + 1);
    if (!copy) return NULL;
    memcpy(copy, text, len);
    weft_json_widen(copy, len);
    json_t *value = json_loadb(copy, len, JSON_ALLOW_NUL, NULL);
    free(copy);
    return value;
}

/* What a client gives back as text is an object for templates; what is none stays a text, as does what nests too deep.
 * NULL: neither, or too many. */
static json_t *arguments_of(const struct place *at, const json_t *value) {
    if (json_is_object(value)) return json_incref((json_t *)value);
    if (!value || json_is_null(value) || wefti_api_params_is_absent(value)) return json_object();
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (!text || !count_values(at, text, len)) return NULL;
    if (!weft_json_within(text, len, SIZE_MAX, ARGUMENT_DEPTH_MAX))
        return json_incref((json_t *)value);
    json_t *object = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    if (!object) object = widened(text, len);
    if (json_is_object(object)) return object;
    json_decref(object);
    return json_incref((json_t *)value);
}

static json_t *call_of(const struct place *at, const json_t *call) {
    const json_t *function = json_object_get(call, "function"), *id = json_object_get(call, "id");
    const json_t *name = json_object_get(function, "name");
    json_t *arguments = arguments_of(at, json_object_get(function, "arguments"));
    if (!json_is_string(name) || json_string_length(name) == 0)
        bad_message(at, "tool_calls", "holds a call without 'function.name'");
    else if (id && !json_is_null(id) && !json_is_string(id))
        bad_message(at, "tool_calls", "holds a call whose 'id' is not a string");
    else if (!arguments)
        bad_message(at, "tool_calls",
                    "holds a call whose 'function.arguments' is neither a string nor an object");
    if (!wefti_api_json_ok(at->r)) {
        json_decref(arguments);
        return NULL;
    }
    json_t *out = json_object(), *inner = json_object();
    bool is_made = put(at, inner, "name", json_incref((json_t *)name));
    is_made = put(at, inner, "arguments", arguments) && is_made;
    if (json_is_string(id)) is_made = put(at, out, "id", json_incref((json_t *)id)) && is_made;
    is_made = put(at, out, "type", json_string("function")) && is_made;
    is_made = put(at, out, "function", inner) && is_made;
    if (is_made) return out;
    json_decref(out);
    return NULL;
}

static void read_calls(const struct place *at, const json_t *json, json_t *out) {
    const json_t *calls = json_object_get(json, "tool_calls");
    if (!calls || json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0))
        return;
    if (!json_is_array(calls)) {
        bad_message(at, "tool_calls", "must be a list");
        return;
    }
    json_t *list = json_array(), *one;
    size_t i;
    json_array_foreach(calls, i, one) {
        json_t *call = call_of(at, one);
        if (!call) break;
        if (json_array_append_new(list, call))
            weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
    }
    (void)put(at, out, "tool_calls", list);
}

/* The same under every name that templates know. One of them (Harmony's) takes no thoughts beside both content and
 * calls. */
static void read_thoughts(const struct place *at, const json_t *json, json_t *out) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *thoughts = json_object_get(out, "reasoning_content");
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !thoughts; i++) {
        json_t *value = json_object_get(json, names[i]);
        if (wefti_api_params_is_absent(value)) continue;
        if (!json_is_string(value)) {
            bad_message(at, names[i], "must be a string");
            return;
        }
        thoughts = value;
    }
    if (!thoughts) return;
    bool has_both = json_object_get(out, "tool_calls") &&
                    json_string_length(json_object_get(out, "content")) > 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && wefti_api_json_ok(at->r); i++) {
        if (strcmp(names[i], "thinking") == 0 && has_both) continue;
        (void)put(at, out, names[i], json_incref(thoughts));
    }
}

/* ------------------------------------------------------------------------------ the results --- */

/* The name of the call that this id is of, in the last message with calls; a message with more results than that
 * has none found. */
static json_t *name_of_call(const json_t *messages, const json_t *id) {
    size_t n = json_array_size(messages), least = n > RESULTS_MAX ? n - RESULTS_MAX : 0;
    for (size_t i = n; i-- > least;) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls) && k < CALLS_MAX; k++) {
            const json_t *call = json_array_get(calls, k);
            if (json_equal(json_object_get(call, "id"), id))
                return json_object_get(json_object_get(call, "function"), "name");
        }
        if (calls) return NULL;
    }
    return NULL;
}

static void read_result(const struct place *at, const json_t *json, const json_t *messages,
                        json_t *out) {
    json_t *id = json_object_get(json, "tool_call_id"), *name = json_object_get(json, "name");
    if (id && !json_is_null(id) && !json_is_string(id)) {
        bad_message(at, "tool_call_id", "must be a string");
        return;
    }
    if (json_is_string(id)) (void)put(at, out, "tool_call_id", json_incref(id));
    if (!json_is_string(name)) name = json_is_string(id) ? name_of_call(messages, id) : NULL;
    if (name) (void)put(at, out, "name", json_incref(name));
}

/* ------------------------------------------------------------------------------ the messages --- */

static bool is_role(const json_t *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (wefti_api_json_is_text(role, roles[i])) return true;
    }
    return false;
}

static void refuse_absent(const struct place *at, const json_t *json) {
    static const char *const absent[] = {"function_call", "images", "audio"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        if (!wefti_api_params_is_absent(json_object_get(json, absent[i])))
            bad_message(at, absent[i], "is not supported by this server");
    }
}

static void read_message(const struct place *at, const json_t *json, json_t *messages) {
    if (!json_is_object(json)) {
        bad_message(at, "", "must be an object");
        return;
    }
    json_t *role = json_object_get(json, "role"), *name = json_object_get(json, "name");
    refuse_absent(at, json);
    if (!json_is_string(role)) {
        bad_message(at, "role", "must be a string");
        return;
    }
    if (!is_role(role)) {
        bad_message(at, "role", "must be one of system, developer, user, assistant, tool");
        return;
    }
    bool is_ours = wefti_api_json_is_text(role, "assistant");
    bool is_result = wefti_api_json_is_text(role, "tool");
    json_t *out = json_object();
    (void)put(at, out, "role", json_incref(role));
    read_content(at, json, is_ours || is_result, out);
    if (is_ours) read_calls(at, json, out);
    if (is_ours) read_thoughts(at, json, out);
    if (is_result)
        read_result(at, json, messages, out);
    else if (json_is_string(name))
        (void)put(at, out, "name", json_incref(name));
    if (json_array_append_new(messages, out))
        weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
}

/* Makes room for the one prompt that the template writes, and its variables. False: no memory. */
bool wefti_api_params_open_chat(const struct reader *r, struct params *params) {
    WEFT_ASSERT(!params->chat.vars && !params->prompts);
    params->chat.vars = json_object();
    params->prompts = calloc(1, sizeof *params->prompts);
    if (!params->chat.vars || !params->prompts ||
        json_object_set_new(params->chat.vars, "messages", json_array())) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return false;
    }
    params->n_prompts = 1;
    return true;
}

void wefti_api_params_add_message(const struct reader *r, const char *list, size_t idx,
                                  const json_t *message, struct params *params) {
    const struct place at = {r, list, idx, &params->chat};
    if (wefti_api_json_ok(r))
        read_message(&at, message, json_object_get(params->chat.vars, "messages"));
}

void wefti_api_params_add_messages(const struct reader *r, const char *list, const json_t *array,
                                   struct params *params) {
    json_t *one;
    size_t i;
    json_array_foreach(array, i, one) {
        wefti_api_params_add_message(r, list, i, one, params);
        if (!wefti_api_json_ok(r)) return;
    }
}

void wefti_api_params_read_messages(const struct reader *r, struct params *params) {
    const json_t *value = wefti_api_json_get(r, "messages");
    if (!wefti_api_json_ok(r)) return;
    if (!value)
        weft_api_error_set(r->error, 400, "messages", "missing_required_parameter",
                           "you must provide a 'messages' parameter");
    else if (!json_is_array(value))
        wefti_api_json_wrong_type(r, "messages", "an array", value);
    else if (json_array_size(value) == 0)
        weft_api_error_set(r->error, 400, "messages", NULL, "'messages' must not be empty");
    if (!wefti_api_json_ok(r) || !wefti_api_params_open_chat(r, params)) return;
    wefti_api_params_add_messages(r, "messages", value, params);
}

static void add_text(const struct reader *r, const char *role, json_t *content,
                     struct params *params) {
    json_t *message = json_object();
    json_t *messages = json_object_get(params->chat.vars, "messages");
    if (json_object_set_new(message, "role", json_string(role)) ||
        json_object_set(message, "content", content) || json_array_append_new(messages, message))
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
}

void wefti_api_params_read_question(const struct reader *r, struct params *params) {
    json_t *system = wefti_api_json_get(r, "system");
    json_t *prompt = wefti_api_json_get(r, "prompt");
    if (system && !json_is_string(system))
        wefti_api_json_wrong_type(r, "system", "a string", system);
    if (prompt && !json_is_string(prompt))
        wefti_api_json_wrong_type(r, "prompt", "a string", prompt);
    if (!wefti_api_json_ok(r) || wefti_api_params_is_absent(prompt)) return;
    bool has_system = !wefti_api_params_is_absent(system);
    if (!wefti_api_params_open_chat(r, params)) return;
    params->template_is_optional = true;
    if (has_system) add_text(r, "system", system, params);
    add_text(r, "user", prompt, params);
}
