/* Calls as JSON objects, one or several or a list of them, and arguments after a name. */
#include "read/parser.h"

enum json_state {
    OPENED,                     /* zero: after the mark, or at a bare call */
    ITEM = WEFTI_MSG_JSON_ITEM, /* in a list: a call, or the list's end */
    OBJECT,
    AFTER_OBJECT,
    SEPARATED, /* a comma or semicolon outside of a list */
    AFTER_LIST,
};

enum field { NO_FIELD, NAME, ARGUMENTS, ID, FUNCTION, OTHER };

static enum wefti_msg_verdict go(weft_msg_parser *p, enum json_state state) {
    p->state = (int)state;
    return WEFTI_MSG_GO;
}

/* ---------------------------------------------------------------------------------- one call --- */

static enum wefti_msg_verdict begin_object(weft_msg_parser *p) {
    wefti_msg_begin_call(p);
    p->json = (struct wefti_msg_json){0};
    p->level = 1;
    p->field = NO_FIELD;
    return go(p, OBJECT);
}

static enum field field_of(struct weft_str key) {
    static const struct {
        const char *key;
        enum field field;
    } fields[] = {
        {"\"name\"", NAME},
        {"\"tool_name\"", NAME},
        {"\"arguments\"", ARGUMENTS},
        {"\"parameters\"", ARGUMENTS},
        {"\"id\"", ID},
        {"\"tool_call_id\"", ID},
        {"\"call_id\"", ID},
        {"\"function\"", FUNCTION},
        {"\"type\"", NO_FIELD},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (weft_str_is(key, fields[i].key, strlen(fields[i].key))) return fields[i].field;
    }
    return OTHER;
}

static bool begin_member_value(weft_msg_parser *p) {
    char c = p->held.data[p->from];
    if (p->field == ARGUMENTS && p->has_args) p->field = NO_FIELD; /* the first counts */
    if (p->field == ARGUMENTS) return wefti_msg_args_begin(p);
    if (p->field == FUNCTION && c == '{' && p->level == 1) {
        p->level = 2; /* {"type": "function", "function": {"name": ...}} */
        p->field = NO_FIELD;
    } else if (p->field == FUNCTION) {
        p->field = c == '"' ? NAME : NO_FIELD;
    }
    if (p->field == NAME && p->is_named) p->field = NO_FIELD;
    return p->field != NAME || c == '"';
}

static bool end_member_value(weft_msg_parser *p, size_t end) {
    struct weft_str value = {p->held.data + p->from, end - p->from};
    struct weft_buf text;
    struct weft_str none = {"", 0}; /* an id before the name is in p->id already */
    bool is_good = true;
    switch ((enum field)p->field) {
    case ARGUMENTS:
        return wefti_msg_args_end(p, end);
    case NAME:
        weft_buf_init(&text, 2 * WEFT_MSG_CALL_BYTES_MAX);
        is_good = wefti_msg_decode(p, value, &text);
        if (is_good) is_good = wefti_msg_name(p, (struct weft_str){text.data, text.len}, none);
        weft_buf_fini(&text);
        return is_good;
    case ID:
        weft_buf_clear(&p->id);
        if (value.len > WEFT_MSG_NAME_BYTES_MAX) return true;
        if (value.data[0] != '"')
            return value.data[0] > '9' || (weft_buf_add(&p->id, value.data, value.len), true);
        return wefti_msg_decode(p, value, &p->id);
    default:
        return true;
    }
}

/* What a byte that the scan took means for the call. false: it is none. */
static bool note(weft_msg_parser *p, unsigned marks, uint32_t depth) {
    bool is_member = p->json.depth == p->level && !p->json.is_key;
    if ((marks & WEFTI_MSG_BEFORE) && depth == p->level && !end_member_value(p, p->at))
        return false;
    if ((marks & WEFTI_MSG_BEGIN) && depth == p->level) {
        p->from = p->at;
        if (!p->json.is_key && !begin_member_value(p)) return false;
    }
    if ((marks & WEFTI_MSG_END) && p->json.is_key && p->json.depth == p->level) {
        p->field = (int)field_of((struct weft_str){p->held.data + p->from, p->at + 1 - p->from});
        return !p->is_bare || p->field != OTHER;
    }
    if ((marks & WEFTI_MSG_END) && is_member) {
        bool is_good = end_member_value(p, p->at + 1);
        p->field = NO_FIELD;
        return is_good;
    }
    if ((marks & WEFTI_MSG_END) && p->level == 2 && p->json.depth == 1) p->level = 1;
    return true;
}

static enum wefti_msg_verdict read_object(weft_msg_parser *p) {
    while (p->at < p->held.len) {
        uint32_t depth = p->json.depth;
        unsigned marks = wefti_msg_json_feed(&p->json, p->held.data[p->at]);
        if (marks & WEFTI_MSG_BAD || !note(p, marks, depth)) {
            if (p->field == ARGUMENTS && depth >= p->level) wefti_msg_args_more(p);
            return WEFTI_MSG_BROKEN;
        }
        p->at++;
        if (!p->json.is_over) continue;
        if (p->is_bare && !p->has_args) return WEFTI_MSG_BROKEN;
        (void)go(p, AFTER_OBJECT);
        return wefti_msg_end_call(p);
    }
    if (p->field == ARGUMENTS && p->json.depth >= p->level) wefti_msg_args_more(p);
    return WEFTI_MSG_WAIT;
}

/* --------------------------------------------------------------------------------- many calls --- */

static enum wefti_msg_verdict opened(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    char c = p->held.data[p->at];
    if (c == '{') return begin_object(p);
    if (c != '[' || p->is_bare) return WEFTI_MSG_BROKEN;
    p->at++;
    p->is_list = true;
    return go(p, ITEM);
}

static enum wefti_msg_verdict read_item(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    char c = p->held.data[p->at];
    if (c == '{') return begin_object(p);
    if (c != ']') return WEFTI_MSG_BROKEN;
    p->at++;
    p->told = p->at;
    return go(p, AFTER_LIST);
}

static enum wefti_msg_verdict after_object(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    char c = p->held.data[p->at];
    if (p->is_list && (c == ',' || c == ']')) {
        p->told = ++p->at;
        return go(p, c == ',' ? ITEM : AFTER_LIST);
    }
    if (p->is_list) return WEFTI_MSG_DONE;
    if (c == '{') return begin_object(p);
    if (c != ',' && c != ';') return go(p, AFTER_LIST);
    p->at++;
    return go(p, SEPARATED);
}

static enum wefti_msg_verdict separated(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    bool is_call = p->at < p->held.len && p->held.data[p->at] == '{';
    if (is_call || p->is_end) p->told = p->at;
    if (is_call) return begin_object(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    p->at = p->told;
    return WEFTI_MSG_DONE;
}

static enum wefti_msg_verdict after_list(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    enum wefti_msg_match match = wefti_msg_take_close(p);
    p->told = p->at;
    return match == WEFTI_MSG_PART ? WEFTI_MSG_WAIT : WEFTI_MSG_DONE;
}

enum wefti_msg_verdict wefti_msg_read_json(weft_msg_parser *p) {
    switch ((enum json_state)p->state) {
    case OPENED:
        return opened(p);
    case ITEM:
        return read_item(p);
    case OBJECT:
        return read_object(p);
    case AFTER_OBJECT:
        return after_object(p);
    case SEPARATED:
        return separated(p);
    case AFTER_LIST:
        return after_list(p);
    }
    return WEFTI_MSG_BROKEN;
}
