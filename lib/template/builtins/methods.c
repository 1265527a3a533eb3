/* Methods of strings, lists, dictionaries and loops. Methods that change their value are absent, as
 * in Jinja's immutable sandbox. */
#include <utf8proc.h>

#include "base/check.h"
#include "builtins/builtin.h"
#include "values/text.h"

/* --- strings ---------------------------------------------------------------------------------- */

static weft_err str_case(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                         struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_STR);
    return wefti_tmpl_str_case(run, wefti_tmpl_text_of(call->self),
                               (enum wefti_tmpl_case)call->builtin->variant, out);
}

static weft_err str_strip(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    struct weft_str chars, text = wefti_tmpl_text_of(call->self);
    weft_err err = wefti_tmpl_arg_str(run, call, 0, NULL, &chars);
    if (err) return err;
    err = wefti_tmpl_str_strip(run, &text, (enum wefti_tmpl_sides)call->builtin->variant, chars);
    *out = wefti_tmpl_of_str(text.data, text.len);
    return err;
}

enum { AT_START, AT_END };

/* One affix or a tuple of them. */
static weft_err str_affix(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_STR);
    struct weft_str text = wefti_tmpl_text_of(call->self);
    struct wefti_tmpl_value affixes = wefti_tmpl_of_kind(WEFTI_TMPL_NONE);
    bool holds = false;
    weft_err err = WEFT_OK;
    if (call->bound[0]) affixes = *call->bound[0];
    const struct wefti_tmpl_value *items =
        affixes.kind == WEFTI_TMPL_TUPLE ? affixes.items : &affixes;
    uint32_t n = affixes.kind == WEFTI_TMPL_TUPLE ? affixes.n : 1;
    for (uint32_t i = 0; i < n && !err; i++) {
        if (items[i].kind != WEFTI_TMPL_STR)
            return wefti_tmpl_fault(run, "%s wants a string", call->builtin->name);
        bool fits = items[i].n <= text.len;
        err = wefti_tmpl_charge(run, fits ? wefti_tmpl_bytes_steps(items[i].n) : 1);
        if (!fits) continue;
        const char *at =
            call->builtin->variant == AT_END ? text.data + text.len - items[i].n : text.data;
        holds |= items[i].n == 0 || memcmp(at, items[i].text, items[i].n) == 0;
    }
    *out = wefti_tmpl_of_bool(holds);
    return err;
}

static weft_err str_remove_affix(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                                 struct wefti_tmpl_value *out) {
    struct weft_str affix;
    struct wefti_tmpl_value has = wefti_tmpl_of_kind(WEFTI_TMPL_UNDEFINED);
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &affix);
    if (!err) err = str_affix(run, call, &has);
    if (err) return err;
    *out = call->self;
    if (!wefti_tmpl_truth(has)) return WEFT_OK;
    out->n -= (uint32_t)affix.len;
    if (call->builtin->variant == AT_START) out->text += affix.len;
    return WEFT_OK;
}

static weft_err str_replace(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    struct weft_str from, to;
    int64_t max;
    if (!call->bound[0] || !call->bound[1])
        return wefti_tmpl_fault(run, "replace takes what to replace, and by what");
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &from);
    if (!err) err = wefti_tmpl_arg_str(run, call, 1, "", &to);
    if (!err) err = wefti_tmpl_arg_int(run, call, 2, -1, &max);
    return err ? err
               : wefti_tmpl_str_replace(run, wefti_tmpl_text_of(call->self), from, to, max, out);
}

enum { FROM_LEFT = 0, FROM_RIGHT = 1, MUST_BE_THERE = 2 };

static weft_err add_part(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list, const char *from,
                         const char *to) {
    return wefti_tmpl_list_add(run, list, wefti_tmpl_of_str(from, (size_t)(to - from)));
}

