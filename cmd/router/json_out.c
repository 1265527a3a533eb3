#include "json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Table 3-7 of the Unicode standard: the second byte's range depends on the first. */
size_t wefti_utf8_char(const char *bytes, size_t len, size_t *bad_out) {
    const unsigned char *b = (const unsigned char *)bytes;
    *bad_out = 1;
    if (len == 0 || b[0] < 0x80) return len ? 1 : 0;
    unsigned char lo = 0x80, hi = 0xBF;
    size_t n = 0;
    if (b[0] >= 0xC2 && b[0] <= 0xDF) n = 2;
    if (b[0] >= 0xE0 && b[0] <= 0xEF) n = 3;
    if (b[0] >= 0xF0 && b[0] <= 0xF4) n = 4;
    if (b[0] == 0xE0) lo = 0xA0;
    if (b[0] == 0xED) hi = 0x9F;
    if (b[0] == 0xF0) lo = 0x90;
    if (b[0] == 0xF4) hi = 0x8F;
    for (size_t i = 1; i < n; i++) {
        if (i >= len || b[i] < lo || b[i] > hi) return 0;
        *bad_out = i + 1;
        lo = 0x80;
        hi = 0xBF;
    }
    return n;
}

void wefti_utf8_clean(struct weft_buf *out, const char *bytes, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t bad, n = wefti_utf8_char(bytes + i, len - i, &bad);
        weft_buf_add(out, n ? bytes + i : "\xEF\xBF\xBD", n ? n : 3);
        i += n ? n : bad;
    }
}

size_t wefti_utf8_count(const char *bytes, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return n;
}

static void escape_char(struct weft_buf *out, unsigned char c) {
    switch (c) {
    case '"':
        weft_buf_add_str(out, "\\\"");
        return;
    case '\\':
        weft_buf_add_str(out, "\\\\");
        return;
    case '\n':
        weft_buf_add_str(out, "\\n");
        return;
    case '\r':
        weft_buf_add_str(out, "\\r");
        return;
    case '\t':
        weft_buf_add_str(out, "\\t");
        return;
    default:
        weft_buf_printf(out, "\\u%04x", c);
    }
}

void wefti_json_text(struct weft_buf *out, const char *bytes, size_t len) {
    size_t start = 0, i = 0;
    while (i < len) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
            i++;
            continue;
        }
        size_t bad = 1;
        size_t n = c < 0x80 ? 0 : wefti_utf8_char(bytes + i, len - i, &bad);
        if (n) {
            i += n;
            continue;
        }
        weft_buf_add(out, bytes + start, i - start);
        if (c < 0x80)
            escape_char(out, c);
        else
            weft_buf_add_str(out, "\xEF\xBF\xBD");
        i += c < 0x80 ? 1 : bad;
        start = i;
    }
    weft_buf_add(out, bytes + start, len - start);
}

void wefti_json_str(struct weft_buf *out, const char *bytes, size_t len) {
    weft_buf_add_char(out, '"');
    wefti_json_text(out, bytes, len);
    weft_buf_add_char(out, '"');
}

void wefti_json_float(struct weft_buf *out, float value) {
    char text[32];
    if (!isfinite(value)) {
        weft_buf_add_str(out, value > 0 ? "9999.0" : "-9999.0");
        return;
    }
    (void)snprintf(text, sizeof text, "%.9g", (double)value);
    weft_buf_add_str(out, text);
    if (!strpbrk(text, ".e")) weft_buf_add_str(out, ".0"); /* a float for typed readers, too */
}

void wefti_json_uint(struct weft_buf *out, uint32_t value) {
    char text[10];
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    weft_buf_add(out, text + at, sizeof text - at);
}

bool wefti_json_within(const char *text, size_t len, size_t values_max, size_t depth_max) {
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
