/* A request's tools: their names are checked, their schemas kept as they are. */
#include "tools.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/check.h"

static weft_err read_name(const json_t *name, size_t at, struct wefti_msg_tool *tool,
                          struct weft_errmsg *why) {
    if (!json_is_string(name) || json_string_length(name) == 0)
        return weft_err_set(why, WEFT_E_INVAL, "tool %zu has no name", at);
    tool->name = json_string_value(name);
    tool->name_len = json_string_length(name);
    if (tool->name_len > WEFT_MSG_NAME_BYTES_MAX)
        return weft_err_set(why, WEFT_E_INVAL,
                            "the name of tool %zu has %zu bytes, at most %u may be", at,
                            tool->name_len, WEFT_MSG_NAME_BYTES_MAX);
    for (size_t i = 0; i < tool->name_len; i++) {
        if ((unsigned char)tool->name[i] < ' ')
            return weft_err_set(why, WEFT_E_INVAL, "the name of tool %zu has a control character",
                                at);
    }
    return WEFT_OK;
}

static weft_err read_tool(const json_t *entry, size_t at, struct wefti_msg_tool *tool,
                          struct weft_errmsg *why) {
    if (!json_is_object(entry)) return weft_err_set(why, WEFT_E_INVAL, "tool %zu is no object", at);
    const json_t *type = json_object_get(entry, "type");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return weft_err_set(why, WEFT_E_INVAL, "tool %zu is no function", at);
    const json_t *function = json_object_get(entry, "function");
    if (!json_is_object(function))
        return weft_err_set(why, WEFT_E_INVAL, "tool %zu has no object \"function\"", at);
    weft_err err = read_name(json_object_get(function, "name"), at, tool, why);
    if (err) return err;
    const json_t *parameters = json_object_get(function, "parameters");
    if (!parameters || json_is_null(parameters)) return WEFT_OK;
    if (!json_is_object(parameters))
        return weft_err_set(why, WEFT_E_INVAL, "the parameters of tool %s are no object",
                            tool->name);
    tool->parameters = parameters;
    return WEFT_OK;
}

static weft_err read_list(weft_msg_tools *tools, struct weft_errmsg *why) {
    for (size_t i = 0; i < tools->count; i++) {
        struct wefti_msg_tool *tool = &tools->tools[i];
        weft_err err = read_tool(json_array_get(tools->list, i), i, tool, why);
        if (err) return err;
    }
    return WEFT_OK;
}

/* jansson's values, a key of an object with its place in a table, and an allocator's share. */
#define VALUE_BYTES 48u
#define KEY_BYTES 96u
#define ITEM_BYTES 8u

static size_t bytes_of(const json_t *value) {
    size_t n = VALUE_BYTES + (json_is_string(value) ? json_string_length(value) : 0), i;
    const char *key;
    json_t *part;
    json_array_foreach(value, i, part) {
        n += ITEM_BYTES + bytes_of(part);
    }
    json_object_foreach((json_t *)value, key, part) {
        n += KEY_BYTES + strlen(key) + bytes_of(part);
    }
    return n;
}

weft_err weft_msg_tools_new(const json_t *list, weft_msg_tools **tools_out,
                            struct weft_errmsg *why) {
    *tools_out = NULL;
    if (!json_is_array(list)) return weft_err_set(why, WEFT_E_INVAL, "the tools are no list");
    size_t count = json_array_size(list);
    if (count > WEFT_MSG_TOOLS_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "%zu tools, at most %u may be", count,
                            WEFT_MSG_TOOLS_MAX);
    weft_err err = WEFT_E_NOMEM;
    weft_msg_tools *tools = calloc(1, sizeof *tools);
    if (!tools) goto cleanup;
    tools->count = (uint32_t)count;
    tools->tools = calloc(count + 1, sizeof *tools->tools);
    tools->list = json_deep_copy(list);
    if (!tools->tools || !tools->list) goto cleanup;
    err = read_list(tools, why);
    if (err) goto cleanup;
    tools->bytes = bytes_of(tools->list) + count * sizeof *tools->tools;
    *tools_out = tools;
    tools = NULL;
cleanup:
    weft_msg_tools_free(tools);
    return err;
}

void weft_msg_tools_free(weft_msg_tools *tools) {
    if (!tools) return;
    json_decref(tools->list);
    free(tools->tools);
    free(tools);
}

uint32_t weft_msg_tools_count(const weft_msg_tools *tools) {
    WEFT_ASSERT(tools);
    return tools->count;
}

const struct wefti_msg_tool *wefti_msg_tool_named(const weft_msg_tools *tools,
                                                  struct weft_str name) {
    for (uint32_t i = 0; tools && i < tools->count; i++) {
        const struct wefti_msg_tool *tool = &tools->tools[i];
        if (weft_str_is(name, tool->name, tool->name_len)) return tool;
    }
    return NULL;
}

size_t weft_msg_tools_bytes(const weft_msg_tools *tools) {
    return tools ? tools->bytes : 0;
}