static weft_err split_at_space(struct wefti_tmpl_run *run, struct weft_str text, int64_t max,
                               struct wefti_tmpl_list *list) {
    static const struct weft_str space = {NULL, 0};
    weft_err err = wefti_tmpl_str_strip(run, &text, WEFTI_TMPL_SIDE_LEFT, space);
    while (text.len > 0 && !err) {
        const char *at = text.data, *end = at + text.len;
        if (max-- == 0) return add_part(run, list, at, end);
        for (size_t len; at < end; at += len)
            if (wefti_tmpl_is_py_space(wefti_tmpl_char_get(at, end, &len))) break;
        err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps((size_t)(at - text.data)));
        if (!err) err = add_part(run, list, text.data, at);
        text = (struct weft_str){at, (size_t)(end - at)};
        if (!err) err = wefti_tmpl_str_strip(run, &text, WEFTI_TMPL_SIDE_LEFT, space);
    }
    return err;
}

static const char *find_last(struct weft_str text, struct weft_str what) {
    if (what.len > text.len) return NULL;
    for (const char *at = text.data + text.len - what.len;; at--) {
        if (memcmp(at, what.data, what.len) == 0) return at;
        if (at == text.data) return NULL;
    }
}

static void reverse(struct wefti_tmpl_list *list) {
    for (uint32_t i = 0; i < list->n / 2; i++) {
        struct wefti_tmpl_value old = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = old;
    }
}

static weft_err split_from_right(struct wefti_tmpl_run *run, struct weft_str text,
                                 struct weft_str by, int64_t max, struct wefti_tmpl_list *list) {
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(text.len) * (by.len / 8 + 1));
    while (!err) {
        const char *found = max-- == 0 ? NULL : find_last(text, by);
        if (!found) break;
        err = add_part(run, list, found + by.len, text.data + text.len);
        text.len = (size_t)(found - text.data);
    }
    if (!err) err = add_part(run, list, text.data, text.data + text.len);
    reverse(list);
    return err;
}

static weft_err rsplit_at_space(struct wefti_tmpl_run *run, struct weft_str text, int64_t max,
                                struct wefti_tmpl_list *list) {
    static const struct weft_str space = {NULL, 0};
    weft_err err = wefti_tmpl_str_strip(run, &text, WEFTI_TMPL_SIDE_RIGHT, space);
    while (text.len > 0 && !err) {
        const char *at = text.data + text.len;
        if (max-- == 0) {
            err = add_part(run, list, text.data, at);
            break;
        }
        while (at > text.data) {
            const char *last = at - 1;
            while (last > text.data && ((unsigned char)*last & 0xC0) == 0x80)
                last--;
            size_t len;
            if (wefti_tmpl_is_py_space(wefti_tmpl_char_get(last, at, &len))) break;
            at = last;
        }
        size_t n_bytes = (size_t)(text.data + text.len - at);
        err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(n_bytes));
        if (!err) err = add_part(run, list, at, at + n_bytes);
        text.len -= n_bytes;
        if (!err) err = wefti_tmpl_str_strip(run, &text, WEFTI_TMPL_SIDE_RIGHT, space);
    }
    reverse(list);
    return err;
}

static weft_err str_split(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_STR);
    struct weft_str by, text = wefti_tmpl_text_of(call->self);
    struct wefti_tmpl_list list = {0};
    bool right = call->builtin->variant == FROM_RIGHT;
    int64_t max;
    weft_err err = wefti_tmpl_arg_str(run, call, 0, NULL, &by);
    if (!err) err = wefti_tmpl_arg_int(run, call, 1, -1, &max);
    if (!err) err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(text.len));
    if (err) return err;
    if (by.data && by.len == 0) return wefti_tmpl_fault(run, "split by an empty string");
    if (!by.data) {
        err =
            right ? rsplit_at_space(run, text, max, &list) : split_at_space(run, text, max, &list);
    } else if (right) {
        err = split_from_right(run, text, by, max, &list);
    } else {
        const char *at = text.data, *end = at + text.len;
        for (const char *found; max-- != 0 && !err; at = found + by.len) {
            found = at < end ? memmem(at, (size_t)(end - at), by.data, by.len) : NULL;
            if (!found) break;
            err = add_part(run, &list, at, found);
        }
        if (!err) err = add_part(run, &list, at, end);
    }
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST);
    return err;
}

