/* json — values from JSON, and to JSON as Python's json module writes it. */
#ifndef WEFT_TMPL_JSON_H
#define WEFT_TMPL_JSON_H

#include <jansson.h>

#include "values/value.h"

weft_err wefti_tmpl_from_json(struct wefti_tmpl_run *run, const json_t *json,
                              struct wefti_tmpl_value *out);
struct wefti_tmpl_json_style {
    bool ascii, sort;
    bool indented;
    struct weft_str indent, item_sep, key_sep;
};
weft_err wefti_tmpl_to_json(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                            const struct wefti_tmpl_json_style *style, struct weft_buf *out);

#endif
