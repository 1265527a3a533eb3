/* The items of a response's input, as messages of a chat: what an assistant thinks, says and calls in a row is one
 * message. Which fields such a message may have is checked where chats are (params_messages.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

#define TEXT_BYTES_MAX ((size_t)1 << 40) /* no more than the body, which is bounded */
#define TYPE_BYTES_MAX 128               /* of a tool's name that a type stands for */

struct items {
    const struct reader *r;
    struct params *params;
    const char *list;
    size_t idx;
    json_t *ours;    /* the assistant's message that is being put together; NULL: none */
    size_t ours_idx; /* of its first item */
};

static void fail(const struct items *at, const char *member, const char *text) {
    char param[64];
    (void)snprintf(param, sizeof param, "%s[%zu]%s%s", at->list, at->idx, *member ? "." : "",
                   member);
    weft_api_error_set(at->r->error, 400, param, NULL, "%s %s", param, text);
}

/* Takes `value` over. */
static void put(const struct items *at, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value))
        weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
}

/* ------------------------------------------------------------------------------- one message --- */

static void flush(struct items *at) {
    json_t *ours = at->ours;
    at->ours = NULL;
    if (!ours) return;
    wefti_api_params_add_message(at->r, at->list, at->ours_idx, ours, at->params);
    json_decref(ours);
}

/* The message that an item of the assistant goes into; a new one where that has a member which comes after it. */
static json_t *ours(struct items *at, const char *const *later) {
    for (size_t i = 0; at->ours && later[i]; i++) {
        if (json_object_get(at->ours, later[i])) flush(at);
    }
    if (at->ours) return at->ours;
    at->ours = json_object();
    at->ours_idx = at->idx;
    put(at, at->ours, "role", json_string("assistant"));
    return at->ours;
}

static void add_message(struct items *at, const json_t *item) {
    static const char *const later[] = {"content", "tool_calls", NULL};
    json_t *content = json_object_get(item, "content");
    if (wefti_api_json_is_text(json_object_get(item, "role"), "assistant")) {
        if (content) put(at, ours(at, later), "content", json_incref(content));
        return;
    }
    flush(at);
    wefti_api_params_add_message(at->r, at->list, at->idx, item, at->params);
}

/* ---------------------------------------------------------------------------------- thoughts --- */

static void add_texts(const json_t *list, struct weft_buf *out) {
    size_t i;
    json_t *part;
    json_array_foreach(list, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) continue;
        if (out->len > 0) weft_buf_add_char(out, '\n');
        weft_buf_add(out, json_string_value(text), json_string_length(text));
    }
}

/* What it thought, or a summary of it; encrypted thoughts are nobody's here. */
static void add_thoughts(struct items *at, const json_t *item) {
    static const char *const later[] = {"reasoning_content", "content", "tool_calls", NULL};
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    add_texts(json_object_get(item, "content"), &text);
    if (text.len == 0) add_texts(json_object_get(item, "summary"), &text);
    if (text.failed)
        weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
    else if (text.len > 0)
        put(at, ours(at, later), "reasoning_content", json_stringn(text.data, text.len));
    weft_buf_fini(&text);
}

/* --------------------------------------------------------------------------- calls and results --- */

/* A call's id: that of the call, or where it has none the item's. */
static json_t *call_id_of(const json_t *item) {
    json_t *id = json_object_get(item, "call_id");
    if (!json_is_string(id)) id = json_object_get(item, "id");
    return json_is_string(id) ? id : NULL;
}

/* What a function is given; the input of a custom tool, which is a text, as the one argument of a function. */
static json_t *arguments_of(const json_t *item) {
    static const char *const names[] = {"arguments", "action", "operation"};
    json_t *input = json_object_get(item, "input");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *value = json_object_get(item, names[i]);
        if (value && !json_is_null(value)) return json_incref(value);
    }
    return input ? json_pack("{s:O}", "input", input) : json_object();
}

/* "local_shell_call" is a call of "local_shell", unless it has a name. */
static json_t *name_of(const json_t *item, const char *type, size_t n_type) {
    json_t *name = json_object_get(item, "name");
    return json_is_string(name) ? json_incref(name) : json_stringn(type, n_type);
}

