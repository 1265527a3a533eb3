/* The text that a request wants continued: prompts, messages, token ids. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

/* ---------------------------------------------------------------------------------- prompts --- */

/* An array of integers, each below n_vocab (0: not known), as a new array. */
static uint32_t *read_ids(const struct reader *r, const char *name, const json_t *array,
                          uint32_t n_vocab) {
    size_t n = json_array_size(array);
    uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    if (!ids) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return NULL;
    }
    int64_t max = n_vocab ? n_vocab - 1 : INT32_MAX;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item)) {
            weft_api_error_set(r->error, 400, name, NULL,
                               "'%s' must be a string, a list of strings, a list of token ids or a "
                               "list of lists of token ids; element %zu is %s",
                               name, i, wefti_api_json_type_name(item));
            break;
        }
        int64_t id = json_integer_value(item);
        if (id < 0 || id > max) {
            weft_api_error_set(r->error, 400, name, NULL,
                               "'%s' holds token id %" PRId64 ", which is out of vocabulary", name,
                               id);
            break;
        }
        ids[i] = (uint32_t)id;
    }
    if (wefti_api_json_ok(r)) return ids;
    free(ids);
    return NULL;
}

static void read_prompt(const struct reader *r, const json_t *value, uint32_t n_vocab,
                        struct prompt *out) {
    if (json_is_string(value)) {
        out->text = json_string_value(value);
        out->text_len = json_string_length(value);
    } else if (json_is_array(value)) {
        out->ids = read_ids(r, "prompt", value, n_vocab);
        out->n_ids = json_array_size(value);
    } else {
        wefti_api_json_wrong_type(r, "prompt", "a string, a list of strings, ids or lists of ids",
                                  value);
    }
}

bool wefti_api_params_read_text(const struct reader *r, const char *name, struct params *params) {
    const json_t *value = wefti_api_json_get(r, name);
    if (!value) return false;
    if (!json_is_string(value)) {
        wefti_api_json_wrong_type(r, name, "a string", value);
        return false;
    }
    params->prompts = calloc(1, sizeof *params->prompts);
    if (!params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return false;
    }
    params->n_prompts = 1;
    params->prompts[0].text = json_string_value(value);
    params->prompts[0].text_len = json_string_length(value);
    return true;
}

