/* Anthropic's Messages API, but for its conversations (params_blocks.c). What its servers do by
 * themselves, by their tools, caches and memories, is passed over. */
#include <stdio.h>
#include <string.h>

#include "params/params_internal.h"

static void out_of_memory(const struct reader *r) {
    weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
}

static void put(const struct reader *r, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value)) out_of_memory(r);
}

static void append(const struct reader *r, json_t *list, json_t *value) {
    if (json_array_append_new(list, value)) out_of_memory(r);
}

/* ------------------------------------------------------------------------------------ tools --- */

/* NULL: an error, or one that Anthropic's servers would run. */
static json_t *function_of(const struct reader *r, const json_t *tool, size_t i) {
    static const char *const names[] = {"name", "description", "input_schema"};
    const json_t *type = json_object_get(tool, "type");
    char param[64];
    (void)snprintf(param, sizeof param, "tools[%zu]", i);
    if (wefti_api_json_is_text(type, "function")) {
        weft_api_error_set(r->error, 400, param, NULL,
                           "%s is a tool of OpenAI's form: here it is {\"name\", \"description\", "
                           "\"input_schema\"}",
                           param);
        return NULL;
    }
    if (json_is_string(type) && !wefti_api_json_is_text(type, "custom")) return NULL;
    if (!json_is_string(json_object_get(tool, "name"))) {
        weft_api_error_set(r->error, 400, param, NULL, "%s must have a 'name'", param);
        return NULL;
    }
    json_t *function = json_object(), *out = json_object();
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        json_t *value = json_object_get(tool, names[k]);
        if (value) put(r, function, k < 2 ? names[k] : "parameters", json_incref(value));
    }
    put(r, out, "type", json_string("function"));
    put(r, out, "function", function);
    return out;
}

/* A choice of what Anthropic's servers would run asks for nothing here. */
static bool is_passed_over(const struct reader *r, const json_t *wanted,
                           const struct params *params) {
    bool has_any = json_array_size(json_object_get(r->json, "tools")) > 0;
    const char *name = json_string_value(json_object_get(wanted, "name"));
    bool asks = name || wefti_api_json_is_text(wanted, "required");
    size_t i;
    const json_t *tool;
    if (!has_any || !asks) return false;
    if (!name) return !params->chat.tools;
    json_array_foreach(json_object_get(r->json, "tools"), i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        const char *of = json_string_value(json_object_get(tool, "name"));
        if (of && strcmp(of, name) == 0) return type && strcmp(type, "custom") != 0;
    }
    return false;
}

static void read_choice(const struct reader *r, struct params *params) {
    static const char *const from[] = {"auto", "any", "none"};
    static const char *const to[] = {"auto", "required", "none"};
    const json_t *choice = wefti_api_json_get(r, "tool_choice");
    const json_t *type = json_object_get(choice, "type");
    json_t *wanted = NULL;
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        if (wefti_api_json_is_text(type, from[i])) wanted = json_string(to[i]);
    }
    if (wefti_api_json_is_text(type, "tool")) /* of the form that Responses have */
        wanted =
            json_pack("{s:s,s:O?}", "type", "function", "name", json_object_get(choice, "name"));
    if (wanted && json_is_object(wanted) && !json_is_string(json_object_get(wanted, "name")))
        weft_api_error_set(r->error, 400, "tool_choice", NULL,
                           "'tool_choice' of the type \"tool\" must have a 'name'");
    if (choice && !wanted)
        weft_api_error_set(r->error, 400, "tool_choice", NULL,
                           "'tool_choice.type' must be \"auto\", \"any\", \"tool\" or \"none\"");
    const json_t *kept = is_passed_over(r, wanted, params) ? NULL : wanted;
    if (wefti_api_json_ok(r)) wefti_api_params_set_tool_choice(r, kept, params);
    json_decref(wanted);
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        params->chat.is_single = true;
}

static void read_tools(const struct reader *r, struct params *params) {
    const json_t *tools = wefti_api_json_get(r, "tools");
    size_t i;
    json_t *tool, *out = json_array();
    if (tools && !json_is_array(tools)) wefti_api_json_wrong_type(r, "tools", "an array", tools);
    json_array_foreach(tools, i, tool) {
        json_t *function = wefti_api_json_ok(r) ? function_of(r, tool, i) : NULL;
        if (function) append(r, out, function);
    }
    if (wefti_api_json_ok(r) && json_array_size(out) > 0)
        wefti_api_params_set_tools(r, out, params);
    json_decref(out);
    if (wefti_api_json_ok(r)) read_choice(r, params);
}

/* ------------------------------------------------------------------------- thoughts, output --- */

