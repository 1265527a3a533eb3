#include "schema/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Shortest digits that are read as the same number, and where the point is: 0.ddd * 10^point. */
static int shortest(double value, char digits[32]) {
    char text[40];
    int precision = 0, n = 0;
    do {
        (void)snprintf(text, sizeof text, "%.*e", precision, value);
    } while (precision++ < 17 && strtod(text, NULL) != value);
    for (const char *at = text; *at != 'e'; at++) {
        if (*at >= '0' && *at <= '9') digits[n++] = *at;
    }
    digits[n] = '\0';
    return atoi(strchr(text, 'e') + 1) + 1;
}

static bool put_digits(struct wefti_decimal *d, const char *digits, int point) {
    int n = (int)strlen(digits);
    *d = (struct wefti_decimal){.is_negative = d->is_negative};
    for (int i = point < 0 ? point : 0; i < n || i < point; i++) {
        char digit = i < 0 || i >= n ? '0' : digits[i];
        bool is_whole = i < point;
        if (is_whole && d->n_whole == 0 && digit == '0') continue;
        if ((is_whole ? d->n_whole : d->n_fraction) == WEFTI_DIGITS_MAX) return false;
        if (is_whole)
            d->whole[d->n_whole++] = digit;
        else
            d->fraction[d->n_fraction++] = digit;
    }
    if (d->n_whole == 0) d->whole[d->n_whole++] = '0';
    while (d->n_fraction > 0 && d->fraction[d->n_fraction - 1] == '0')
        d->n_fraction--;
    if (d->n_whole == 1 && *d->whole == '0' && d->n_fraction == 0) d->is_negative = false;
    return true;
}

bool wefti_decimal_read(struct wefti_decimal *decimal, const json_t *number) {
    char digits[32] = "";
    if (json_is_integer(number)) {
        json_int_t value = json_integer_value(number);
        uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
        int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
        decimal->is_negative = value < 0;
        return put_digits(decimal, digits, n);
    }
    double value = json_real_value(number);
    if (!isfinite(value) || (fabs(value) > 9007199254740992.0 && fabs(value) < 1e22)) return false;
    int point = shortest(fabs(value), digits);
    if (point > (int)WEFTI_DIGITS_MAX || point < -(int)WEFTI_DIGITS_MAX) return false;
    decimal->is_negative = value < 0;
    return put_digits(decimal, digits, point);
}

/* ------------------------------------------------------------------------------------- parts --- */

static wefti_expr text(wefti_expr_pool *pool, const char *bytes, uint32_t n) {
    return wefti_expr_literal(pool, bytes, n);
}

static wefti_expr digits(wefti_expr_pool *pool, char first, uint32_t min, uint32_t max) {
    return wefti_expr_repeat(pool, wefti_expr_range(pool, (unsigned char)first, '9'), min, max);
}

static wefti_expr zeros(wefti_expr_pool *pool, uint32_t min) {
    return wefti_expr_repeat(pool, text(pool, "0", 1), min, WEFTI_DIGITS_MAX);
}

static wefti_expr maybe(wefti_expr_pool *pool, wefti_expr a) {
    return wefti_expr_repeat(pool, a, 0, 1);
}

static wefti_expr fraction(wefti_expr_pool *pool) {
    return wefti_expr_cat(pool, text(pool, ".", 1), digits(pool, '0', 1, WEFTI_DIGITS_MAX));
}

static wefti_expr whole_part(wefti_expr_pool *pool) {
    wefti_expr more =
        wefti_expr_cat(pool, digits(pool, '1', 1, 1), digits(pool, '0', 0, WEFTI_DIGITS_MAX - 1));
    return wefti_expr_alt2(pool, text(pool, "0", 1), more);
}

/* Without a sign. */
static wefti_expr sizes(wefti_expr_pool *pool) {
    return wefti_expr_cat(pool, whole_part(pool), maybe(pool, fraction(pool)));
}

/* What may stand behind the whole part for a fraction of at least `digits_of`, or over it. */
static wefti_expr fraction_from(wefti_expr_pool *pool, const struct wefti_decimal *d,
                                bool is_beyond) {
    wefti_expr more = wefti_expr_cat(
        pool, zeros(pool, 0),
        wefti_expr_cat(pool, digits(pool, '1', 1, 1), digits(pool, '0', 0, WEFTI_DIGITS_MAX)));
    wefti_expr any = digits(pool, '0', 0, WEFTI_DIGITS_MAX), point = text(pool, ".", 1);
    if (d->n_fraction == 0)
        return is_beyond ? wefti_expr_cat(pool, point, more) : maybe(pool, fraction(pool));
    wefti_expr all =
        wefti_expr_cat(pool, text(pool, d->fraction, d->n_fraction), is_beyond ? more : any);
    for (uint32_t i = 0; i < d->n_fraction; i++) {
        if (d->fraction[i] == '9') continue;
        wefti_expr higher = wefti_expr_cat(
            pool, wefti_expr_range(pool, (unsigned char)(d->fraction[i] + 1), '9'), any);
        all = wefti_expr_alt2(pool, all, wefti_expr_cat(pool, text(pool, d->fraction, i), higher));
    }
    return wefti_expr_cat(pool, point, all);
}

