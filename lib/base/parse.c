#include "base/parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

weft_err weft_parse_u64(const char *text, uint64_t max, uint64_t *out) {
    *out = 0;
    if (!*text) return WEFT_E_INVAL;
    uint64_t value = 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return WEFT_E_INVAL;
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10) return WEFT_E_INVAL;
        value = value * 10 + digit;
    }
    if (value > max) return WEFT_E_INVAL;
    *out = value;
    return WEFT_OK;
}

weft_err weft_parse_double(const char *text, double *out) {
    *out = 0;
    if (!*text || !strchr("+-.0123456789", *text) || strpbrk(text, "xXpPnN")) return WEFT_E_INVAL;
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (*end || !isfinite(value)) return WEFT_E_INVAL;
    *out = value;
    return WEFT_OK;
}

weft_err weft_parse_size(const char *text, uint64_t *bytes_out) {
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"K", 1024.0},
        {"KiB", 1024.0},
        {"kB", 1e3},
        {"M", 1048576.0},
        {"MiB", 1048576.0},
        {"MB", 1e6},
        {"G", 1073741824.0},
        {"GiB", 1073741824.0},
        {"GB", 1e9},
        {"T", 1099511627776.0},
        {"TiB", 1099511627776.0},
        {"TB", 1e12},
    };
    *bytes_out = 0;
    size_t digits = strspn(text, "0123456789.");
    char number[32];
    if (digits == 0 || digits >= sizeof number) return WEFT_E_INVAL;
    memcpy(number, text, digits);
    number[digits] = 0;
    double value;
    if (weft_parse_double(number, &value)) return WEFT_E_INVAL;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text + digits, units[i].suffix) != 0) continue;
        double bytes = value * units[i].factor;
        if (bytes >= 0x1p63) return WEFT_E_INVAL;
        *bytes_out = (uint64_t)bytes;
        return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

weft_err weft_parse_bool(const char *text, bool *out) {
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};
    *out = false;
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            *out = true;
            return WEFT_OK;
        }
        if (strcasecmp(text, no[i]) == 0) return WEFT_OK;
    }
    return WEFT_E_INVAL;
}

/* Whether a second byte may follow this lead byte, as far as its upper two bits do not say. */
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

static bool is_control(const char *text, size_t n) {
    unsigned char c = (unsigned char)text[0];
    if (n == 1) return c < 0x20 || c == 0x7f;
    return n == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0;
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
