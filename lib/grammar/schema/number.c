#include "schema/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* 2^53: from here on doubles are whole, and what they are has other digits than the shortest ones for them: 1e23 is
 * 99999999999999991611392. */
#define EXACT_FROM 9007199254740992.0
#define DOUBLE_WHOLE_MAX 309 /* digits */
#define SHORT_DIGITS 15u     /* DBL_DIG: of so many a double keeps each */
#define PLACES_MAX 300u      /* behind the point; doubles go on to 1e-307 before they lose digits */

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
    if (!isfinite(value)) return false;
    decimal->is_negative = value < 0;
    if (fabs(value) >= EXACT_FROM) {
        char exact[DOUBLE_WHOLE_MAX + 1];
        return put_digits(decimal, exact, snprintf(exact, sizeof exact, "%.0f", fabs(value)));
    }
    int point = shortest(fabs(value), digits);
    return point >= -(int)WEFTI_DIGITS_MAX && put_digits(decimal, digits, point);
}

/* ------------------------------------------------------------------------------------- parts --- */

static wefti_expr text(const struct wefti_numbers *in, const char *bytes, uint32_t n) {
    return wefti_expr_literal(in->pool, bytes, n);
}

static wefti_expr digits(const struct wefti_numbers *in, char first, uint32_t min, uint32_t max) {
    return wefti_expr_repeat(in->pool, wefti_expr_range(in->pool, (unsigned char)first, '9'), min,
                             max);
}

static wefti_expr zeros(const struct wefti_numbers *in, uint32_t min) {
    return wefti_expr_repeat(in->pool, text(in, "0", 1), min, in->n_digits);
}

static wefti_expr maybe(const struct wefti_numbers *in, wefti_expr a) {
    return wefti_expr_repeat(in->pool, a, 0, 1);
}

static wefti_expr fraction(const struct wefti_numbers *in) {
    return wefti_expr_cat(in->pool, text(in, ".", 1), digits(in, '0', 1, in->n_digits));
}

static wefti_expr whole_part(const struct wefti_numbers *in) {
    wefti_expr more =
        wefti_expr_cat(in->pool, digits(in, '1', 1, 1), digits(in, '0', 0, in->n_digits - 1));
    return wefti_expr_alt2(in->pool, text(in, "0", 1), more);
}

