/* Anthropic's conversations: blocks, as messages of OpenAI's form, which params_messages.c reads as
 * any others. What its servers do by themselves is passed over. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

/* Claude Code puts this before its instructions, with a number that is another one each time: the prompt would never
 * begin as the one before it, whose keys and values are still there. */
#define BILLING "x-anthropic-billing-header"

/* One message being read. */
struct turn {
    const struct reader *r;
    size_t idx;
    json_t *out; /* messages of OpenAI's form, whose contents are lists of parts */
};

static void out_of_memory(const struct reader *r) {
    weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
}

static void bad_turn(const struct turn *at, const char *member, const char *text) {
    char param[64];
    (void)snprintf(param, sizeof param, "messages[%zu].%s", at->idx, member);
    weft_api_error_set(at->r->error, 400, param, NULL, "%s %s", param, text);
}

static void bad_block(const struct turn *at, const json_t *type) {
    char text[160], quoted[64];
    weft_api_quote(json_string_value(type), json_string_length(type), quoted, sizeof quoted);
    (void)snprintf(text, sizeof text, "must not hold a block of the type '%s' here", quoted);
    bad_turn(at, "content", text);
}

static void put(const struct reader *r, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value)) out_of_memory(r);
}

static void append(const struct reader *r, json_t *list, json_t *value) {
    if (json_array_append_new(list, value)) out_of_memory(r);
}

/* ----------------------------------------------------------------------------------- blocks --- */

static json_t *last_of(const json_t *messages) {
    return json_array_get(messages, json_array_size(messages) - 1);
}

static bool is_of(const json_t *message, const char *role) {
    return wefti_api_json_is_text(json_object_get(message, "role"), role);
}

static json_t *new_message(const struct turn *at, const char *role) {
    json_t *message = json_object();
    put(at->r, message, "role", json_string(role));
    put(at->r, message, "content", json_array());
    append(at->r, at->out, message);
    return message;
}

/* Neighbours of one role are one message, as Anthropic has it: many templates take no others. */
static json_t *message_of(const struct turn *at, const char *role) {
    json_t *last = last_of(at->out);
    return is_of(last, role) ? last : new_message(at, role);
}

static void add_part(const struct turn *at, json_t *message, json_t *part) {
    append(at->r, json_object_get(message, "content"), part);
}

static void add_text(const struct turn *at, json_t *message, const json_t *text) {
    if (json_string_length(text) == 0) return; /* no part, which would be a line of its own */
    json_t *part = json_object();
    put(at->r, part, "type", json_string("text"));
    put(at->r, part, "text", json_incref((json_t *)text));
    add_part(at, message, part);
}

/* The type of a block; NULL: it is none. */
static const json_t *type_of(const struct turn *at, const json_t *block) {
    const json_t *type = json_object_get(block, "type");
    if (json_is_string(type)) return type;
    bad_turn(at, "content", "holds a block without a type");
    return NULL;
}

static void read_text(const struct turn *at, const json_t *block, json_t *message) {
    const json_t *text = json_object_get(block, "text");
    if (json_is_string(text))
        add_text(at, message, text);
    else
        bad_turn(at, "content", "holds a text block whose 'text' is not a string");
}

/* A block that is neither text nor known to its caller. */
static void refuse_block(const struct turn *at, const json_t *type) {
    static const char *const media[] = {"image", "document", "container_upload"};
    for (size_t i = 0; i < sizeof media / sizeof media[0]; i++) {
        if (wefti_api_json_is_text(type, media[i]))
            bad_turn(at, "content", "holds an image or a document: the model reads text only");
    }
    bad_block(at, type);
}

/* --------------------------------------------------------------------------- calls, results --- */

static void read_call(const struct turn *at, const json_t *block, json_t *message) {
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
    json_t *input = json_object_get(block, "input");
    json_t *calls = json_object_get(message, "tool_calls");
    if (!json_is_string(id) || !json_is_string(name) || json_string_length(name) == 0) {
        bad_turn(at, "content", "holds a tool_use block without 'id' and 'name'");
        return;
    }
    if (input && !json_is_object(input)) {
        bad_turn(at, "content", "holds a tool_use block whose 'input' is not an object");
        return;
    }
    if (!calls) {
        put(at->r, message, "tool_calls", json_array());
        calls = json_object_get(message, "tool_calls");
    }
    json_t *call = json_object(), *function = json_object();
    put(at->r, function, "name", json_incref(name));
    put(at->r, function, "arguments", input ? json_incref(input) : json_object());
    put(at->r, call, "id", json_incref(id));
    put(at->r, call, "type", json_string("function"));
    put(at->r, call, "function", function);
    append(at->r, calls, call);
}

