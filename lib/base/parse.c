#include "base/parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
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

const char *weft_size_text(uint64_t bytes, char out[WEFT_SIZE_TEXT_BYTES]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1023.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    int decimals = unit > 0 && value < 9.95; /* two digits tell enough */
    (void)snprintf(out, WEFT_SIZE_TEXT_BYTES, "%.*f %s", decimals, value, units[unit]);
    return out;
}

uint64_t weft_size_up(uint64_t bytes) {
    double value = (double)bytes, factor = 1;
    for (uint32_t unit = 0; unit < 4 && value >= 1023.5; unit++) {
        value /= 1024;
        factor *= 1024;
    }
    double steps = factor > 1 && value < 9.95 ? 10 : 1; /* in a unit, as weft_size_text writes it */
    return (uint64_t)(ceil(value * steps) / steps * factor);
}

bool weft_parse_member(const char **list, const char *separators, struct weft_str *member_out) {
    *member_out = (struct weft_str){0};
    if (!*list) return false;
    const char *at = *list + strspn(*list, " ");
    size_t len = strcspn(at, separators);
    const char *next = at + len + strspn(at + len, " ");
    while (len > 0 && at[len - 1] == ' ')
        len--;
    *member_out = (struct weft_str){at, len};
    if (*next == '\0')
        *list = NULL;
    else
        *list = strchr(separators, *next) ? next + 1 : next;
    return true;
}

weft_err weft_parse_member_u64(struct weft_str member, uint64_t max, uint64_t *out) {
    char digits[21];
    *out = 0;
    if (member.len == 0 || member.len >= sizeof digits) return WEFT_E_INVAL;
    memcpy(digits, member.data, member.len);
    digits[member.len] = '\0';
    return weft_parse_u64(digits, max, out);
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
