/* UTF-8 in both directions.
 *
 * The feeder is a small state machine rather than a validator over a whole string: a token may end
 * in the middle of a character, so the same code serves texts from outside (fed at once) and model
 * output (fed token by token), and both replace ill-formed bytes in exactly the same way. */
#include "utf8.h"

#include "base/check.h"

uint32_t weft_utf8_get(const char *text, size_t *len_out) {
    const unsigned char *c = (const unsigned char *)text;
    size_t len = weft_utf8_len(*text);
    *len_out = len;
    switch (len) {
    case 1:
        return c[0];
    case 2:
        return (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
    case 3:
        return (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
    default:
        return (c[0] & 0x07u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
    }
}

void weft_utf8_put(struct weft_buf *out, uint32_t code) {
    WEFT_ASSERT(code <= WEFT_UTF8_CODE_MAX);
    char c[4];
    size_t n;
    if (code < 0x80) {
        c[0] = (char)code;
        n = 1;
    } else if (code < 0x800) {
        c[0] = (char)(0xC0u | code >> 6);
        c[1] = (char)(0x80u | (code & 0x3Fu));
        n = 2;
    } else if (code < 0x10000) {
        c[0] = (char)(0xE0u | code >> 12);
        c[1] = (char)(0x80u | (code >> 6 & 0x3Fu));
        c[2] = (char)(0x80u | (code & 0x3Fu));
        n = 3;
    } else {
        c[0] = (char)(0xF0u | code >> 18);
        c[1] = (char)(0x80u | (code >> 12 & 0x3Fu));
        c[2] = (char)(0x80u | (code >> 6 & 0x3Fu));
        c[3] = (char)(0x80u | (code & 0x3Fu));
        n = 4;
    }
    weft_buf_add(out, c, n);
}

static void feed_byte(char pending[4], uint8_t *n_pending, char byte, struct weft_buf *out) {
    bool whole;
    pending[*n_pending] = byte;
    if (*n_pending > 0 && weft_utf8_start(pending, *n_pending + 1u, &whole) <= *n_pending) {
        weft_buf_add_str(out, WEFT_UTF8_REPLACEMENT); /* the pending bytes are incomplete */
        pending[0] = byte;                            /* this byte starts a new character */
        *n_pending = 0;
    }
    *n_pending = (uint8_t)weft_utf8_start(pending, *n_pending + 1u, &whole);
    if (*n_pending == 0) {
        weft_buf_add_str(out, WEFT_UTF8_REPLACEMENT);
    } else if (whole) {
        weft_buf_add(out, pending, *n_pending);
        *n_pending = 0;
    }
}

void weft_utf8_feed(char pending[4], uint8_t *n_pending, const char *bytes, size_t len,
                    struct weft_buf *out) {
    WEFT_ASSERT(*n_pending < 4);
    WEFT_ASSERT(bytes || len == 0);
    if (*n_pending == 0 && weft_utf8_valid(bytes, len)) { /* the usual case */
        weft_buf_add(out, bytes, len);
        return;
    }
    for (size_t i = 0; i < len; i++)
        feed_byte(pending, n_pending, bytes[i], out);
}

void weft_utf8_clean(struct weft_buf *out, const char *bytes, size_t len) {
    WEFT_ASSERT(bytes || len == 0);
    for (size_t i = 0; i < len;) {
        bool whole;
        size_t n = weft_utf8_start(bytes + i, len - i, &whole);
        if (whole)
            weft_buf_add(out, bytes + i, n);
        else
            weft_buf_add_str(out, WEFT_UTF8_REPLACEMENT);
        i += n ? n : 1;
    }
}

size_t weft_utf8_count(const char *bytes, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return n;
}
