/* codec/unicode — classes of characters. */
#ifndef WEFT_CODEC_UNICODE_H
#define WEFT_CODEC_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

bool weft_unicode_is_space(uint32_t code); /* Unicode's White_Space */
bool weft_unicode_is_word(uint32_t code);  /* letters, marks, decimal digits, connectors */

/* Decimal digits; letters and numbers of all kinds. What no character has the number of yet is both: a later version
 * of Unicode may give it to one. */
bool weft_unicode_may_be_digit(uint32_t code);
bool weft_unicode_may_be_alnum(uint32_t code);

#endif
