/* What the readers of calls hand over: told at once where the output is constrained, else when a call is complete. */
#include <jansson.h>

#include "base/check.h"
#include "read/parser.h"

/* ------------------------------------------------------------------------------------ bytes --- */

enum wefti_msg_match wefti_msg_look(const weft_msg_parser *p, const char *mark) {
    size_t len = strlen(mark), has = p->held.len - p->at;
    if (has > 0 && memcmp(p->held.data + p->at, mark, has < len ? has : len) != 0)
        return WEFTI_MSG_MISS;
    return has < len ? WEFTI_MSG_PART : WEFTI_MSG_HIT;
}

enum wefti_msg_match wefti_msg_take(weft_msg_parser *p, const char *mark) {
    if (!mark) return WEFTI_MSG_MISS;
    enum wefti_msg_match match = wefti_msg_look(p, mark);
    if (match == WEFTI_MSG_HIT) p->at += strlen(mark);
    return match == WEFTI_MSG_PART && p->is_end ? WEFTI_MSG_MISS : match;
}

/* A constrained output has nothing else there, and so may end within it. */
static bool is_cut_close(const weft_msg_parser *p) {
    const char *close = p->format->close;
    return p->is_constrained && p->is_end && close && p->at < p->held.len &&
           wefti_msg_look(p, close) == WEFTI_MSG_PART;
}

enum wefti_msg_match wefti_msg_take_close(weft_msg_parser *p) {
    if (is_cut_close(p)) {
        p->at = p->held.len;
        return WEFTI_MSG_HIT;
    }
    enum wefti_msg_match close = wefti_msg_take(p, p->format->close);
    if (close == WEFTI_MSG_HIT) return close;
    enum wefti_msg_match too = wefti_msg_take(p, p->format->close_too);
    return too == WEFTI_MSG_MISS ? close : too;
}

void wefti_msg_skip_blanks(weft_msg_parser *p) {
    while (p->at < p->held.len && wefti_msg_is_blank(p->held.data[p->at]))
        p->at++;
}

enum wefti_msg_match wefti_msg_scan(weft_msg_parser *p, const char *const *marks, size_t n,
                                    size_t *which_out) {
    for (; p->at < p->held.len; p->at++) {
        char c = p->held.data[p->at];
        if (wefti_msg_is_blank(c)) {
            if (p->at - p->blank >= WEFTI_MSG_BLANKS_MAX) p->blank = p->at + 1;
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            if (marks[i][0] != c) continue;
            enum wefti_msg_match match = wefti_msg_look(p, marks[i]);
            *which_out = i;
            if (match == WEFTI_MSG_HIT || (match == WEFTI_MSG_PART && !p->is_end)) return match;
        }
        p->blank = p->at + 1;
    }
    return WEFTI_MSG_MISS;
}

struct weft_str wefti_msg_trimmed(const weft_msg_parser *p, size_t from, size_t to) {
    WEFT_ASSERT(from <= to && to <= p->held.len);
    while (from < to && wefti_msg_is_blank(p->held.data[from]))
        from++;
    while (to > from && wefti_msg_is_blank(p->held.data[to - 1]))
        to--;
    return (struct weft_str){p->held.data + from, to - from};
}

void wefti_msg_tell(weft_msg_parser *p, enum weft_msg_kind kind, size_t end) {
    WEFT_ASSERT(p->told <= end && end <= p->held.len);
    if (end == p->told || p->err) return;
    struct weft_msg_event event = {kind, 0, {p->held.data + p->told, end - p->told}, {"", 0}};
    p->sink(p->context, &event);
    p->told = end;
}

/* ------------------------------------------------------------------------------------ calls --- */

bool wefti_msg_has_failed(weft_msg_parser *p) {
    if (p->name.failed || p->id.failed || p->args.failed || p->key.failed || p->queue.failed)
        p->err = WEFT_E_NOMEM;
    return p->err != WEFT_OK;
}

void wefti_msg_begin_call(weft_msg_parser *p) {
    if (wefti_msg_has_failed(p)) return;
    weft_buf_clear(&p->name);
    weft_buf_clear(&p->id);
    weft_buf_clear(&p->args);
    p->is_named = p->has_args = false;
    p->shape = WEFTI_MSG_ARGS_NONE;
    p->tool = NULL;
}

static void tell_call(weft_msg_parser *p, struct weft_str name, struct weft_str id) {
    struct weft_msg_event event = {WEFT_MSG_CALL, p->calls++, name, id};
    p->sink(p->context, &event);
}

static void tell_args(weft_msg_parser *p, struct weft_str args) {
    WEFT_ASSERT(p->calls > 0);
    struct weft_msg_event event = {WEFT_MSG_ARGUMENTS, p->calls - 1, args, {"", 0}};
    if (args.len > 0 && !p->err) p->sink(p->context, &event);
}

static struct weft_str text_of(const struct weft_buf *buf) {
    return (struct weft_str){buf->len > 0 ? buf->data : "", buf->len};
}

bool wefti_msg_name(weft_msg_parser *p, struct weft_str name, struct weft_str id) {
    if (name.len == 0 || name.len > WEFT_MSG_NAME_BYTES_MAX || p->is_named) return false;
    for (size_t i = 0; i < name.len; i++) {
        if ((unsigned char)name.data[i] < ' ') return false;
    }
    p->tool = wefti_msg_tool_named(p->tools, name);
    if (p->is_bare && !p->tool) return false;
    p->is_named = true;
    weft_buf_add(&p->name, name.data, name.len);
    weft_buf_add(&p->id, id.data, id.len);
    if (wefti_msg_has_failed(p) || !p->is_constrained) return true;
    tell_call(p, text_of(&p->name), text_of(&p->id));
    tell_args(p, text_of(&p->args));
    weft_buf_clear(&p->args);
    return true;
}