static void add_call(struct items *at, const json_t *item, const char *type, size_t n_type) {
    static const char *const later[] = {NULL};
    json_t *message = ours(at, later), *calls = json_object_get(message, "tool_calls");
    json_t *id = call_id_of(item), *arguments = arguments_of(item);
    if (!calls) {
        calls = json_array();
        put(at, message, "tool_calls", calls);
    }
    json_t *name = name_of(item, type, n_type);
    json_t *call = json_pack("{s:s,s:{s:o,s:o}}", "type", "function", "function", "name", name,
                             "arguments", arguments);
    if (id && call) put(at, call, "id", json_incref(id));
    if (!call || !wefti_api_json_ok(at->r) || json_array_append_new(calls, call))
        weft_api_error_set(at->r->error, 500, NULL, NULL, "out of memory");
}

/* An output is a text, or parts; any other value is its JSON. */
static json_t *output_of(const json_t *item) {
    json_t *output = json_object_get(item, "output");
    if (!output || json_is_null(output)) return json_string("");
    if (json_is_string(output) || json_is_array(output)) return json_incref(output);
    char *text = json_dumps(output, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *value = text ? json_string(text) : NULL;
    free(text);
    return value;
}

static void add_result(struct items *at, const json_t *item) {
    json_t *id = call_id_of(item), *message = json_object();
    flush(at);
    put(at, message, "role", json_string("tool"));
    put(at, message, "content", output_of(item));
    if (id) put(at, message, "tool_call_id", json_incref(id));
    wefti_api_params_add_message(at->r, at->list, at->idx, message, at->params);
    json_decref(message);
}

/* ------------------------------------------------------------------------------------ items --- */

static bool ends_with(const char *type, size_t n_type, const char *end, size_t *n_out) {
    size_t n = strlen(end);
    *n_out = n_type > n ? n_type - n : 0;
    return n_type > n && memcmp(type + *n_out, end, n) == 0;
}

/* Of tools that a client runs; what a server would have run itself has no call's id, and no place here. */
static void add_other(struct items *at, const json_t *item, const json_t *type) {
    const char *name = json_string_value(type);
    size_t n_type = json_string_length(type), n = 0;
    bool is_clients = json_is_string(json_object_get(item, "call_id"));
    bool is_old = wefti_api_json_is_text(type, "local_shell_call_output"); /* it has an id only */
    if (n_type > TYPE_BYTES_MAX || !(is_clients || is_old)) return;
    if (ends_with(name, n_type, "_call_output", &n))
        add_result(at, item);
    else if (ends_with(name, n_type, "_call", &n))
        add_call(at, item, name, n);
}

static void require_call(const struct items *at, const json_t *item, bool has_name) {
    if (!json_is_string(json_object_get(item, "call_id")))
        fail(at, "call_id", "must be a string");
    else if (has_name && !json_is_string(json_object_get(item, "name")))
        fail(at, "name", "must be a string");
}

static void add_item(struct items *at, const json_t *item) {
    const json_t *type = json_object_get(item, "type");
    if (!json_is_object(item)) {
        fail(at, "", "must be an object");
    } else if (type && !json_is_string(type)) {
        fail(at, "type", "must be a string");
    } else if (!type || wefti_api_json_is_text(type, "message")) {
        add_message(at, item);
    } else if (wefti_api_json_is_text(type, "reasoning")) {
        add_thoughts(at, item);
    } else if (wefti_api_json_is_text(type, "function_call")) {
        require_call(at, item, true);
        if (wefti_api_json_ok(at->r)) add_call(at, item, "", 0);
    } else if (wefti_api_json_is_text(type, "function_call_output")) {
        require_call(at, item, false);
        if (wefti_api_json_ok(at->r)) add_result(at, item);
    } else {
        add_other(at, item, type);
    }
}

void wefti_api_params_add_items(const struct reader *r, const char *list, const json_t *array,
                                struct params *params) {
    struct items at = {.r = r, .params = params, .list = list};
    json_t *item;
    json_array_foreach(array, at.idx, item) {
        if (!wefti_api_json_ok(r)) break;
        add_item(&at, item);
    }
    if (wefti_api_json_ok(r)) flush(&at);
    json_decref(at.ours);
}
