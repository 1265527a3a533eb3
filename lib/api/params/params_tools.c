/* Tools that the model may call, how it is to think, and what else a chat template is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

/* ------------------------------------------------------------------------------------ tools --- */

static void set_var(const struct reader *r, struct params *params, const char *name,
                    json_t *value) {
    WEFT_ASSERT(params->chat.vars);
    if (json_object_set_new(params->chat.vars, name, value))
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
}

/* Nulls say nothing, and templates would print them; some of them take it for granted that a function has these. */
static void complete(json_t *function) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(function, next, key, value) {
        if (json_is_null(value)) (void)json_object_del(function, key);
    }
    if (!json_object_get(function, "description"))
        (void)json_object_set_new(function, "description", json_string(""));
    if (!json_object_get(function, "parameters"))
        (void)json_object_set_new(function, "parameters",
                                  json_pack("{s:s,s:{}}", "type", "object", "properties"));
}

void wefti_api_params_set_tools(const struct reader *r, json_t *tools, struct params *params) {
    struct weft_errmsg why = {""};
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        const json_t *type = json_object_get(tool, "type");
        char param[64];
        (void)snprintf(param, sizeof param, "tools[%zu].type", i);
        if (json_is_object(tool) && !wefti_api_json_is_text(type, "function"))
            weft_api_error_set(r->error, 400, param, NULL, "%s must be 'function'", param);
    }
    if (!wefti_api_json_ok(r)) return;
    weft_err err = weft_msg_tools_new(tools, &params->chat.tools, &why);
    json_array_foreach(tools, i, tool) {
        complete(json_object_get(tool, "function"));
    }
    if (err)
        weft_api_error_set(r->error, err == WEFT_E_NOMEM ? 500 : 400, "tools", NULL, "%s",
                           why.text[0] ? why.text : weft_err_text(err));
    else
        set_var(r, params, "tools", json_incref(tools));
}

/* ----------------------------------------------------------------------------- which of them --- */

static void bad_choice(const struct reader *r) {
    weft_api_error_set(
        r->error, 400, "tool_choice", NULL,
        "'tool_choice' must be \"none\", \"auto\", \"required\", a function or allowed "
        "tools");
}

static json_t *tool_named(const json_t *tools, const json_t *name) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        if (json_equal(json_object_get(json_object_get(tool, "function"), "name"), name))
            return tool;
    }
    return NULL;
}

/* Of {"type": "function", "function": {"name": ...}}, or with the name beside the type. */
static bool allow(const struct reader *r, const json_t *wanted, const struct params *params,
                  json_t *callable) {
    const json_t *name = json_object_get(json_object_get(wanted, "function"), "name");
    const json_t *tools = json_object_get(params->chat.vars, "tools");
    if (!name) name = json_object_get(wanted, "name");
    if (!json_is_string(name)) {
        bad_choice(r);
        return false;
    }
    json_t *tool = tool_named(tools, name);
    char quoted[80];
    weft_api_quote(json_string_value(name), json_string_length(name), quoted, sizeof quoted);
    if (!tool)
        weft_api_error_set(r->error, 400, "tool_choice", NULL,
                           "'tool_choice' names '%s', which is none of the 'tools'", quoted);
    else if (!tool_named(callable, name) && json_array_append(callable, tool))
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
    return tool && wefti_api_json_ok(r);
}

static bool read_mode(const json_t *mode, enum tool_choice *out) {
    if (wefti_api_json_is_text(mode, "none"))
        *out = TOOLS_NONE;
    else if (wefti_api_json_is_text(mode, "auto"))
        *out = TOOLS_AUTO;
    else if (wefti_api_json_is_text(mode, "required") || wefti_api_json_is_text(mode, "any"))
        *out = TOOLS_REQUIRED;
    else
        return false;
    return true;
}

/* OpenAI's, within a field of its name in chats, and by itself in responses. */
static void read_allowed(const struct reader *r, const json_t *value, struct params *params,
                         json_t *callable) {
    const json_t *inner = json_object_get(value, "allowed_tools"), *one;
    if (!inner) inner = value;
    const json_t *list = json_object_get(inner, "tools");
    size_t i;
    if (!read_mode(json_object_get(inner, "mode"), &params->chat.choice) || !json_is_array(list)) {
        bad_choice(r);
        return;
    }
    if (json_array_size(list) > WEFT_MSG_TOOLS_MAX)
        weft_api_error_set(r->error, 400, "tool_choice", NULL,
                           "'tool_choice' names %zu tools, at most %u may be",
                           json_array_size(list), WEFT_MSG_TOOLS_MAX);
    json_array_foreach(list, i, one) {
        if (!wefti_api_json_ok(r) || !allow(r, one, params, callable)) return;
    }
    if (json_array_size(list) > 0) return;
    if (params->chat.choice == TOOLS_REQUIRED)
        weft_api_error_set(r->error, 400, "tool_choice", NULL,
                           "'tool_choice' asks for a call, but allows no tools");
    params->chat.choice = TOOLS_NONE;
}

/* One function, or several. */
static void read_callable(const struct reader *r, const json_t *value, struct params *params) {
    struct chat *chat = &params->chat;
    const json_t *type = json_object_get(value, "type");
    json_t *callable = json_array();
    if (!callable)
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
    else if (wefti_api_json_is_text(type, "function") || !type)
        chat->is_single = allow(r, value, params, callable);
    else if (wefti_api_json_is_text(type, "allowed_tools"))
        read_allowed(r, value, params, callable);
    else
        bad_choice(r);
    if (wefti_api_json_ok(r) && weft_msg_tools_new(callable, &chat->callable_tools, NULL))
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
    json_decref(callable);
}