/* Sizes of at least d's, or over it: more digits, or a higher one first, or the same and the fraction decides. */
static wefti_expr sizes_from(wefti_expr_pool *pool, const struct wefti_decimal *d, bool is_beyond) {
    wefti_expr behind = maybe(pool, fraction(pool));
    wefti_expr all =
        wefti_expr_cat(pool, text(pool, d->whole, d->n_whole), fraction_from(pool, d, is_beyond));
    if (d->n_whole < WEFTI_DIGITS_MAX) {
        wefti_expr longer = wefti_expr_cat(pool, digits(pool, '1', 1, 1),
                                           digits(pool, '0', d->n_whole, WEFTI_DIGITS_MAX - 1));
        all = wefti_expr_alt2(pool, all, wefti_expr_cat(pool, longer, behind));
    }
    for (uint32_t i = 0; i < d->n_whole; i++) {
        uint32_t n_left = d->n_whole - 1 - i;
        if (d->whole[i] == '9') continue;
        wefti_expr higher =
            wefti_expr_cat(pool, wefti_expr_range(pool, (unsigned char)(d->whole[i] + 1), '9'),
                           wefti_expr_cat(pool, digits(pool, '0', n_left, n_left), behind));
        all = wefti_expr_alt2(pool, all, wefti_expr_cat(pool, text(pool, d->whole, i), higher));
    }
    return wefti_expr_and2(pool, all, sizes(pool));
}

static wefti_expr negative(wefti_expr_pool *pool, wefti_expr size) {
    static const struct wefti_decimal zero = {.n_whole = 1, .whole = "0"};
    return wefti_expr_cat(pool, text(pool, "-", 1),
                          wefti_expr_and2(pool, size, sizes_from(pool, &zero, true)));
}

/* -------------------------------------------------------------------------------------- sets --- */

wefti_expr wefti_numbers_plain(wefti_expr_pool *pool) {
    return wefti_expr_alt2(pool, sizes(pool), negative(pool, sizes(pool)));
}

wefti_expr wefti_numbers_all(wefti_expr_pool *pool) {
    wefti_expr sign = maybe(pool, wefti_expr_alt2(pool, text(pool, "+", 1), text(pool, "-", 1)));
    wefti_expr e = wefti_expr_alt2(pool, text(pool, "e", 1), text(pool, "E", 1));
    wefti_expr exponent =
        wefti_expr_cat(pool, e, wefti_expr_cat(pool, sign, digits(pool, '0', 1, 3)));
    wefti_expr plain = wefti_numbers_plain(pool);
    return wefti_expr_alt2(pool, plain, wefti_expr_cat(pool, plain, exponent));
}

wefti_expr wefti_numbers_without_point(wefti_expr_pool *pool) {
    return wefti_expr_alt2(pool, whole_part(pool), negative(pool, whole_part(pool)));
}

wefti_expr wefti_numbers_integers(wefti_expr_pool *pool) {
    wefti_expr no_fraction = maybe(pool, wefti_expr_cat(pool, text(pool, ".", 1), zeros(pool, 1)));
    wefti_expr size = wefti_expr_cat(pool, whole_part(pool), no_fraction);
    return wefti_expr_alt2(pool, size, negative(pool, size));
}

wefti_expr wefti_numbers_equal(wefti_expr_pool *pool, const struct wefti_decimal *to) {
    wefti_expr behind = maybe(pool, wefti_expr_cat(pool, text(pool, ".", 1), zeros(pool, 1)));
    if (to->n_fraction > 0)
        behind = wefti_expr_cat(
            pool, text(pool, ".", 1),
            wefti_expr_cat(pool, text(pool, to->fraction, to->n_fraction), zeros(pool, 0)));
    wefti_expr size = wefti_expr_cat(pool, text(pool, to->whole, to->n_whole), behind);
    size = to->is_negative ? negative(pool, size) : size;
    return wefti_expr_and2(pool, size, wefti_numbers_plain(pool));
}

wefti_expr wefti_numbers_from(wefti_expr_pool *pool, const struct wefti_decimal *bound,
                              bool is_least, bool is_beyond) {
    wefti_expr outside = sizes_from(pool, bound, is_beyond);
    wefti_expr not_outside = wefti_expr_and2(
        pool, sizes(pool), wefti_expr_not(pool, sizes_from(pool, bound, !is_beyond)));
    if (is_least && !bound->is_negative) return outside;
    if (is_least) return wefti_expr_alt2(pool, sizes(pool), negative(pool, not_outside));
    if (bound->is_negative) return negative(pool, outside);
    return wefti_expr_alt2(pool, negative(pool, sizes(pool)), not_outside);
}

wefti_expr wefti_numbers_multiples(wefti_expr_pool *pool, const struct wefti_decimal *of) {
    uint64_t m = 0;
    for (uint32_t i = 0; i < of->n_whole + of->n_fraction; i++) {
        char digit = i < of->n_whole ? of->whole[i] : of->fraction[i - of->n_whole];
        m = m * 10 + (uint64_t)(digit - '0');
        if (m > WEFTI_MULTIPLE_MAX) return WEFTI_EXPR_NONE;
    }
    if (m == 0 || of->is_negative) return WEFTI_EXPR_NONE;
    wefti_expr multiples = wefti_expr_multiples(pool, (uint32_t)m, of->n_fraction);
    wefti_expr sign = maybe(pool, text(pool, "-", 1));
    return wefti_expr_and2(pool, wefti_numbers_plain(pool), wefti_expr_cat(pool, sign, multiples));
}
