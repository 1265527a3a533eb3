/* The fields of POST /v1/responses, with OpenAI's names for what chats have, and what the answer says of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/json_out.h"
#include "params/params_internal.h"
#include "store/store.h"

#define TEXT_BYTES_MAX                                                                             \
    ((size_t)1 << 40) /* no more than the body, or the store, which are bounded */

static void no_memory(const struct reader *r) {
    weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
}

/* --------------------------------------------------------------------------- the conversation --- */

/* As a body may hold. */
#define KEPT_VALUES_MAX (2u << 20)
#define KEPT_DEPTH_MAX 80

/* The items of the conversation that this one goes on with, a new list. NULL: none, or an error. */
static json_t *recall(const struct reader *r, const struct weft_api_recall *from) {
    const json_t *id = wefti_api_json_get(r, "previous_response_id");
    struct weft_buf text;
    char quoted[80];
    if (!id) return NULL;
    if (!json_is_string(id)) {
        wefti_api_json_wrong_type(r, "previous_response_id", "a string", id);
        return NULL;
    }
    if (!from->store) {
        weft_api_error_set(r->error, 400, "previous_response_id", "unsupported_parameter",
                           "'previous_response_id' needs responses to be kept, and this server "
                           "keeps none: send the whole conversation as 'input', or start it with "
                           "--responses-store SIZE");
        return NULL;
    }
    weft_buf_init(&text, TEXT_BYTES_MAX);
    struct weft_str name = {json_string_value(id), json_string_length(id)};
    bool is_there =
        wefti_api_store_get(from->store, from->tenant, name, KEPT_ITEMS, from->now_ms, &text);
    bool is_large = is_there && !text.failed &&
                    !weft_json_within(text.data, text.len, KEPT_VALUES_MAX, KEPT_DEPTH_MAX);
    json_t *items = is_there && !text.failed && !is_large
                        ? json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL)
                        : NULL;
    weft_buf_fini(&text);
    if (is_large)
        weft_api_error_set(r->error, 400, "previous_response_id", "too_many_values",
                           "the conversation before holds more than %u values", KEPT_VALUES_MAX);
    weft_api_quote(name.data, name.len, quoted, sizeof quoted);
    if (!is_there)
        weft_api_error_set(r->error, 404, "previous_response_id", "previous_response_not_found",
                           "no response '%s' is kept here", quoted);
    else if (!items)
        no_memory(r);
    return items;
}

/* The list of a request's items, new; a text is a user's message. */
static json_t *input_of(const struct reader *r) {
    json_t *input = wefti_api_json_get(r, "input");
    if (!wefti_api_json_ok(r)) return NULL;
    if (json_is_array(input)) return json_incref(input);
    if (json_is_string(input))
        return json_pack("[{s:s,s:s,s:O}]", "type", "message", "role", "user", "content", input);
    if (input)
        wefti_api_json_wrong_type(r, "input", "a string or an array", input);
    else
        weft_api_error_set(r->error, 400, "input", "missing_required_parameter",
                           "you must provide an 'input' parameter");
    return NULL;
}

static void add_instructions(const struct reader *r, struct params *params) {
    json_t *text = wefti_api_json_get(r, "instructions");
    if (!text || !wefti_api_json_ok(r)) return;
    if (!json_is_string(text)) {
        wefti_api_json_wrong_type(r, "instructions", "a string", text);
        return;
    }
    json_t *message = json_pack("{s:s,s:O}", "role", "system", "content", text);
    if (message)
        wefti_api_params_add_message(r, "instructions", 0, message, params);
    else
        no_memory(r);
    json_decref(message);
}

static bool is_system(const json_t *message) {
    const json_t *role = json_object_get(message, "role");
    return wefti_api_json_is_text(role, "system") || wefti_api_json_is_text(role, "developer");
}

/* The texts of the first `n` messages, with an empty line between. NULL: no memory. */
static json_t *joined(const json_t *messages, size_t n) {
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (i > 0) weft_buf_add_str(&text, "\n\n");
        weft_buf_add(&text, json_string_value(content), json_string_length(content));
    }
    json_t *value = text.failed ? NULL : json_stringn(text.data, text.len);
    weft_buf_fini(&text);
    return value;
}

