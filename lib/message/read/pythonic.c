/* Calls as Python writes them: [NAME(KEY=LITERAL, ...), ...]; after Llama 3's tag NAME.call(KEY=LITERAL, ...) alone. */
#include "read/parser.h"

enum python_state {
    OPENED, /* zero */
    CALL,   /* in the list: a name, or the list's end */
    NAME,
    MEMBER, /* a key, or the call's end */
    KEY,
    VALUE,
    AFTER_VALUE,
    AFTER_CALL,
    AFTER_LIST,
};

static enum wefti_msg_verdict go(weft_msg_parser *p, enum python_state state) {
    p->state = (int)state;
    p->from = p->at;
    return WEFTI_MSG_GO;
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

static enum wefti_msg_verdict opened(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    wefti_msg_begin_call(p);
    p->is_list = p->held.data[p->at] == '[';
    if (!p->is_list) return go(p, NAME);
    p->is_queued = p->is_bare && !p->is_constrained;
    p->at++;
    return go(p, CALL);
}

static enum wefti_msg_verdict end_list(weft_msg_parser *p) {
    p->at++;
    if (wefti_msg_is_long(p)) return WEFTI_MSG_BROKEN;
    if (p->is_queued) wefti_msg_tell_queue(p);
    p->told = p->at;
    return go(p, AFTER_LIST);
}

/* A list of objects is JSON's after all. */
static enum wefti_msg_verdict read_call(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    char c = p->held.data[p->at];
    if (c == '{' && !p->is_bare && !p->has_call) {
        p->read = wefti_msg_read_json;
        p->state = WEFTI_MSG_JSON_ITEM;
        return WEFTI_MSG_GO;
    }
    if (c == ']' && !p->is_bare) return end_list(p);
    if (!is_name_byte(c)) return WEFTI_MSG_BROKEN;
    wefti_msg_begin_call(p);
    p->has_member = false;
    return go(p, NAME);
}

static enum wefti_msg_verdict read_identifier(weft_msg_parser *p) {
    while (p->at < p->held.len && is_name_byte(p->held.data[p->at])) {
        if (p->at - p->from > WEFTI_MSG_HEAD_BYTES_MAX) return WEFTI_MSG_BROKEN;
        p->at++;
    }
    return p->at < p->held.len ? WEFTI_MSG_GO : WEFTI_MSG_WAIT;
}

static enum wefti_msg_verdict read_name(weft_msg_parser *p) {
    static const char suffix[] = ".call";
    enum wefti_msg_verdict verdict = read_identifier(p);
    if (verdict != WEFTI_MSG_GO) return verdict;
    struct weft_str name = {p->held.data + p->from, p->at - p->from};
    if (p->held.data[p->at] != '(') return WEFTI_MSG_BROKEN;
    if (!p->is_list) {
        size_t len = sizeof suffix - 1;
        if (name.len < len || memcmp(name.data + name.len - len, suffix, len) != 0)
            return WEFTI_MSG_BROKEN;
        name.len -= len;
    }
    if (!wefti_msg_name(p, name, (struct weft_str){"", 0})) return WEFTI_MSG_BROKEN;
    p->at++;
    p->has_member = false;
    return go(p, MEMBER);
}

static enum wefti_msg_verdict end_call(weft_msg_parser *p) {
    p->at++;
    if (p->has_member) wefti_msg_args(p, "}", 1);
    p->has_args = p->has_member;
    (void)go(p, p->is_list ? AFTER_CALL : AFTER_LIST);
    return wefti_msg_end_call(p);
}

static enum wefti_msg_verdict read_member(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    if (p->held.data[p->at] == ')') return end_call(p);
    return go(p, KEY);
}

static enum wefti_msg_verdict read_key(weft_msg_parser *p) {
    enum wefti_msg_verdict verdict = read_identifier(p);
    if (verdict != WEFTI_MSG_GO) return verdict;
    size_t end = p->at;
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) {
        p->at = end;
        return WEFTI_MSG_WAIT;
    }
    if (end == p->from || p->held.data[p->at] != '=') return WEFTI_MSG_BROKEN;
    wefti_msg_args(p, p->has_member ? ", \"" : "{\"", p->has_member ? 3 : 2);
    wefti_msg_args(p, p->held.data + p->from, end - p->from);
    wefti_msg_args(p, "\": ", 3);
    p->has_member = true;
    p->at++;
    p->python = (struct wefti_msg_python){0};
    return go(p, VALUE);
}

/* JSON of the bytes at hand goes on together. */
static void pass_value(weft_msg_parser *p, struct weft_buf *json) {
    if (json->failed) p->err = WEFT_E_NOMEM;
    wefti_msg_args(p, json->data, json->len);
    weft_buf_clear(json);
    if (p->is_constrained) p->told = p->at;
}

static enum wefti_msg_verdict read_value(weft_msg_parser *p) {
    enum wefti_msg_python_verdict verdict = WEFTI_MSG_PY_MORE;
    while (p->at < p->held.len && verdict == WEFTI_MSG_PY_MORE) {
        verdict = wefti_msg_python_feed(&p->python, p->held.data[p->at], &p->key);
        if (verdict == WEFTI_MSG_PY_MORE || verdict == WEFTI_MSG_PY_END) p->at++;
    }
    pass_value(p, &p->key);
    if (verdict == WEFTI_MSG_PY_BAD) return WEFTI_MSG_BROKEN;
    return verdict == WEFTI_MSG_PY_MORE ? WEFTI_MSG_WAIT : go(p, AFTER_VALUE);
}

static enum wefti_msg_verdict after_value(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    if (p->held.data[p->at] == ')') return end_call(p);
    if (p->held.data[p->at] != ',') return WEFTI_MSG_BROKEN;
    p->at++;
    return go(p, MEMBER);
}

static enum wefti_msg_verdict after_call(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (!p->is_queued) p->told = p->at;
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    char c = p->held.data[p->at];
    if (c == ']') return end_list(p);
    if (c != ',') return p->is_queued ? WEFTI_MSG_BROKEN : WEFTI_MSG_DONE;
    p->at++;
    if (!p->is_queued) p->told = p->at;
    return go(p, CALL);
}

static enum wefti_msg_verdict after_list(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    enum wefti_msg_match match = wefti_msg_take_close(p);
    p->told = p->at;
    return match == WEFTI_MSG_PART ? WEFTI_MSG_WAIT : WEFTI_MSG_DONE;
}

enum wefti_msg_verdict wefti_msg_read_python(weft_msg_parser *p) {
    switch ((enum python_state)p->state) {
    case OPENED:
        return opened(p);
    case CALL:
        return read_call(p);
    case NAME:
        return read_name(p);
    case MEMBER:
        return read_member(p);
    case KEY:
        return read_key(p);
    case VALUE:
        return read_value(p);
    case AFTER_VALUE:
        return after_value(p);
    case AFTER_CALL:
        return after_call(p);
    case AFTER_LIST:
        return after_list(p);
    }
    return WEFTI_MSG_BROKEN;
}