static uint32_t at_most(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* A whole part that is not zero, and a fraction. From the end: what may stand behind so many digits. */
static wefti_expr short_above_one(const struct wefti_numbers *in) {
    wefti_expr behind = WEFTI_EXPR_NONE, point = text(in, ".", 1);
    for (uint32_t n = at_most(SHORT_DIGITS - 1, in->n_digits); n > 0; n--) {
        uint32_t n_left = at_most(SHORT_DIGITS - n, in->n_digits);
        wefti_expr ends = wefti_expr_cat(in->pool, point, digits(in, '0', 1, n_left));
        wefti_expr more = wefti_expr_cat(in->pool, digits(in, '0', 1, 1), behind);
        behind = wefti_expr_alt2(in->pool, ends, more);
    }
    return wefti_expr_cat(in->pool, digits(in, '1', 1, 1), behind);
}

static wefti_expr short_below_one(const struct wefti_numbers *in) {
    uint32_t n_places = at_most(in->n_digits, PLACES_MAX);
    uint32_t n_digits = at_most(SHORT_DIGITS, n_places);
    wefti_expr zero = text(in, "0", 1);
    wefti_expr some =
        wefti_expr_cat(in->pool, digits(in, '1', 1, 1), digits(in, '0', 0, n_digits - 1));
    some =
        wefti_expr_cat(in->pool, wefti_expr_repeat(in->pool, zero, 0, n_places - n_digits), some);
    /* Where there are few places the zeros before take some of the digits' room. */
    wefti_expr few = wefti_expr_and2(in->pool, digits(in, '0', 1, n_digits),
                                     wefti_expr_not(in->pool, zeros(in, 0)));
    some = wefti_expr_alt2(in->pool, wefti_expr_alt2(in->pool, some, few), zeros(in, 1));
    return wefti_expr_cat(in->pool, text(in, "0.", 2), some);
}

/* What may stand behind the whole part for a fraction of at least `digits_of`, or over it. */
static wefti_expr fraction_from(const struct wefti_numbers *in, const struct wefti_decimal *d,
                                bool is_beyond) {
    wefti_expr more = wefti_expr_cat(
        in->pool, zeros(in, 0),
        wefti_expr_cat(in->pool, digits(in, '1', 1, 1), digits(in, '0', 0, in->n_digits)));
    wefti_expr any = digits(in, '0', 0, in->n_digits), point = text(in, ".", 1);
    if (d->n_fraction == 0)
        return is_beyond ? wefti_expr_cat(in->pool, point, more) : maybe(in, fraction(in));
    wefti_expr all =
        wefti_expr_cat(in->pool, text(in, d->fraction, d->n_fraction), is_beyond ? more : any);
    for (uint32_t i = 0; i < d->n_fraction; i++) {
        if (d->fraction[i] == '9') continue;
        wefti_expr higher = wefti_expr_cat(
            in->pool, wefti_expr_range(in->pool, (unsigned char)(d->fraction[i] + 1), '9'), any);
        all = wefti_expr_alt2(in->pool, all,
                              wefti_expr_cat(in->pool, text(in, d->fraction, i), higher));
    }
    return wefti_expr_cat(in->pool, point, all);
}

/* Sizes of at least d's, or over it, however long: more digits, or a higher one first, or the same
 * and the fraction decides. */
static wefti_expr long_sizes_from(const struct wefti_numbers *in, const struct wefti_decimal *d,
                                  bool is_beyond) {
    wefti_expr behind = maybe(in, fraction(in));
    wefti_expr all =
        wefti_expr_cat(in->pool, text(in, d->whole, d->n_whole), fraction_from(in, d, is_beyond));
    if (d->n_whole < in->n_digits) {
        wefti_expr longer = wefti_expr_cat(in->pool, digits(in, '1', 1, 1),
                                           digits(in, '0', d->n_whole, in->n_digits - 1));
        all = wefti_expr_alt2(in->pool, all, wefti_expr_cat(in->pool, longer, behind));
    }
    for (uint32_t i = 0; i < d->n_whole; i++) {
        uint32_t n_left = d->n_whole - 1 - i;
        if (d->whole[i] == '9') continue;
        wefti_expr higher = wefti_expr_cat(
            in->pool, wefti_expr_range(in->pool, (unsigned char)(d->whole[i] + 1), '9'),
            wefti_expr_cat(in->pool, digits(in, '0', n_left, n_left), behind));
        all =
            wefti_expr_alt2(in->pool, all, wefti_expr_cat(in->pool, text(in, d->whole, i), higher));
    }
    return wefti_expr_and2(in->pool, all, in->long_sizes);
}

static bool is_zero(const struct wefti_decimal *d) {
    return d->n_whole == 1 && *d->whole == '0' && d->n_fraction == 0;
}

static wefti_expr sizes_from(const struct wefti_numbers *in, const struct wefti_decimal *d,
                             bool is_beyond) {
    if (is_zero(d) && !is_beyond) return in->sizes;
    return wefti_expr_and2(in->pool, long_sizes_from(in, d, is_beyond), in->sizes);
}

static wefti_expr negative(const struct wefti_numbers *in, wefti_expr size) {
    static const struct wefti_decimal zero = {.n_whole = 1, .whole = "0"};
    return wefti_expr_cat(in->pool, text(in, "-", 1),
                          wefti_expr_and2(in->pool, size, long_sizes_from(in, &zero, true)));
}

/* -------------------------------------------------------------------------------------- sets --- */

wefti_expr wefti_numbers_plain(const struct wefti_numbers *in) {
    return wefti_expr_alt2(in->pool, in->sizes, negative(in, in->sizes));
}

void wefti_numbers_init(struct wefti_numbers *in, wefti_expr_pool *pool, uint32_t n_digits) {
    *in = (struct wefti_numbers){.pool = pool, .n_digits = n_digits};
    in->long_sizes = wefti_expr_cat(pool, whole_part(in), maybe(in, fraction(in)));
    const wefti_expr sizes[] = {whole_part(in), short_above_one(in), short_below_one(in)};
    in->sizes = wefti_expr_alt(pool, sizes, 3);
}

static wefti_expr decimals(const struct wefti_numbers *in) {
    return wefti_expr_alt2(in->pool, in->long_sizes, negative(in, in->long_sizes));
}

wefti_expr wefti_numbers_all(const struct wefti_numbers *in) {
    wefti_expr sign = maybe(in, wefti_expr_alt2(in->pool, text(in, "+", 1), text(in, "-", 1)));
    wefti_expr e = wefti_expr_alt2(in->pool, text(in, "e", 1), text(in, "E", 1));
    wefti_expr exponent =
        wefti_expr_cat(in->pool, e, wefti_expr_cat(in->pool, sign, digits(in, '0', 1, 3)));
    wefti_expr all = decimals(in);
    return wefti_expr_alt2(in->pool, all, wefti_expr_cat(in->pool, all, exponent));
}

wefti_expr wefti_numbers_without_point(const struct wefti_numbers *in) {
    return wefti_expr_alt2(in->pool, whole_part(in), negative(in, whole_part(in)));
}

wefti_expr wefti_numbers_integers(const struct wefti_numbers *in) {
    wefti_expr no_fraction = maybe(in, wefti_expr_cat(in->pool, text(in, ".", 1), zeros(in, 1)));
    wefti_expr size = wefti_expr_cat(in->pool, whole_part(in), no_fraction);
    return wefti_expr_alt2(in->pool, size, negative(in, size));
}

bool wefti_decimal_is_odd(const struct wefti_decimal *decimal) {
    return decimal->n_fraction > 0 && decimal->n_whole + decimal->n_fraction > SHORT_DIGITS;
}

/* Zeros behind the point of a long integer would make a double of it, which is another number. */
wefti_expr wefti_numbers_equal(const struct wefti_numbers *in, const struct wefti_decimal *to) {
    wefti_expr behind = WEFTI_EXPR_EMPTY, point = text(in, ".", 1);
    if (to->n_fraction > 0)
        behind = wefti_expr_cat(in->pool, text(in, to->fraction, to->n_fraction), zeros(in, 0));
    else if (to->n_whole <= SHORT_DIGITS)
        behind = zeros(in, 1);
    if (behind != WEFTI_EXPR_EMPTY) behind = wefti_expr_cat(in->pool, point, behind);
    if (to->n_fraction == 0) behind = maybe(in, behind);
    wefti_expr size = wefti_expr_cat(in->pool, text(in, to->whole, to->n_whole), behind);
    size = to->is_negative ? negative(in, size) : size;
    return wefti_expr_and2(in->pool, size, decimals(in));
}

wefti_expr wefti_numbers_from(const struct wefti_numbers *in, const struct wefti_decimal *bound,
                              bool is_least, bool is_beyond) {
    wefti_expr outside = sizes_from(in, bound, is_beyond);
    wefti_expr not_outside = wefti_expr_and2(
        in->pool, in->sizes, wefti_expr_not(in->pool, sizes_from(in, bound, !is_beyond)));
    if (is_least && !bound->is_negative) return outside;
    if (is_least) return wefti_expr_alt2(in->pool, in->sizes, negative(in, not_outside));
    if (bound->is_negative) return negative(in, outside);
    return wefti_expr_alt2(in->pool, negative(in, in->sizes), not_outside);
}

wefti_expr wefti_numbers_multiples(const struct wefti_numbers *in, const struct wefti_decimal *of) {
    uint64_t m = 0;
    for (uint32_t i = 0; i < of->n_whole + of->n_fraction; i++) {
        char digit = i < of->n_whole ? of->whole[i] : of->fraction[i - of->n_whole];
        m = m * 10 + (uint64_t)(digit - '0');
        if (m > WEFTI_MULTIPLE_MAX) return WEFTI_EXPR_NONE;
    }
    if (m == 0 || of->is_negative) return WEFTI_EXPR_NONE;
    wefti_expr multiples = wefti_expr_multiples(in->pool, (uint32_t)m, of->n_fraction);
    wefti_expr sign = maybe(in, text(in, "-", 1));
    return wefti_expr_and2(in->pool, wefti_numbers_plain(in),
                           wefti_expr_cat(in->pool, sign, multiples));
}
