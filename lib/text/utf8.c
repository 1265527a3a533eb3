/* UTF-8 in both directions, and the alphabet of byte-level vocabularies.
 *
 * The feeder is a small state machine rather than a validator over a whole string: a token may end
 * in the middle of a character, so the same code serves texts from outside (fed at once) and model
 * output (fed token by token), and both replace ill-formed bytes in exactly the same way. */
#include <string.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text_internal.h"

uint32_t wefti_utf8_get(const char *text, size_t *len_out) {
    const unsigned char *c = (const unsigned char *)text;
    size_t len = wefti_utf8_len(*text);
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

void wefti_utf8_put(struct weft_buf *out, uint32_t code) {
    WEFT_ASSERT(code <= 0x10FFFF);
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
        weft_buf_add_str(out, WEFTI_REPLACEMENT); /* what waited will never be whole */
        pending[0] = byte;                        /* and this byte starts afresh */
        *n_pending = 0;
    }
    *n_pending = (uint8_t)weft_utf8_start(pending, *n_pending + 1u, &whole);
    if (*n_pending == 0) {
        weft_buf_add_str(out, WEFTI_REPLACEMENT);
    } else if (whole) {
        weft_buf_add(out, pending, *n_pending);
        *n_pending = 0;
    }
}

void wefti_utf8_feed(char pending[4], uint8_t *n_pending, const char *bytes, size_t len,
                     struct weft_buf *out) {
    WEFT_ASSERT(*n_pending < 4);
    if (*n_pending == 0 && weft_utf8_valid(bytes, len)) { /* nearly always */
        weft_buf_add(out, bytes, len);
        return;
    }
    for (size_t i = 0; i < len; i++)
        feed_byte(pending, n_pending, bytes[i], out);
}

bool wefti_is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool wefti_is_word(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) ||
           category == UTF8PROC_CATEGORY_PC;
}

/* GPT-2's alphabet: a printable byte of Latin-1 is itself; the 68 others (controls, space, DEL,
 * 0x80..0xA0, soft hyphen) follow each other from U+0100 on. */
static bool is_printable_byte(uint32_t c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD);
}

uint32_t wefti_char_of_byte(unsigned char byte) {
    if (is_printable_byte(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
    return 0x143u; /* 0xAD */
}

int wefti_byte_of_char(uint32_t code) {
    if (code < 0x100) return is_printable_byte(code) ? (int)code : -1;
    if (code <= 0x120) return (int)(code - 0x100);
    if (code <= 0x142) return (int)(code - 0x121 + 0x7F);
    return code == 0x143 ? 0xAD : -1;
}

bool wefti_bytes_of_chars(const char *text, size_t len, struct weft_buf *out) {
    size_t before = out->len;
    for (size_t at = 0, n; at < len; at += n) {
        int byte = wefti_byte_of_char(wefti_utf8_get(text + at, &n));
        if (byte < 0) {
            out->len = before;
            return false;
        }
        weft_buf_add_char(out, (char)byte);
    }
    return true;
}