void wefti_api_params_set_tool_choice(const struct reader *r, const json_t *value,
                                      struct params *params) {
    struct chat *chat = &params->chat;
    bool has_tools = chat->tools && weft_msg_tools_count(chat->tools) > 0;
    chat->choice = has_tools ? TOOLS_AUTO : TOOLS_NONE;
    if (!value) return;
    enum tool_choice mode = TOOLS_NONE;
    bool is_mode = read_mode(value, &mode);
    if (is_mode && mode != TOOLS_REQUIRED) {
        if (has_tools) chat->choice = mode;
        return;
    }
    if (!is_mode && !json_is_object(value)) {
        bad_choice(r);
        return;
    }
    if (!has_tools) {
        weft_api_error_set(r->error, 400, "tool_choice", NULL,
                           "'tool_choice' asks for a call, but there are no 'tools'");
        return;
    }
    chat->choice = TOOLS_REQUIRED;
    if (!is_mode) read_callable(r, value, params);
}

void wefti_api_params_read_tools(const struct reader *r, struct params *params) {
    json_t *tools = wefti_api_json_get(r, "tools");
    const json_t *choice = wefti_api_json_get(r, "tool_choice");
    bool is_parallel = true;
    if (tools && !json_is_array(tools)) wefti_api_json_wrong_type(r, "tools", "an array", tools);
    if (!params->chat.vars || !wefti_api_json_ok(r)) return;
    if (json_array_size(tools) > 0) wefti_api_params_set_tools(r, tools, params);
    if (wefti_api_json_ok(r)) wefti_api_params_set_tool_choice(r, choice, params);
    if (wefti_api_json_get_bool(r, "parallel_tool_calls", &is_parallel) && !is_parallel)
        params->chat.is_single = true;
}

/* ------------------------------------------------------------------------------- the template --- */

static void add_kwargs(const struct reader *r, const json_t *kwargs, struct params *params) {
    static const char *const ours[] = {"messages", "tools", "documents", "add_generation_prompt"};
    const char *key;
    json_t *value;
    if (json_object_size(kwargs) > API_TEMPLATE_KWARGS_MAX)
        weft_api_error_set(r->error, 400, "chat_template_kwargs", NULL,
                           "'chat_template_kwargs' has %zu members, at most %d are allowed",
                           json_object_size(kwargs), API_TEMPLATE_KWARGS_MAX);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (json_object_get(kwargs, ours[i]))
            weft_api_error_set(
                r->error, 400, "chat_template_kwargs", NULL,
                "'chat_template_kwargs' must not have '%s', which is a field of its own", ours[i]);
    }
    if (!wefti_api_json_ok(r)) return;
    json_object_foreach((json_t *)kwargs, key, value) {
        if (wefti_api_json_ok(r)) set_var(r, params, key, json_incref(value));
    }
}

void wefti_api_params_set_thinking(const struct reader *r, bool thinks, struct params *params) {
    set_var(r, params, "enable_thinking", json_boolean(thinks)); /* Qwen's, GLM's and others' */
    set_var(r, params, "thinking", json_boolean(thinks));        /* DeepSeek's, Granite's */
}

void wefti_api_params_set_effort(const struct reader *r, const char *field, json_t *effort,
                                 struct params *params) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    bool is_known = false;
    if (!effort || !wefti_api_json_ok(r)) return;
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++)
        is_known = is_known || wefti_api_json_is_text(effort, efforts[i]);
    if (!is_known) {
        weft_api_error_set(
            r->error, 400, field, NULL,
            "'%s' must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" "
            "or \"max\"",
            field);
        return;
    }
    bool thinks = !wefti_api_json_is_text(effort, "none");
    wefti_api_params_set_thinking(r, thinks, params);
    if (thinks) set_var(r, params, "reasoning_effort", json_incref(effort));
}

void wefti_api_params_read_template(const struct reader *r, struct params *params) {
    json_t *kwargs = wefti_api_json_get(r, "chat_template_kwargs");
    json_t *documents = wefti_api_json_get(r, "documents");
    json_t *effort = wefti_api_json_get(r, "reasoning_effort");
    bool thinks = true, shows = true;
    if (!params->chat.vars) return;
    if (kwargs && !json_is_object(kwargs))
        wefti_api_json_wrong_type(r, "chat_template_kwargs", "an object", kwargs);
    if (documents && !json_is_array(documents))
        wefti_api_json_wrong_type(r, "documents", "an array", documents);
    wefti_api_params_set_effort(r, "reasoning_effort", effort, params);
    if (wefti_api_json_get_bool(r, "enable_thinking", &thinks))
        wefti_api_params_set_thinking(r, thinks, params);
    if (wefti_api_json_get_bool(r, "include_reasoning", &shows))
        params->chat.hides_thoughts = !shows;
    if (!wefti_api_json_ok(r)) return;
    if (json_array_size(documents) > 0) set_var(r, params, "documents", json_incref(documents));
    if (kwargs) add_kwargs(r, kwargs, params);
}

void wefti_api_params_read_continuation(const struct reader *r, struct params *params) {
    bool continues = false;
    wefti_api_json_get_bool(r, "continue_final_message", &continues);
    if (!continues || !params->chat.vars) return;
    if (json_is_true(json_object_get(r->json, "add_generation_prompt")))
        weft_api_error_set(
            r->error, 400, "continue_final_message", NULL,
            "'continue_final_message' and 'add_generation_prompt' cannot both be true");
    params->add_generation_prompt = false;
    params->chat.continues = true;
}
