/* `weft parse-output`: thoughts, content and calls of raw outputs. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "codec/json_out.h"
#include "commands.h"
#include "input.h"
#include "message/message.h"
#include "template/template.h"

#define FILE_BYTES_MAX (64u << 20)
#define MESSAGE_BYTES_MAX ((size_t)8 * FILE_BYTES_MAX)

/* ------------------------------------------------------------------------------------ input --- */

static bool is_template_file(const char *path) {
    size_t len = strlen(path);
    return len > 6 && !strcmp(path + len - 6, ".jinja");
}

static weft_err find_format(const char *name, const weft_msg_format **format_out,
                            struct weft_errmsg *why) {
    char *source = NULL;
    size_t len = 0;
    weft_err err;
    *format_out = weft_msg_format_named((struct weft_str){name, strlen(name)});
    if (*format_out) return WEFT_OK;
    if (access(name, F_OK) != 0)
        return weft_err_set(why, WEFT_E_INVAL, "\"%s\" is neither a model nor one of %s", name,
                            weft_msg_format_names());
    if (is_template_file(name)) {
        err = weft_file_read(name, WEFT_FILE_ANY, FILE_BYTES_MAX, &source, &len, why);
    } else {
        err = weft_tmpl_find(name, &source, why);
        if (!err && !source) err = weft_err_set(why, WEFT_E_INVAL, "%s has no chat template", name);
        len = source ? strlen(source) : 0;
    }
    if (!err) *format_out = weft_msg_format_of_template((struct weft_str){source, len});
    free(source);
    return err;
}

static weft_err read_text(const char *path, struct weft_buf *text, struct weft_errmsg *why) {
    if (strcmp(path, "-") == 0) return weft_input_read(text, why);
    char *bytes = NULL;
    size_t len;
    weft_err err = weft_file_read(path, WEFT_FILE_ANY, FILE_BYTES_MAX, &bytes, &len, why);
    if (!err) weft_buf_add(text, bytes, len);
    free(bytes);
    return !err && text->failed ? weft_err_set(why, WEFT_E_NOMEM, "no memory for %s", path) : err;
}

static weft_err check_case(const json_t *test, size_t at, const char *path,
                           struct weft_errmsg *why) {
    static const char *const texts[] = {"name", "output", "prompt_tail", "tool_choice"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const json_t *text = json_object_get(test, texts[i]);
        bool is_needed = i < 2;
        bool is_choice = i == 3 && json_is_object(text);
        if ((!text && !is_needed) || json_is_string(text) || is_choice) continue;
        return weft_err_set(why, WEFT_E_INVAL, "case [%zu] of %s has no string \"%s\"", at, path,
                            texts[i]);
    }
    return WEFT_OK;
}

static weft_err read_cases(const char *path, json_t **root_out, struct weft_errmsg *why) {
    struct weft_buf text;
    json_error_t where;
    const char *shown = strcmp(path, "-") == 0 ? "standard input" : path;
    weft_buf_init(&text, FILE_BYTES_MAX);
    weft_err err = read_text(path, &text, why);
    if (!err) {
        *root_out = json_loadb(weft_buf_cstr(&text), text.len, JSON_ALLOW_NUL, &where);
        if (!*root_out)
            err = weft_err_set(why, WEFT_E_INVAL, "%s is not JSON: %s at line %d", shown,
                               where.text, where.line);
    }
    const json_t *cases = json_object_get(*root_out, "cases");
    if (!err && !json_is_array(cases))
        err = weft_err_set(why, WEFT_E_INVAL, "%s has no list \"cases\"", shown);
    for (size_t i = 0; i < json_array_size(cases) && !err; i++)
        err = check_case(json_array_get(cases, i), i, shown, why);
    weft_buf_fini(&text);
    return err;
}

static weft_err read_tools(const json_t *root, weft_msg_tools **tools_out,
                           struct weft_errmsg *why) {
    const json_t *list = json_object_get(root, "tools");
    if (!list || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0))
        return WEFT_OK;
    return weft_msg_tools_new(list, tools_out, why);
}

/* ------------------------------------------------------------------------------------ cases --- */

struct message {
    struct weft_buf content, thoughts, calls; /* calls: JSON, without the brackets around them */
    bool is_in_call;
};

static void hear(void *context, const struct weft_msg_event *event) {
    struct message *message = context;
    switch (event->kind) {
    case WEFT_MSG_THOUGHT:
        weft_buf_add(&message->thoughts, event->text.data, event->text.len);
        break;
    case WEFT_MSG_CONTENT:
        weft_buf_add(&message->content, event->text.data, event->text.len);
        break;
    case WEFT_MSG_CALL:
        weft_buf_add_str(&message->calls, message->is_in_call ? "}, {\"name\": " : "{\"name\": ");
        weft_json_str(&message->calls, event->text.data, event->text.len);
        if (event->id.len > 0) {
            weft_buf_add_str(&message->calls, ", \"id\": ");
            weft_json_str(&message->calls, event->id.data, event->id.len);
        }
        weft_buf_add_str(&message->calls, ", \"arguments\": ");
        message->is_in_call = true;
        break;
    case WEFT_MSG_ARGUMENTS:
        weft_buf_add(&message->calls, event->text.data, event->text.len);
        break;
    }
}

