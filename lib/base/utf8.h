/* base/utf8 — which bytes are a character: the one place that knows the forms of UTF-8.
 *
 * Errors and log lines need it, so it stands here; codec/utf8.h turns characters into numbers and
 * back, and cleans whole texts. */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes at the front of `bytes` that are a well-formed UTF-8 character (*whole_out) or the
 * beginning of one that breaks off there (Unicode's "maximal subpart"); 0: neither. */
size_t weft_utf8_start(const char *bytes, size_t len, bool *whole_out);

/* Bytes of the well-formed UTF-8 character that `bytes` begins with, 1 to 4; 0 if it begins with
 * none (ill-formed, cut short, or len 0). */
size_t weft_utf8_next(const char *bytes, size_t len);

/* True when `len` bytes are well-formed UTF-8 (no surrogates, no overlong forms). */
bool weft_utf8_valid(const char *bytes, size_t len);

/* Overwrites control characters (U+0000..1F and U+007F..9F: a terminal obeys them), separators of lines
 * and what turns the direction of a text (U+2028..2E, U+2066..69), and ill-formed bytes of a terminated
 * string with '?', byte for byte. */
void weft_utf8_printable(char *text);

#endif