static weft_err str_lines(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    return wefti_tmpl_str_lines(run, wefti_tmpl_text_of(call->self), out);
}

static weft_err str_partition(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct weft_str by, text = wefti_tmpl_text_of(call->self);
    struct wefti_tmpl_list list = {0};
    bool right = call->builtin->variant == FROM_RIGHT;
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &by);
    if (!err && by.len == 0) err = wefti_tmpl_fault(run, "partition by an empty string");
    if (!err) err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(text.len) * (by.len / 8 + 1));
    if (err) return err;
    const char *end = text.data + text.len, *found;
    if (text.len == 0)
        found = NULL;
    else
        found = right ? find_last(text, by) : memmem(text.data, text.len, by.data, by.len);
    const char *cuts[4] = {text.data, end, end, end};
    if (!found && right) cuts[1] = cuts[2] = text.data;
    if (found) {
        cuts[1] = found;
        cuts[2] = found + by.len;
    }
    for (size_t i = 0; i < 3 && !err; i++)
        err = add_part(run, &list, cuts[i], cuts[i + 1]);
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_TUPLE);
    return err;
}

/* Narrows the text to both bounds, in characters; *start_out is -1 if they are reversed. */
static weft_err narrow_to_bounds(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                                 struct weft_str *text, int64_t *start_out) {
    int64_t start, stop, n = (int64_t)wefti_tmpl_str_chars(*text);
    weft_err err = wefti_tmpl_arg_int(run, call, 1, 0, &start);
    if (!err) err = wefti_tmpl_arg_int(run, call, 2, n, &stop);
    bool counts = call->bound[1] || call->bound[2];
    if (!err)
        err = wefti_tmpl_charge(run, counts ? wefti_tmpl_chars_steps(text->len)
                                            : wefti_tmpl_bytes_steps(text->len));
    if (err) return err;
    if (start < 0) start = start + n < 0 ? 0 : start + n;
    if (stop < 0) stop = stop + n < 0 ? 0 : stop + n;
    if (stop > n) stop = n;
    *start_out = start;
    if (start > stop) { /* not even the empty string is there */
        *start_out = -1;
        return WEFT_OK;
    }
    size_t from = wefti_tmpl_char_at(*text, (size_t)start),
           to = wefti_tmpl_char_at(*text, (size_t)stop);
    *text = (struct weft_str){text->data + from, to - from};
    return WEFT_OK;
}

static weft_err str_find(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                         struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_STR);
    struct weft_str what, text = wefti_tmpl_text_of(call->self);
    int64_t start, at = -1;
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &what);
    if (!err) err = narrow_to_bounds(run, call, &text, &start);
    if (!err) err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(text.len) * (what.len / 8 + 1));
    if (err) return err;
    if (start >= 0) {
        const char *found = call->builtin->variant & FROM_RIGHT ? find_last(text, what)
                            : what.len == 0                     ? text.data
                            : text.len ? memmem(text.data, text.len, what.data, what.len)
                                       : NULL;
        struct weft_str before = {text.data, found ? (size_t)(found - text.data) : 0};
        if (found) at = start + (int64_t)wefti_tmpl_str_chars(before);
    }
    if (at < 0 && call->builtin->variant & MUST_BE_THERE)
        return wefti_tmpl_fault(run, "what index looks for is not there");
    *out = wefti_tmpl_of_int(at);
    return WEFT_OK;
}

static weft_err str_count(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    struct weft_str what, text = wefti_tmpl_text_of(call->self);
    int64_t start, n = 0;
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &what);
    if (!err) err = narrow_to_bounds(run, call, &text, &start);
    if (err) return err;
    const char *at = text.data, *end = at + text.len;
    if (start >= 0 && what.len == 0) n = (int64_t)wefti_tmpl_str_chars(text) + 1;
    while (start >= 0 && what.len > 0 && at < end) {
        at = memmem(at, (size_t)(end - at), what.data, what.len);
        if (!at) break;
        at += what.len;
        n++;
    }
    *out = wefti_tmpl_of_int(n);
    return WEFT_OK;
}

