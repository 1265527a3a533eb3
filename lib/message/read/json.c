/* The grammar of RFC 8259 as a machine with a stack of container kinds. */
#include "read/json.h"

#include <stddef.h>

enum state {
    VALUE, /* zero: where a scan begins */
    FIRST_VALUE,
    FIRST_KEY,
    KEY,
    COLON,
    NEXT,
    TEXT,
    ESCAPE,
    HEX_1,
    HEX_2,
    HEX_3,
    HEX_4,
    WORD,
    MINUS,
    ZERO,
    WHOLE,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
};

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool wefti_msg_utf8_feed(struct wefti_msg_utf8 *utf8, char c) {
    uint8_t byte = (uint8_t)c;
    if (utf8->left > 0) {
        if (byte < utf8->low || byte > utf8->high) return false;
        utf8->left--;
        utf8->low = 0x80;
        utf8->high = 0xbf;
        return true;
    }
    if (byte < 0x80) return true;
    if (byte < 0xc2 || byte > 0xf4) return false;
    utf8->left = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    utf8->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80; /* no longer than needed */
    utf8->high = byte == 0xed   ? 0x9f
                 : byte == 0xf4 ? 0x8f
                                : 0xbf; /* no surrogates, no more than U+10FFFF */
    return true;
}

/* A value has ended; in what it stood is json->depth. */
static unsigned end_value(struct wefti_msg_json *json) {
    json->state = NEXT;
    json->is_over = json->depth == 0;
    return WEFTI_MSG_END;
}

static unsigned open_container(struct wefti_msg_json *json, bool is_object) {
    if (json->depth == WEFTI_MSG_DEPTH_MAX) return WEFTI_MSG_BAD;
    json->objects[++json->depth] = is_object;
    json->state = is_object ? FIRST_KEY : FIRST_VALUE;
    return WEFTI_MSG_BEGIN;
}

static unsigned close_container(struct wefti_msg_json *json, bool is_object) {
    if (json->depth == 0 || json->objects[json->depth] != is_object) return WEFTI_MSG_BAD;
    json->depth--;
    json->is_key = false;
    return end_value(json);
}

static unsigned begin_word(struct wefti_msg_json *json, const char *rest) {
    json->state = WORD;
    json->rest = rest;
    return WEFTI_MSG_BEGIN;
}

static unsigned begin_value(struct wefti_msg_json *json, char c) {
    json->is_key = false;
    switch (c) {
    case '{':
        return open_container(json, true);
    case '[':
        return open_container(json, false);
    case '"':
        json->state = TEXT;
        return WEFTI_MSG_BEGIN;
    case 't':
        return begin_word(json, "rue");
    case 'f':
        return begin_word(json, "alse");
    case 'n':
        return begin_word(json, "ull");
    case '-':
    case '0':
        json->state = c == '-' ? MINUS : ZERO;
        return WEFTI_MSG_BEGIN;
    default:
        json->state = WHOLE;
        return is_digit(c) ? WEFTI_MSG_BEGIN : WEFTI_MSG_BAD;
    }
}

static unsigned begin_key(struct wefti_msg_json *json, char c) {
    if (c != '"') return WEFTI_MSG_BAD;
    json->is_key = true;
    json->state = TEXT;
    return WEFTI_MSG_BEGIN;
}

/* Between values. */
static unsigned feed_next(struct wefti_msg_json *json, char c) {
    if (json->depth == 0) return WEFTI_MSG_BAD;
    if (c == ']') return close_container(json, false);
    if (c == '}') return close_container(json, true);
    if (c != ',') return WEFTI_MSG_BAD;
    json->state = json->objects[json->depth] ? KEY : VALUE;
    return 0;
}

static unsigned feed_text(struct wefti_msg_json *json, char c) {
    if (!wefti_msg_utf8_feed(&json->utf8, c)) return WEFTI_MSG_BAD;
    if ((uint8_t)c < 0x20 || (json->has_high && c != '\\')) return WEFTI_MSG_BAD;
    if (c == '\\') json->state = ESCAPE;
    if (c != '"') return 0;
    if (!json->is_key) return end_value(json);
    json->state = COLON;
    return WEFTI_MSG_END;
}

