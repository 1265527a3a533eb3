/* Functions that templates call by name. */
#include <stdio.h>

#include "base/check.h"
#include "builtins/builtin.h"

#define RANGE_MAX 100000 /* as in Jinja's sandbox */

/* Collects pairs from an optional dictionary and from named arguments. */
static weft_err gather(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                       struct wefti_tmpl_list *pairs) {
    const struct wefti_tmpl_args *args = call->args;
    weft_err err = WEFT_OK;
    if (args->plain.n > 1 || (args->plain.n == 1 && args->plain.items[0].kind != WEFTI_TMPL_DICT))
        return wefti_tmpl_fault(run, "%s takes a dictionary and named arguments",
                                call->builtin->name);
    if (args->plain.n == 1) {
        struct wefti_tmpl_value dict = args->plain.items[0];
        for (uint32_t i = 0; i < 2 * dict.n && !err; i++)
            err = wefti_tmpl_list_add(run, pairs, dict.items[i]);
    }
    for (uint32_t i = 0; i < args->named.n && !err; i += 2)
        err = wefti_tmpl_pairs_put(run, pairs, args->named.items[i], args->named.items[i + 1]);
    return err;
}

static weft_err call_dict(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list pairs = {0};
    weft_err err = gather(run, call, &pairs);
    *out = wefti_tmpl_of_pairs(&pairs);
    return err;
}

static weft_err call_namespace(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                               struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list pairs = {0};
    void *made;
    weft_err err = gather(run, call, &pairs);
    if (!err) err = wefti_tmpl_alloc(run, sizeof(struct wefti_tmpl_space), &made);
    if (err) return err;
    struct wefti_tmpl_space *space = made;
    *space = (struct wefti_tmpl_space){0};
    for (uint32_t i = 0; i < pairs.n && !err; i += 2) {
        if (pairs.items[i].kind != WEFTI_TMPL_STR)
            return wefti_tmpl_fault(run, "a namespace's member is named by %s",
                                    wefti_tmpl_kind_name(&pairs.items[i]));
        err = wefti_tmpl_bind(run, space, wefti_tmpl_text_of(pairs.items[i]), pairs.items[i + 1]);
    }
    *out = (struct wefti_tmpl_value){.kind = WEFTI_TMPL_NAMESPACE, .space = space};
    return err;
}

static weft_err call_range(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    int64_t bounds[3] = {0, 0, 1};
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < 3 && !err; i++) {
        if (call->bound[i] && !wefti_tmpl_is_int(*call->bound[i]))
            return wefti_tmpl_fault(run, "range takes whole numbers");
        err = wefti_tmpl_arg_int(run, call, i, bounds[i], &bounds[i]);
    }
    if (err) return err;
    if (!call->bound[0]) return wefti_tmpl_fault(run, "range takes one to three numbers");
    int64_t start = call->bound[1] ? bounds[0] : 0, stop = call->bound[1] ? bounds[1] : bounds[0];
    int64_t step = bounds[2], at = start;
    if (step == 0) return wefti_tmpl_fault(run, "a range with a step of zero");
    while ((step > 0 ? at < stop : at > stop) && !err) {
        if (list.n == RANGE_MAX)
            return wefti_tmpl_fault(run, "a range of over %d numbers", RANGE_MAX);
        err = wefti_tmpl_list_add(run, &list, wefti_tmpl_of_int(at));
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST);
    return err;
}

/* The message is the template's own, without a prefix. */
static weft_err call_raise(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value text = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    if (!call->bound[0]) return wefti_tmpl_fault(run, "raise_exception takes a message");
    weft_err err = wefti_tmpl_to_str(run, *call->bound[0], &text);
    if (err) return err;
    *out = text;
    return weft_err_set(run->why, WEFT_E_INVAL, "%.*s", (int)(text.n < 4096 ? text.n : 4096),
                        text.text);
}

/* One directive, "%d" or glibc's "%-d", through strftime; the C locale is the process's. */
static void add_directive(const char *text, size_t len, const struct tm *now,
                          struct weft_buf *out) {
    char format[8] = {0}, made[128];
    char kind = text[len - 1];
    if (kind == 'z' || kind == 'Z') return; /* nothing: the time has no zone, as in Python */
    if (kind == 'f') {
        weft_buf_add_str(out, "000000");
        return;
    }
    memcpy(format, text, len);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* one short directive */
    size_t n = strftime(made, sizeof made, format, now);
#pragma GCC diagnostic pop
    weft_buf_add(out, made, n);
}

static weft_err call_strftime(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct weft_str format;
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &format);
    if (!err && !call->bound[0]) err = wefti_tmpl_fault(run, "strftime_now takes a format");
    if (err) return err;
    if (!run->now) return wefti_tmpl_fault(run, "the time is not known");
    err = wefti_tmpl_charge(run, 4 * format.len); /* each directive is a call of strftime */
    if (err) return err;
    const char *at = format.data, *end = at + format.len;
    struct weft_buf buf;
    wefti_tmpl_buf_init(run, &buf);
    while (at < end) {
        size_t len = 1;
        if (*at == '%') {
            if (end - at > 2 && strchr("-_0^#EO", at[1]) && at[1]) len++;
            if (end - at > (ptrdiff_t)len) len++;
        }
        if (*at == '%' && len > 1)
            add_directive(at, len, run->now, &buf);
        else
            weft_buf_add_char(&buf, *at);
        at += len;
    }
    return wefti_tmpl_take_buf(run, &buf, out);
}

const struct wefti_tmpl_builtin wefti_tmpl_functions[] = {
    {"namespace", "*", call_namespace, 0},        {"dict", "*", call_dict, 0},
    {"range", "start stop step", call_range, 0},  {"raise_exception", "message", call_raise, 0},
    {"strftime_now", "format", call_strftime, 0}, {.name = NULL},
};
