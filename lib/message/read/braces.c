/* Calls as Gemma 4 writes them: call:NAME{KEY:VALUE,...} between marks. */
#include "read/braces.h"

#include <string.h>

#include "codec/json_out.h"
#include "read/parser.h"

/* ------------------------------------------------------------------------------------ values --- */

static const char mark[] = "<|\"|>";

enum state {
    OBJECT,      /* zero: the outermost one begins */
    FIRST_VALUE, /* in a container, or its end */
    LATER_VALUE, /* after a comma, or the end */
    VALUE,       /* of a member */
    KEY,         /* without quotes */
    COLON,
    NEXT,
    BEGIN_MARK,
    TEXT,
    QUOTED, /* as JSON has it */
    WORD,
    NUMBER,
};

static bool is_word_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static enum wefti_msg_braces_verdict end_value(struct wefti_msg_braces *b) {
    b->state = b->is_key ? COLON : NEXT;
    return WEFTI_MSG_BRACES_MORE;
}

static enum wefti_msg_braces_verdict open_container(struct wefti_msg_braces *b, char c,
                                                    struct weft_buf *out) {
    if (b->depth == WEFTI_MSG_DEPTH_MAX) return WEFTI_MSG_BRACES_BAD;
    b->kinds[++b->depth] = c;
    b->state = FIRST_VALUE;
    weft_buf_add_char(out, c);
    return WEFTI_MSG_BRACES_MORE;
}

static enum wefti_msg_braces_verdict close_container(struct wefti_msg_braces *b, char c,
                                                     struct weft_buf *out) {
    if (b->kinds[b->depth] != (c == ']' ? '[' : '{')) return WEFTI_MSG_BRACES_BAD;
    weft_buf_add_char(out, c);
    b->is_key = false;
    if (--b->depth == 0) return WEFTI_MSG_BRACES_END;
    return end_value(b);
}

static enum wefti_msg_braces_verdict begin_json(struct wefti_msg_braces *b, char c,
                                                struct weft_buf *out) {
    b->json = (struct wefti_msg_json){0};
    b->state = c == '"' ? QUOTED : NUMBER;
    weft_buf_add_char(out, c);
    return wefti_msg_json_feed(&b->json, c) == WEFTI_MSG_BAD ? WEFTI_MSG_BRACES_BAD
                                                             : WEFTI_MSG_BRACES_MORE;
}

/* Commas are written before values: there may be one after the last. */
static enum wefti_msg_braces_verdict begin_value(struct wefti_msg_braces *b, char c,
                                                 struct weft_buf *out) {
    if (b->state != VALUE && (c == ']' || c == '}')) return close_container(b, c, out);
    if (b->state == LATER_VALUE) weft_buf_add_str(out, ", ");
    b->is_key = b->state != VALUE && b->kinds[b->depth] == '{';
    b->n_mark = 1;
    if (c == mark[0]) {
        b->state = BEGIN_MARK;
        return WEFTI_MSG_BRACES_MORE;
    }
    if (c == '"') return begin_json(b, c, out);
    if (b->is_key) {
        if (c == ':' || c == ',' || c == '{' || c == '[') return WEFTI_MSG_BRACES_BAD;
        b->state = KEY;
        b->utf8 = (struct wefti_msg_utf8){0};
        weft_buf_add_char(out, '"');
        return wefti_msg_braces_feed(b, c, out);
    }
    if (c == '[' || c == '{') return open_container(b, c, out);
    if (!is_word_byte(c))
        return c == '-' || (c >= '0' && c <= '9') ? begin_json(b, c, out) : WEFTI_MSG_BRACES_BAD;
    b->state = WORD;
    b->n_word = 1;
    b->word[0] = c;
    return WEFTI_MSG_BRACES_MORE;
}

static void add_byte(struct weft_buf *out, char c) {
    if ((uint8_t)c >= 0x80)
        weft_buf_add_char(out, c);
    else
        weft_json_text(out, &c, 1);
}

