#include "json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json_escape.h"
#include "utf8.h"

void weft_json_text(struct weft_buf *out, const char *bytes, size_t len) {
    WEFT_ASSERT(bytes || len == 0);
    size_t start = 0, i = 0;
    while (i < len) {
        unsigned char c = (unsigned char)bytes[i];
        char escaped[WEFT_JSON_ESCAPE_BYTES_MAX];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') { /* the usual case: plain ASCII */
            i++;
            continue;
        }
        bool whole = false;
        size_t n_escaped = weft_json_escape(bytes[i], escaped);
        size_t n = n_escaped ? 1 : weft_utf8_start(bytes + i, len - i, &whole);
        if (whole) {
            i += n;
            continue;
        }
        weft_buf_add(out, bytes + start, i - start);
        if (n_escaped)
            weft_buf_add(out, escaped, n_escaped);
        else
            weft_buf_add_str(out, WEFT_UTF8_REPLACEMENT);
        i += n ? n : 1;
        start = i;
    }
    weft_buf_add(out, bytes + start, len - start);
}

void weft_json_str(struct weft_buf *out, const char *bytes, size_t len) {
    weft_buf_add_char(out, '"');
    weft_json_text(out, bytes, len);
    weft_buf_add_char(out, '"');
}

void weft_json_float(struct weft_buf *out, float value) {
    char text[32];
    if (!isfinite(value)) {
        weft_buf_add_str(out, value > 0 ? "9999.0" : "-9999.0");
        return;
    }
    (void)snprintf(text, sizeof text, "%.9g", (double)value);
    weft_buf_add_str(out, text);
    if (!strpbrk(text, ".e")) weft_buf_add_str(out, ".0"); /* a float for typed readers too */
}

void weft_json_uint(struct weft_buf *out, uint64_t value) {
    char text[20];
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    weft_buf_add(out, text + at, sizeof text - at);
}

/* Digits of a whole number that always have room in 64 bits, and that a double is told by. */
#define SAFE_DIGITS 18
#define DOUBLE_DIGITS 17
#define EXPONENT_MAX 291 /* with so many digits before it */

/* `n` digits, of which the first is not 0, at `digits`. */
static bool has_room(const char *digits, size_t n, bool is_negative) {
    static const char most[] = "9223372036854775807";
    if (n != sizeof most - 1) return n < sizeof most;
    int order = memcmp(digits, most, n);
    return order <= 0 || (is_negative && memcmp(digits, most, n - 1) == 0 && digits[n - 1] == '8');
}

static void widen(char *digits, size_t n) {
    char exponent[8];
    size_t e = n - DOUBLE_DIGITS < EXPONENT_MAX ? n - DOUBLE_DIGITS : EXPONENT_MAX;
    int len = snprintf(exponent, sizeof exponent, "e%zu", e);
    WEFT_ASSERT(len > 0 && DOUBLE_DIGITS + (size_t)len <= n);
    memset(digits + DOUBLE_DIGITS, ' ', n - DOUBLE_DIGITS);
    memcpy(digits + DOUBLE_DIGITS, exponent, (size_t)len);
}

static size_t digits_at(const char *text, size_t len) {
    size_t n = 0;
    while (n < len && text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

void weft_json_widen(char *text, size_t len) {
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '"') in_string = !in_string;
        if (c == '\\' && in_string) i++;
        if (in_string || c < '0' || c > '9') continue;
        char before = i > 0 ? text[i - 1] : ' ';
        size_t n = digits_at(text + i, len - i), end = i + n;
        bool is_whole = before != '.' && before != 'e' && before != 'E' && before != '+' &&
                        (end == len || !strchr(".eE", text[end]) || text[end] == '\0');
        bool is_exponent = before == '-' && i > 1 && (text[i - 2] == 'e' || text[i - 2] == 'E');
        if (n > SAFE_DIGITS && is_whole && !is_exponent && c != '0' &&
            !has_room(text + i, n, before == '-'))
            widen(text + i, n);
        i = end - 1;
    }
}

bool weft_json_within(const char *text, size_t len, size_t values_max, size_t depth_max) {
    size_t n_values = 1, depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == ',') n_values++;
        if (c == '[' || c == '{') {
            n_values++;
            if (++depth > depth_max) return false;
        }
        if ((c == ']' || c == '}') && depth) depth--;
        if (n_values > values_max) return false;
    }
    return true;
}