static weft_err str_join(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                         struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value items;
    struct weft_buf buf;
    if (!call->bound[0]) return wefti_tmpl_fault(run, "join takes what to join");
    weft_err err = wefti_tmpl_iterate(run, *call->bound[0], &items);
    if (err) return err;
    wefti_tmpl_buf_init(run, &buf);
    for (uint32_t i = 0; i < items.n && !err; i++) {
        if (items.items[i].kind != WEFTI_TMPL_STR)
            err = wefti_tmpl_fault(run, "join met %s", wefti_tmpl_kind_name(&items.items[i]));
        if (i > 0) weft_buf_add(&buf, call->self.text, call->self.n);
        if (!err) err = wefti_tmpl_write(run, items.items[i], false, &buf);
        if (!err && buf.failed) break;
    }
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}

static weft_err str_pad(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                        struct wefti_tmpl_value *out) {
    struct weft_str fill;
    int64_t width;
    weft_err err = wefti_tmpl_arg_int(run, call, 0, 0, &width);
    if (!err)
        err = wefti_tmpl_arg_str(
            run, call, 1, call->builtin->variant == WEFTI_TMPL_ALIGN_NUMBER ? "0" : " ", &fill);
    if (!err && wefti_tmpl_str_chars(fill) != 1)
        err = wefti_tmpl_fault(run, "the fill is one character");
    return err ? err
               : wefti_tmpl_str_pad(run, wefti_tmpl_text_of(call->self), width,
                                    (enum wefti_tmpl_align)call->builtin->variant, fill, out);
}

enum class { DIGITS, NUMERIC, LETTERS, LETTERS_AND_NUMBERS, ASCII, SPACES, UPPER, LOWER };

static bool is_of_class(uint32_t code, enum class what) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    bool digit = category == UTF8PROC_CATEGORY_ND;
    switch (what) {
    case DIGITS:
        return digit;
    case NUMERIC:
        return digit || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
    case LETTERS:
        return letter;
    case LETTERS_AND_NUMBERS:
        return letter || digit || category == UTF8PROC_CATEGORY_NL ||
               category == UTF8PROC_CATEGORY_NO;
    case ASCII:
        return code < 0x80;
    default:
        return wefti_tmpl_is_py_space(code);
    }
}

static weft_err str_is(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                       struct wefti_tmpl_value *out) {
    const char *at = call->self.text, *end = at + call->self.n;
    enum class what = (enum class)call->builtin->variant;
    bool all = at < end || what == ASCII, any = false;
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(call->self.n));
    if (err) return err;
    for (size_t len; at < end && all; at += len) {
        uint32_t code = wefti_tmpl_char_get(at, end, &len);
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
        bool lower = category == UTF8PROC_CATEGORY_LL, upper = category == UTF8PROC_CATEGORY_LU;
        if (what == UPPER || what == LOWER) {
            any |= what == UPPER ? upper : lower;
            all = what == UPPER ? !lower : !upper;
        } else {
            all = is_of_class(code, what);
        }
    }
    *out = wefti_tmpl_of_bool(all && (any || (what != UPPER && what != LOWER)));
    return WEFT_OK;
}

/* The field after "{" at `at`: a place, a name or nothing. */
static weft_err format_field(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct weft_str field, uint32_t *n_auto, struct weft_buf *out) {
    const struct wefti_tmpl_args *args = call->args;
    const struct wefti_tmpl_value *value = NULL;
    uint64_t place = 0;
    bool is_number = field.len < 9;
    for (size_t i = 0; i < field.len; i++) {
        is_number &= field.data[i] >= '0' && field.data[i] <= '9';
        place = place * 10 + (uint64_t)(unsigned char)field.data[i] - '0';
    }
    if (is_number) {
        if (field.len == 0) place = (*n_auto)++;
        if (place < args->plain.n) value = &args->plain.items[place];
    } else {
        for (uint32_t i = 0; i < args->named.n; i += 2)
            if (weft_str_is(field, args->named.items[i].text, args->named.items[i].n))
                value = &args->named.items[i + 1];
    }
    if (!value)
        return wefti_tmpl_fault(run, "format has no value for {%.*s}",
                                (int)(field.len < 60 ? field.len : 60), field.data);
    return wefti_tmpl_write(run, *value, false, out);
}

