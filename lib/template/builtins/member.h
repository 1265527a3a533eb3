/* member — members, subscripts and slices. */
#ifndef WEFT_TMPL_MEMBER_H
#define WEFT_TMPL_MEMBER_H

#include "values/run.h"

weft_err wefti_tmpl_member(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                           struct weft_str name, struct wefti_tmpl_value *out);
weft_err wefti_tmpl_index(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                          struct wefti_tmpl_value by, struct wefti_tmpl_value *out);
/* Absent bounds are NONE. */
weft_err wefti_tmpl_slice(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                          const struct wefti_tmpl_value bounds[3], struct wefti_tmpl_value *out);

#endif