static struct weft_str text_of(const json_t *string) {
    return (struct weft_str){json_is_string(string) ? json_string_value(string) : "",
                             json_string_length(string)};
}

static weft_err read_output(const struct weft_msg_setup *setup, struct weft_str output,
                            size_t chunk, struct message *message) {
    weft_msg_parser *parser;
    weft_err err = weft_msg_parser_new(setup, &parser);
    if (err) return err;
    if (chunk == 0) chunk = output.len + 1;
    for (size_t at = 0; at < output.len && !err; at += chunk) {
        size_t left = output.len - at;
        struct weft_str piece = {output.data + at, left < chunk ? left : chunk};
        err = weft_msg_push(parser, piece, hear, message);
    }
    if (!err) err = weft_msg_finish(parser, hear, message);
    weft_msg_parser_free(parser);
    if (message->is_in_call) weft_buf_add_char(&message->calls, '}');
    bool has_failed = message->calls.failed || message->content.failed || message->thoughts.failed;
    return !err && has_failed ? WEFT_E_NOMEM : err;
}

static void add_member(struct weft_buf *out, const char *key, const struct weft_buf *text) {
    weft_buf_printf(out, "\"%s\": ", key);
    if (text->len > 0)
        weft_json_str(out, text->data, text->len);
    else
        weft_buf_add_str(out, "null");
}

static void add_json(struct weft_buf *out, struct weft_str name, struct message *message) {
    weft_json_str(out, name.data, name.len);
    weft_buf_add_str(out, ": {");
    add_member(out, "content", &message->content);
    weft_buf_add_str(out, ", ");
    add_member(out, "reasoning_content", &message->thoughts);
    weft_buf_add_str(out, ", \"tool_calls\": [");
    weft_buf_add(out, message->calls.data, message->calls.len);
    weft_buf_add_str(out, "]}");
}

static void add_part(struct weft_buf *out, struct weft_str name, const char *kind,
                     const struct weft_buf *text) {
    if (text->len == 0) return;
    weft_buf_printf(out, "--- %.*s: %s\n", (int)name.len, name.data, kind);
    weft_buf_add(out, text->data, text->len);
    weft_buf_add_char(out, '\n');
}

static weft_err parse_case(const struct weft_config *config, struct weft_msg_setup setup,
                           const json_t *test, struct weft_buf *out) {
    struct message message = {.is_in_call = false};
    struct weft_str name = text_of(json_object_get(test, "name"));
    if (WEFT_STR_IS(text_of(json_object_get(test, "tool_choice")), "none")) setup.tools = NULL;
    setup.prompt_end = text_of(json_object_get(test, "prompt_tail"));
    weft_buf_init(&message.content, MESSAGE_BYTES_MAX);
    weft_buf_init(&message.thoughts, MESSAGE_BYTES_MAX);
    weft_buf_init(&message.calls, MESSAGE_BYTES_MAX);
    weft_err err =
        read_output(&setup, text_of(json_object_get(test, "output")), config->chunk, &message);
    if (!err && config->json) {
        add_json(out, name, &message);
    } else if (!err) {
        add_part(out, name, "thoughts", &message.thoughts);
        add_part(out, name, "content", &message.content);
        add_part(out, name, "calls", &message.calls);
    }
    weft_buf_fini(&message.content);
    weft_buf_fini(&message.thoughts);
    weft_buf_fini(&message.calls);
    return !err && out->failed ? WEFT_E_NOMEM : err;
}

/* Each case is printed as soon as it is read. */
static weft_err parse_cases(const struct weft_config *config, const struct weft_msg_setup *setup,
                            const json_t *cases) {
    weft_err err = WEFT_OK;
    size_t n = json_array_size(cases);
    for (size_t i = 0; i < n && !err; i++) {
        struct weft_buf out;
        weft_buf_init(&out, 2 * MESSAGE_BYTES_MAX);
        if (config->json) weft_buf_add_str(&out, i ? ",\n " : "{\n ");
        err = parse_case(config, *setup, json_array_get(cases, i), &out);
        if (!err && out.len > 0) (void)fwrite(out.data, 1, out.len, stdout);
        weft_buf_fini(&out);
    }
    if (config->json && !err) (void)fputs(n ? "\n}\n" : "{}\n", stdout);
    return err;
}

int weft_cmd_parse_output(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    struct weft_msg_setup setup = {.format = NULL};
    weft_msg_tools *tools = NULL;
    json_t *root = NULL;
    weft_err err = find_format(config->message_format, &setup.format, &why);
    if (!err) err = read_cases(config->cases, &root, &why);
    if (!err) err = read_tools(root, &tools, &why);
    setup.tools = tools;
    if (!err) err = parse_cases(config, &setup, json_object_get(root, "cases"));
    weft_msg_tools_free(tools);
    json_decref(root);
    return err ? weft_cmd_fail(err, &why) : 0;
}
