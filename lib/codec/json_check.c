#include "codec/json_check.h"

#include <string.h>

enum state {
    START, /* before the object: zero */
    VALUE,
    FIRST_VALUE, /* or the end of a list */
    KEY,
    FIRST_KEY, /* or the end of a map */
    COLON,
    COMMA, /* or the end of what is open */
    TEXT,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS,
    ZERO,
    DIGITS,
    POINT, /* a digit must follow */
    FRACTION,
    EXPONENT, /* a sign or a digit must follow */
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    WHOLE,
    BROKEN,
};

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_in_map(const struct weft_json_check *check) {
    uint32_t level = check->depth - 1u;
    return check->is_map[level / 8] >> (level % 8) & 1;
}

static enum state open_container(struct weft_json_check *check, bool is_map) {
    uint32_t level = check->depth;
    if (level == WEFT_JSON_CHECK_DEPTH_MAX) return BROKEN;
    uint8_t bit = (uint8_t)(1u << (level % 8));
    check->is_map[level / 8] =
        (uint8_t)(is_map ? check->is_map[level / 8] | bit : check->is_map[level / 8] & ~bit);
    check->depth++;
    return is_map ? FIRST_KEY : FIRST_VALUE;
}

static enum state close_container(struct weft_json_check *check, char c) {
    if ((c == '}') != is_in_map(check)) return BROKEN;
    return --check->depth == 0 ? WHOLE : COMMA;
}

static enum state begin_literal(struct weft_json_check *check, const char *rest) {
    check->rest = rest;
    return LITERAL;
}

static enum state begin_value(struct weft_json_check *check, char c) {
    check->is_key = false;
    switch (c) {
    case '{':
    case '[':
        return open_container(check, c == '{');
    case '"':
        return TEXT;
    case 't':
        return begin_literal(check, "rue");
    case 'f':
        return begin_literal(check, "alse");
    case 'n':
        return begin_literal(check, "ull");
    case '-':
        return MINUS;
    case '0':
        return ZERO;
    default:
        return is_digit(c) ? DIGITS : BROKEN;
    }
}

/* Between values. */
static enum state after_value(struct weft_json_check *check, char c) {
    if (is_blank(c)) return COMMA;
    if (c == ',') return is_in_map(check) ? KEY : VALUE;
    return c == '}' || c == ']' ? close_container(check, c) : BROKEN;
}

static enum state in_text(struct weft_json_check *check, char c) {
    if (c == '"') return check->is_key ? COLON : COMMA;
    if (c == '\\') return ESCAPE;
    return (unsigned char)c < 0x20 ? BROKEN : TEXT;
}

static enum state in_escape(struct weft_json_check *check, char c) {
    check->n_hex = 0;
    if (c == 'u') return HEX;
    return c && strchr("\"\\/bfnrt", c) ? TEXT : BROKEN;
}

static enum state in_hex(struct weft_json_check *check, char c) {
    char low = (char)(c | 0x20);
    if (!is_digit(c) && (low < 'a' || low > 'f')) return BROKEN;
    return ++check->n_hex == 4 ? TEXT : HEX;
}

static enum state in_number(struct weft_json_check *check, enum state state, char c) {
    bool has_exponent = state >= EXPONENT;
    bool may_end =
        state == ZERO || state == DIGITS || state == FRACTION || state == EXPONENT_DIGITS;
    if (is_digit(c)) {
        if (state == MINUS) return c == '0' ? ZERO : DIGITS;
        if (state == ZERO) return BROKEN;
        if (state == DIGITS) return DIGITS;
        return has_exponent ? EXPONENT_DIGITS : FRACTION;
    }
    if (state == EXPONENT && (c == '+' || c == '-')) return EXPONENT_SIGN;
    if (!may_end) return BROKEN;
    if (c == '.' && (state == ZERO || state == DIGITS)) return POINT;
    if ((c == 'e' || c == 'E') && !has_exponent) return EXPONENT;
    return after_value(check, c);
}

static enum state in_key(struct weft_json_check *check, enum state state, char c) {
    if (is_blank(c)) return state;
    if (c == '}' && state == FIRST_KEY) return close_container(check, c);
    check->is_key = true;
    return c == '"' ? TEXT : BROKEN;
}

static enum state step(struct weft_json_check *check, enum state state, char c) {
    switch (state) {
    case START:
        if (is_blank(c)) return START;
        return c == '{' ? open_container(check, true) : BROKEN;
    case VALUE:
    case FIRST_VALUE:
        if (is_blank(c)) return state;
        if (c == ']' && state == FIRST_VALUE) return close_container(check, c);
        return begin_value(check, c);
    case KEY:
    case FIRST_KEY:
        return in_key(check, state, c);
    case COLON:
        if (is_blank(c)) return COLON;
        return c == ':' ? VALUE : BROKEN;
    case COMMA:
        return after_value(check, c);
    case TEXT:
        return in_text(check, c);
    case ESCAPE:
        return in_escape(check, c);
    case HEX:
        return in_hex(check, c);
    case LITERAL:
        if (c != *check->rest) return BROKEN;
        return *++check->rest ? LITERAL : COMMA;
    case WHOLE:
        return is_blank(c) ? WHOLE : BROKEN;
    case BROKEN:
        return BROKEN;
    default:
        return in_number(check, state, c);
    }
}

void weft_json_check_more(struct weft_json_check *check, const char *bytes, size_t len) {
    enum state state = (enum state)check->state;
    for (size_t i = 0; i < len && state != BROKEN; i++)
        state = step(check, state, bytes[i]);
    check->state = (uint8_t)state;
}

bool weft_json_check_is_whole(const struct weft_json_check *check) {
    return check->state == WHOLE;
}
