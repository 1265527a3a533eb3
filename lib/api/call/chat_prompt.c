/* From a conversation to the ids of a prompt: what the template wants of it, what it makes of it, and how the answer
 * goes on from there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/prepare.h"
#include "codec/digest.h"
#include "kinds/kind.h"

#define CHAT_BYTES_MAX (64u << 20)
#define ID_LETTERS 9 /* of Mistral's templates, which refuse any other id */
/* Behind the last message's content, when the answer is to go on with it: the prompt ends there. */
#define CUT_HERE                                                                                   \
    "\x1e"                                                                                         \
    "continued-here"                                                                               \
    "\x1e"

/* --------------------------------------------------------------------- as the template wants it --- */

/* Whatever a client's id is, the same nine letters and digits come of it. */
static json_t *nine_of(const json_t *id) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const char *text = json_string_value(id);
    size_t len = json_string_length(id);
    bool is_fit = len == ID_LETTERS;
    for (size_t i = 0; i < len && is_fit; i++) {
        char low = (char)(text[i] | 0x20);
        is_fit = (text[i] >= '0' && text[i] <= '9') || (low >= 'a' && low <= 'z');
    }
    if (is_fit) return json_incref((json_t *)id);
    uint64_t hash = weft_digest_u64("tool call id", text, len);
    char nine[ID_LETTERS + 1] = "";
    for (size_t i = 0; i < ID_LETTERS; i++, hash /= 36)
        nine[i] = letters[hash % 36];
    return json_string(nine);
}

static void shorten_id(json_t *object, const char *key) {
    json_t *id = json_object_get(object, key);
    if (json_is_string(id)) (void)json_object_set_new(object, key, nine_of(id));
}

static void write_arguments(json_t *function) {
    json_t *arguments = json_object_get(function, "arguments");
    if (!json_is_object(arguments)) return;
    char *text = json_dumps(arguments, 0);
    if (text) (void)json_object_set_new(function, "arguments", json_string(text));
    free(text);
}

static void adapt_message(const struct weft_api_dialect *dialect, json_t *message) {
    bool is_nine = weft_msg_format_ids(dialect->format) == WEFT_MSG_IDS_NINE;
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *call;
    size_t i;
    if (role && strcmp(role, "developer") == 0 && !dialect->knows_developer)
        (void)json_object_set_new(message, "role", json_string("system"));
    if (is_nine) shorten_id(message, "tool_call_id");
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        if (is_nine) shorten_id(call, "id");
        if (dialect->wants_text) write_arguments(json_object_get(call, "function"));
    }
}

static void adapt(const struct weft_api_dialect *dialect, const json_t *messages) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        adapt_message(dialect, message);
    }
}

/* ---------------------------------------------------------------------------------- the prompt --- */

/* NULL: no memory. */
static json_t *mark_last(const json_t *messages) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    json_t *content = json_object_get(last, "content"), *marked = NULL;
    struct weft_buf text;
    weft_buf_init(&text, CHAT_BYTES_MAX);
    weft_buf_add(&text, json_string_value(content), json_string_length(content));
    weft_buf_add_str(&text, CUT_HERE);
    if (!text.failed) marked = json_stringn(text.data, text.len);
    weft_buf_fini(&text);
    return marked && json_object_set_new(last, "content", marked) == 0 ? last : NULL;
}

static void cut_after_last(weft_api_call *call, struct weft_buf *text) {
    static const char cut[] = CUT_HERE;
    size_t n = sizeof cut - 1;
    for (size_t at = text->len + 1; at-- > n;) {
        if (memcmp(text->data + at - n, cut, n) != 0) continue;
        text->len = at - n;
        return;
    }
    weft_api_error_set(
        &call->error, 400, "continue_final_message", NULL,
        "the chat template doesn't write the last message as it is, so that it can't be "
        "continued");
}

static void fail(weft_api_call *call, weft_err err, uint32_t line, const struct weft_errmsg *why) {
    const char *text = why->text[0] ? why->text : weft_err_text(err);
    char place[48] = "";
    if (line && !strstr(text, "line "))
        (void)snprintf(place, sizeof place, " (chat template, line %" PRIu32 ")", line);
    weft_api_error_set(&call->error, err == WEFT_E_NOMEM ? 500 : 400, call->kind->prompt_field,
                       NULL, "%s%s", text, place);
}

