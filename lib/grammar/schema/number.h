/* grammar/number: sets of numbers as expressions over how JSON writes them.
 *
 * With bounds or other conditions numbers are plain decimals, at most 64 digits before and behind the
 * point, so that "less than" is a regular language; the empty condition takes exponents, too. Zero has
 * no minus.
 */
#ifndef WEFTI_GRAMMAR_NUMBER_H
#define WEFTI_GRAMMAR_NUMBER_H

#include <jansson.h>

#include "expr/expr.h"

#define WEFTI_DIGITS_MAX 64u

/* Digits of the whole part without zeros before it ("0" is one), and of the fraction without zeros behind. */
struct wefti_decimal {
    bool is_negative;
    uint32_t n_whole, n_fraction;
    char whole[WEFTI_DIGITS_MAX], fraction[WEFTI_DIGITS_MAX];
};

/* False: more digits than there may be, or a whole number of over 2^53 that was read as a real. */
bool wefti_decimal_read(struct wefti_decimal *decimal, const json_t *number);

wefti_expr wefti_numbers_all(wefti_expr_pool *pool);      /* with exponents */
wefti_expr wefti_numbers_plain(wefti_expr_pool *pool);    /* decimals */
wefti_expr wefti_numbers_integers(wefti_expr_pool *pool); /* 1.0 is one */
wefti_expr wefti_numbers_without_point(wefti_expr_pool *pool);
wefti_expr wefti_numbers_equal(wefti_expr_pool *pool, const struct wefti_decimal *to);
/* At least (is_least) or at most `bound`, or beyond it. */
wefti_expr wefti_numbers_from(wefti_expr_pool *pool, const struct wefti_decimal *bound,
                              bool is_least, bool is_beyond);
/* NONE where the divisor is zero or has too many digits. */
wefti_expr wefti_numbers_multiples(wefti_expr_pool *pool, const struct wefti_decimal *of);

#endif