static weft_err str_format(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_STR);
    const char *at = call->self.text, *end = at + call->self.n;
    uint32_t n_auto = 0;
    struct weft_buf buf;
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(call->self.n));
    wefti_tmpl_buf_init(run, &buf);
    while (at < end && !err && !buf.failed) {
        if ((*at == '{' || *at == '}') && end - at > 1 && at[1] == *at) {
            weft_buf_add_char(&buf, *at);
            at += 2;
        } else if (*at == '{') {
            const char *close = memchr(at, '}', (size_t)(end - at));
            if (!close) {
                err = wefti_tmpl_fault(run, "a format with { but without }");
                break;
            }
            err = format_field(run, call, (struct weft_str){at + 1, (size_t)(close - at) - 1},
                               &n_auto, &buf);
            at = close + 1;
        } else if (*at == '}') {
            err = wefti_tmpl_fault(run, "a format with } but without {");
        } else {
            weft_buf_add_char(&buf, *at++);
        }
    }
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}

/* --- lists ------------------------------------------------------------------------------------ */

enum { HOW_OFTEN, WHERE };

static weft_err list_count(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    WEFT_ASSERT(wefti_tmpl_is_seq(call->self));
    int64_t n = 0, at = -1;
    weft_err err = WEFT_OK;
    if (!call->bound[0]) return wefti_tmpl_fault(run, "%s takes an item", call->builtin->name);
    for (uint32_t i = 0; i < call->self.n && !err; i++) {
        bool same;
        err = wefti_tmpl_equal(run, call->self.items[i], *call->bound[0], &same);
        if (!err) err = wefti_tmpl_charge(run, 1);
        if (err || !same) continue;
        if (at < 0) at = i;
        n++;
    }
    if (!err && at < 0 && call->builtin->variant == WHERE)
        return wefti_tmpl_fault(run, "what index looks for is not there");
    *out = wefti_tmpl_of_int(call->builtin->variant == WHERE ? at : n);
    return err;
}

static weft_err same_self(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct wefti_tmpl_value *out) {
    *out = call->self;
    return wefti_tmpl_charge(run, 1);
}

/* --- dictionaries ----------------------------------------------------------------------------- */

static weft_err dict_get(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                         struct wefti_tmpl_value *out) {
    const struct wefti_tmpl_value *found;
    if (!call->bound[0]) return wefti_tmpl_fault(run, "get takes a key");
    weft_err err = wefti_tmpl_dict_get(run, call->self, *call->bound[0], &found);
    *out = call->bound[1] ? *call->bound[1] : wefti_tmpl_of_kind(WEFTI_TMPL_NONE);
    if (found) *out = *found;
    return err;
}

enum { ITEMS, KEYS, VALUES };

static weft_err dict_parts(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_DICT);
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; i < call->self.n && !err; i++) {
        const struct wefti_tmpl_value *pair = &call->self.items[2 * (size_t)i];
        struct wefti_tmpl_value both = {.kind = WEFTI_TMPL_TUPLE, .n = 2, .items = pair};
        err = wefti_tmpl_list_add(run, &list,
                                  call->builtin->variant == ITEMS  ? both
                                  : call->builtin->variant == KEYS ? pair[0]
                                                                   : pair[1]);
    }
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST);
    return err;
}

/* --- loops ------------------------------------------------------------------------------------ */

static weft_err loop_cycle(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_LOOP);
    const struct wefti_tmpl_list *plain = &call->args->plain;
    if (plain->n == 0) return wefti_tmpl_fault(run, "cycle takes what to cycle through");
    *out = plain->items[call->self.loop->index % plain->n];
    return WEFT_OK;
}

