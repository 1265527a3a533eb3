/* eval — runs a compiled template: expressions (eval.c), macros and loops that are called (call.c),
 * statements (run.c). */
#ifndef WEFT_TMPL_EVAL_H
#define WEFT_TMPL_EVAL_H

#include "builtins/builtin.h"
#include "builtins/member.h"
#include "values/run.h"

weft_err wefti_tmpl_eval(struct wefti_tmpl_run *run, uint32_t idx, struct wefti_tmpl_value *out);
/* A call's expression, with `caller` as one more argument. */
weft_err wefti_tmpl_eval_call_with(struct wefti_tmpl_run *run, uint32_t idx,
                                   struct wefti_tmpl_value caller, struct wefti_tmpl_value *out);
weft_err wefti_tmpl_run_body(struct wefti_tmpl_run *run, uint32_t first);
weft_err wefti_tmpl_run_loop(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                             struct wefti_tmpl_value over, uint32_t depth);
weft_err wefti_tmpl_bind_target(struct wefti_tmpl_run *run, uint32_t target,
                                struct wefti_tmpl_value value);
weft_err wefti_tmpl_new_macro(struct wefti_tmpl_run *run, const struct wefti_tmpl_node *node,
                              struct wefti_tmpl_value *out);

weft_err wefti_tmpl_call_value(struct wefti_tmpl_run *run, struct wefti_tmpl_value callee,
                               const struct wefti_tmpl_args *args, struct wefti_tmpl_value *out);

/* A call's arguments, which begin at `first`. */
weft_err wefti_tmpl_eval_args(struct wefti_tmpl_run *run, uint32_t first,
                              struct wefti_tmpl_args *args);

#endif
