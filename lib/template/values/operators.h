/* operators — arithmetic, and % of strings. */
#ifndef WEFT_TMPL_OPERATORS_H
#define WEFT_TMPL_OPERATORS_H

#include "syntax/tree.h"
#include "values/value.h"

weft_err wefti_tmpl_arithmetic(struct wefti_tmpl_run *run, enum wefti_tmpl_expr_kind op,
                               struct wefti_tmpl_value a, struct wefti_tmpl_value b,
                               struct wefti_tmpl_value *out);
/* Python's % of a string. */
weft_err wefti_tmpl_format(struct wefti_tmpl_run *run, struct wefti_tmpl_value format,
                           struct wefti_tmpl_value by, struct wefti_tmpl_value *out);

#endif