/* Up to the colon. */
static enum wefti_msg_braces_verdict feed_key(struct wefti_msg_braces *b, char c,
                                              struct weft_buf *out) {
    if (!wefti_msg_utf8_feed(&b->utf8, c)) return WEFTI_MSG_BRACES_BAD;
    if (c == '\n' || c == '<' || c == '{' || c == '}' || c == ',') return WEFTI_MSG_BRACES_BAD;
    if (c != ':') {
        add_byte(out, c);
        return WEFTI_MSG_BRACES_MORE;
    }
    weft_buf_add_str(out, "\": ");
    b->state = VALUE;
    return WEFTI_MSG_BRACES_MORE;
}

static enum wefti_msg_braces_verdict feed_begin_mark(struct wefti_msg_braces *b, char c,
                                                     struct weft_buf *out) {
    if (c != mark[b->n_mark]) return WEFTI_MSG_BRACES_BAD;
    if (++b->n_mark < sizeof mark - 1) return WEFTI_MSG_BRACES_MORE;
    b->n_mark = 0;
    b->state = TEXT;
    b->utf8 = (struct wefti_msg_utf8){0};
    weft_buf_add_char(out, '"');
    return WEFTI_MSG_BRACES_MORE;
}

/* What began like the mark and was none is text. */
static enum wefti_msg_braces_verdict feed_text(struct wefti_msg_braces *b, char c,
                                               struct weft_buf *out) {
    if (!wefti_msg_utf8_feed(&b->utf8, c)) return WEFTI_MSG_BRACES_BAD;
    if (c == mark[b->n_mark]) {
        if (++b->n_mark < sizeof mark - 1) return WEFTI_MSG_BRACES_MORE;
        weft_buf_add_char(out, '"');
        return end_value(b);
    }
    weft_json_text(out, mark, b->n_mark);
    b->n_mark = c == mark[0];
    if (b->n_mark == 0) add_byte(out, c);
    return WEFTI_MSG_BRACES_MORE;
}

static enum wefti_msg_braces_verdict feed_quoted(struct wefti_msg_braces *b, char c,
                                                 struct weft_buf *out) {
    unsigned marks = wefti_msg_json_feed(&b->json, c);
    if (marks == WEFTI_MSG_BAD) return WEFTI_MSG_BRACES_BAD;
    weft_buf_add_char(out, c);
    return marks & WEFTI_MSG_END ? end_value(b) : WEFTI_MSG_BRACES_MORE;
}

static enum wefti_msg_braces_verdict feed_word(struct wefti_msg_braces *b, char c,
                                               struct weft_buf *out) {
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    if (is_word_byte(c)) {
        if (b->n_word == sizeof b->word) return WEFTI_MSG_BRACES_BAD;
        b->word[b->n_word++] = c;
        return WEFTI_MSG_BRACES_MORE;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *word = words[i][0];
        if (strlen(word) != b->n_word || memcmp(word, b->word, b->n_word) != 0) continue;
        weft_buf_add_str(out, words[i][1]);
        b->state = NEXT;
        return wefti_msg_braces_feed(b, c, out);
    }
    return WEFTI_MSG_BRACES_BAD;
}

static enum wefti_msg_braces_verdict feed_number(struct wefti_msg_braces *b, char c,
                                                 struct weft_buf *out) {
    unsigned marks = wefti_msg_json_feed(&b->json, c);
    if (marks == WEFTI_MSG_BAD) return WEFTI_MSG_BRACES_BAD;
    if (!(marks & WEFTI_MSG_BEFORE)) {
        weft_buf_add_char(out, c);
        return WEFTI_MSG_BRACES_MORE;
    }
    b->state = NEXT;
    return wefti_msg_braces_feed(b, c, out);
}

