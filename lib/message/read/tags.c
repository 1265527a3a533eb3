/* Calls in tags, a tag for each argument: Qwen3-Coder, Seed-OSS, MiniMax M2, DeepSeek V3.2, GLM.
 *
 * What a value means stands in typed.c. Text is passed on as it comes, but for what may be the newline before the tag
 * that ends it, or a part of that tag. */
#include "codec/json_out.h"
#include "read/parser.h"

enum tags_state {
    OPENED, /* zero */
    NAME,
    MEMBER, /* an argument, or the call's end */
    KEY,
    KEY_END, /* GLM's: before the value's own tag */
    VALUE_BEGIN,
    VALUE_JSON, /* what may be JSON, with the end's tag in its strings */
    VALUE,
    AFTER_CALL,
};

struct way {
    const char *call, *key, *key_end, *value, *value_end, *call_end;
    bool is_padded; /* one newline on either side of a value isn't part of it */
};

static const struct way function_way = {"<function=",   "<parameter=", ">", NULL,
                                        "</parameter>", "</function>", true};
static const struct way invoke_way = {"<invoke name=", "<parameter name=", ">",  NULL,
                                      "</parameter>",  "</invoke>",        false};
static const struct way marked_way = {
    "<｜DSML｜invoke name=", "<｜DSML｜parameter name=", ">",  NULL,
    "</｜DSML｜parameter>",  "</｜DSML｜invoke>",        false};
static const struct way pairs_way = {NULL,           "<arg_key>",    "</arg_key>", "<arg_value>",
                                     "</arg_value>", "</tool_call>", false};

static const struct way *way_of(const weft_msg_parser *p) {
    if (p->format->syntax == WEFTI_MSG_PAIRS) return &pairs_way;
    if (p->format->syntax == WEFTI_MSG_FUNCTION) return &function_way;
    return strstr(p->format->open, "DSML") ? &marked_way : &invoke_way;
}

static enum wefti_msg_verdict go(weft_msg_parser *p, enum tags_state state) {
    p->state = (int)state;
    p->from = p->at;
    return WEFTI_MSG_GO;
}

static enum wefti_msg_verdict begin(weft_msg_parser *p) {
    wefti_msg_begin_call(p);
    p->has_member = false;
    return go(p, NAME);
}