/* Absent, it is the template that decides. */
static void read_thinking_config(const struct reader *r, struct params *params) {
    json_t *value = wefti_api_json_get(r, "thinking");
    struct fields_known known;
    if (!value) return;
    if (!json_is_object(value)) {
        wefti_api_json_wrong_type(r, "thinking", "an object", value);
        return;
    }
    const struct reader inner = wefti_api_json_within(r, value, &known);
    const json_t *type = wefti_api_json_get(&inner, "type");
    const json_t *display = wefti_api_json_get(&inner, "display");
    bool thinks = wefti_api_json_is_text(type, "enabled") ||
                  wefti_api_json_is_text(type, "adaptive") ||
                  wefti_api_json_is_text(type, "between_tools");
    wefti_api_json_note(&inner, "budget_tokens");
    wefti_api_json_note(&inner, "block_binding");
    if (!thinks && !wefti_api_json_is_text(type, "disabled"))
        weft_api_error_set(
            r->error, 400, "thinking", NULL,
            "'thinking.type' must be \"enabled\", \"adaptive\", \"between_tools\" or "
            "\"disabled\"");
    wefti_api_json_look_for_unknown(&inner, "thinking.");
    if (!wefti_api_json_ok(r)) return;
    wefti_api_params_set_thinking(r, thinks, params);
    params->chat.hides_thoughts = wefti_api_json_is_text(display, "omitted");
}

static void read_effort(const struct reader *r, struct params *params) {
    json_t *value = wefti_api_json_get(r, "output_config");
    struct fields_known known;
    if (!value) return;
    if (!json_is_object(value)) {
        wefti_api_json_wrong_type(r, "output_config", "an object", value);
        return;
    }
    const struct reader inner = wefti_api_json_within(r, value, &known);
    wefti_api_params_set_effort(r, "output_config.effort", wefti_api_json_get(&inner, "effort"),
                                params);
    wefti_api_json_note(&inner, "format");
    wefti_api_json_note(&inner, "task_budget");
    wefti_api_json_look_for_unknown(&inner, "output_config.");
}

/* ------------------------------------------------------------------------------ the request --- */

/* What would be wrong without a word if it were ignored: a conversation that the server is to
 * remember, of which the next request brings the end alone. Their clients go on without it after
 * this code. */
static void refuse_state(const struct reader *r) {
    static const struct refused_field refused[] = {{"compaction", IF_NULL}, {NULL, IF_NULL}};
    if (wefti_api_json_get(r, "thread"))
        weft_api_error_set(r->error, 400, "thread", "thread_unsupported_request",
                           "'thread' is not supported by this server: send all messages");
    wefti_api_params_refuse(r, refused);
}

static void note_ignored(const struct reader *r) {
    static const char *const ignored[] = {
        "cache_control",
        "container",
        "context_management",
        "mcp_servers",
        "betas",
        "anthropic_beta",
        "anthropic_version",
        "inference_geo",
        "user_profile_id",
        "workspace_id",
        "speed",
        "diagnostics",
        "fallbacks",
        "fallback_credit_token",
        "billing_policy",
    };
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        wefti_api_json_note(r, ignored[i]);
}

void wefti_api_params_read_anthropic(const struct reader *r, struct params *params) {
    refuse_state(r);
    wefti_api_params_read_blocks(r, params);
    read_tools(r, params);
    wefti_api_params_read_template(r, params);
    if (!wefti_api_json_ok(r)) return;
    read_effort(r, params);
    read_thinking_config(r, params);
    note_ignored(r);
}

static void read_format(const struct reader *r, const char *field, const json_t *format,
                        struct params *params) {
    if (!format) return;
    if (wefti_api_json_is_text(json_object_get(format, "type"), "json_schema"))
        wefti_api_params_set_schema(r, field, json_object_get(format, "schema"), params);
    else
        weft_api_error_set(r->error, 400, field, NULL,
                           "'%s' must be {\"type\": \"json_schema\", \"schema\": ...}", field);
}

/* One that the context can't hold bounds nothing, and would cost a grammar. */
static void read_budget(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    json_t *thinking = wefti_api_json_get(r, "thinking");
    int64_t budget = INT32_MAX;
    const struct reader inner = {thinking, r->error, NULL, NULL};
    if (thinking) wefti_api_json_get_int(&inner, "budget_tokens", 0, INT32_MAX, &budget);
    if (budget < limits->max_model_len) params->sampling.thinking_token_budget = (uint32_t)budget;
}

void wefti_api_params_read_anthropic_answer(const struct reader *r,
                                            const struct weft_api_limits *limits,
                                            struct params *params) {
    const json_t *metadata = wefti_api_json_get(r, "metadata");
    const json_t *user = json_object_get(metadata, "user_id");
    if (json_string_length(user) > 0)
        params->service.flow = weft_api_flow(json_string_value(user), json_string_length(user));
    read_budget(r, limits, params);
    read_format(r, "output_format", wefti_api_json_get(r, "output_format"), params);
    const json_t *config = wefti_api_json_get(r, "output_config");
    const json_t *format = json_object_get(config, "format");
    if (!json_is_null(format)) read_format(r, "output_config.format", format, params);
}
