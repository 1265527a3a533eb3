/* builtin — filters, tests, functions and methods: a table of each, and how they are called. */
#ifndef WEFT_TMPL_BUILTIN_H
#define WEFT_TMPL_BUILTIN_H

#include <string.h>

#include "values/run.h"

#define WEFTI_TMPL_PARAMS_MAX 5

struct wefti_tmpl_args {
    struct wefti_tmpl_list plain;
    struct wefti_tmpl_list named; /* names and values in turn */
};

/* One call of a builtin. */
struct wefti_tmpl_call {
    const struct wefti_tmpl_builtin *builtin;
    struct wefti_tmpl_value self; /* the value that a filter, test or method applies to */
    const struct wefti_tmpl_value *bound[WEFTI_TMPL_PARAMS_MAX]; /* by parameter; NULL: not given */
    const struct wefti_tmpl_args *args; /* all arguments, for those that take anything */
};

typedef weft_err wefti_tmpl_builtin_fn(struct wefti_tmpl_run *run,
                                       const struct wefti_tmpl_call *call,
                                       struct wefti_tmpl_value *out);

struct wefti_tmpl_builtin {
    const char *name;
    const char *params; /* names separated by spaces; "*": it reads call->args itself */
    wefti_tmpl_builtin_fn *run;
    int variant; /* tells apart the names that share a function; an enum beside it */
};

/* The last row of each has no name. */
extern const struct wefti_tmpl_builtin wefti_tmpl_filters[], wefti_tmpl_sequence_filters[],
    wefti_tmpl_tests[], wefti_tmpl_functions[], wefti_tmpl_string_methods[],
    wefti_tmpl_list_methods[], wefti_tmpl_dict_methods[], wefti_tmpl_loop_methods[];

/* NULL: no such name. */
const struct wefti_tmpl_builtin *wefti_tmpl_find_filter(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_test(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_function(struct weft_str name);
const struct wefti_tmpl_builtin *wefti_tmpl_find_method(enum wefti_tmpl_kind kind,
                                                        struct weft_str name);

weft_err wefti_tmpl_call_builtin(struct wefti_tmpl_run *run,
                                 const struct wefti_tmpl_builtin *builtin,
                                 struct wefti_tmpl_value self, const struct wefti_tmpl_args *args,
                                 struct wefti_tmpl_value *out);
weft_err wefti_tmpl_add_named(struct wefti_tmpl_run *run, struct wefti_tmpl_args *args,
                              struct weft_str name, struct wefti_tmpl_value value);

/* Arguments by type; `otherwise` if none was given. */
weft_err wefti_tmpl_arg_int(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            size_t idx, int64_t otherwise, int64_t *out);
weft_err wefti_tmpl_arg_str(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            size_t idx, const char *otherwise, struct weft_str *out);
static inline bool wefti_tmpl_arg_truth(const struct wefti_tmpl_call *call, size_t idx,
                                        bool otherwise) {
    return call->bound[idx] ? wefti_tmpl_truth(*call->bound[idx]) : otherwise;
}

#endif
