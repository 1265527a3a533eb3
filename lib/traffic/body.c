#include "body.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"

/* Whoever changes these would be answered in a way that cannot be measured. */
static const char *const own_fields[] = {"prompt", "messages", "stream", "n"};

static weft_err merge(json_t *fields, const char *extra, struct weft_errmsg *why) {
    json_error_t where;
    json_t *more = json_loads(extra, JSON_REJECT_DUPLICATES, &where);
    weft_err err = WEFT_OK;
    if (!json_is_object(more))
        err = weft_err_set(why, WEFT_E_INVAL,
                           "--extra is a JSON object such as {\"priority\": 1}, not %s", extra);
    for (size_t i = 0; !err && i < sizeof own_fields / sizeof own_fields[0]; i++) {
        if (json_object_get(more, own_fields[i]))
            err = weft_err_set(why, WEFT_E_INVAL, "--extra cannot set \"%s\"", own_fields[i]);
    }
    if (!err && json_object_update(fields, more) < 0)
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for --extra");
    json_decref(more);
    return err;
}

weft_err weft_traffic_body_init(struct weft_traffic_body *body, bool is_chat, bool wants_ids,
                                const char *extra, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    char *text = NULL;
    *body = (struct weft_traffic_body){.is_chat = is_chat};
    weft_buf_init(&body->fixed, WEFT_BODY_BYTES_MAX);
    /* One log-probability, since llama-server names no tokens for none. */
    json_t *fields =
        wants_ids ? json_pack("{s:i,s:b,s:b,s:{s:b},s:i,s:b}", "temperature", 0, "ignore_eos", 1,
                              "stream", 1, "stream_options", "include_usage", 1, "logprobs", 1,
                              "return_tokens_as_token_ids", 1)
                  : json_pack("{s:i,s:b,s:b,s:{s:b}}", "temperature", 0, "ignore_eos", 1, "stream",
                              1, "stream_options", "include_usage", 1);
    if (fields && extra) err = merge(fields, extra, why);
    if (!err) text = json_dumps(fields, JSON_COMPACT);
    if (!err && !text) err = weft_err_set(why, WEFT_E_NOMEM, "no memory for a request");
    if (!err && text) {
        size_t len = strlen(text);
        WEFT_ASSERT(len > 2 && text[0] == '{' && text[len - 1] == '}');
        body->has_max_tokens = json_object_get(fields, "max_tokens") != NULL;
        weft_buf_add_char(&body->fixed, ',');
        weft_buf_add(&body->fixed, text + 1, len - 2);
        if (body->fixed.failed) err = weft_err_set(why, WEFT_E_NOMEM, "--extra is too long");
    }
    free(text);
    json_decref(fields);
    return err;
}

void weft_traffic_body_fini(struct weft_traffic_body *body) {
    weft_buf_fini(&body->fixed);
}

void weft_traffic_add_body(const struct weft_traffic_body *body, const struct weft_buf *history,
                           uint32_t max_tokens, struct weft_buf *out) {
    weft_buf_add_str(out, body->is_chat ? "{\"messages\":[" : "{\"prompt\":[");
    weft_buf_add(out, history->data, history->len);
    weft_buf_add_char(out, ']');
    if (!body->has_max_tokens) weft_buf_printf(out, ",\"max_tokens\":%u", max_tokens);
    weft_buf_add(out, body->fixed.data, body->fixed.len);
    weft_buf_add_char(out, '}');
}

void weft_traffic_add_answer(const struct weft_traffic_body *body, const struct weft_buf *answer,
                             struct weft_buf *history) {
    if (body->is_chat) weft_buf_add_str(history, ",{\"role\":\"assistant\",\"content\":\"");
    weft_buf_add(history, answer->data, answer->len);
    if (body->is_chat) weft_buf_add_str(history, "\"}");
}
