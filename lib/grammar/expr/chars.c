#include "expr/chars.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define RANGES_MAX 65536u
#define SURROGATE_FIRST 0xd800u
#define SURROGATE_LAST 0xdfffu

void wefti_chars_fini(struct wefti_chars *chars) {
    free(chars->ranges);
    *chars = (struct wefti_chars){0};
}

void wefti_chars_add(struct wefti_chars *chars, uint32_t first, uint32_t last) {
    if (first > last || chars->failed) return;
    if (chars->n == chars->cap) {
        uint32_t cap = chars->cap ? 2 * chars->cap : 1;
        struct wefti_char_range *ranges =
            cap > RANGES_MAX ? NULL : realloc(chars->ranges, cap * sizeof *ranges);
        if (!ranges) {
            chars->failed = true;
            return;
        }
        chars->ranges = ranges;
        chars->cap = cap;
    }
    chars->ranges[chars->n++] = (struct wefti_char_range){first, last};
}

void wefti_chars_add_all(struct wefti_chars *chars, const struct wefti_chars *more) {
    for (uint32_t i = 0; i < more->n; i++)
        wefti_chars_add(chars, more->ranges[i].first, more->ranges[i].last);
    chars->failed = chars->failed || more->failed;
}

static int compare(const void *x, const void *y) {
    const struct wefti_char_range *a = x, *b = y;
    return a->first < b->first ? -1 : a->first > b->first;
}

void wefti_chars_sort(struct wefti_chars *chars) {
    uint32_t n = 0;
    if (chars->n > 1) qsort(chars->ranges, chars->n, sizeof *chars->ranges, compare);
    for (uint32_t i = 0; i < chars->n; i++) {
        struct wefti_char_range range = chars->ranges[i];
        struct wefti_char_range *last = n ? &chars->ranges[n - 1] : NULL;
        if (last && range.first <= last->last + 1) {
            if (range.last > last->last) last->last = range.last;
        } else {
            chars->ranges[n++] = range;
        }
    }
    chars->n = n;
}

void wefti_chars_invert(struct wefti_chars *chars) {
    struct wefti_chars others = {0};
    uint32_t from = 0;
    wefti_chars_add(chars, SURROGATE_FIRST, SURROGATE_LAST);
    wefti_chars_sort(chars);
    for (uint32_t i = 0; i < chars->n; i++) {
        if (chars->ranges[i].first > from)
            wefti_chars_add(&others, from, chars->ranges[i].first - 1);
        from = chars->ranges[i].last + 1;
    }
    wefti_chars_add(&others, from, WEFTI_CHAR_MAX);
    others.failed = others.failed || chars->failed;
    wefti_chars_fini(chars);
    *chars = others;
}

static uint32_t write_utf8(uint32_t c, unsigned char out[4]) {
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (uint32_t i = n; i-- > 1; c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3f));
    out[0] = (unsigned char)(c | (n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0));
    return n;
}

/* Texts of `n` bytes between two of the same length, whose bytes but the first go from 80 to BF: the
 * first byte's own piece, all between, the last byte's own piece. */
static wefti_expr between(wefti_expr_pool *pool, const unsigned char *first,
                          const unsigned char *last, uint32_t n) {
    static const unsigned char low[3] = {0x80, 0x80, 0x80}, high[3] = {0xbf, 0xbf, 0xbf};
    if (n == 1) return wefti_expr_range(pool, *first, *last);
    if (*first == *last)
        return wefti_expr_cat(pool, wefti_expr_range(pool, *first, *first),
                              between(pool, first + 1, last + 1, n - 1));
    wefti_expr parts[3];
    size_t n_parts = 0;
    unsigned from = *first, to = *last;
    if (memcmp(first + 1, low, n - 1) != 0) {
        parts[n_parts++] = wefti_expr_cat(pool, wefti_expr_range(pool, *first, *first),
                                          between(pool, first + 1, high, n - 1));
        from++;
    }
    if (memcmp(last + 1, high, n - 1) != 0) {
        parts[n_parts++] = wefti_expr_cat(pool, wefti_expr_range(pool, *last, *last),
                                          between(pool, low, last + 1, n - 1));
        to--;
    }
    if (from <= to)
        parts[n_parts++] =
            wefti_expr_cat(pool, wefti_expr_range(pool, (unsigned char)from, (unsigned char)to),
                           between(pool, low, high, n - 1));
    return wefti_expr_alt(pool, parts, n_parts);
}

