/* grammar/number: sets of numbers as expressions over how JSON writes them.
 *
 * With bounds or other conditions numbers are plain decimals, so many digits at most before and behind the
 * point, so that "less than" is a regular language; the empty condition takes exponents, too. Zero has
 * no minus. Most readers make doubles of numbers: under a condition one with a point has 15 digits at most, of which
 * no two make the same double, so what is less by its digits is less for them, too.
 */
#ifndef WEFTI_GRAMMAR_NUMBER_H
#define WEFTI_GRAMMAR_NUMBER_H

#include <jansson.h>

#include "expr/expr.h"

#define WEFTI_DIGITS_MAX 64u /* of a number in a schema */

/* How numbers are written. */
struct wefti_numbers {
    wefti_expr_pool *pool; /* borrowed */
    uint32_t n_digits;     /* at most, on either side of the point; not 0 */
    /* Decimals without a sign: all, and those which have few digits if they have a point. */
    wefti_expr long_sizes, sizes;
};

void wefti_numbers_init(struct wefti_numbers *in, wefti_expr_pool *pool, uint32_t n_digits);

/* Digits of the whole part without zeros before it ("0" is one), and of the fraction without zeros behind. */
struct wefti_decimal {
    bool is_negative;
    uint32_t n_whole, n_fraction;
    char whole[WEFTI_DIGITS_MAX], fraction[WEFTI_DIGITS_MAX];
};

/* False: more digits than there may be. A number with a point or an exponent is what a double makes of it. */
bool wefti_decimal_read(struct wefti_decimal *decimal, const json_t *number);

/* Whether no plain decimal is that number: it has too many digits. */
bool wefti_decimal_is_odd(const struct wefti_decimal *decimal);

wefti_expr wefti_numbers_all(const struct wefti_numbers *in);   /* with exponents */
wefti_expr wefti_numbers_plain(const struct wefti_numbers *in); /* decimals, as under a condition */
wefti_expr wefti_numbers_integers(const struct wefti_numbers *in); /* 1.0 is one */
wefti_expr wefti_numbers_without_point(const struct wefti_numbers *in);
wefti_expr wefti_numbers_equal(const struct wefti_numbers *in, const struct wefti_decimal *to);
/* At least (is_least) or at most `bound`, or beyond it. */
wefti_expr wefti_numbers_from(const struct wefti_numbers *in, const struct wefti_decimal *bound,
                              bool is_least, bool is_beyond);
/* NONE where the divisor is zero or has too many digits. */
wefti_expr wefti_numbers_multiples(const struct wefti_numbers *in, const struct wefti_decimal *of);

#endif