/* Many templates take one system message, at the beginning: those that follow the first one there are part of it. */
static void join_system(const struct reader *r, struct params *params) {
    json_t *messages = json_object_get(params->chat.vars, "messages"), *first;
    size_t n = 0, n_all = json_array_size(messages);
    while (n < n_all && is_system(json_array_get(messages, n)))
        n++;
    if (n < 2 || !wefti_api_json_ok(r)) return;
    json_t *fewer = json_array();
    first = json_array_get(messages, 0);
    bool failed = json_object_set_new(first, "content", joined(messages, n)) ||
                  json_array_append(fewer, first);
    for (size_t i = n; i < n_all && !failed; i++)
        failed = json_array_append(fewer, json_array_get(messages, i)) != 0;
    if (failed)
        json_decref(fewer);
    else
        failed = json_object_set_new(params->chat.vars, "messages", fewer) != 0;
    if (failed) no_memory(r);
}

/* Keeps a text of the items where the store is to have them. */
static void keep_items(const struct reader *r, const struct weft_api_recall *recall,
                       const json_t *before, const json_t *input, struct params *params) {
    bool is_wanted = true;
    wefti_api_json_get_bool(r, "store", &is_wanted);
    if (!recall->store || !is_wanted || !wefti_api_json_ok(r)) return;
    json_t *all = before ? json_copy((json_t *)before) : json_array();
    bool failed = json_array_extend(all, (json_t *)input) != 0;
    params->kept_items = failed ? NULL : json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (!params->kept_items) {
        no_memory(r);
        return;
    }
    params->n_kept_items = strlen(params->kept_items);
}

static void read_conversation(const struct reader *r, const struct weft_api_recall *from,
                              struct params *params) {
    json_t *before = recall(r, from), *input = input_of(r);
    if (wefti_api_json_ok(r) && !input) no_memory(r);
    if (wefti_api_json_ok(r) && wefti_api_params_open_chat(r, params)) {
        add_instructions(r, params);
        wefti_api_params_add_items(r, "previous_response", before, params);
        wefti_api_params_add_items(r, "input", input, params);
        join_system(r, params);
        keep_items(r, from, before, input, params);
    }
    if (wefti_api_json_ok(r) &&
        json_array_size(json_object_get(params->chat.vars, "messages")) == 0)
        weft_api_error_set(r->error, 400, "input", NULL,
                           "'input' must hold at least one message, call or output");
    json_decref(before);
    json_decref(input);
}

/* ------------------------------------------------------------------------------------ tools --- */

/* A function as chats have it; NULL: no memory. */
static json_t *function_of(const json_t *tool) {
    static const char *const names[] = {"name", "description", "parameters", "strict"};
    json_t *inner = json_object_get(tool, "function");
    json_t *function = inner ? json_incref(inner) : json_object();
    bool failed = !function;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !inner; i++) {
        json_t *value = json_object_get(tool, names[i]);
        failed = failed || (value && json_object_set(function, names[i], value));
    }
    json_t *out = failed ? NULL : json_pack("{s:s,s:O}", "type", "function", "function", function);
    json_decref(function);
    return out;
}

static bool is_function(const json_t *value) {
    return wefti_api_json_is_text(json_object_get(value, "type"), "function");
}

/* The functions among the tools; others are for a server to run, or of a form that no template knows. */
static json_t *functions_of(const struct reader *r, const json_t *tools) {
    json_t *out = json_array(), *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        if (!json_is_object(tool)) {
            weft_api_error_set(r->error, 400, "tools", NULL, "tools[%zu] must be an object", i);
            break;
        }
        if (!is_function(tool)) continue;
        if (json_array_append_new(out, function_of(tool))) no_memory(r);
    }
    return out;
}