static wefti_expr range_expr(wefti_expr_pool *pool, uint32_t first, uint32_t last) {
    static const uint32_t ends[] = {0x7f, 0x7ff, SURROGATE_FIRST - 1, 0xffff, WEFTI_CHAR_MAX};
    static const uint32_t starts[] = {0, 0x80, 0x800, SURROGATE_LAST + 1, 0x10000};
    wefti_expr whole = WEFTI_EXPR_NONE;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        unsigned char from[4] = {0}, to[4] = {0};
        uint32_t low = first > starts[i] ? first : starts[i],
                 high = last < ends[i] ? last : ends[i];
        if (low > high) continue;
        uint32_t n = write_utf8(low, from);
        (void)write_utf8(high, to);
        whole = wefti_expr_alt2(pool, whole, between(pool, from, to, n));
    }
    return whole;
}

static void add_byte(struct wefti_byte_set *set, unsigned char byte) {
    set->bits[byte / 64] |= (uint64_t)1 << (byte % 64);
}

/* Characters that are written with a backslash. What follows it is a few sets of bytes, not fifty texts: any
 * character of a string would be an expression of so many parts. */
struct escapes {
    struct wefti_byte_set letters,
        low[2]; /* of \n and the like; the last digit of \u000x and \u001x */
};

static void add_escape(struct escapes *to, uint32_t c) {
    static const char named[] = "\b\f\n\r\t\"\\/", letters[] = "bfnrt\"\\/";
    static const char digits[] = "0123456789abcdef", capitals[] = "0123456789ABCDEF";
    const char *name = memchr(named, (int)c, sizeof named - 1);
    if (name) add_byte(&to->letters, (unsigned char)letters[name - named]);
    if (c >= 0x20) return;
    add_byte(&to->low[c >> 4], (unsigned char)digits[c & 15]);
    add_byte(&to->low[c >> 4], (unsigned char)capitals[c & 15]);
}

static wefti_expr escapes_expr(wefti_expr_pool *pool, const struct escapes *escapes) {
    wefti_expr numbers = WEFTI_EXPR_NONE;
    for (int i = 0; i < 2; i++) {
        wefti_expr low = wefti_expr_set(pool, &escapes->low[i]);
        if (low == WEFTI_EXPR_NONE) continue;
        wefti_expr high = wefti_expr_literal(pool, &"01"[i], 1);
        numbers = wefti_expr_alt2(pool, numbers, wefti_expr_cat(pool, high, low));
    }
    if (numbers != WEFTI_EXPR_NONE)
        numbers = wefti_expr_cat(pool, wefti_expr_literal(pool, "u00", 3), numbers);
    wefti_expr all = wefti_expr_alt2(pool, wefti_expr_set(pool, &escapes->letters), numbers);
    if (all == WEFTI_EXPR_NONE) return all;
    return wefti_expr_cat(pool, wefti_expr_literal(pool, "\\", 1), all);
}

wefti_expr wefti_chars_expr(wefti_expr_pool *pool, struct wefti_chars *chars,
                            enum wefti_writing writing) {
    struct wefti_byte_set ascii = {{0}};
    struct escapes escapes = {0};
    wefti_chars_sort(chars);
    for (uint32_t i = 0; i < chars->n; i++) {
        for (uint32_t c = chars->ranges[i].first; c <= chars->ranges[i].last && c < 0x80; c++) {
            bool is_plain = c >= 0x20 && c != '"' && c != '\\';
            if (is_plain || writing == WEFTI_PLAIN) add_byte(&ascii, (unsigned char)c);
            if (writing == WEFTI_IN_JSON) add_escape(&escapes, c);
        }
    }
    wefti_expr whole =
        wefti_expr_alt2(pool, escapes_expr(pool, &escapes), wefti_expr_set(pool, &ascii));
    for (uint32_t i = 0; i < chars->n; i++) {
        struct wefti_char_range range = chars->ranges[i];
        if (range.first < 0x80) range.first = 0x80;
        if (range.first <= range.last)
            whole = wefti_expr_alt2(pool, whole, range_expr(pool, range.first, range.last));
    }
    if (writing == WEFTI_IN_JSON) wefti_expr_chars(pool, whole);
    return whole;
}

wefti_expr wefti_chars_any(wefti_expr_pool *pool, enum wefti_writing writing) {
    struct wefti_chars all = {0};
    wefti_chars_add(&all, 0, WEFTI_CHAR_MAX);
    wefti_expr any = wefti_chars_expr(pool, &all, writing);
    wefti_chars_fini(&all);
    return any;
}
