#include "reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void weft_traffic_reply_init(struct weft_traffic_reply *reply, bool is_chat,
                             enum weft_traffic_keep keep, void (*on_token)(void *context),
                             void *context) {
    *reply = (struct weft_traffic_reply){
        .is_chat = is_chat, .keep = keep, .on_token = on_token, .context = context};
    weft_buf_init(&reply->line, WEFT_TRAFFIC_LINE_BYTES_MAX);
    weft_buf_init(&reply->answer, WEFT_TRAFFIC_ANSWER_BYTES_MAX);
}

void weft_traffic_reply_fini(struct weft_traffic_reply *reply) {
    weft_buf_fini(&reply->line);
    weft_buf_fini(&reply->answer);
}

void weft_traffic_reply_clear(struct weft_traffic_reply *reply) {
    weft_buf_clear(&reply->line);
    weft_buf_clear(&reply->answer);
    reply->n_completion = reply->n_prompt = reply->n_cached = 0;
    reply->has_cached = reply->is_done = reply->is_faulty = false;
    reply->fault[0] = '\0';
}

static void set_fault(struct weft_traffic_reply *reply, const char *what, const char *detail,
                      size_t len) {
    if (reply->is_faulty) return; /* the first explains the rest */
    reply->is_faulty = true;
    (void)snprintf(reply->fault, sizeof reply->fault, "%s%s%.*s", what, len ? ": " : "",
                   (int)(len < 200 ? len : 200), detail);
}

/* Where the value of a key begins in an event; NULL: nowhere. `key` comes with quotes and colon. */
static const char *value_of(const char *key, const char *text, const char *end) {
    const char *at = memmem(text, (size_t)(end - text), key, strlen(key));
    if (!at) return NULL;
    for (at += strlen(key); at < end && *at == ' ';)
        at++;
    return at < end ? at : NULL;
}

/* Moves *at over the digits there. */
static uint64_t take_number(const char **at, const char *end) {
    uint64_t n = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        n = n < UINT32_MAX ? n * 10 + (uint64_t)(**at - '0') : n;
    return n;
}

/* False: there is none, or it is no number. */
static bool number_of(const char *key, const char *text, const char *end, uint64_t *out) {
    const char *at = value_of(key, text, end);
    if (!at || *at < '0' || *at > '9') return false;
    *out = take_number(&at, end);
    return true;
}

/* ----------------------------------------------------------------------- what is kept --- */

static void add_id(struct weft_traffic_reply *reply, const char **at, const char *end) {
    if (*at < end && **at >= '0' && **at <= '9')
        weft_buf_printf(&reply->answer, ",%llu", (unsigned long long)take_number(at, end));
}

/* [46, 12]: what vLLM calls token_ids. */
static void keep_list(struct weft_traffic_reply *reply, const char *at, const char *end) {
    while (at < end && *at != ']') {
        add_id(reply, &at, end);
        if (at < end && *at != ']') at++;
    }
}

/* ["token_id:46", "token_id:12"]: log-probabilities whose tokens are named so. */
static void keep_names(struct weft_traffic_reply *reply, const char *at, const char *end) {
    static const char name[] = "token_id:";
    const char *stop = memchr(at, ']', (size_t)(end - at));
    end = stop ? stop : end;
    for (const char *found; (found = memmem(at, (size_t)(end - at), name, sizeof name - 1));) {
        at = found + sizeof name - 1;
        add_id(reply, &at, end);
    }
}

/* {"content": [{"id": 46, ...}]}: llama-server's log-probabilities, of one token an event. */
static void keep_content(struct weft_traffic_reply *reply, const char *at, const char *end) {
    const char *id = value_of("\"id\":", at, end);
    if (id) add_id(reply, &id, end);
}

static void keep_ids(struct weft_traffic_reply *reply, const char *at, const char *end) {
    const char *value = value_of("\"token_ids\":", at, end);
    if (value && *value == '[') {
        keep_list(reply, value, end);
        return;
    }
    const char *logprobs = value_of("\"logprobs\":", at, end);
    if (!logprobs || *logprobs != '{') return;
    if ((value = value_of("\"tokens\":", logprobs, end)) && *value == '[')
        keep_names(reply, value, end);
    else if ((value = value_of("\"content\":", logprobs, end)) && *value == '[')
        keep_content(reply, value, end);
}

/* `text` is behind the opening quote. A text without an end is not kept. */
static void keep_text(struct weft_traffic_reply *reply, const char *text, const char *end) {
    const char *at = text;
    while (at < end && *at != '"')
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    if (at < end) weft_buf_add(&reply->answer, text, (size_t)(at - text));
}

/* ------------------------------------------------------------------------------- lines --- */

static void take_event(struct weft_traffic_reply *reply, const char *at, const char *end) {
    const char *text = value_of(reply->is_chat ? "\"content\":" : "\"text\":", at, end);
    bool has_text = text && end - text >= 2 && text[0] == '"' && text[1] != '"';
    if (has_text) reply->on_token(reply->context);
    if (reply->keep == WEFT_TRAFFIC_KEEP_IDS) keep_ids(reply, at, end);
    if (reply->keep == WEFT_TRAFFIC_KEEP_TEXT && has_text) keep_text(reply, text + 1, end);
    if (reply->answer.failed) set_fault(reply, "the answer is too long", "", 0);
    if (has_text) return;
    uint64_t n;
    if (number_of("\"completion_tokens\":", at, end, &n)) reply->n_completion = n;
    if (number_of("\"prompt_tokens\":", at, end, &n)) reply->n_prompt = n;
    if (number_of("\"cached_tokens\":", at, end, &n)) {
        reply->n_cached = n;
        reply->has_cached = true;
    }
    if (!text && value_of("\"error\":", at, end))
        set_fault(reply, "the stream broke off", at, (size_t)(end - at));
}

/* One line, without its end. Lines without "data:" are comments or blank. */
static void take_line(struct weft_traffic_reply *reply, const char *line, size_t len) {
    static const char field[] = "data:";
    if (len < sizeof field - 1 || memcmp(line, field, sizeof field - 1) != 0) return;
    const char *end = line + len, *at = line + sizeof field - 1;
    while (at < end && *at == ' ')
        at++;
    if (end - at >= 6 && !memcmp(at, "[DONE]", 6))
        reply->is_done = true;
    else
        take_event(reply, at, end);
}

void weft_traffic_reply_feed(struct weft_traffic_reply *reply, const char *bytes, size_t n) {
    while (!reply->is_faulty && n > 0) {
        const char *stop = memchr(bytes, '\n', n);
        size_t len = stop ? (size_t)(stop - bytes) : n;
        if (stop && reply->line.len == 0) {
            take_line(reply, bytes, len);
        } else { /* it began in an earlier piece, or ends in a later one */
            weft_buf_add(&reply->line, bytes, len);
            if (reply->line.failed) set_fault(reply, "an event of the stream is too long", "", 0);
            if (stop && !reply->line.failed) take_line(reply, reply->line.data, reply->line.len);
            if (stop) weft_buf_clear(&reply->line);
        }
        len += stop ? 1 : 0;
        WEFT_ASSERT(len > 0 && len <= n);
        bytes += len;
        n -= len;
    }
}
