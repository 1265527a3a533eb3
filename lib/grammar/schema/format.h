/* grammar/format: the formats of JSON Schema that are asserted, as regular expressions. */
#ifndef WEFTI_GRAMMAR_FORMAT_H
#define WEFTI_GRAMMAR_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Adds what all of the text matches (wefti_regex_expr, MATCH), with so many digits of a number at most. Texts that
 * do not match it may be of the format unless they do not match *wide_out either; NULL: they are not of it. False:
 * *is_standard_out says whether the standard names the format all the same; other names are annotations. */
bool wefti_format_regex(const char *name, uint32_t n_digits, struct weft_buf *out,
                        const char **wide_out, bool *is_standard_out);

#endif
