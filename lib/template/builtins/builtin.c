/* Finds builtins by name, and calls them with their arguments bound. */
#include "builtins/builtin.h"

#include "base/check.h"

static const struct wefti_tmpl_builtin *find_in(const struct wefti_tmpl_builtin *table,
                                                struct weft_str name) {
    for (; table->name; table++)
        if (weft_str_is(name, table->name, strlen(table->name))) return table;
    return NULL;
}

const struct wefti_tmpl_builtin *wefti_tmpl_find_filter(struct weft_str name) {
    const struct wefti_tmpl_builtin *found = find_in(wefti_tmpl_filters, name);
    return found ? found : find_in(wefti_tmpl_sequence_filters, name);
}

const struct wefti_tmpl_builtin *wefti_tmpl_find_test(struct weft_str name) {
    return find_in(wefti_tmpl_tests, name);
}

const struct wefti_tmpl_builtin *wefti_tmpl_find_function(struct weft_str name) {
    return find_in(wefti_tmpl_functions, name);
}

const struct wefti_tmpl_builtin *wefti_tmpl_find_method(enum wefti_tmpl_kind kind,
                                                        struct weft_str name) {
    switch (kind) {
    case WEFTI_TMPL_STR:
        return find_in(wefti_tmpl_string_methods, name);
    case WEFTI_TMPL_LIST:
    case WEFTI_TMPL_TUPLE:
        return find_in(wefti_tmpl_list_methods, name);
    case WEFTI_TMPL_DICT:
        return find_in(wefti_tmpl_dict_methods, name);
    case WEFTI_TMPL_LOOP:
        return find_in(wefti_tmpl_loop_methods, name);
    default:
        return NULL;
    }
}

/* --- arguments ------------------------------------------------------------------------------ */

weft_err wefti_tmpl_add_named(struct wefti_tmpl_run *run, struct wefti_tmpl_args *args,
                              struct weft_str name, struct wefti_tmpl_value value) {
    weft_err err = wefti_tmpl_list_add(run, &args->named, wefti_tmpl_of_str(name.data, name.len));
    return err ? err : wefti_tmpl_list_add(run, &args->named, value);
}

/* The place of `name` in a list separated by spaces, or -1. *n_out: the length of the list. */
static int param_place(const char *params, struct weft_str name, uint32_t *n_out) {
    int place = -1;
    *n_out = 0;
    for (const char *at = params; *at; (*n_out)++) {
        size_t len = strcspn(at, " ");
        if (weft_str_is(name, at, len)) place = (int)*n_out;
        at += len + (at[len] == ' ');
    }
    return place;
}

static weft_err bind_params(struct wefti_tmpl_run *run, struct wefti_tmpl_call *call) {
    const struct wefti_tmpl_args *args = call->args;
    const char *params = call->builtin->params;
    uint32_t n;
    (void)param_place(params, (struct weft_str){"", 0}, &n);
    WEFT_ASSERT(n <= WEFTI_TMPL_PARAMS_MAX);
    if (args->plain.n > n)
        return wefti_tmpl_fault(run, "%s takes %u arguments, not %u", call->builtin->name, n,
                                args->plain.n);
    for (uint32_t i = 0; i < args->plain.n; i++)
        call->bound[i] = &args->plain.items[i];
    for (uint32_t i = 0; i < args->named.n; i += 2) {
        struct weft_str name = wefti_tmpl_text_of(args->named.items[i]);
        int place = param_place(params, name, &n);
        if (place < 0 || call->bound[place])
            return wefti_tmpl_fault(run, "%s takes no argument %.*s%s", call->builtin->name,
                                    (int)(name.len < 60 ? name.len : 60), name.data,
                                    place < 0 ? "" : " twice");
        call->bound[place] = &args->named.items[i + 1];
    }
    return WEFT_OK;
}

weft_err wefti_tmpl_call_builtin(struct wefti_tmpl_run *run,
                                 const struct wefti_tmpl_builtin *builtin,
                                 struct wefti_tmpl_value self, const struct wefti_tmpl_args *args,
                                 struct wefti_tmpl_value *out) {
    WEFT_ASSERT(builtin);
    WEFT_ASSERT(builtin->run);
    WEFT_ASSERT(args->named.n % 2 == 0);
    struct wefti_tmpl_call call = {.builtin = builtin, .self = self, .args = args};
    weft_err err = wefti_tmpl_charge(run, 1);
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    if (!err && strcmp(builtin->params, "*") != 0) err = bind_params(run, &call);
    return err ? err : builtin->run(run, &call, out);
}

weft_err wefti_tmpl_arg_int(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            size_t idx, int64_t otherwise, int64_t *out) {
    WEFT_ASSERT(idx < WEFTI_TMPL_PARAMS_MAX);
    const struct wefti_tmpl_value *value = call->bound[idx];
    *out = otherwise;
    if (!value || value->kind == WEFTI_TMPL_NONE) return WEFT_OK;
    if (!wefti_tmpl_is_int(*value))
        return wefti_tmpl_fault(run, "%s wants a whole number, not %s", call->builtin->name,
                                wefti_tmpl_kind_name(value));
    *out = value->number;
    return WEFT_OK;
}

weft_err wefti_tmpl_arg_str(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            size_t idx, const char *otherwise, struct weft_str *out) {
    WEFT_ASSERT(idx < WEFTI_TMPL_PARAMS_MAX);
    const struct wefti_tmpl_value *value = call->bound[idx];
    *out = (struct weft_str){otherwise, otherwise ? strlen(otherwise) : 0};
    if (!value || (otherwise == NULL && value->kind == WEFTI_TMPL_NONE)) return WEFT_OK;
    if (value->kind != WEFTI_TMPL_STR)
        return wefti_tmpl_fault(run, "%s wants a string, not %s", call->builtin->name,
                                wefti_tmpl_kind_name(value));
    *out = wefti_tmpl_text_of(*value);
    return WEFT_OK;
}
