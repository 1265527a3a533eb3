/* Truth, equality, order and membership of values, as in Python. */
#include "base/check.h"
#include "values/run.h"
#include "values/text.h"

weft_err wefti_tmpl_list_add(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list,
                             struct wefti_tmpl_value item) {
    WEFT_ASSERT(list->n <= list->cap);
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? 2 * list->cap : 4;
        void *grown;
        if (cap > (1u << 28)) return wefti_tmpl_too_big(run);
        weft_err err = wefti_tmpl_alloc(run, cap * sizeof *list->items, &grown);
        if (err) return err;
        if (list->n > 0) memcpy(grown, list->items, list->n * sizeof *list->items);
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->n++] = item;
    return WEFT_OK;
}

weft_err wefti_tmpl_pairs_put(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list,
                              struct wefti_tmpl_value key, struct wefti_tmpl_value value) {
    WEFT_ASSERT(list->n % 2 == 0);
    const struct wefti_tmpl_value *found;
    if (key.kind == WEFTI_TMPL_LIST || key.kind == WEFTI_TMPL_DICT)
        return wefti_tmpl_fault(run, "%s cannot be a key", wefti_tmpl_kind_name(&key));
    weft_err err = wefti_tmpl_dict_get(run, wefti_tmpl_of_pairs(list), key, &found);
    if (err) return err;
    if (found) {
        list->items[found - list->items] = value;
        return WEFT_OK;
    }
    err = wefti_tmpl_list_add(run, list, key);
    return err ? err : wefti_tmpl_list_add(run, list, value);
}

/* --- what values are -------------------------------------------------------------------------- */

const char *wefti_tmpl_kind_name(const struct wefti_tmpl_value *value) {
    static const char *const names[] = {"something undefined",
                                        "none",
                                        "a truth value",
                                        "a number",
                                        "a number",
                                        "a string",
                                        "a list",
                                        "a tuple",
                                        "an iterator",
                                        "a dictionary",
                                        "a namespace",
                                        "the loop",
                                        "a macro",
                                        "a function",
                                        "a method"};
    return names[value->kind];
}

bool wefti_tmpl_truth(struct wefti_tmpl_value value) {
    switch ((enum wefti_tmpl_kind)value.kind) {
    case WEFTI_TMPL_UNDEFINED:
    case WEFTI_TMPL_NONE:
        return false;
    case WEFTI_TMPL_BOOL:
    case WEFTI_TMPL_INT:
        return value.number != 0;
    case WEFTI_TMPL_FLOAT:
        return value.real != 0;
    case WEFTI_TMPL_STR:
    case WEFTI_TMPL_LIST:
    case WEFTI_TMPL_TUPLE:
    case WEFTI_TMPL_DICT:
        return value.n > 0;
    default:
        return true;
    }
}

static weft_err equal_items(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b, bool *out) {
    weft_err err = wefti_tmpl_deeper(run);
    *out = a.n == b.n;
    if (!err && *out) err = wefti_tmpl_charge(run, a.n / 8);
    for (uint32_t i = 0; i < a.n && *out && !err; i++)
        err = wefti_tmpl_equal(run, a.items[i], b.items[i], out);
    run->depth--;
    return err;
}

static weft_err equal_dicts(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b, bool *out) {
    weft_err err = wefti_tmpl_deeper(run);
    *out = a.n == b.n;
    for (uint32_t i = 0; i < a.n && *out && !err; i++) {
        const struct wefti_tmpl_value *found;
        err = wefti_tmpl_dict_get(run, b, a.items[2 * i], &found);
        if (err) break;
        *out = found != NULL;
        if (found) err = wefti_tmpl_equal(run, a.items[2 * (size_t)i + 1], *found, out);
    }
    run->depth--;
    return err;
}

weft_err wefti_tmpl_equal(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                          struct wefti_tmpl_value b, bool *out) {
    *out = false;
    if (wefti_tmpl_is_int(a) && wefti_tmpl_is_int(b)) {
        *out = a.number == b.number;
        return WEFT_OK;
    }
    if (wefti_tmpl_is_number(a) && wefti_tmpl_is_number(b)) {
        *out = wefti_tmpl_to_real(a) == wefti_tmpl_to_real(b);
        return WEFT_OK;
    }
    if (a.kind != b.kind) return WEFT_OK;
    switch ((enum wefti_tmpl_kind)a.kind) {
    case WEFTI_TMPL_UNDEFINED:
    case WEFTI_TMPL_NONE:
        *out = true;
        return WEFT_OK;
    case WEFTI_TMPL_STR:
        *out = a.n == b.n && (a.n == 0 || memcmp(a.text, b.text, a.n) == 0);
        return wefti_tmpl_charge(run, a.n == b.n ? wefti_tmpl_bytes_steps(a.n) : 0);
    case WEFTI_TMPL_LIST:
    case WEFTI_TMPL_TUPLE:
        return equal_items(run, a, b, out);
    case WEFTI_TMPL_DICT:
        return equal_dicts(run, a, b, out);
    default:
        *out = a.items == b.items;
        return WEFT_OK;
    }
}

static int sign_of(double a, double b) {
    return (a > b) - (a < b);
}

