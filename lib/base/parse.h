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

/* The other way round, as people read it: "900 B", "1.4 KiB", "13 MiB", "2.1 GiB". Returns `out`. */
#define WEFT_SIZE_TEXT_BYTES 16
const char *weft_size_text(uint64_t bytes, char out[WEFT_SIZE_TEXT_BYTES]);

/* "1/0", "true/false", "yes/no", "on/off". */
WEFT_MUST_CHECK weft_err weft_parse_bool(const char *text, bool *out);

#endif