/* The choice without what was passed over; NULL: as it is without one. */
static json_t *choice_of(const struct reader *r, const json_t *choice, bool is_short) {
    const json_t *type = json_object_get(choice, "type");
    bool is_list = wefti_api_json_is_text(type, "allowed_tools");
    if (!choice) return NULL;
    if (is_short && (is_list || wefti_api_json_is_text(choice, "required"))) return NULL;
    if (json_is_object(choice) && json_is_string(type) && !is_list && !is_function(choice))
        return NULL;
    if (!is_list) return json_incref((json_t *)choice);
    json_t *list = json_array(), *one;
    size_t i;
    json_array_foreach(json_object_get(choice, "tools"), i, one) {
        if (is_function(one) && json_array_append(list, one)) no_memory(r);
    }
    return json_pack("{s:s,s:O?,s:o}", "type", "allowed_tools", "mode",
                     json_object_get(choice, "mode"), "tools", list);
}

static void read_tools(const struct reader *r, struct params *params) {
    const json_t *tools = wefti_api_json_get(r, "tools");
    const json_t *choice = wefti_api_json_get(r, "tool_choice");
    bool is_parallel = true;
    if (tools && !json_is_array(tools)) wefti_api_json_wrong_type(r, "tools", "an array", tools);
    if (!wefti_api_json_ok(r)) return;
    json_t *functions = functions_of(r, tools);
    bool is_short = json_array_size(functions) == 0 && json_array_size(tools) > 0;
    if (wefti_api_json_ok(r) && json_array_size(functions) > 0)
        wefti_api_params_set_tools(r, functions, params);
    json_t *left = wefti_api_json_ok(r) ? choice_of(r, choice, is_short) : NULL;
    if (wefti_api_json_ok(r)) wefti_api_params_set_tool_choice(r, left, params);
    if (wefti_api_json_get_bool(r, "parallel_tool_calls", &is_parallel) && !is_parallel)
        params->chat.is_single = true;
    json_decref(left);
    json_decref(functions);
}

/* ----------------------------------------------------------------------------- other fields --- */

static void read_reasoning(const struct reader *r, struct params *params) {
    json_t *value = wefti_api_json_get(r, "reasoning");
    struct fields_known known;
    if (!value) return;
    if (!json_is_object(value)) {
        wefti_api_json_wrong_type(r, "reasoning", "an object", value);
        return;
    }
    const struct reader inner = wefti_api_json_within(r, value, &known);
    wefti_api_params_set_effort(r, "reasoning.effort", wefti_api_json_get(&inner, "effort"),
                                params);
    wefti_api_json_note(&inner, "summary"); /* thoughts are told as they are */
    wefti_api_json_note(&inner, "generate_summary");
    wefti_api_json_look_for_unknown(&inner, "reasoning.");
}

/* How many log-probabilities each token is to have; -1: none. */
static int64_t read_include(const struct reader *r, const struct weft_api_limits *limits) {
    const json_t *include = wefti_api_json_get(r, "include");
    int64_t n = 0;
    bool is_wanted = false;
    wefti_api_params_read_n_logprobs(r, "top_logprobs", limits, &n);
    if (include && !json_is_array(include))
        wefti_api_json_wrong_type(r, "include", "an array", include);
    for (size_t i = 0; i < json_array_size(include); i++)
        is_wanted = is_wanted || wefti_api_json_is_text(json_array_get(include, i),
                                                        "message.output_text.logprobs");
    return is_wanted ? n : -1;
}

static void read_truncation(const struct reader *r, struct params *params) {
    const json_t *value = wefti_api_json_get(r, "truncation");
    if (!value || wefti_api_json_is_text(value, "disabled")) return;
    if (wefti_api_json_is_text(value, "auto"))
        params->truncate_to = -1;
    else
        weft_api_error_set(r->error, 400, "truncation", NULL,
                           "'truncation' must be \"auto\" or \"disabled\"");
}

static void read_metadata(const struct reader *r) {
    const json_t *value = wefti_api_json_get(r, "metadata");
    if (value && !json_is_object(value))
        wefti_api_json_wrong_type(r, "metadata", "an object", value);
}

