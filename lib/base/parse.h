/* base/parse — strict conversions of text from outside: the whole string or nothing. */
#ifndef WEFT_BASE_PARSE_H
#define WEFT_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Decimal, no sign, no spaces. WEFT_E_INVAL: anything else, or over `max`; *out is then 0. */
WEFT_MUST_CHECK weft_err weft_parse_u64(const char *text, uint64_t max, uint64_t *out);

/* Finite decimal floating point in the C locale's form. */
WEFT_MUST_CHECK weft_err weft_parse_double(const char *text, double *out);

/* "123", "64KiB", "16MiB", "2GiB", "1TiB" and the short forms K, M, G, T (all powers of 1024);
 * "kB", "MB", "GB", "TB" are powers of 1000. Fractions such as "1.5GiB" are fine. */
WEFT_MUST_CHECK weft_err weft_parse_size(const char *text, uint64_t *bytes_out);

/* "1/0", "true/false", "yes/no", "on/off". */
WEFT_MUST_CHECK weft_err weft_parse_bool(const char *text, bool *out);

/* Bytes at the front of `bytes` that are a well-formed UTF-8 character (*whole_out) or the
 * beginning of one that breaks off there (Unicode's "maximal subpart"); 0: neither. */
size_t weft_utf8_start(const char *bytes, size_t len, bool *whole_out);

/* Bytes of the well-formed UTF-8 character that `bytes` begins with, 1 to 4; 0 if it begins with
 * none (ill-formed, cut short, or len 0). */
size_t weft_utf8_next(const char *bytes, size_t len);

/* True when `len` bytes are well-formed UTF-8 (no surrogates, no overlong forms). */
bool weft_utf8_valid(const char *bytes, size_t len);

/* Overwrites control characters (U+0000..1F and U+007F..9F: a terminal obeys them) and ill-formed
 * bytes of a terminated string with '?', byte for byte. */
void weft_utf8_printable(char *text);

#endif
