#include "read/python.h"

#include <string.h>

#include "codec/json_out.h"

enum state {
    VALUE,       /* zero: where a literal begins */
    FIRST_VALUE, /* or the end of an empty container */
    LATER_VALUE, /* or the end after a last comma */
    COLON,
    NEXT,
    TEXT,
    ESCAPE,
    CODE, /* digits of \x, \u, \U */
    OCTAL,
    WORD,
    NUMBER,
};

static enum wefti_msg_python_verdict end_value(struct wefti_msg_python *py) {
    py->state = NEXT;
    return py->depth == 0 ? WEFTI_MSG_PY_END : WEFTI_MSG_PY_MORE;
}

static enum wefti_msg_python_verdict open_container(struct wefti_msg_python *py, char c,
                                                    struct weft_buf *out) {
    if (py->depth == WEFTI_MSG_DEPTH_MAX) return WEFTI_MSG_PY_BAD;
    py->kinds[++py->depth] = c;
    py->state = FIRST_VALUE;
    weft_buf_add_char(out, c == '{' ? '{' : '[');
    return WEFTI_MSG_PY_MORE;
}

static enum wefti_msg_python_verdict close_container(struct wefti_msg_python *py, char c,
                                                     struct weft_buf *out) {
    char kind = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (py->depth == 0 || py->kinds[py->depth] != kind) return WEFTI_MSG_PY_BAD;
    py->depth--;
    weft_buf_add_char(out, kind == '{' ? '}' : ']');
    return end_value(py);
}

static enum wefti_msg_python_verdict begin_text(struct wefti_msg_python *py, char c,
                                                struct weft_buf *out) {
    py->state = TEXT;
    py->quote = c;
    py->high = 0;
    weft_buf_add_char(out, '"');
    return WEFTI_MSG_PY_MORE;
}

/* Commas are written before values: there may be one after the last. */
static enum wefti_msg_python_verdict begin_value(struct wefti_msg_python *py, char c,
                                                 struct weft_buf *out) {
    bool is_later = py->state == LATER_VALUE;
    if (py->state != VALUE && (c == ']' || c == ')' || c == '}'))
        return close_container(py, c, out);
    py->is_key = py->state != VALUE && py->depth > 0 && py->kinds[py->depth] == '{';
    if (is_later) weft_buf_add_str(out, ", ");
    if (c == '"' || c == '\'') return begin_text(py, c, out);
    if (py->is_key) return WEFTI_MSG_PY_BAD;
    if (c == '[' || c == '(' || c == '{') return open_container(py, c, out);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        py->state = WORD;
        py->n_word = 1;
        py->word[0] = c;
        return WEFTI_MSG_PY_MORE;
    }
    if (c != '-' && (c < '0' || c > '9')) return WEFTI_MSG_PY_BAD;
    py->number = (struct wefti_msg_json){0};
    py->state = NUMBER;
    weft_buf_add_char(out, c);
    return wefti_msg_json_feed(&py->number, c) == WEFTI_MSG_BAD ? WEFTI_MSG_PY_BAD
                                                                : WEFTI_MSG_PY_MORE;
}

static enum wefti_msg_python_verdict feed_next(struct wefti_msg_python *py, char c,
                                               struct weft_buf *out) {
    if (c == ',' && py->depth > 0) {
        py->state = LATER_VALUE;
        return WEFTI_MSG_PY_MORE;
    }
    return c == ']' || c == ')' || c == '}' ? close_container(py, c, out) : WEFTI_MSG_PY_BAD;
}

/* A code point; halves of pairs that find no other are U+FFFD. */
static void add_code(struct wefti_msg_python *py, uint32_t code, struct weft_buf *out) {
    bool is_low = code >= 0xdc00 && code < 0xe000;
    if (py->high && is_low)
        weft_buf_printf(out, "\\u%04x\\u%04x", py->high, code);
    else if (py->high)
        weft_buf_add_str(out, "\\ufffd");
    bool is_done = py->high && is_low;
    py->high = code >= 0xd800 && code < 0xdc00 ? code : 0;
    if (is_done || py->high) return;
    if (code >= 0x10000)
        weft_buf_printf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                        0xdc00 + (code & 0x3ff));
    else
        weft_buf_printf(out, "\\u%04x", is_low ? 0xfffd : code);
}

static void end_pair(struct wefti_msg_python *py, struct weft_buf *out) {
    if (py->high) weft_buf_add_str(out, "\\ufffd");
    py->high = 0;
}

static enum wefti_msg_python_verdict feed_text(struct wefti_msg_python *py, char c,
                                               struct weft_buf *out) {
    if (!wefti_msg_utf8_feed(&py->utf8, c) || c == '\n' || c == '\r') return WEFTI_MSG_PY_BAD;
    if (c == '\\') {
        py->state = ESCAPE;
        return WEFTI_MSG_PY_MORE;
    }
    end_pair(py, out);
    if (c != py->quote) {
        if ((uint8_t)c >= 0x80)
            weft_buf_add_char(out, c);
        else
            weft_json_text(out, &c, 1);
        return WEFTI_MSG_PY_MORE;
    }
    weft_buf_add_char(out, '"');
    if (!py->is_key) return end_value(py);
    py->state = COLON;
    return WEFTI_MSG_PY_MORE;
}

