/* Filters of one value. Those of sequences are in sequences.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "builtins/builtin.h"
#include "builtins/member.h"
#include "values/json.h"
#include "values/operators.h"
#include "values/text.h"

/* The string that a filter of strings works on. */
static weft_err self_text(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                          struct weft_str *out) {
    struct wefti_tmpl_value text = call->self;
    weft_err err = wefti_tmpl_to_str(run, call->self, &text);
    *out = wefti_tmpl_text_of(text);
    return err;
}

static weft_err filter_case(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    struct weft_str text;
    weft_err err = self_text(run, call, &text);
    return err ? err
               : wefti_tmpl_str_case(run, text, (enum wefti_tmpl_case)call->builtin->variant, out);
}

static weft_err filter_trim(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    struct weft_str text, chars;
    weft_err err = self_text(run, call, &text);
    if (!err) err = wefti_tmpl_arg_str(run, call, 0, NULL, &chars);
    if (err) return err;
    err = wefti_tmpl_str_strip(run, &text, WEFTI_TMPL_SIDES_BOTH, chars);
    *out = wefti_tmpl_of_str(text.data, text.len);
    return err;
}

static weft_err filter_string(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    return wefti_tmpl_to_str(run, call->self, out);
}

static weft_err filter_default(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                               struct wefti_tmpl_value *out) {
    bool use = call->self.kind == WEFTI_TMPL_UNDEFINED ||
               (wefti_tmpl_arg_truth(call, 1, false) && !wefti_tmpl_truth(call->self));
    *out = call->self;
    if (use) *out = call->bound[0] ? *call->bound[0] : wefti_tmpl_of_str("", 0);
    return wefti_tmpl_charge(run, 1);
}

static weft_err filter_length(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of = call->self;
    switch ((enum wefti_tmpl_kind)of.kind) {
    case WEFTI_TMPL_UNDEFINED:
        *out = wefti_tmpl_of_int(0);
        return WEFT_OK;
    case WEFTI_TMPL_STR:
        *out = wefti_tmpl_of_int((int64_t)wefti_tmpl_str_chars(wefti_tmpl_text_of(of)));
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(of.n));
    case WEFTI_TMPL_LIST:
    case WEFTI_TMPL_TUPLE:
    case WEFTI_TMPL_DICT:
        *out = wefti_tmpl_of_int(of.n);
        return WEFT_OK;
    case WEFTI_TMPL_LOOP:
        *out = wefti_tmpl_of_int(of.loop->n);
        return WEFT_OK;
    default:
        return wefti_tmpl_fault(run, "cannot take the length of %s", wefti_tmpl_kind_name(&of));
    }
}

static weft_err filter_replace(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                               struct wefti_tmpl_value *out) {
    struct weft_str text, from, to;
    int64_t max;
    if (!call->bound[0] || !call->bound[1])
        return wefti_tmpl_fault(run, "replace takes what to replace, and by what");
    weft_err err = self_text(run, call, &text);
    if (!err) err = wefti_tmpl_arg_str(run, call, 0, "", &from);
    if (!err) err = wefti_tmpl_arg_str(run, call, 1, "", &to);
    if (!err) err = wefti_tmpl_arg_int(run, call, 2, -1, &max);
    return err ? err : wefti_tmpl_str_replace(run, text, from, to, max, out);
}

static weft_err filter_indent(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct weft_str text, by = {NULL, 0};
    struct wefti_tmpl_value made, lines;
    int64_t width = 4;
    bool first = wefti_tmpl_arg_truth(call, 1, false), blank = wefti_tmpl_arg_truth(call, 2, false);
    weft_err err = self_text(run, call, &text);
    if (!err && call->bound[0] && call->bound[0]->kind == WEFTI_TMPL_STR)
        by = wefti_tmpl_text_of(*call->bound[0]);
    else if (!err)
        err = wefti_tmpl_arg_int(run, call, 0, 4, &width);
    if (!err && !by.data) {
        err = wefti_tmpl_str_pad(run, (struct weft_str){"", 0}, width, WEFTI_TMPL_ALIGN_LEFT,
                                 (struct weft_str){" ", 1}, &made);
        by = wefti_tmpl_text_of(made);
    }
    if (!err) err = wefti_tmpl_str_lines(run, text, &lines);
    if (err) return err;
    struct weft_buf buf;
    wefti_tmpl_buf_init(run, &buf);
    for (uint32_t i = 0; i < lines.n && !buf.failed; i++) {
        struct wefti_tmpl_value line = lines.items[i];
        if (i > 0) weft_buf_add_char(&buf, '\n');
        if (i == 0 ? first : blank || line.n > 0) weft_buf_add(&buf, by.data, by.len);
        weft_buf_add(&buf, line.text, line.n);
    }
    if (lines.n == 0 && first) weft_buf_add(&buf, by.data, by.len);
    /* A final line end makes a last, empty line. */
    struct wefti_tmpl_value tail;
    bool ends =
        text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r');
    if (ends) {
        weft_buf_add_char(&buf, '\n');
        if (blank) weft_buf_add(&buf, by.data, by.len);
    }
    err = wefti_tmpl_take_buf(run, &buf, &tail);
    *out = tail;
    return err;
}