void wefti_api_params_read_prompts(const struct reader *r, const struct weft_api_limits *limits,
                                   struct params *params) {
    const json_t *value = wefti_api_json_get(r, "prompt");
    if (!wefti_api_json_ok(r)) return;
    if (!value) {
        weft_api_error_set(r->error, 400, "prompt", "missing_required_parameter",
                           "you must provide a 'prompt' parameter");
        return;
    }
    const json_t *first = json_array_get(value, 0);
    bool is_list = json_is_array(value) && (json_is_string(first) || json_is_array(first));
    size_t n = is_list ? json_array_size(value) : 1;
    if (json_is_array(value) && !first)
        weft_api_error_set(r->error, 400, "prompt", NULL, "'prompt' must not be empty");
    if (n > limits->max_prompts)
        weft_api_error_set(r->error, 400, "prompt", NULL,
                           "'prompt' holds %zu prompts, at most %u are allowed in one request", n,
                           limits->max_prompts);
    if (!wefti_api_json_ok(r)) return;
    params->prompts = calloc(n, sizeof *params->prompts);
    if (!params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    params->n_prompts = (uint32_t)n;
    for (size_t i = 0; i < n && wefti_api_json_ok(r); i++) {
        const json_t *item = is_list ? json_array_get(value, i) : value;
        if (is_list && json_is_string(item) != json_is_string(first))
            weft_api_error_set(r->error, 400, "prompt", NULL,
                               "'prompt' must not mix strings and token ids");
        else
            read_prompt(r, item, limits->n_vocab, &params->prompts[i]);
    }
}

void wefti_api_params_read_tokens(const struct reader *r, const struct weft_api_limits *limits,
                                  struct params *params) {
    const json_t *value = wefti_api_json_get(r, "tokens");
    if (!wefti_api_json_ok(r)) return;
    if (!json_is_array(value)) {
        weft_api_error_set(r->error, 400, "tokens", NULL, "'tokens' must be a list of token ids");
        return;
    }
    params->prompts = calloc(1, sizeof *params->prompts);
    if (!params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    params->n_prompts = 1;
    params->prompts[0].ids = read_ids(r, "tokens", value, limits->n_vocab);
    params->prompts[0].n_ids = json_array_size(value);
}

/* --------------------------------------------------------------------------------- messages --- */

static void bad_message(const struct reader *r, size_t idx, const char *member, const char *text) {
    char param[64];
    (void)snprintf(param, sizeof param, "messages[%zu]%s%s", idx, *member ? "." : "", member);
    weft_api_error_set(r->error, 400, param, NULL, "%s %s", param, text);
}

/* [{"type":"text","text":...}, ...] joined by newlines, as vLLM does for templates that expect
 * strings. The caller owns the result; NULL after an error. */
static char *join_parts(const struct reader *r, size_t idx, const json_t *parts, size_t *len_out) {
    size_t len = 0, n = json_array_size(parts);
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
        if (!json_is_string(type)) {
            bad_message(r, idx, "content", "holds a part without a type");
            return NULL;
        }
        if (!wefti_api_json_is_text(type, "text")) {
            bad_message(r, idx, "content", "may only hold parts of type 'text'");
            return NULL;
        }
        if (!json_is_string(text)) {
            bad_message(r, idx, "content", "holds a text part whose 'text' is not a string");
            return NULL;
        }
        len += json_string_length(text) + 1;
    }
    char *joined = malloc(len + 1), *at = joined;
    if (!joined) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        if (i) *at++ = '\n';
        memcpy(at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    WEFT_ASSERT((size_t)(at - joined) <= len);
    *at = '\0';
    *len_out = (size_t)(at - joined);
    return joined;
}

static bool known_role(const json_t *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (wefti_api_json_is_text(role, roles[i])) return true;
    }
    return false;
}

static void read_message(const struct reader *r, size_t idx, const json_t *json,
                         struct params *params) {
    struct weft_tmpl_message *message = &params->messages[idx];
    WEFT_ASSERT(idx < params->n_messages && params->n_owned <= idx);
    if (!json_is_object(json)) {
        bad_message(r, idx, "", "must be an object");
        return;
    }
    const json_t *role = json_object_get(json, "role");
    const json_t *content = json_object_get(json, "content");
    static const char *const absent[] = {"tool_calls", "function_call", "tool_call_id", "images"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        const json_t *value = json_object_get(json, absent[i]);
        if (!wefti_api_params_is_absent(value))
            bad_message(r, idx, absent[i], "is not supported by this server");
    }
    if (!json_is_string(role)) {
        bad_message(r, idx, "role", "must be a string");
        return;
    }
    if (!known_role(role)) {
        bad_message(r, idx, "role", "must be one of system, developer, user, assistant");
        return;
    }
    message->role = json_string_value(role);
    message->role_len = json_string_length(role);
    message->content = "";
    if (json_is_string(content)) {
        message->content = json_string_value(content);
        message->content_len = json_string_length(content);
    } else if (json_is_array(content)) {
        char *joined = join_parts(r, idx, content, &message->content_len);
        if (!joined) return;
        message->content = params->owned_texts[params->n_owned++] = joined;
    } else if ((content && !json_is_null(content)) || !wefti_api_json_is_text(role, "assistant")) {
        bad_message(r, idx, "content", "must be a string or a list of text parts");
    }
}

/* Makes room for `n` messages, which the template makes one prompt. False: no memory. */
static bool make_messages(const struct reader *r, size_t n, struct params *params) {
    WEFT_ASSERT(n > 0 && !params->messages && !params->prompts);
    params->messages = calloc(n, sizeof *params->messages);
    params->owned_texts = calloc(n, sizeof *params->owned_texts);
    params->prompts = calloc(1, sizeof *params->prompts);
    if (!params->messages || !params->owned_texts || !params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return false;
    }
    params->n_prompts = 1;
    params->n_messages = (uint32_t)n;
    return true;
}

static struct weft_tmpl_message message_of(const char *role, const json_t *content) {
    return (struct weft_tmpl_message){.role = role,
                                      .role_len = strlen(role),
                                      .content = json_string_value(content),
                                      .content_len = json_string_length(content)};
}

void wefti_api_params_read_question(const struct reader *r, struct params *params) {
    const json_t *system = wefti_api_json_get(r, "system");
    const json_t *prompt = wefti_api_json_get(r, "prompt");
    if (system && !json_is_string(system))
        wefti_api_json_wrong_type(r, "system", "a string", system);
    if (prompt && !json_is_string(prompt))
        wefti_api_json_wrong_type(r, "prompt", "a string", prompt);
    if (!wefti_api_json_ok(r) || wefti_api_params_is_absent(prompt)) return;
    bool has_system = !wefti_api_params_is_absent(system);
    if (!make_messages(r, has_system ? 2 : 1, params)) return;
    params->template_is_optional = true;
    if (has_system) params->messages[0] = message_of("system", system);
    params->messages[has_system] = message_of("user", prompt);
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
    if (!wefti_api_json_ok(r)) return;
    size_t n = json_array_size(value); /* bounded by the body's number of values */
    if (!make_messages(r, n, params)) return;
    for (size_t i = 0; i < n && wefti_api_json_ok(r); i++)
        read_message(r, i, json_array_get(value, i), params);
}
