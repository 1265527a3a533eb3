/* base/parse — strict conversions of text from outside: the whole string or nothing. */
#ifndef WEFT_BASE_PARSE_H
#define WEFT_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

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
/* The least size from `bytes` on that this text says exactly, so that it can be typed. */
uint64_t weft_size_up(uint64_t bytes);

/* The next member of a list such as "1,4,16", without the blanks around it; moves *list behind it. False:
 * *list is NULL, as it is after the last. An empty list has one member and "1," has two, of no bytes:
 * callers refuse these, for whoever typed one meant something else. `separators` are "," or the
 * like; with a blank among them words may stand beside each other without a comma, too. */
bool weft_parse_member(const char **list, const char *separators, struct weft_str *member_out);

/* A member as weft_parse_u64 takes it. WEFT_E_INVAL: also if it is empty, or has over 20 digits. */
WEFT_MUST_CHECK weft_err weft_parse_member_u64(struct weft_str member, uint64_t max, uint64_t *out);

/* "1/0", "true/false", "yes/no", "on/off". */
WEFT_MUST_CHECK weft_err weft_parse_bool(const char *text, bool *out);

#endif