static void read_result_block(const struct turn *at, const json_t *block, json_t *message) {
    const json_t *type = type_of(at, block);
    if (!type) return;
    if (wefti_api_json_is_text(type, "text"))
        read_text(at, block, message);
    else if (wefti_api_json_is_text(type, "tool_reference"))
        add_text(at, message, json_object_get(block, "tool_name"));
    else
        refuse_block(at, type);
}

/* Whether it is an error is said by its text alone: templates know no more. */
static void read_result(const struct turn *at, const json_t *block) {
    json_t *id = json_object_get(block, "tool_use_id"), *one;
    const json_t *content = json_object_get(block, "content");
    size_t i;
    if (!json_is_string(id)) {
        bad_turn(at, "content", "holds a tool_result block without 'tool_use_id'");
        return;
    }
    json_t *message = new_message(at, "tool");
    put(at->r, message, "tool_call_id", json_incref(id));
    if (json_is_string(content)) {
        add_text(at, message, content);
    } else if (json_is_array(content)) {
        json_array_foreach(content, i, one) {
            if (wefti_api_json_ok(at->r)) read_result_block(at, one, message);
        }
    } else if (content && !json_is_null(content)) {
        bad_turn(at, "content",
                 "holds a tool_result block whose 'content' is neither a string nor a list");
    }
}

/* --------------------------------------------------------------------------------- messages --- */

static bool is_result(const json_t *block) {
    return wefti_api_json_is_text(json_object_get(block, "type"), "tool_result");
}

/* Results go first: they answer the message before. */
static void read_user_blocks(const struct turn *at, const json_t *blocks) {
    size_t i;
    json_t *block;
    json_array_foreach(blocks, i, block) {
        if (wefti_api_json_ok(at->r) && is_result(block)) read_result(at, block);
    }
    json_array_foreach(blocks, i, block) {
        if (!wefti_api_json_ok(at->r)) return;
        if (is_result(block)) continue;
        const json_t *type = type_of(at, block);
        if (type && wefti_api_json_is_text(type, "text"))
            read_text(at, block, message_of(at, "user"));
        else if (type)
            refuse_block(at, type);
    }
}

/* What Anthropic's servers put there: thoughts that nobody can read, calls of their own tools and the results. */
static bool is_servers(const json_t *type) {
    static const char result[] = "_tool_result";
    const char *name = json_string_value(type);
    size_t len = json_string_length(type), n = sizeof result - 1;
    return wefti_api_json_is_text(type, "redacted_thinking") ||
           wefti_api_json_is_text(type, "server_tool_use") ||
           wefti_api_json_is_text(type, "mcp_tool_use") ||
           wefti_api_json_is_text(type, "mcp_tool_listing") ||
           wefti_api_json_is_text(type, "fallback") ||
           (len > n && memcmp(name + len - n, result, n) == 0);
}

static void read_thinking(const struct turn *at, json_t *block, json_t *message) {
    const json_t *text = json_object_get(block, "thinking");
    if (!json_is_string(text))
        bad_turn(at, "content", "holds a thinking block whose 'thinking' is not a string");
    else if (json_string_length(text) > 0)
        add_part(at, message, json_incref(block));
}

static void read_own_blocks(const struct turn *at, const json_t *blocks) {
    json_t *message = message_of(at, "assistant"), *block;
    size_t i;
    json_array_foreach(blocks, i, block) {
        const json_t *type = wefti_api_json_ok(at->r) ? type_of(at, block) : NULL;
        if (!type) return;
        if (wefti_api_json_is_text(type, "text"))
            read_text(at, block, message);
        else if (wefti_api_json_is_text(type, "tool_use"))
            read_call(at, block, message);
        else if (wefti_api_json_is_text(type, "thinking"))
            read_thinking(at, block, message);
        else if (!is_servers(type))
            refuse_block(at, type);
    }
}

