/* What a model may write so that the calls of tools in it are right: a grammar of the tools, in the model's own
 * format, beside that which the answer itself is to fit. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/honoured.h"
#include "call/prepare.h"
#include "grammar/grammar.h"

bool wefti_api_wants_calls_constrained(const weft_api_call *call) {
    const struct chat *chat = &call->params.chat;
    return chat->format && chat->tools && chat->choice != TOOLS_NONE;
}

/* For all that is tried of a request's schemas: what is left of them is loosened unseen. */
#define TRIES_WORK_MAX (3 * (uint64_t)WEFT_GRAM_COMPILE_WORK_MAX)

/* ------------------------------------------------------------------------- asked by the maker --- */

struct asked {
    const weft_api_call *call;
    uint64_t work_left;
};

static bool has_special(void *context, struct weft_str text) {
    const struct asked *asked = context;
    return weft_api_has_mark(&asked->call->api->dialect, text);
}

static bool can_honour(void *context, struct weft_str schema) {
    struct asked *asked = context;
    struct weft_grammar grammar = asked->call->params.sampling.grammar;
    grammar.kind = WEFT_GRAMMAR_SCHEMA;
    grammar.thinking = WEFT_THINKING_NONE;
    grammar.text = schema.data;
    grammar.n_bytes = (uint32_t)schema.len;
    if (schema.len > WEFT_GRAMMAR_BYTES_MAX) return false;
    if (wefti_api_is_honoured(&grammar)) return true;
    bool can = weft_gram_can_compile(&grammar, &asked->work_left);
    if (can) wefti_api_note_honoured(&grammar);
    return can;
}

/* ------------------------------------------------------------------------- beside the answer's --- */

static json_t *format_of_choice(const struct weft_grammar *answer) {
    json_t *texts = json_loadb(answer->text, answer->n_bytes, JSON_ALLOW_NUL, NULL), *text;
    json_t *elements = json_array();
    size_t i;
    json_array_foreach(texts, i, text) {
        (void)json_array_append_new(elements,
                                    json_pack("{s:s,s:O}", "type", "const_string", "value", text));
    }
    json_decref(texts);
    return json_pack("{s:s,s:o}", "type", "or", "elements", elements);
}

