#include "base/utf8.h"

#include <string.h>

#include "base/check.h"

/* Whether a second byte may follow this lead byte; its upper two bits are checked elsewhere. */
static bool follows(unsigned char lead, unsigned char second) {
    switch (lead) {
    case 0xe0:
        return second >= 0xa0; /* else overlong */
    case 0xed:
        return second <= 0x9f; /* else a surrogate */
    case 0xf0:
        return second >= 0x90; /* else overlong */
    case 0xf4:
        return second <= 0x8f; /* else above U+10FFFF */
    default:
        return true;
    }
}

size_t weft_utf8_start(const char *bytes, size_t len, bool *whole_out) {
    WEFT_ASSERT(bytes || len == 0);
    const unsigned char *s = (const unsigned char *)bytes;
    *whole_out = false;
    if (len == 0) return 0;
    unsigned char c = s[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xc2 && c < 0xe0 ? 2
               : (c & 0xf0) == 0xe0    ? 3
               : c >= 0xf0 && c < 0xf5 ? 4
                                       : 0;
    size_t k = n > 0; /* bytes that fit */
    while (k < n && k < len && (s[k] & 0xc0) == 0x80 && (k > 1 || follows(c, s[1]))) {
        k++;
    }
    *whole_out = n > 0 && k == n;
    return k;
}

size_t weft_utf8_next(const char *bytes, size_t len) {
    bool whole;
    size_t n = weft_utf8_start(bytes, len, &whole);
    return whole ? n : 0;
}

bool weft_utf8_valid(const char *bytes, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = weft_utf8_next(bytes + i, len - i);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

/* Those of ASCII and Latin-1, line and paragraph separators, and what turns the direction of the text
 * around it (U+202A to 202E, U+2066 to 2069), which makes a line look like another. */
static bool is_control(const char *text, size_t n) {
    unsigned char c = (unsigned char)text[0];
    if (n == 1) return c < 0x20 || c == 0x7f;
    unsigned char d = (unsigned char)text[1];
    if (n == 2) return c == 0xc2 && d < 0xa0;
    unsigned char e = (unsigned char)text[2];
    return n == 3 && c == 0xe2 &&
           ((d == 0x80 && e >= 0xa8 && e <= 0xae) || (d == 0x81 && e >= 0xa6 && e <= 0xa9));
}

void weft_utf8_printable(char *text) {
    for (size_t left = strlen(text); left > 0;) {
        size_t n = weft_utf8_next(text, left);
        if (n == 0 || is_control(text, n)) {
            if (n == 0) n = 1;
            memset(text, '?', n);
        }
        text += n;
        left -= n;
    }
}