static weft_err order_items(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b, int *out) {
    weft_err err = wefti_tmpl_deeper(run);
    uint32_t n = a.n < b.n ? a.n : b.n;
    *out = (a.n > b.n) - (a.n < b.n);
    if (!err) err = wefti_tmpl_charge(run, n / 8);
    for (uint32_t i = 0; i < n && !err; i++) {
        bool same;
        err = wefti_tmpl_equal(run, a.items[i], b.items[i], &same);
        if (err || same) continue;
        err = wefti_tmpl_compare(run, a.items[i], b.items[i], out);
        break;
    }
    run->depth--;
    return err;
}

weft_err wefti_tmpl_compare(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b, int *out) {
    *out = 0;
    if (wefti_tmpl_is_int(a) && wefti_tmpl_is_int(b)) {
        *out = (a.number > b.number) - (a.number < b.number);
    } else if (wefti_tmpl_is_number(a) && wefti_tmpl_is_number(b)) {
        *out = sign_of(wefti_tmpl_to_real(a), wefti_tmpl_to_real(b));
    } else if (a.kind == WEFTI_TMPL_STR && b.kind == WEFTI_TMPL_STR) {
        uint32_t n = a.n < b.n ? a.n : b.n; /* UTF-8 sorts as its code points do */
        *out = n > 0 ? memcmp(a.text, b.text, n) : 0;
        if (*out == 0) *out = (a.n > b.n) - (a.n < b.n);
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(n));
    } else if (a.kind == b.kind && (a.kind == WEFTI_TMPL_LIST || a.kind == WEFTI_TMPL_TUPLE)) {
        return order_items(run, a, b, out);
    } else {
        return wefti_tmpl_fault(run, "%s and %s have no order", wefti_tmpl_kind_name(&a),
                                wefti_tmpl_kind_name(&b));
    }
    return WEFT_OK;
}

weft_err wefti_tmpl_contains(struct wefti_tmpl_run *run, struct wefti_tmpl_value in,
                             struct wefti_tmpl_value what, bool *out) {
    const struct wefti_tmpl_value *found;
    weft_err err = WEFT_OK;
    *out = false;
    if (in.kind == WEFTI_TMPL_STR) {
        if (what.kind != WEFTI_TMPL_STR)
            return wefti_tmpl_fault(run, "cannot look for %s in a string",
                                    wefti_tmpl_kind_name(&what));
        *out = what.n == 0 || (in.n > 0 && memmem(in.text, in.n, what.text, what.n) != NULL);
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(in.n));
    }
    if (in.kind == WEFTI_TMPL_DICT) {
        err = wefti_tmpl_dict_get(run, in, what, &found);
        *out = found != NULL;
        return err;
    }
    if (in.kind == WEFTI_TMPL_UNDEFINED) return WEFT_OK;
    if (!wefti_tmpl_is_seq(in))
        return wefti_tmpl_fault(run, "cannot look into %s", wefti_tmpl_kind_name(&in));
    for (uint32_t i = 0; i < in.n && !*out && !err; i++) {
        err = wefti_tmpl_charge(run, 1);
        if (!err) err = wefti_tmpl_equal(run, in.items[i], what, out);
    }
    return err;
}

weft_err wefti_tmpl_dict_get(struct wefti_tmpl_run *run, struct wefti_tmpl_value dict,
                             struct wefti_tmpl_value key, const struct wefti_tmpl_value **out) {
    WEFT_ASSERT(dict.kind == WEFTI_TMPL_DICT);
    *out = NULL;
    weft_err err = wefti_tmpl_charge(run, dict.n / 8);
    for (uint32_t i = 0; i < dict.n && !err; i++) {
        bool same;
        err = wefti_tmpl_equal(run, dict.items[2 * (size_t)i], key, &same);
        if (err || !same) continue;
        *out = &dict.items[2 * (size_t)i + 1];
        break;
    }
    return err;
}

const struct wefti_tmpl_value *wefti_tmpl_dict_named(struct wefti_tmpl_value dict,
                                                     struct weft_str key) {
    WEFT_ASSERT(dict.kind == WEFTI_TMPL_DICT);
    for (uint32_t i = 0; i < dict.n; i++) {
        const struct wefti_tmpl_value *at = &dict.items[2 * (size_t)i];
        if (at->kind == WEFTI_TMPL_STR && weft_str_is(key, at->text, at->n)) return at + 1;
    }
    return NULL;
}

weft_err wefti_tmpl_iterate(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                            struct wefti_tmpl_value *list_out) {
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    *list_out = of;
    list_out->kind = WEFTI_TMPL_LIST;
    if (wefti_tmpl_is_seq(of)) return WEFT_OK;
    if (of.kind == WEFTI_TMPL_DICT) {
        for (uint32_t i = 0; i < of.n && !err; i++)
            err = wefti_tmpl_list_add(run, &list, of.items[2 * (size_t)i]);
    } else if (of.kind == WEFTI_TMPL_STR) {
        const char *at = of.text, *end = of.text + of.n;
        for (size_t len; at < end && !err; at += len) {
            len = wefti_tmpl_char_len(at, end);
            err = wefti_tmpl_list_add(run, &list, wefti_tmpl_of_str(at, len));
        }
    } else if (of.kind != WEFTI_TMPL_UNDEFINED) {
        return wefti_tmpl_fault(run, "cannot iterate over %s", wefti_tmpl_kind_name(&of));
    }
    *list_out = wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST);
    return err;
}