/* A grammar as a format of structural tags; NULL: it is not to be had as one. */
static json_t *format_of(const struct weft_grammar *answer) {
    const int len = (int)answer->n_bytes;
    json_t *json, *format;
    switch (answer->kind) {
    case WEFT_GRAMMAR_SCHEMA:
        json = json_loadb(answer->text, answer->n_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        return json_pack("{s:s,s:o}", "type", "json_schema", "json_schema", json);
    case WEFT_GRAMMAR_JSON_OBJECT:
        return json_pack("{s:s,s:{s:s}}", "type", "json_schema", "json_schema", "type", "object");
    case WEFT_GRAMMAR_REGEX:
        return json_pack("{s:s,s:s#}", "type", "regex", "pattern", answer->text, len);
    case WEFT_GRAMMAR_RULES:
        return json_pack("{s:s,s:s#}", "type", "grammar", "grammar", answer->text, len);
    case WEFT_GRAMMAR_CHOICE:
        return format_of_choice(answer);
    case WEFT_GRAMMAR_TAGS:
        json = json_loadb(answer->text, answer->n_bytes, JSON_ALLOW_NUL, NULL);
        format = json_incref(json_object_get(json, "format"));
        json_decref(json);
        return format;
    default:
        return NULL;
    }
}

/* Either calls or the answer. False: the two can't be had together. */
static bool join(const struct weft_grammar *answer, struct weft_buf *tags) {
    json_t *calls = json_loadb(tags->data, tags->len, JSON_ALLOW_NUL, NULL);
    json_t *both = json_pack("{s:s,s:{s:s,s:[O?,o?]}}", "type", "structural_tag", "format", "type",
                             "or", "elements", json_object_get(calls, "format"), format_of(answer));
    char *text = both ? json_dumps(both, JSON_COMPACT) : NULL;
    weft_buf_clear(tags);
    if (text) weft_buf_add_str(tags, text);
    free(text);
    json_decref(both);
    json_decref(calls);
    return text != NULL;
}

/* -------------------------------------------------------------------------------- the grammar --- */

static void take_tags(weft_api_call *call, const struct weft_buf *tags) {
    struct params *p = &call->params;
    struct weft_grammar *grammar = &p->sampling.grammar;
    char *text = tags->failed ? NULL : malloc(tags->len);
    if (!text) {
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
        return;
    }
    memcpy(text, tags->data, tags->len);
    free(p->grammar_text);
    p->grammar_text = text;
    if (grammar->kind == WEFT_GRAMMAR_NONE) {
        grammar->json_blanks = call->limits.json_blanks;
        grammar->json_digits = call->limits.json_digits;
    }
    grammar->kind = WEFT_GRAMMAR_TAGS;
    grammar->text = text;
    grammar->n_bytes = (uint32_t)tags->len;
}

static void take_calls(weft_api_call *call, const struct weft_buf *tags, bool thinks) {
    struct params *p = &call->params;
    take_tags(call, tags);
    p->grammar_field = p->grammar_param = "tools";
    p->chat.is_constrained = true;
    if (thinks) p->sampling.grammar.thinking = WEFT_THINKING_NONE; /* they are in the tags */
}

static struct weft_msg_wish wish_of(struct asked *asked) {
    const struct chat *chat = &asked->call->params.chat;
    return (struct weft_msg_wish){
        .format = chat->format,
        .tools = chat->callable_tools ? chat->callable_tools : chat->tools,
        .is_single = chat->is_single,
        .prompt_end = {chat->prompt_end, chat->n_prompt_end},
        .has_special = has_special,
        .can_honour = can_honour,
        .context = asked,
    };
}

static void fail(weft_api_call *call, weft_err err, const char *field,
                 const struct weft_errmsg *why) {
    weft_api_error_set(&call->error, err == WEFT_E_NOMEM ? 500 : 400, field, NULL, "%s",
                       why->text[0] ? why->text : weft_err_text(err));
}

static bool has_answer(const weft_api_call *call) {
    enum weft_grammar_kind kind = call->params.sampling.grammar.kind;
    return kind != WEFT_GRAMMAR_NONE && kind != WEFT_GRAMMAR_TEXT;
}

bool wefti_api_wants_answer_placed(const weft_api_call *call) {
    const weft_msg_format *format = call->params.chat.format;
    return format && weft_msg_has_channels(format) && has_answer(call);
}

void wefti_api_place_answer(weft_api_call *call) {
    struct asked asked = {call, TRIES_WORK_MAX};
    struct weft_msg_wish wish = wish_of(&asked);
    struct weft_errmsg why = {""};
    struct weft_buf tags;
    json_t *format = format_of(&call->params.sampling.grammar);
    char *text = format ? json_dumps(format, JSON_COMPACT) : NULL;
    weft_err err = WEFT_E_INVAL;
    weft_buf_init(&tags, 2 * (size_t)WEFT_GRAMMAR_BYTES_MAX);
    if (text)
        err = weft_msg_constrain_answer(&wish, (struct weft_str){text, strlen(text)}, &tags, &why);
    if (err)
        fail(call, err, call->params.grammar_param, &why);
    else
        take_tags(call, &tags);
    weft_buf_fini(&tags);
    free(text);
    json_decref(format);
}

void wefti_api_constrain_calls(weft_api_call *call) {
    struct params *p = &call->params;
    struct chat *chat = &p->chat;
    bool is_required = chat->choice == TOOLS_REQUIRED, is_either = has_answer(call) && !is_required;
    bool thinks = false;
    struct asked asked = {call, TRIES_WORK_MAX};
    struct weft_msg_wish wish = wish_of(&asked);
    wish.choice = is_required || is_either ? WEFT_MSG_REQUIRED : WEFT_MSG_AUTO;
    struct weft_errmsg why = {""};
    struct weft_buf tags;
    WEFT_ASSERT(wefti_api_wants_calls_constrained(call));
    weft_buf_init(&tags, 2 * (size_t)WEFT_GRAMMAR_BYTES_MAX);
    weft_err err = weft_msg_constrain(&wish, &tags, &thinks, &why);
    if (err)
        fail(call, err, "tools", &why);
    else if (tags.len > 0 && is_either && !join(&p->sampling.grammar, &tags))
        weft_api_error_set(&call->error, 400, p->grammar_param, NULL,
                           "'%s' cannot be honoured beside 'tools'", p->grammar_field);
    else if (tags.len > WEFT_GRAMMAR_BYTES_MAX)
        weft_api_error_set(&call->error, 400, "tools", "grammar_too_large",
                           "the 'tools' make a grammar of %zu bytes, at most %u are allowed",
                           tags.len, WEFT_GRAMMAR_BYTES_MAX);
    else if (tags.len > 0)
        take_calls(call, &tags, thinks);
    weft_buf_fini(&tags);
}