static bool is_billing(const json_t *text) {
    const char *bytes = json_string_value(text);
    return bytes && strncmp(bytes, BILLING, sizeof BILLING - 1) == 0;
}

/* Instructions amid a conversation become part of what the user or the tool said last: templates take a system's
 * message at the start only, and moving them there would change how each prompt begins. */
static json_t *instructed(const struct turn *at) {
    json_t *last = last_of(at->out);
    if (!last || is_of(last, "system")) return message_of(at, "system");
    return is_of(last, "tool") ? last : message_of(at, "user");
}

static void read_instructions(const struct turn *at, const json_t *content) {
    size_t i;
    json_t *block;
    if (json_is_string(content) && !is_billing(content)) add_text(at, instructed(at), content);
    json_array_foreach(content, i, block) {
        const json_t *type = wefti_api_json_ok(at->r) ? type_of(at, block) : NULL;
        if (!type) return;
        if (!wefti_api_json_is_text(type, "text"))
            refuse_block(at, type);
        else if (!is_billing(json_object_get(block, "text")))
            read_text(at, block, instructed(at));
    }
}

/* Claude Code has names of its own for what is the user's, all the same. */
static bool is_users(const json_t *role) {
    return wefti_api_json_is_text(role, "user") || wefti_api_json_is_text(role, "ctx") ||
           wefti_api_json_is_text(role, "msg");
}

static void read_turn(const struct turn *at, const json_t *json) {
    const json_t *role = json_object_get(json, "role"), *content = json_object_get(json, "content");
    bool is_ours = wefti_api_json_is_text(role, "assistant"), is_user = is_users(role);
    if (!is_ours && !is_user && !wefti_api_json_is_text(role, "system"))
        bad_turn(at, "role", "must be 'user', 'assistant' or 'system'");
    else if (!json_is_string(content) && !json_is_array(content))
        bad_turn(at, "content", "must be a string or a list of blocks");
    else if (!is_ours && !is_user)
        read_instructions(at, content);
    else if (json_is_string(content))
        add_text(at, message_of(at, is_ours ? "assistant" : "user"), content);
    else if (is_ours)
        read_own_blocks(at, content);
    else
        read_user_blocks(at, content);
}

static void read_system(const struct reader *r, json_t *out) {
    const json_t *system = wefti_api_json_get(r, "system");
    size_t i;
    json_t *block;
    const struct turn at = {r, 0, out};
    if (system && !json_is_string(system) && !json_is_array(system))
        wefti_api_json_wrong_type(r, "system", "a string or a list of text blocks", system);
    json_array_foreach(system, i, block) {
        if (!wefti_api_json_is_text(json_object_get(block, "type"), "text") ||
            !json_is_string(json_object_get(block, "text")))
            weft_api_error_set(r->error, 400, "system", NULL,
                               "'system' must be a string or a list of text blocks");
    }
    if (system && wefti_api_json_ok(r)) read_instructions(&at, system);
}

/* A conversation that ends with the assistant is one whose last message is to be gone on with. */
static void note_prefill(const struct reader *r, const json_t *out, struct params *params) {
    const json_t *last = last_of(out);
    if (!is_of(last, "assistant")) return;
    if (json_object_get(last, "tool_calls"))
        weft_api_error_set(r->error, 400, "messages", NULL,
                           "'messages' must not end with a tool_use block: its result is missing");
    params->add_generation_prompt = false;
    params->chat.continues = true;
}

void wefti_api_params_read_blocks(const struct reader *r, struct params *params) {
    const json_t *messages = wefti_api_json_get(r, "messages");
    size_t i;
    json_t *one;
    if (!wefti_api_json_ok(r)) return;
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        weft_api_error_set(r->error, 400, "messages", NULL,
                           "'messages' must be a list of at least one message");
        return;
    }
    json_t *out = json_array();
    read_system(r, out);
    json_array_foreach(messages, i, one) {
        const struct turn at = {r, i, out};
        if (wefti_api_json_ok(r)) read_turn(&at, one);
    }
    if (wefti_api_json_ok(r)) note_prefill(r, out, params);
    if (wefti_api_json_ok(r) && wefti_api_params_open_chat(r, params))
        wefti_api_params_add_messages(r, "messages", out, params);
    json_decref(out);
}