static weft_err filter_center(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct weft_str text;
    int64_t width;
    weft_err err = self_text(run, call, &text);
    if (!err) err = wefti_tmpl_arg_int(run, call, 0, 80, &width);
    return err ? err
               : wefti_tmpl_str_pad(run, text, width, WEFTI_TMPL_ALIGN_CENTER,
                                    (struct weft_str){" ", 1}, out);
}

static weft_err filter_escape(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct weft_str text;
    struct weft_buf buf;
    weft_err err = self_text(run, call, &text);
    if (err) return err;
    wefti_tmpl_buf_init(run, &buf);
    for (size_t i = 0; i < text.len && !buf.failed; i++) {
        static const char from[] = "&<>\"'";
        static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
        const char *found = text.data[i] ? strchr(from, text.data[i]) : NULL;
        if (found)
            weft_buf_add_str(&buf, to[found - from]);
        else
            weft_buf_add_char(&buf, text.data[i]);
    }
    return wefti_tmpl_take_buf(run, &buf, out);
}

static weft_err filter_truncate(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                                struct wefti_tmpl_value *out) {
    struct weft_str text, end;
    int64_t length, leeway;
    weft_err err = self_text(run, call, &text);
    if (!err) err = wefti_tmpl_arg_int(run, call, 0, 255, &length);
    if (!err) err = wefti_tmpl_arg_str(run, call, 2, "...", &end);
    if (!err) err = wefti_tmpl_arg_int(run, call, 3, 5, &leeway);
    if (err) return err;
    int64_t n_end = (int64_t)wefti_tmpl_str_chars(end);
    if (length < n_end || leeway < 0 || length > UINT32_MAX || leeway > UINT32_MAX)
        return wefti_tmpl_fault(run, "truncate to less than its end is long");
    err =
        wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.len) + wefti_tmpl_chars_steps(end.len));
    if (err) return err;
    *out = wefti_tmpl_of_str(text.data, text.len);
    if ((int64_t)wefti_tmpl_str_chars(text) <= length + leeway) return WEFT_OK;
    text.len = wefti_tmpl_char_at(text, (size_t)(length - n_end));
    if (!wefti_tmpl_arg_truth(call, 1, false)) { /* back to where a word ends */
        const char *space = text.len ? memrchr(text.data, ' ', text.len) : NULL;
        if (space) text.len = (size_t)(space - text.data);
    }
    return wefti_tmpl_arithmetic(run, WEFTI_TMPL_EXPR_ADD, wefti_tmpl_of_str(text.data, text.len),
                                 wefti_tmpl_of_str(end.data, end.len), out);
}

static weft_err filter_wordcount(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                                 struct wefti_tmpl_value *out) {
    struct weft_str text;
    weft_err err = self_text(run, call, &text);
    if (!err) err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.len));
    if (err) return err;
    const char *end = text.data + text.len;
    int64_t n = 0;
    bool inside = false;
    size_t len;
    for (const char *at = text.data; at < end; at += len) {
        bool word = weft_unicode_is_word(wefti_tmpl_char_get(at, end, &len));
        n += word && !inside;
        inside = word;
    }
    *out = wefti_tmpl_of_int(n);
    return WEFT_OK;
}

static weft_err filter_format(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value format, by = wefti_tmpl_of_list(&call->args->plain, WEFTI_TMPL_TUPLE);
    weft_err err = wefti_tmpl_to_str(run, call->self, &format);
    if (call->args->named.n > 0)
        by = (struct wefti_tmpl_value){.kind = WEFTI_TMPL_DICT,
                                       .n = call->args->named.n / 2,
                                       .items = call->args->named.items};
    return err ? err : wefti_tmpl_format(run, format, by, out);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static weft_err filter_abs(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of = call->self;
    if (!wefti_tmpl_is_number(of))
        return wefti_tmpl_fault(run, "abs of %s", wefti_tmpl_kind_name(&of));
    if (of.kind == WEFTI_TMPL_FLOAT)
        *out = wefti_tmpl_of_float(fabs(of.real));
    else if (of.number == INT64_MIN)
        return wefti_tmpl_fault(run, "a number over 64 bits");
    else
        *out = wefti_tmpl_of_int(of.number < 0 ? -of.number : of.number);
    return WEFT_OK;
}

/* Reads a number as Python does: white space around it, "_" between digits. Empty: not a number. */
static weft_err read_digits(struct wefti_tmpl_run *run, struct wefti_tmpl_value of, char out[64]) {
    struct weft_str text = wefti_tmpl_text_of(of);
    size_t n = 0;
    out[0] = '\0';
    weft_err err =
        wefti_tmpl_str_strip(run, &text, WEFTI_TMPL_SIDES_BOTH, (struct weft_str){NULL, 0});
    if (!err) err = wefti_tmpl_charge(run, wefti_tmpl_chars_steps(text.len));
    if (err) return err;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '_') continue;
        if (n == 63 || !text.data[i]) {
            n = 0;
            break;
        }
        out[n++] = text.data[i];
    }
    out[n] = '\0';
    return WEFT_OK;
}