void wefti_msg_args(weft_msg_parser *p, const char *bytes, size_t len) {
    if (p->is_constrained && p->is_named)
        tell_args(p, (struct weft_str){bytes, len});
    else
        weft_buf_add(&p->args, bytes, len);
}

/* A record: the lengths of the name, the id and the arguments, then these. */
static void queue_call(weft_msg_parser *p) {
    size_t lens[3] = {p->name.len, p->id.len, p->args.len};
    weft_buf_add(&p->queue, lens, sizeof lens);
    weft_buf_add(&p->queue, p->name.data, lens[0]);
    weft_buf_add(&p->queue, p->id.data, lens[1]);
    weft_buf_add(&p->queue, p->args.data, lens[2]);
}

static void count_call(weft_msg_parser *p) {
    p->n_complete++;
    p->is_over = p->calls_max > 0 && p->n_complete >= p->calls_max;
    p->has_call = true;
    p->told = p->at;
}

void wefti_msg_tell_queue(weft_msg_parser *p) {
    size_t lens[3];
    for (size_t at = 0; at < p->queue.len && !p->is_over && !wefti_msg_has_failed(p);) {
        memcpy(lens, p->queue.data + at, sizeof lens);
        const char *text = p->queue.data + at + sizeof lens;
        tell_call(p, (struct weft_str){text, lens[0]}, (struct weft_str){text + lens[0], lens[1]});
        tell_args(p, (struct weft_str){text + lens[0] + lens[1], lens[2]});
        count_call(p);
        at += sizeof lens + lens[0] + lens[1] + lens[2];
    }
    weft_buf_clear(&p->queue);
}

enum wefti_msg_verdict wefti_msg_end_call(weft_msg_parser *p) {
    if (!p->is_named || wefti_msg_is_long(p)) return WEFTI_MSG_BROKEN;
    if (!p->has_args) wefti_msg_args(p, "{}", 2);
    if (wefti_msg_has_failed(p)) return WEFTI_MSG_WAIT;
    if (p->is_queued) {
        queue_call(p);
    } else {
        if (!p->is_constrained) {
            tell_call(p, text_of(&p->name), text_of(&p->id));
            tell_args(p, text_of(&p->args));
        }
        count_call(p);
    }
    wefti_msg_begin_call(p);
    return WEFTI_MSG_GO;
}

/* -------------------------------------------------------------------------- JSON arguments --- */

/* The scan took it, so there is nothing that jansson could mind but memory. */
bool wefti_msg_decode(weft_msg_parser *p, struct weft_str quoted, struct weft_buf *out) {
    json_t *text = json_loadb(quoted.data, quoted.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (text) weft_buf_add(out, json_string_value(text), json_string_length(text));
    if (!text || out->failed) p->err = WEFT_E_NOMEM;
    json_decref(text);
    return !p->err;
}

bool wefti_msg_args_begin(weft_msg_parser *p) {
    char c = p->held.data[p->from];
    p->shape = c == '{'   ? WEFTI_MSG_ARGS_OBJECT
               : c == '"' ? WEFTI_MSG_ARGS_TEXT
               : c == 'n' ? WEFTI_MSG_ARGS_NULL
                          : WEFTI_MSG_ARGS_NONE;
    return p->shape != WEFTI_MSG_ARGS_NONE && !p->has_args;
}

/* An object goes on as it comes. */
static void pass_args(weft_msg_parser *p, size_t end) {
    if (p->shape != WEFTI_MSG_ARGS_OBJECT || end <= p->from) return;
    wefti_msg_args(p, p->held.data + p->from, end - p->from);
    p->from = end;
    if (p->is_constrained && p->is_named) p->told = end;
}

void wefti_msg_args_more(weft_msg_parser *p) {
    if (p->is_constrained && !p->has_args) pass_args(p, p->at); /* else they come twice */
}

static bool is_object(struct weft_str text) {
    struct wefti_msg_json json = {0};
    for (size_t i = 0; i < text.len; i++) {
        if (json.is_over || wefti_msg_json_feed(&json, text.data[i]) == WEFTI_MSG_BAD) return false;
    }
    return json.is_over && text.data[0] == '{';
}

static struct weft_str trim(const struct weft_buf *buf) {
    struct weft_str text = {buf->data, buf->len};
    for (; text.len > 0 && wefti_msg_is_blank(text.data[0]); text.len--)
        text.data++;
    while (text.len > 0 && wefti_msg_is_blank(text.data[text.len - 1]))
        text.len--;
    return text;
}

/* A text that is an object's. */
static bool unwrap_args(weft_msg_parser *p, size_t end) {
    struct weft_buf text;
    weft_buf_init(&text, 2 * WEFT_MSG_CALL_BYTES_MAX);
    struct weft_str quoted = {p->held.data + p->from, end - p->from};
    bool is_good = wefti_msg_decode(p, quoted, &text);
    struct weft_str object = trim(&text);
    if (is_good && object.len == 0)
        wefti_msg_args(p, "{}", 2);
    else if (is_good && is_object(object))
        wefti_msg_args(p, object.data, object.len);
    else
        is_good = false;
    weft_buf_fini(&text);
    return is_good;
}

bool wefti_msg_args_end(weft_msg_parser *p, size_t end) {
    p->has_args = true;
    switch (p->shape) {
    case WEFTI_MSG_ARGS_OBJECT:
        pass_args(p, end);
        return true;
    case WEFTI_MSG_ARGS_TEXT:
        return unwrap_args(p, end);
    case WEFTI_MSG_ARGS_NULL:
        wefti_msg_args(p, "{}", 2);
        return true;
    case WEFTI_MSG_ARGS_NONE:
        break;
    }
    return false;
}
