/* codec/unicode — classes of characters. */
#ifndef WEFT_CODEC_UNICODE_H
#define WEFT_CODEC_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

bool weft_unicode_is_space(uint32_t code); /* Unicode's White_Space */
bool weft_unicode_is_word(uint32_t code);  /* letters, marks, decimal digits, connectors */

#endif
