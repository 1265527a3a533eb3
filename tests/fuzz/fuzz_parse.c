/* Fuzzes base/parse: every conversion is compared with a slow one that works another way. Seeds are
 * one text per form; the input is tried as it is, zero-terminated where a parser wants that. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "fuzz/fuzz.h"

/* ------------------------------------------------------------------------------------ UTF-8 --- */

/* Decodes by counting leading ones, then checks that the input is the shortest form of
 * that code point. */
static size_t naive_next(const uint8_t *bytes, size_t n) {
    if (n == 0) return 0;
    size_t ones = 0;
    while (ones < 8 && (bytes[0] & (0x80u >> ones)))
        ones++;
    if (ones == 0) return 1;
    if (ones == 1 || ones > 4 || ones > n) return 0;
    uint32_t code = bytes[0] & (0x7fu >> ones);
    for (size_t i = 1; i < ones; i++) {
        if (bytes[i] >> 6 != 2) return 0;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    size_t shortest = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return shortest == ones && !is_surrogate && code <= 0x10ffff ? ones : 0;
}

static void check_utf8(const uint8_t *bytes, size_t n) {
    const char *text = (const char *)bytes;
    bool valid = true;
    size_t step = 0;
    for (size_t i = 0; i < n; i += step) {
        step = naive_next(bytes + i, n - i);
        WEFT_ASSERT(weft_utf8_next(text + i, n - i) == step);
        valid = valid && step > 0;
        if (step == 0) step = 1;
    }
    WEFT_ASSERT(weft_utf8_valid(text, n) == valid);
}

/* Same length, nothing that a terminal obeys, printable ASCII untouched, nothing left to do. */
static void check_printable(const char *text) {
    size_t n = strlen(text);
    char *once = strdup(text), *twice;
    WEFT_ASSERT(once);
    weft_utf8_printable(once);
    WEFT_ASSERT(strlen(once) == n && weft_utf8_valid(once, n));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)once[i];
        WEFT_ASSERT(c >= 0x20 && c != 0x7f);
        WEFT_ASSERT(c != 0xc2 || (unsigned char)once[i + 1] >= 0xa0);
        WEFT_ASSERT(once[i] == text[i] || once[i] == '?');
        if (text[i] >= 0x20 && text[i] < 0x7f) WEFT_ASSERT(once[i] == text[i]);
    }
    twice = strdup(once);
    WEFT_ASSERT(twice);
    weft_utf8_printable(twice);
    WEFT_ASSERT(!strcmp(once, twice));
    free(once);
    free(twice);
}

/* ---------------------------------------------------------------------------------- numbers --- */

static void check_u64(const char *text) {
    uint64_t value = 1;
    size_t n = strlen(text);
    bool good = n > 0 && strspn(text, "0123456789") == n;
    /* Without its leading zeros a number that fits is at most as long, and then as large, as the
     * largest. */
    const char *digits = text + strspn(text, "0");
    size_t n_digits = strlen(digits);
    good =
        good && (n_digits < 20 || (n_digits == 20 && strcmp(digits, "18446744073709551615") <= 0));
    WEFT_ASSERT(!weft_parse_u64(text, UINT64_MAX, &value) == good);
    WEFT_ASSERT(value == (good ? strtoull(text, NULL, 10) : 0));
    if (!good) return;
    uint64_t again;
    WEFT_ASSERT(!weft_parse_u64(text, value, &again) && again == value);
    if (value > 0) WEFT_ASSERT(weft_parse_u64(text, value - 1, &again) && again == 0);
}

/* [+-] digits [. digits] [e [+-] digits], at least one digit before the e. */
static bool looks_decimal(const char *text) {
    if (*text == '+' || *text == '-') text++;
    size_t whole = strspn(text, "0123456789"), part = 0;
    text += whole;
    if (*text == '.') {
        part = strspn(++text, "0123456789");
        text += part;
    }
    if (whole + part == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-') text++;
        size_t exponent = strspn(text, "0123456789");
        if (exponent == 0) return false;
        text += exponent;
    }
    return *text == '\0';
}

static void check_double(const char *text) {
    double value = 1;
    bool good = looks_decimal(text) && isfinite(strtod(text, NULL));
    WEFT_ASSERT(!weft_parse_double(text, &value) == good);
    WEFT_ASSERT(value == (good ? strtod(text, NULL) : 0.0));
}

static void check_size(const char *text) {
    uint64_t bytes = 1, again;
    weft_err err = weft_parse_size(text, &bytes);
    WEFT_ASSERT(!err || (err == WEFT_E_INVAL && bytes == 0));
    if (err) return;
    WEFT_ASSERT(bytes < (uint64_t)1 << 63);
    /* A unit is a power of 1024 or 1000, and a number without one means itself. */
    size_t n = strspn(text, "0123456789."), k = 0;
    WEFT_ASSERT(n > 0 && n < 32);
    char number[32];
    memcpy(number, text, n);
    number[n] = '\0';
    const char *unit = text + n;
    for (const char *letters = "KMGT";
         k < 4 && *unit && toupper((unsigned char)*unit) != letters[k];)
        k++;
    double factor = pow(strlen(unit) == 2 ? 1000.0 : 1024.0, (double)(k + 1));
    if (!*unit || !strcmp(unit, "B")) factor = 1;
    WEFT_ASSERT(strlen(unit) <= 3 && bytes == (uint64_t)(strtod(number, NULL) * factor));
    char plain[32];
    (void)snprintf(plain, sizeof plain, "%llu", (unsigned long long)bytes);
    WEFT_ASSERT(bytes > 1ull << 53 || (!weft_parse_size(plain, &again) && again == bytes));
}

static void check_bool(const char *text) {
    bool value = true;
    bool yes = !strcasecmp(text, "1") || !strcasecmp(text, "true") || !strcasecmp(text, "yes") ||
               !strcasecmp(text, "on");
    bool no = !strcasecmp(text, "0") || !strcasecmp(text, "false") || !strcasecmp(text, "no") ||
              !strcasecmp(text, "off");
    WEFT_ASSERT(!weft_parse_bool(text, &value) == (yes || no));
    WEFT_ASSERT(value == yes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    check_utf8(bytes, n);
    char *text = calloc(n + 1, 1);
    WEFT_ASSERT(text);
    if (n > 0) memcpy(text, bytes, n);
    check_printable(text);
    check_u64(text);
    check_double(text);
    check_size(text);
    check_bool(text);
    free(text);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "",
        "0",
        "18446744073709551615",
        "18446744073709551616",
        "00000000000000000000001",
        "-1.5e3",
        ".5",
        "1e308",
        "1e309",
        "0x1p3",
        "nan",
        "+infinity",
        "5.",
        "1e-400",
        "512MiB",
        "1.5GiB",
        "64kB",
        "2G",
        "1TB",
        "10B",
        "9007199254740993",
        "8388607TiB",
        "true",
        "OFF",
        "yes",
        "1",
        "a\xc2\x80\xdf\xbf",
        "\xe0\xa0\x80\xed\x9f\xbf",
        "\xee\x80\x80\xef\xbf\xbf",
        "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
        "\xc0\xaf\xed\xa0\x80",
        "\xf4\x90\x80\x80\xfe\xff",
        "text with\ttabs\r\n and \x1b[31m and \xc2\x9b",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        add(seeds[i], strlen(seeds[i]));
}