static void refuse_unsupported(const struct reader *r) {
    static const struct refused_field refused[] = {
        {"background", IF_FALSE},
        {"prompt", IF_NULL},
        {"conversation", IF_NULL},
        {NULL, IF_NULL},
    };
    static const char *const ours[] = {"store", NULL};
    struct reader others = *r;
    others.hidden = ours;
    wefti_api_params_refuse_unsupported(&others);
    wefti_api_params_refuse_beams(&others);
    wefti_api_params_refuse(r, refused);
    wefti_api_json_note(r, "max_tool_calls");  /* of tools that a server runs */
    wefti_api_json_note(r, "client_metadata"); /* Codex's */
}

/* ------------------------------------------------------------------------ what the answer says --- */

static void say(const struct reader *r, json_t *object, const char *key, json_t *usual) {
    json_t *value = json_object_get(r->json, key);
    if (value && !json_is_null(value)) {
        json_decref(usual);
        usual = json_incref(value);
    }
    if (json_object_set_new(object, key, usual)) no_memory(r);
}

/* Members without the braces of their object. */
static void set_fields(const struct reader *r, const json_t *object, struct params *params) {
    char *text = json_dumps(object, JSON_COMPACT);
    if (!text) {
        no_memory(r);
        return;
    }
    size_t n = strlen(text);
    WEFT_ASSERT(n >= 2);
    memmove(text, text + 1, n - 2);
    params->answer_fields = text;
    params->n_answer_fields = n - 2;
}

static void say_fields(const struct reader *r, struct params *params) {
    json_t *object = json_object();
    if (!wefti_api_json_ok(r)) {
        json_decref(object);
        return;
    }
    say(r, object, "instructions", json_null());
    say(r, object, "tools", json_array());
    say(r, object, "tool_choice", json_string("auto"));
    say(r, object, "parallel_tool_calls", json_true());
    say(r, object, "reasoning", json_pack("{s:n,s:n}", "effort", "summary"));
    say(r, object, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    say(r, object, "truncation", json_string("disabled"));
    say(r, object, "top_logprobs", json_integer(0));
    say(r, object, "metadata", json_object());
    say(r, object, "previous_response_id", json_null());
    say(r, object, "prompt_cache_key", json_null());
    say(r, object, "safety_identifier", json_null());
    say(r, object, "user", json_null());
    (void)json_object_set_new(object, "service_tier", json_string("default"));
    (void)json_object_set_new(object, "background", json_false());
    (void)json_object_set_new(object, "store", json_boolean(params->kept_items));
    set_fields(r, object, params);
    json_decref(object);
}

/* ------------------------------------------------------------------------------------ fields --- */

void wefti_api_params_read_response(const struct reader *r, const struct weft_api_limits *limits,
                                    struct params *params) {
    int64_t usual = limits->defaults.max_new_tokens;
    params->is_open_ended = true;
    params->n = 1;
    if (usual > 0) params->usual_max_tokens = usual < UINT32_MAX ? (uint32_t)usual : UINT32_MAX;
    refuse_unsupported(r);
    read_conversation(r, &limits->recall, params);
    if (!params->chat.vars) return;
    read_tools(r, params);
    wefti_api_params_read_template(r, params);
    read_reasoning(r, params);
    wefti_api_json_get_bool(r, "stream", &params->stream);
    wefti_api_json_note(r, "stream_options");
    wefti_api_params_read_output(r, params);
    wefti_api_params_read_sampling(r, limits, params);
    wefti_api_params_read_grammar(r, params);
    wefti_api_params_read_text_format(r, params);
    wefti_api_params_read_stops(r, "stop", params);
    wefti_api_params_read_stop_tokens(r, limits, params);
    wefti_api_params_read_logprobs(r, limits, read_include(r, limits), params);
    wefti_api_params_read_max_tokens(r, "max_output_tokens", params);
    read_truncation(r, params);
    read_metadata(r);
    wefti_api_json_note(r, "store");
    say_fields(r, params);
}
