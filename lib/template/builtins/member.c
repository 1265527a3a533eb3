/* Members, subscripts and slices of values; methods are members too. */
#include "builtins/member.h"
#include "base/check.h"
#include "builtins/builtin.h"
#include "syntax/tree.h"
#include "values/text.h"

static weft_err bound_method(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                             struct weft_str name, struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_builtin *builtin = wefti_tmpl_find_method(of.kind, name);
    void *made;
    if (!builtin) return WEFT_OK;
    weft_err err = wefti_tmpl_alloc(run, sizeof(struct wefti_tmpl_method), &made);
    if (err) return err;
    struct wefti_tmpl_method *method = made;
    *method = (struct wefti_tmpl_method){builtin, of};
    *out = (struct wefti_tmpl_value){.kind = WEFTI_TMPL_METHOD, .method = method};
    return WEFT_OK;
}

static weft_err loop_member(struct wefti_tmpl_run *run, struct wefti_tmpl_loop *loop,
                            struct weft_str name, struct wefti_tmpl_value *out) {
    WEFT_ASSERT(loop->index <= loop->n);
    int64_t at = loop->index, n = loop->n;
    const struct {
        const char *name;
        int64_t number;
    } numbers[] = {{"index", at + 1},
                   {"index0", at},
                   {"length", n},
                   {"revindex", n - at},
                   {"revindex0", n - at - 1},
                   {"depth", (int64_t)loop->depth + 1},
                   {"depth0", loop->depth}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (weft_str_is(name, numbers[i].name, strlen(numbers[i].name))) {
            *out = wefti_tmpl_of_int(numbers[i].number);
            return WEFT_OK;
        }
    if (WEFT_STR_IS(name, "first")) *out = wefti_tmpl_of_bool(at == 0);
    if (WEFT_STR_IS(name, "last")) *out = wefti_tmpl_of_bool(at == n - 1);
    if (WEFT_STR_IS(name, "previtem") && at > 0) *out = loop->items[at - 1];
    if (WEFT_STR_IS(name, "nextitem") && at + 1 < n) *out = loop->items[at + 1];
    if (out->kind != WEFTI_TMPL_UNDEFINED) return WEFT_OK;
    return bound_method(run, (struct wefti_tmpl_value){.kind = WEFTI_TMPL_LOOP, .loop = loop}, name,
                        out);
}

static void macro_member(const struct wefti_tmpl_macro *macro, struct weft_str name,
                         struct wefti_tmpl_value *out) {
    if (WEFT_STR_IS(name, "name"))
        *out = wefti_tmpl_of_str(macro->node->text.data, macro->node->text.len);
    if (WEFT_STR_IS(name, "caller"))
        *out = wefti_tmpl_of_bool(macro->node->uses & WEFTI_TMPL_USES_CALLER);
    if (WEFT_STR_IS(name, "catch_varargs"))
        *out = wefti_tmpl_of_bool(macro->node->uses & WEFTI_TMPL_USES_VARARGS);
    if (WEFT_STR_IS(name, "catch_kwargs"))
        *out = wefti_tmpl_of_bool(macro->node->uses & WEFTI_TMPL_USES_KWARGS);
}

/* After a dot a dictionary's methods win over its keys, as in Jinja. */
weft_err wefti_tmpl_member(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                           struct weft_str name, struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *found = NULL;
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    if (of.kind == WEFTI_TMPL_UNDEFINED)
        return wefti_tmpl_fault(run, "cannot take the member %.*s of something undefined",
                                (int)(name.len < 60 ? name.len : 60), name.data);
    if (of.kind == WEFTI_TMPL_LOOP) return loop_member(run, of.loop, name, out);
    if (of.kind == WEFTI_TMPL_NAMESPACE) found = wefti_tmpl_space_find(of.space, name);
    if (of.kind == WEFTI_TMPL_MACRO) macro_member(of.macro, name, out);
    if (found) *out = *found;
    if (of.kind != WEFTI_TMPL_STR && of.kind != WEFTI_TMPL_DICT && of.kind != WEFTI_TMPL_LIST &&
        of.kind != WEFTI_TMPL_TUPLE)
        return WEFT_OK;
    weft_err err = bound_method(run, of, name, out);
    if (err || of.kind != WEFTI_TMPL_DICT || out->kind != WEFTI_TMPL_UNDEFINED) return err;
    err = wefti_tmpl_charge(run, of.n / 8);
    found = wefti_tmpl_dict_named(of, name);
    if (found) *out = *found;
    return err;
}

static void char_of(struct weft_str text, int64_t at, struct wefti_tmpl_value *out) {
    if (at < 0) at += (int64_t)wefti_tmpl_str_chars(text);
    if (at < 0) return;
    size_t from = wefti_tmpl_char_at(text, (size_t)at);
    if (from == text.len) return;
    const char *c = text.data + from;
    *out = wefti_tmpl_of_str(c, wefti_tmpl_char_len(c, text.data + text.len));
}

/* A subscript looks for an item, then for a member; if there is neither it is undefined. */
weft_err wefti_tmpl_index(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                          struct wefti_tmpl_value by, struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *found = NULL;
    weft_err err = WEFT_OK;
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    if (of.kind == WEFTI_TMPL_UNDEFINED)
        return wefti_tmpl_fault(run, "cannot take an element of something undefined");
    if (of.kind == WEFTI_TMPL_DICT) {
        if (by.kind == WEFTI_TMPL_LIST || by.kind == WEFTI_TMPL_DICT) return WEFT_OK;
        err = wefti_tmpl_dict_get(run, of, by, &found);
        if (found) *out = *found;
        if (err || found || by.kind != WEFTI_TMPL_STR) return err;
        return bound_method(run, of, wefti_tmpl_text_of(by), out);
    }
    if (by.kind == WEFTI_TMPL_STR) return wefti_tmpl_member(run, of, wefti_tmpl_text_of(by), out);
    if (!wefti_tmpl_is_int(by)) return WEFT_OK;
    if (of.kind == WEFTI_TMPL_STR) {
        char_of(wefti_tmpl_text_of(of), by.number, out);
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(of.n));
    }
    if (of.kind != WEFTI_TMPL_LIST && of.kind != WEFTI_TMPL_TUPLE) return WEFT_OK;
    int64_t at = by.number < 0 ? by.number + of.n : by.number;
    if (at >= 0 && at < of.n) *out = of.items[at];
    return WEFT_OK;
}