static bool text_to_int(const char *digits, int64_t base, int64_t *out) {
    const char *first = digits + (*digits == '-' || *digits == '+');
    bool prefixed = first[0] == '0' && ((base == 16 && (first[1] | 32) == 'x') ||
                                        (base == 8 && (first[1] | 32) == 'o') ||
                                        (base == 2 && (first[1] | 32) == 'b'));
    if (prefixed) first += 2;
    int64_t number = 0;
    bool negative = *digits == '-';
    if (!*first) return false;
    for (; *first; first++) {
        int c = *first | 32, digit = 99;
        if (*first >= '0' && *first <= '9') digit = *first - '0';
        if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
        if (digit >= base || __builtin_mul_overflow(number, base, &number) ||
            __builtin_add_overflow(number, (int64_t)digit, &number))
            return false;
    }
    *out = negative ? -number : number;
    return true;
}

static bool text_to_real(const char *digits, double *out) {
    if (strspn(digits, "+-0123456789.eE") != strlen(digits)) return false;
    char *end;
    *out = strtod(digits, &end);
    return end != digits && !*end;
}

static bool real_to_int(double real, int64_t *out) {
    if (!(fabs(real) < 9.2e18)) return false;
    *out = (int64_t)real;
    return true;
}

static weft_err filter_int(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of = call->self;
    char digits[64];
    int64_t base, number;
    double real;
    weft_err err = wefti_tmpl_arg_int(run, call, 1, 10, &base);
    if (!err && (base < 2 || base > 36)) err = wefti_tmpl_fault(run, "a base of %" PRId64, base);
    if (err) return err;
    *out = call->bound[0] ? *call->bound[0] : wefti_tmpl_of_int(0);
    if (wefti_tmpl_is_int(of)) {
        *out = wefti_tmpl_of_int(of.number);
    } else if (of.kind == WEFTI_TMPL_FLOAT) {
        if (real_to_int(of.real, &number)) *out = wefti_tmpl_of_int(number);
    } else if (of.kind == WEFTI_TMPL_STR) {
        err = read_digits(run, of, digits);
        if (err) return err;
        if (text_to_int(digits, base, &number) ||
            (text_to_real(digits, &real) && real_to_int(real, &number)))
            *out = wefti_tmpl_of_int(number);
    }
    return WEFT_OK;
}

static weft_err filter_float(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    struct wefti_tmpl_value of = call->self;
    char digits[64];
    double real;
    *out = call->bound[0] ? *call->bound[0] : wefti_tmpl_of_float(0);
    if (wefti_tmpl_is_number(of)) *out = wefti_tmpl_of_float(wefti_tmpl_to_real(of));
    if (of.kind != WEFTI_TMPL_STR) return wefti_tmpl_charge(run, 1);
    weft_err err = read_digits(run, of, digits);
    if (!err && text_to_real(digits, &real)) *out = wefti_tmpl_of_float(real);
    return err;
}