static unsigned feed_escape(struct wefti_msg_json *json, char c) {
    json->state = c == 'u' ? HEX_1 : TEXT;
    json->code = 0;
    if (c == 'u') return 0;
    if (json->has_high) return WEFTI_MSG_BAD;
    switch (c) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return 0;
    default:
        return WEFTI_MSG_BAD;
    }
}

static unsigned feed_hex(struct wefti_msg_json *json, char c) {
    uint32_t digit = is_digit(c)            ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
    if (digit == 16) return WEFTI_MSG_BAD;
    json->code = json->code * 16 + digit;
    if (json->state++ != HEX_4) return 0;
    json->state = TEXT;
    bool is_high = json->code >= 0xd800 && json->code < 0xdc00;
    bool is_low = json->code >= 0xdc00 && json->code < 0xe000;
    if (is_low != json->has_high) return WEFTI_MSG_BAD;
    json->has_high = is_high;
    return 0;
}

static unsigned feed_word(struct wefti_msg_json *json, char c) {
    if (c != *json->rest) return WEFTI_MSG_BAD;
    return *++json->rest ? 0 : end_value(json);
}

/* The state of a number after `c`; NEXT: it has ended before; VALUE: there is no such number. */
static enum state number_after(enum state state, char c) {
    bool digit = is_digit(c), exponent = c == 'e' || c == 'E';
    switch (state) {
    case MINUS:
        return c == '0' ? ZERO : digit ? WHOLE : VALUE;
    case ZERO:
        return c == '.' ? POINT : exponent ? EXPONENT : digit ? VALUE : NEXT;
    case WHOLE:
        return digit ? WHOLE : c == '.' ? POINT : exponent ? EXPONENT : NEXT;
    case POINT:
        return digit ? FRACTION : VALUE;
    case FRACTION:
        return digit ? FRACTION : exponent ? EXPONENT : NEXT;
    case EXPONENT:
        return c == '-' || c == '+' ? EXPONENT_SIGN : digit ? EXPONENT_DIGITS : VALUE;
    case EXPONENT_SIGN:
        return digit ? EXPONENT_DIGITS : VALUE;
    default:
        return digit ? EXPONENT_DIGITS : NEXT;
    }
}

static unsigned feed_number(struct wefti_msg_json *json, char c) {
    enum state next = number_after(json->state, c);
    if (next == VALUE) return WEFTI_MSG_BAD;
    json->state = (uint8_t)next;
    if (next != NEXT) return 0;
    (void)end_value(json);
    if (is_blank(c) || json->depth == 0) return WEFTI_MSG_BEFORE;
    unsigned marks = feed_next(json, c);
    return marks == WEFTI_MSG_BAD ? marks : marks | WEFTI_MSG_BEFORE;
}

unsigned wefti_msg_json_feed(struct wefti_msg_json *json, char c) {
    if (json->state <= NEXT && is_blank(c)) return 0;
    switch ((enum state)json->state) {
    case FIRST_VALUE:
        return c == ']' ? close_container(json, false) : begin_value(json, c);
    case VALUE:
        return begin_value(json, c);
    case FIRST_KEY:
        return c == '}' ? close_container(json, true) : begin_key(json, c);
    case KEY:
        return begin_key(json, c);
    case COLON:
        json->state = VALUE;
        return c == ':' ? 0 : WEFTI_MSG_BAD;
    case NEXT:
        return feed_next(json, c);
    case TEXT:
        return feed_text(json, c);
    case ESCAPE:
        return feed_escape(json, c);
    case HEX_1:
    case HEX_2:
    case HEX_3:
    case HEX_4:
        return feed_hex(json, c);
    case WORD:
        return feed_word(json, c);
    default:
        return feed_number(json, c);
    }
}