static void render(weft_api_call *call, struct weft_buf *text) {
    struct params *p = &call->params;
    const json_t *messages = json_object_get(p->chat.vars, "messages");
    struct weft_errmsg why = {""};
    uint32_t line = 0;
    adapt(&call->api->dialect, messages);
    json_t *adds = json_boolean(p->add_generation_prompt);
    if (json_object_set_new(p->chat.vars, "add_generation_prompt", adds) ||
        (p->chat.continues && !mark_last(messages))) {
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
        return;
    }
    weft_err err = weft_tmpl_render_json(call->api->chat, p->chat.vars, NULL, text, &line, &why);
    if (err) fail(call, err, line, &why);
    if (!err && p->chat.continues) cut_after_last(call, text);
}

static void note_end(struct chat *chat, const struct weft_buf *text) {
    size_t n = text->len < PROMPT_END_BYTES ? text->len : PROMPT_END_BYTES;
    if (!text->data) return;
    memcpy(chat->prompt_end, text->data + text->len - n, n);
    chat->n_prompt_end = (uint32_t)n;
}

/* Whether the answer has thoughts before it: they are opened at the very end of the prompt, or closed there, or left to
 * a model whose template knows of them. What messages say does not count. */
static void note_thinking(weft_api_call *call) {
    static const enum weft_grammar_thinking of[] = {
        [WEFT_MSG_THINKS_NOT] = WEFT_THINKING_NONE,
        [WEFT_MSG_THINKS_OPEN] = WEFT_THINKING_OPEN,
        [WEFT_MSG_THINKS_MAYBE] = WEFT_THINKING_MAYBE,
    };
    const struct weft_api_dialect *dialect = &call->api->dialect;
    struct chat *chat = &call->params.chat;
    struct weft_str end = {chat->prompt_end, chat->n_prompt_end};
    enum weft_msg_thinking thinking = weft_msg_thinking_after(dialect->format, end);
    struct weft_grammar *grammar = &call->params.sampling.grammar;
    struct weft_msg_marks marks = weft_msg_thought_marks(dialect->format);
    bool is_known = weft_grammar_find_marks(marks.begin, marks.end, &grammar->marks);
    bool thinks = is_known && (dialect->thinks || thinking == WEFT_MSG_THINKS_OPEN);
    grammar->thinking = thinks ? of[thinking] : WEFT_THINKING_NONE;
}

/* Without a template a single message is the prompt itself, where the kind allows that. */
static bool encode_plain(weft_api_call *call) {
    struct params *p = &call->params;
    const json_t *messages = json_object_get(p->chat.vars, "messages");
    if (call->api->chat) return false;
    if (!p->template_is_optional || json_array_size(messages) != 1) {
        weft_api_error_set(&call->error, 400, "messages", "no_chat_template",
                           "the model has no chat template; start the server with --chat-template "
                           "FILE, or use /v1/completions");
        return true;
    }
    const json_t *content = json_object_get(json_array_get(messages, 0), "content");
    struct weft_str text = {json_string_value(content), json_string_length(content)};
    wefti_api_encode(call, &p->prompts[0], text, WEFT_TOK_PARSE_SPECIAL | WEFT_TOK_ADD_SPECIAL);
    return true;
}

void wefti_api_encode_chat(weft_api_call *call) {
    struct params *p = &call->params;
    struct weft_buf text;
    if (encode_plain(call)) return;
    weft_buf_init(&text, CHAT_BYTES_MAX);
    render(call, &text);
    struct weft_str prompt = {text.data ? (const char *)text.data : "", text.len};
    if (!call->error.status)
        wefti_api_encode(call, &p->prompts[0], prompt,
                         WEFT_TOK_PARSE_SPECIAL | (p->add_special ? WEFT_TOK_ADD_SPECIAL : 0));
    if (call->kind->tells_messages) p->chat.format = call->api->dialect.format;
    if (call->api->dialect.takes_one_call) p->chat.is_single = true;
    note_end(&p->chat, &text);
    if (!call->error.status) note_thinking(call);
    weft_buf_fini(&text);
}