static weft_err filter_round(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                             struct wefti_tmpl_value *out) {
    struct weft_str method;
    int64_t precision;
    weft_err err = wefti_tmpl_arg_int(run, call, 0, 0, &precision);
    if (!err) err = wefti_tmpl_arg_str(run, call, 1, "common", &method);
    if (!err && !wefti_tmpl_is_number(call->self))
        err = wefti_tmpl_fault(run, "round of what is no number");
    if (!err && (precision < -300 || precision > 300))
        err = wefti_tmpl_fault(run, "round to %" PRId64 " places", precision);
    if (err) return err;
    double real = wefti_tmpl_to_real(call->self), scale = pow(10, (double)precision);
    if (WEFT_STR_IS(method, "ceil")) {
        real = ceil(real * scale) / scale;
    } else if (WEFT_STR_IS(method, "floor")) {
        real = floor(real * scale) / scale;
    } else if (!WEFT_STR_IS(method, "common")) {
        return wefti_tmpl_fault(run, "round by %.*s", (int)(method.len < 60 ? method.len : 60),
                                method.data);
    } else if (precision >= 0 && isfinite(real)) {
        char text[700]; /* printf rounds the exact value, ties to even, as Python does */
        (void)snprintf(text, sizeof text, "%.*f", (int)precision, real);
        real = strtod(text, NULL);
    } else {
        real = nearbyint(real * scale) / scale;
    }
    *out = wefti_tmpl_of_float(real);
    if (call->self.kind != WEFTI_TMPL_FLOAT && method.data[1] == 'o' &&
        WEFT_STR_IS(method, "common"))
        *out = wefti_tmpl_of_int((int64_t)real);
    return WEFT_OK;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static weft_err separators(struct wefti_tmpl_run *run, const struct wefti_tmpl_value *pair,
                           struct wefti_tmpl_json_style *style) {
    if (!pair || pair->kind == WEFTI_TMPL_NONE) return WEFT_OK;
    if (!wefti_tmpl_is_seq(*pair) || pair->n != 2 || pair->items[0].kind != WEFTI_TMPL_STR ||
        pair->items[1].kind != WEFTI_TMPL_STR)
        return wefti_tmpl_fault(run, "separators are a pair of strings");
    style->item_sep = wefti_tmpl_text_of(pair->items[0]);
    style->key_sep = wefti_tmpl_text_of(pair->items[1]);
    return WEFT_OK;
}

/* Like transformers' filter: HTML is not escaped, and other than ASCII only if asked for. */
static weft_err filter_tojson(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                              struct wefti_tmpl_value *out) {
    struct wefti_tmpl_json_style style = {.ascii = wefti_tmpl_arg_truth(call, 0, false),
                                          .sort = wefti_tmpl_arg_truth(call, 3, false),
                                          .item_sep = {", ", 2},
                                          .key_sep = {": ", 2}};
    const struct wefti_tmpl_value *indent = call->bound[1];
    struct wefti_tmpl_value spaces;
    weft_err err = WEFT_OK;
    if (indent && indent->kind != WEFTI_TMPL_NONE) {
        int64_t width = 0;
        style.indented = true;
        style.item_sep.len = 1;
        if (indent->kind == WEFTI_TMPL_STR)
            style.indent = wefti_tmpl_text_of(*indent);
        else
            err = wefti_tmpl_arg_int(run, call, 1, 0, &width);
        if (!err && indent->kind != WEFTI_TMPL_STR) {
            err = wefti_tmpl_str_pad(run, (struct weft_str){"", 0}, width, WEFTI_TMPL_ALIGN_LEFT,
                                     (struct weft_str){" ", 1}, &spaces);
            style.indent = wefti_tmpl_text_of(spaces);
        }
    }
    if (!err) err = separators(run, call->bound[2], &style);
    if (err) return err;
    struct weft_buf buf;
    wefti_tmpl_buf_init(run, &buf);
    err = wefti_tmpl_to_json(run, call->self, &style, &buf);
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}

static weft_err filter_attr(struct wefti_tmpl_run *run, const struct wefti_tmpl_call *call,
                            struct wefti_tmpl_value *out) {
    struct weft_str name;
    weft_err err = wefti_tmpl_arg_str(run, call, 0, "", &name);
    /* Members, not items: a dictionary has none for a template to read. */
    if (!err && call->self.kind != WEFTI_TMPL_DICT && call->self.kind != WEFTI_TMPL_UNDEFINED)
        err = wefti_tmpl_member(run, call->self, name, out);
    return err;
}

const struct wefti_tmpl_builtin wefti_tmpl_filters[] = {
    {"upper", "", filter_case, WEFTI_TMPL_CASE_UPPER},
    {"lower", "", filter_case, WEFTI_TMPL_CASE_LOWER},
    {"title", "", filter_case, WEFTI_TMPL_CASE_TITLE_WORDS},
    {"capitalize", "", filter_case, WEFTI_TMPL_CASE_CAPITALIZE},
    {"trim", "chars", filter_trim, 0},
    {"string", "", filter_string, 0},
    {"safe", "", filter_string, 0},
    {"escape", "", filter_escape, 0},
    {"e", "", filter_escape, 0},
    {"forceescape", "", filter_escape, 0},
    {"default", "default_value boolean", filter_default, 0},
    {"d", "default_value boolean", filter_default, 0},
    {"length", "", filter_length, 0},
    {"count", "", filter_length, 0},
    {"replace", "old new count", filter_replace, 0},
    {"indent", "width first blank", filter_indent, 0},
    {"center", "width", filter_center, 0},
    {"truncate", "length killwords end leeway", filter_truncate, 0},
    {"wordcount", "", filter_wordcount, 0},
    {"format", "*", filter_format, 0},
    {"abs", "", filter_abs, 0},
    {"int", "default base", filter_int, 0},
    {"float", "default", filter_float, 0},
    {"round", "precision method", filter_round, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson, 0},
    {"attr", "name", filter_attr, 0},
    {.name = NULL},
};
