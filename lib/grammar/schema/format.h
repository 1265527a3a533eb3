/* grammar/format: the formats of JSON Schema that are asserted, as regular expressions. */
#ifndef WEFTI_GRAMMAR_FORMAT_H
#define WEFTI_GRAMMAR_FORMAT_H

#include <stdbool.h>

/* What all of the text matches (wefti_regex_expr, MATCH). NULL: *is_standard_out says whether the standard
 * names the format all the same; other names are annotations. */
const char *wefti_format_regex(const char *name, bool *is_standard_out);

#endif