/* The range of a slice's bound in a sequence of `n`, and its default. */
struct reach {
    int64_t low, high, n, otherwise;
};

static weft_err slice_bound(struct wefti_tmpl_run *run, struct wefti_tmpl_value bound,
                            struct reach reach, int64_t *out) {
    int64_t n = reach.n;
    *out = reach.otherwise;
    if (bound.kind == WEFTI_TMPL_NONE) return WEFT_OK;
    if (!wefti_tmpl_is_int(bound))
        return wefti_tmpl_fault(run, "a slice's bound is %s", wefti_tmpl_kind_name(&bound));
    int64_t at = bound.number < 0 ? (bound.number < -n ? -1 : bound.number + n) : bound.number;
    *out = at < reach.low ? reach.low : at > reach.high ? reach.high : at;
    return WEFT_OK;
}

static weft_err slice_items(struct wefti_tmpl_run *run, struct wefti_tmpl_value of, int64_t start,
                            int64_t stop, int64_t step, struct wefti_tmpl_value *out) {
    WEFT_ASSERT(step != 0);
    *out = of;
    if (step == 1) { /* immutable items can be shared */
        out->n = stop > start ? (uint32_t)(stop - start) : 0;
        out->items = of.n ? of.items + start : NULL;
        return WEFT_OK;
    }
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (int64_t at = start; (step > 0 ? at < stop : at > stop) && !err; at += step)
        err = wefti_tmpl_list_add(run, &list, of.items[at]);
    *out = wefti_tmpl_of_list(&list, of.kind);
    return err;
}

static weft_err slice_string(struct wefti_tmpl_run *run, struct wefti_tmpl_value of, int64_t start,
                             int64_t stop, int64_t step, struct wefti_tmpl_value *out) {
    struct weft_str text = wefti_tmpl_text_of(of);
    *out = wefti_tmpl_of_str("", 0);
    if (step == 1) {
        if (stop <= start) return WEFT_OK;
        size_t from = wefti_tmpl_char_at(text, (size_t)start);
        struct weft_str rest = {text.data + from, text.len - from};
        *out = wefti_tmpl_of_str(rest.data, wefti_tmpl_char_at(rest, (size_t)(stop - start)));
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(of.n));
    }
    struct wefti_tmpl_value chars, picked;
    struct weft_buf buf;
    weft_err err = wefti_tmpl_iterate(run, of, &chars);
    if (!err) err = slice_items(run, chars, start, stop, step, &picked);
    if (err) return err;
    wefti_tmpl_buf_init(run, &buf);
    for (uint32_t i = 0; i < picked.n; i++)
        weft_buf_add(&buf, picked.items[i].text, picked.items[i].n);
    return wefti_tmpl_take_buf(run, &buf, out);
}

weft_err wefti_tmpl_slice(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                          const struct wefti_tmpl_value bounds[3], struct wefti_tmpl_value *out) {
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    if (of.kind == WEFTI_TMPL_UNDEFINED)
        return wefti_tmpl_fault(run, "cannot take a slice of something undefined");
    if (of.kind != WEFTI_TMPL_STR && of.kind != WEFTI_TMPL_LIST && of.kind != WEFTI_TMPL_TUPLE)
        return WEFT_OK;
    int64_t n =
        of.kind == WEFTI_TMPL_STR ? (int64_t)wefti_tmpl_str_chars(wefti_tmpl_text_of(of)) : of.n;
    int64_t start, stop, step = 1;
    if (wefti_tmpl_is_int(bounds[2])) step = bounds[2].number;
    if (step == 0 || (bounds[2].kind != WEFTI_TMPL_NONE && !wefti_tmpl_is_int(bounds[2])))
        return wefti_tmpl_fault(run, "a slice's step is zero or no number");
    if (step > n + 1) step = n + 1; /* one item either way; no overflow below */
    if (step < -n - 1) step = -n - 1;
    bool up = step > 0;
    struct reach reach = {.low = up ? 0 : -1, .high = up ? n : n - 1, .n = n};
    reach.otherwise = up ? 0 : n - 1;
    weft_err err = slice_bound(run, bounds[0], reach, &start);
    reach.otherwise = up ? n : -1;
    if (!err) err = slice_bound(run, bounds[1], reach, &stop);
    if (err) return err;
    return of.kind == WEFTI_TMPL_STR ? slice_string(run, of, start, stop, step, out)
                                     : slice_items(run, of, start, stop, step, out);
}