enum wefti_msg_braces_verdict wefti_msg_braces_feed(struct wefti_msg_braces *b, char c,
                                                    struct weft_buf *out) {
    const bool is_between = b->state <= NEXT && b->state != KEY;
    if (is_between && wefti_msg_is_blank(c)) return WEFTI_MSG_BRACES_MORE;
    switch ((enum state)b->state) {
    case OBJECT:
        return c == '{' ? open_container(b, c, out) : WEFTI_MSG_BRACES_BAD;
    case FIRST_VALUE:
    case LATER_VALUE:
    case VALUE:
        return begin_value(b, c, out);
    case KEY:
        return feed_key(b, c, out);
    case COLON:
        b->state = VALUE;
        weft_buf_add_str(out, ": ");
        return c == ':' ? WEFTI_MSG_BRACES_MORE : WEFTI_MSG_BRACES_BAD;
    case NEXT:
        if (c == ']' || c == '}') return close_container(b, c, out);
        b->state = LATER_VALUE;
        return c == ',' ? WEFTI_MSG_BRACES_MORE : WEFTI_MSG_BRACES_BAD;
    case BEGIN_MARK:
        return feed_begin_mark(b, c, out);
    case TEXT:
        return feed_text(b, c, out);
    case QUOTED:
        return feed_quoted(b, c, out);
    case WORD:
        return feed_word(b, c, out);
    case NUMBER:
        return feed_number(b, c, out);
    }
    return WEFTI_MSG_BRACES_BAD;
}

/* ------------------------------------------------------------------------------------- calls --- */

enum call_state {
    OPENED, /* zero */
    NAME,
    ARGUMENTS,
    AFTER_CALL,
};

static enum wefti_msg_verdict go(weft_msg_parser *p, enum call_state state) {
    p->state = (int)state;
    p->from = p->at;
    return WEFTI_MSG_GO;
}

static enum wefti_msg_verdict opened(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    enum wefti_msg_match match = wefti_msg_take(p, "call:");
    if (match == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    if (match == WEFTI_MSG_MISS) return WEFTI_MSG_BROKEN;
    wefti_msg_begin_call(p);
    return go(p, NAME);
}

static enum wefti_msg_verdict read_name(weft_msg_parser *p) {
    while (p->at < p->held.len && p->held.data[p->at] != '{') {
        if (p->at - p->from > WEFTI_MSG_HEAD_BYTES_MAX) return WEFTI_MSG_BROKEN;
        p->at++;
    }
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    if (!wefti_msg_name(p, wefti_msg_trimmed(p, p->from, p->at), (struct weft_str){"", 0}))
        return WEFTI_MSG_BROKEN;
    p->braces = (struct wefti_msg_braces){0};
    return go(p, ARGUMENTS);
}

static enum wefti_msg_verdict read_arguments(weft_msg_parser *p) {
    enum wefti_msg_braces_verdict verdict = WEFTI_MSG_BRACES_MORE;
    while (p->at < p->held.len && verdict == WEFTI_MSG_BRACES_MORE) {
        verdict = wefti_msg_braces_feed(&p->braces, p->held.data[p->at], &p->key);
        if (verdict != WEFTI_MSG_BRACES_BAD) p->at++;
    }
    if (p->key.failed) p->err = WEFT_E_NOMEM;
    wefti_msg_args(p, p->key.data, p->key.len);
    weft_buf_clear(&p->key);
    if (p->is_constrained) p->told = p->at;
    if (verdict == WEFTI_MSG_BRACES_BAD) return WEFTI_MSG_BROKEN;
    if (verdict == WEFTI_MSG_BRACES_MORE) return WEFTI_MSG_WAIT;
    p->has_args = true;
    (void)go(p, AFTER_CALL);
    return wefti_msg_end_call(p);
}

static enum wefti_msg_verdict after_call(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    enum wefti_msg_match match = wefti_msg_take_close(p);
    p->told = p->at;
    return match == WEFTI_MSG_PART ? WEFTI_MSG_WAIT : WEFTI_MSG_DONE;
}

enum wefti_msg_verdict wefti_msg_read_braces(weft_msg_parser *p) {
    switch ((enum call_state)p->state) {
    case OPENED:
        return opened(p);
    case NAME:
        return read_name(p);
    case ARGUMENTS:
        return read_arguments(p);
    case AFTER_CALL:
        return after_call(p);
    }
    return WEFTI_MSG_BROKEN;
}