static enum wefti_msg_python_verdict feed_escape(struct wefti_msg_python *py, char c,
                                                 struct weft_buf *out) {
    static const char from[] = "abfnrtv\\'\"/", to[] = "\a\b\f\n\r\t\v\\'\"/";
    const char *at = c == '\0' ? NULL : strchr(from, c);
    py->code = 0;
    py->state = TEXT;
    if (at) {
        end_pair(py, out);
        weft_json_text(out, &to[at - from], 1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        py->state = CODE;
        py->digits_left = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    } else if (c >= '0' && c <= '7') {
        py->state = OCTAL;
        py->digits_left = 2;
        py->code = (uint32_t)(c - '0');
    } else if (
        c !=
        '\n') { /* as Python does, a backslash before any other stays, but for JSON's before a slash */
        end_pair(py, out);
        weft_buf_add_str(out, "\\\\");
        return feed_text(py, c, out);
    }
    return WEFTI_MSG_PY_MORE;
}

static uint32_t hex_digit(char c) {
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0');
    if (c >= 'a' && c <= 'f') return (uint32_t)(c - 'a' + 10);
    return c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10) : 16;
}

static enum wefti_msg_python_verdict feed_code(struct wefti_msg_python *py, char c,
                                               struct weft_buf *out) {
    uint32_t digit = hex_digit(c);
    if (digit == 16 || py->code > 0x10ffff) return WEFTI_MSG_PY_BAD;
    py->code = py->code * 16 + digit;
    if (--py->digits_left > 0) return WEFTI_MSG_PY_MORE;
    if (py->code > 0x10ffff) return WEFTI_MSG_PY_BAD;
    add_code(py, py->code, out);
    py->state = TEXT;
    return WEFTI_MSG_PY_MORE;
}

/* One to three digits. */
static enum wefti_msg_python_verdict feed_octal(struct wefti_msg_python *py, char c,
                                                struct weft_buf *out) {
    bool is_digit = c >= '0' && c <= '7';
    if (is_digit) py->code = py->code * 8 + (uint32_t)(c - '0');
    if (is_digit && --py->digits_left > 0) return WEFTI_MSG_PY_MORE;
    add_code(py, py->code, out);
    py->state = TEXT;
    return is_digit ? WEFTI_MSG_PY_MORE : feed_text(py, c, out);
}

static enum wefti_msg_python_verdict feed_word(struct wefti_msg_python *py, char c,
                                               struct weft_buf *out) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        if (py->n_word == sizeof py->word) return WEFTI_MSG_PY_BAD;
        py->word[py->n_word++] = c;
        return WEFTI_MSG_PY_MORE;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *word = words[i][0];
        if (strlen(word) != py->n_word || memcmp(word, py->word, py->n_word) != 0) continue;
        weft_buf_add_str(out, words[i][1]);
        py->state = NEXT;
        if (py->depth == 0) return WEFTI_MSG_PY_BEFORE;
        return wefti_msg_python_feed(py, c, out);
    }
    return WEFTI_MSG_PY_BAD;
}

static enum wefti_msg_python_verdict feed_number(struct wefti_msg_python *py, char c,
                                                 struct weft_buf *out) {
    unsigned marks = wefti_msg_json_feed(&py->number, c);
    if (marks == WEFTI_MSG_BAD) return WEFTI_MSG_PY_BAD;
    if (!(marks & WEFTI_MSG_BEFORE)) {
        weft_buf_add_char(out, c);
        return WEFTI_MSG_PY_MORE;
    }
    py->state = NEXT;
    if (py->depth == 0) return WEFTI_MSG_PY_BEFORE;
    return wefti_msg_python_feed(py, c, out);
}

enum wefti_msg_python_verdict wefti_msg_python_feed(struct wefti_msg_python *py, char c,
                                                    struct weft_buf *out) {
    if (py->state <= NEXT && (c == ' ' || c == '\n' || c == '\t' || c == '\r'))
        return WEFTI_MSG_PY_MORE;
    switch ((enum state)py->state) {
    case VALUE:
    case FIRST_VALUE:
    case LATER_VALUE:
        return begin_value(py, c, out);
    case COLON:
        py->state = VALUE;
        weft_buf_add_str(out, ": ");
        return c == ':' ? WEFTI_MSG_PY_MORE : WEFTI_MSG_PY_BAD;
    case NEXT:
        return feed_next(py, c, out);
    case TEXT:
        return feed_text(py, c, out);
    case ESCAPE:
        return feed_escape(py, c, out);
    case CODE:
        return feed_code(py, c, out);
    case OCTAL:
        return feed_octal(py, c, out);
    case WORD:
        return feed_word(py, c, out);
    case NUMBER:
        return feed_number(py, c, out);
    }
    return WEFTI_MSG_PY_BAD;
}