static weft_err loop_changed(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    WEFT_ASSERT(call->self.kind == WEFTI_TMPL_LOOP);
    struct wefti_tmpl_loop *loop = call->self.loop;
    struct wefti_tmpl_value now = wefti_tmpl_of_list(&call->args->plain, WEFTI_TMPL_TUPLE);
    bool same;
    weft_err err = wefti_tmpl_equal(run, loop->changed, now, &same);
    run->escapes++;
    loop->changed = now;
    *out = wefti_tmpl_of_bool(!same);
    return err;
}

const struct wefti_tmpl_builtin wefti_tmpl_string_methods[] = {
    {"upper", "", str_case, WEFTI_TMPL_CASE_UPPER},
    {"lower", "", str_case, WEFTI_TMPL_CASE_LOWER},
    {"casefold", "", str_case, WEFTI_TMPL_CASE_LOWER},
    {"title", "", str_case, WEFTI_TMPL_CASE_TITLE},
    {"capitalize", "", str_case, WEFTI_TMPL_CASE_CAPITALIZE},
    {"swapcase", "", str_case, WEFTI_TMPL_CASE_SWAP},
    {"lstrip", "chars", str_strip, WEFTI_TMPL_SIDE_LEFT},
    {"rstrip", "chars", str_strip, WEFTI_TMPL_SIDE_RIGHT},
    {"strip", "chars", str_strip, WEFTI_TMPL_SIDES_BOTH},
    {"startswith", "prefix", str_affix, AT_START},
    {"endswith", "suffix", str_affix, AT_END},
    {"removeprefix", "prefix", str_remove_affix, AT_START},
    {"removesuffix", "suffix", str_remove_affix, AT_END},
    {"replace", "old new count", str_replace, 0},
    {"split", "sep maxsplit", str_split, FROM_LEFT},
    {"rsplit", "sep maxsplit", str_split, FROM_RIGHT},
    {"splitlines", "", str_lines, 0},
    {"partition", "sep", str_partition, FROM_LEFT},
    {"rpartition", "sep", str_partition, FROM_RIGHT},
    {"find", "sub start end", str_find, FROM_LEFT},
    {"rfind", "sub start end", str_find, FROM_RIGHT},
    {"index", "sub start end", str_find, FROM_LEFT | MUST_BE_THERE},
    {"rindex", "sub start end", str_find, FROM_RIGHT | MUST_BE_THERE},
    {"count", "sub start end", str_count, 0},
    {"join", "iterable", str_join, 0},
    {"center", "width fillchar", str_pad, WEFTI_TMPL_ALIGN_CENTER},
    {"ljust", "width fillchar", str_pad, WEFTI_TMPL_ALIGN_LEFT},
    {"rjust", "width fillchar", str_pad, WEFTI_TMPL_ALIGN_RIGHT},
    {"zfill", "width", str_pad, WEFTI_TMPL_ALIGN_NUMBER},
    {"isdigit", "", str_is, DIGITS},
    {"isdecimal", "", str_is, DIGITS},
    {"isnumeric", "", str_is, NUMERIC},
    {"isalpha", "", str_is, LETTERS},
    {"isalnum", "", str_is, LETTERS_AND_NUMBERS},
    {"isascii", "", str_is, ASCII},
    {"isspace", "", str_is, SPACES},
    {"isupper", "", str_is, UPPER},
    {"islower", "", str_is, LOWER},
    {"format", "*", str_format, 0},
    {.name = NULL},
};

const struct wefti_tmpl_builtin wefti_tmpl_list_methods[] = {
    {"count", "value", list_count, HOW_OFTEN},
    {"index", "value", list_count, WHERE},
    {"copy", "", same_self, 0},
    {.name = NULL},
};

const struct wefti_tmpl_builtin wefti_tmpl_dict_methods[] = {
    {"get", "key default", dict_get, 0}, {"items", "", dict_parts, ITEMS},
    {"keys", "", dict_parts, KEYS},      {"values", "", dict_parts, VALUES},
    {"copy", "", same_self, 0},          {.name = NULL},
};

const struct wefti_tmpl_builtin wefti_tmpl_loop_methods[] = {
    {"cycle", "*", loop_cycle, 0},
    {"changed", "*", loop_changed, 0},
    {.name = NULL},
};