/* A call, or the end of all. */
static enum wefti_msg_verdict between(weft_msg_parser *p, const struct way *way) {
    wefti_msg_skip_blanks(p);
    if (p->has_call) p->told = p->at;
    if (p->at == p->held.len && !p->is_end) return WEFTI_MSG_WAIT;
    enum wefti_msg_match call = WEFTI_MSG_MISS;
    if (way->call)
        call = wefti_msg_take(p, way->call);
    else if (!p->has_call && p->at < p->held.len)
        call = WEFTI_MSG_HIT;
    if (call == WEFTI_MSG_HIT) return begin(p);
    enum wefti_msg_match close = p->has_call ? wefti_msg_take_close(p) : WEFTI_MSG_MISS;
    if (close == WEFTI_MSG_PART || call == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    if (close == WEFTI_MSG_HIT) p->told = p->at;
    return p->has_call ? WEFTI_MSG_DONE : WEFTI_MSG_BROKEN;
}

/* Reads up to one of these bytes. */
static enum wefti_msg_verdict read_to(weft_msg_parser *p, const char *stops) {
    while (p->at < p->held.len) {
        char c = p->held.data[p->at];
        if (c != '\0' && strchr(stops, c)) return WEFTI_MSG_GO;
        if (p->at - p->from > WEFTI_MSG_HEAD_BYTES_MAX) return WEFTI_MSG_BROKEN;
        p->at++;
    }
    return WEFTI_MSG_WAIT;
}

static struct weft_str unquoted(struct weft_str text) {
    char quote = text.len >= 2 ? text.data[0] : '\0';
    if ((quote != '"' && quote != '\'') || text.data[text.len - 1] != quote) return text;
    return (struct weft_str){text.data + 1, text.len - 2};
}

static bool has_blank(struct weft_str text) {
    for (size_t i = 0; i < text.len; i++) {
        if (wefti_msg_is_blank(text.data[i])) return true;
    }
    return false;
}

static enum wefti_msg_verdict read_name(weft_msg_parser *p, const struct way *way) {
    enum wefti_msg_verdict verdict = read_to(p, way->call ? ">\n<" : "\n<");
    if (verdict != WEFTI_MSG_GO) return verdict;
    if (way->call && p->held.data[p->at] != '>') return WEFTI_MSG_BROKEN;
    struct weft_str name = unquoted(wefti_msg_trimmed(p, p->from, p->at));
    if (has_blank(name) || !wefti_msg_name(p, name, (struct weft_str){"", 0}))
        return WEFTI_MSG_BROKEN;
    if (way->call) p->at++;
    return go(p, MEMBER);
}

static enum wefti_msg_verdict end_call(weft_msg_parser *p, const struct way *way) {
    if (p->has_member) wefti_msg_args(p, "}", 1);
    p->has_args = p->has_member;
    (void)go(p, AFTER_CALL);
    enum wefti_msg_verdict verdict = wefti_msg_end_call(p);
    return way->call ? verdict : WEFTI_MSG_DONE;
}

static enum wefti_msg_verdict read_member(weft_msg_parser *p, const struct way *way) {
    wefti_msg_skip_blanks(p);
    enum wefti_msg_match key = wefti_msg_take(p, way->key);
    if (key == WEFTI_MSG_HIT) return go(p, KEY);
    enum wefti_msg_match end = wefti_msg_take(p, way->call_end);
    if (end == WEFTI_MSG_HIT) return end_call(p, way);
    return key == WEFTI_MSG_PART || end == WEFTI_MSG_PART ? WEFTI_MSG_WAIT : WEFTI_MSG_BROKEN;
}

/* string="true" after the key's name. */
static void read_attributes(weft_msg_parser *p, struct weft_str *key) {
    static const char mark[] = "string=";
    p->string = -1;
    const char *at = memmem(key->data, key->len, mark, sizeof mark - 1);
    if (!at || at == key->data || !wefti_msg_is_blank(at[-1])) return;
    const char *value = at + sizeof mark - 1;
    size_t len = key->len - (size_t)(value - key->data);
    struct weft_str says = unquoted((struct weft_str){value, len});
    p->string = WEFT_STR_IS(says, "true") ? 1 : WEFT_STR_IS(says, "false") ? 0 : -1;
    key->len = (size_t)(at - key->data);
    while (key->len > 0 && wefti_msg_is_blank(key->data[key->len - 1]))
        key->len--;
}

static enum wefti_msg_verdict read_key(weft_msg_parser *p, const struct way *way) {
    enum wefti_msg_verdict verdict = read_to(p, way->value ? "<" : ">");
    if (verdict != WEFTI_MSG_GO) return verdict;
    struct weft_str key = wefti_msg_trimmed(p, p->from, p->at);
    enum wefti_msg_match end = wefti_msg_take(p, way->key_end);
    if (end != WEFTI_MSG_HIT) return end == WEFTI_MSG_PART ? WEFTI_MSG_WAIT : WEFTI_MSG_BROKEN;
    if (p->format->syntax == WEFTI_MSG_INVOKE)
        read_attributes(p, &key);
    else
        p->string = -1;
    key = unquoted(key);
    if (key.len == 0) return WEFTI_MSG_BROKEN;
    weft_buf_clear(&p->key);
    weft_buf_add(&p->key, key.data, key.len);
    return go(p, way->value ? KEY_END : VALUE_BEGIN);
}

static enum wefti_msg_verdict read_key_end(weft_msg_parser *p, const struct way *way) {
    wefti_msg_skip_blanks(p);
    enum wefti_msg_match value = wefti_msg_take(p, way->value);
    if (value == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    return value == WEFTI_MSG_HIT ? go(p, VALUE_BEGIN) : WEFTI_MSG_BROKEN;
}

static void write_key(weft_msg_parser *p) {
    struct weft_buf text;
    weft_buf_init(&text, 8 * WEFTI_MSG_HEAD_BYTES_MAX);
    weft_buf_add_str(&text, p->has_member ? ", " : "{");
    weft_json_str(&text, p->key.data, p->key.len);
    weft_buf_add_str(&text, p->is_text ? ": \"" : ": ");
    if (text.failed) p->err = WEFT_E_NOMEM;
    wefti_msg_args(p, text.data, text.len);
    weft_buf_fini(&text);
    p->has_member = true;
}

static enum wefti_msg_verdict begin_value(weft_msg_parser *p, const struct way *way) {
    if (p->at == p->held.len && !p->is_end) return WEFTI_MSG_WAIT;
    if (way->is_padded && p->at < p->held.len && p->held.data[p->at] == '\n') p->at++;
    p->is_text = wefti_msg_is_text(p, (struct weft_str){p->key.data, p->key.len});
    write_key(p);
    p->json = (struct wefti_msg_json){0};
    return go(p, p->is_text ? VALUE : VALUE_JSON);
}

/* Up to the end of a container, or back to its beginning where it is none. */
static enum wefti_msg_verdict read_json(weft_msg_parser *p) {
    bool is_bad = false;
    while (p->at < p->held.len && !is_bad && !p->json.is_over) {
        unsigned marks = wefti_msg_json_feed(&p->json, p->held.data[p->at]);
        bool is_past = p->json.is_over && !(marks & WEFTI_MSG_END); /* a number's end */
        is_bad = marks & WEFTI_MSG_BAD || is_past;
        if (!is_bad) p->at++;
    }
    if (!is_bad && !p->json.is_over && !p->is_end) return WEFTI_MSG_WAIT;
    if (is_bad || !p->json.is_over) p->at = p->from;
    p->state = (int)VALUE;
    return WEFTI_MSG_GO;
}

/* Text that is certain goes on. */
static void pass_text(weft_msg_parser *p, size_t end, bool is_last) {
    if (end <= p->from && !is_last) return;
    p->from += wefti_msg_write_text(p, p->held.data + p->from, end - p->from, is_last);
    if (p->is_constrained) p->told = p->from;
}

static enum wefti_msg_verdict end_value(weft_msg_parser *p, size_t end) {
    if (p->is_text) {
        pass_text(p, end, true);
        wefti_msg_args(p, "\"", 1);
    } else {
        wefti_msg_value(p, (struct weft_str){p->key.data, p->key.len},
                        (struct weft_str){p->held.data + p->from, end - p->from});
    }
    return go(p, MEMBER);
}

static enum wefti_msg_verdict read_value(weft_msg_parser *p, const struct way *way) {
    while (p->at < p->held.len) {
        const char *begin = p->held.data + p->at;
        const char *at = memchr(begin, '<', p->held.len - p->at);
        p->at = at ? p->at + (size_t)(at - begin) : p->held.len;
        if (!at) break;
        size_t end = p->at;
        enum wefti_msg_match match = wefti_msg_take(p, way->value_end);
        if (match == WEFTI_MSG_PART) break;
        if (match == WEFTI_MSG_HIT) {
            if (way->is_padded && end > p->from && p->held.data[end - 1] == '\n') end--;
            return end_value(p, end);
        }
        p->at++;
    }
    size_t certain = p->at;
    if (way->is_padded && certain > p->from && p->held.data[certain - 1] == '\n') certain--;
    if (p->is_text && p->is_constrained) pass_text(p, certain, false);
    return WEFTI_MSG_WAIT;
}

enum wefti_msg_verdict wefti_msg_read_tags(weft_msg_parser *p) {
    const struct way *way = way_of(p);
    switch ((enum tags_state)p->state) {
    case OPENED:
    case AFTER_CALL:
        return between(p, way);
    case NAME:
        return read_name(p, way);
    case MEMBER:
        return read_member(p, way);
    case KEY:
        return read_key(p, way);
    case KEY_END:
        return read_key_end(p, way);
    case VALUE_BEGIN:
        return begin_value(p, way);
    case VALUE_JSON:
        return read_json(p);
    case VALUE:
        return read_value(p, way);
    }
    return WEFTI_MSG_BROKEN;
}
