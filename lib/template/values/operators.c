/* Arithmetic, and % of strings, with the results of Python. */
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "values/operators.h"
#include "values/run.h"
#include "values/text.h"

/* --- arithmetic ------------------------------------------------------------------------------- */

static weft_err no_operands(struct wefti_tmpl_run *run, const char *what, struct wefti_tmpl_value a,
                            struct wefti_tmpl_value b) {
    return wefti_tmpl_fault(run, "cannot %s %s and %s", what, wefti_tmpl_kind_name(&a),
                            wefti_tmpl_kind_name(&b));
}

static weft_err join_two(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                         struct wefti_tmpl_value b, size_t item_bytes,
                         struct wefti_tmpl_value *out) {
    void *joined;
    uint32_t n;
    if (__builtin_add_overflow(a.n, b.n, &n)) return wefti_tmpl_too_big(run);
    weft_err err = wefti_tmpl_alloc(run, n * item_bytes, &joined);
    if (err) return err;
    if (a.n > 0) memcpy(joined, a.text, a.n * item_bytes);
    if (b.n > 0) memcpy((char *)joined + a.n * item_bytes, b.text, b.n * item_bytes);
    *out = a;
    out->n = n;
    out->text = joined;
    return WEFT_OK;
}

static weft_err add(struct wefti_tmpl_run *run, struct wefti_tmpl_value a,
                    struct wefti_tmpl_value b, struct wefti_tmpl_value *out) {
    if (a.kind == WEFTI_TMPL_STR && b.kind == WEFTI_TMPL_STR) return join_two(run, a, b, 1, out);
    if (a.kind == b.kind && (a.kind == WEFTI_TMPL_LIST || a.kind == WEFTI_TMPL_TUPLE))
        return join_two(run, a, b, sizeof a, out);
    return no_operands(run, "add", a, b);
}

static weft_err repeat(struct wefti_tmpl_run *run, struct wefti_tmpl_value of,
                       struct wefti_tmpl_value by, struct wefti_tmpl_value *out) {
    size_t item_bytes = of.kind == WEFTI_TMPL_STR ? 1 : sizeof of;
    uint64_t times = by.number > 0 ? (uint64_t)by.number : 0;
    void *items;
    *out = of;
    out->n = 0;
    if (times == 0 || of.n == 0) return WEFT_OK;
    if (times > UINT32_MAX / of.n) return wefti_tmpl_too_big(run);
    size_t bytes = of.n * item_bytes;
    weft_err err = wefti_tmpl_alloc(run, bytes * times, &items);
    if (err) return err;
    for (uint64_t i = 0; i < times; i++)
        memcpy((char *)items + i * bytes, of.text, bytes);
    out->n = (uint32_t)(of.n * times);
    out->text = items;
    return WEFT_OK;
}

static bool can_repeat(struct wefti_tmpl_value of, struct wefti_tmpl_value by) {
    return (of.kind == WEFTI_TMPL_STR || of.kind == WEFTI_TMPL_LIST ||
            of.kind == WEFTI_TMPL_TUPLE) &&
           wefti_tmpl_is_int(by);
}

static weft_err int_pow(struct wefti_tmpl_run *run, int64_t a, int64_t b,
                        struct wefti_tmpl_value *out) {
    if (b < 0) {
        if (a == 0) return wefti_tmpl_fault(run, "a division by zero");
        *out = wefti_tmpl_of_float(pow((double)a, (double)b));
        return WEFT_OK;
    }
    int64_t power = 1;
    for (; b > 0; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(power, a, &power))
            return wefti_tmpl_fault(run, "a number over 64 bits");
        if (b > 1 && __builtin_mul_overflow(a, a, &a))
            return wefti_tmpl_fault(run, "a number over 64 bits");
    }
    *out = wefti_tmpl_of_int(power);
    return WEFT_OK;
}

static weft_err int_op(struct wefti_tmpl_run *run, enum wefti_tmpl_expr_kind op, int64_t a,
                       int64_t b, struct wefti_tmpl_value *out) {
    int64_t number = 0;
    bool over = false;
    switch (op) {
    case WEFTI_TMPL_EXPR_ADD:
        over = __builtin_add_overflow(a, b, &number);
        break;
    case WEFTI_TMPL_EXPR_SUB:
        over = __builtin_sub_overflow(a, b, &number);
        break;
    case WEFTI_TMPL_EXPR_MUL:
        over = __builtin_mul_overflow(a, b, &number);
        break;
    case WEFTI_TMPL_EXPR_POW:
        return int_pow(run, a, b, out);
    default: /* // and %, rounding down, the remainder with the divisor's sign */
        if (b == 0) return wefti_tmpl_fault(run, "a division by zero");
        over = b == -1 && a == INT64_MIN;
        if (over) break;
        bool down = a % b != 0 && (a % b < 0) != (b < 0);
        number = op == WEFTI_TMPL_EXPR_MOD ? a % b + (down ? b : 0) : a / b - down;
    }
    if (over) return wefti_tmpl_fault(run, "a number over 64 bits");
    *out = wefti_tmpl_of_int(number);
    return WEFT_OK;
}

static weft_err real_op(struct wefti_tmpl_run *run, enum wefti_tmpl_expr_kind op, double a,
                        double b, struct wefti_tmpl_value *out) {
    bool divides =
        op == WEFTI_TMPL_EXPR_DIV || op == WEFTI_TMPL_EXPR_FLOORDIV || op == WEFTI_TMPL_EXPR_MOD;
    double real;
    if (divides && b == 0) return wefti_tmpl_fault(run, "a division by zero");
    switch (op) {
    case WEFTI_TMPL_EXPR_ADD:
        real = a + b;
        break;
    case WEFTI_TMPL_EXPR_SUB:
        real = a - b;
        break;
    case WEFTI_TMPL_EXPR_MUL:
        real = a * b;
        break;
    case WEFTI_TMPL_EXPR_DIV:
        real = a / b;
        break;
    case WEFTI_TMPL_EXPR_FLOORDIV:
        real = floor(a / b);
        break;
    case WEFTI_TMPL_EXPR_MOD:
        real = fmod(a, b);
        if (real != 0 && (real < 0) != (b < 0)) real += b;
        break;
    default:
        real = pow(a, b);
        if (isnan(real) && !isnan(a) && !isnan(b)) return wefti_tmpl_fault(run, "a complex number");
    }
    *out = wefti_tmpl_of_float(real);
    return WEFT_OK;
}

weft_err wefti_tmpl_arithmetic(struct wefti_tmpl_run *run, enum wefti_tmpl_expr_kind op,
                               struct wefti_tmpl_value a, struct wefti_tmpl_value b,
                               struct wefti_tmpl_value *out) {
    if (wefti_tmpl_is_int(a) && wefti_tmpl_is_int(b) && op != WEFTI_TMPL_EXPR_DIV)
        return int_op(run, op, a.number, b.number, out);
    if (wefti_tmpl_is_number(a) && wefti_tmpl_is_number(b))
        return real_op(run, op, wefti_tmpl_to_real(a), wefti_tmpl_to_real(b), out);
    if (op == WEFTI_TMPL_EXPR_ADD) return add(run, a, b, out);
    if (op == WEFTI_TMPL_EXPR_MUL && can_repeat(a, b)) return repeat(run, a, b, out);
    if (op == WEFTI_TMPL_EXPR_MUL && can_repeat(b, a)) return repeat(run, b, a, out);
    if (op == WEFTI_TMPL_EXPR_MOD && a.kind == WEFTI_TMPL_STR)
        return wefti_tmpl_format(run, a, b, out);
    return no_operands(run,
                       op == WEFTI_TMPL_EXPR_SUB   ? "subtract"
                       : op == WEFTI_TMPL_EXPR_MUL ? "multiply"
                                                   : "divide",
                       a, b);
}

/* --- %-formatting ----------------------------------------------------------------------------- */

struct spec {
    char text[16]; /* for printf, without the conversion */
    size_t n;
    char conversion;
};

/* Reads a specification from its "%"; moves *at past the conversion. False: malformed or too
 * long. */
static bool read_spec(const char **at, const char *end, struct spec *spec) {
    const char *from = (*at)++;
    while (*at < end && strchr("-+ #0123456789.", **at) && **at)
        (*at)++;
    spec->n = (size_t)(*at - from);
    if (*at == end || spec->n > 6) return false; /* widths of up to five digits */
    memcpy(spec->text, from, spec->n);
    spec->conversion = *(*at)++;
    return spec->conversion != '\0'; /* strchr finds '\0' anywhere */
}

static weft_err format_number(struct wefti_tmpl_run *run, struct spec *spec,
                              struct wefti_tmpl_value value, struct weft_buf *out) {
    static const char reals[] = "eEfFgG";
    if (!wefti_tmpl_is_number(value))
        return wefti_tmpl_fault(run, "cannot format %s as a number", wefti_tmpl_kind_name(&value));
    if (strchr(reals, spec->conversion)) {
        spec->text[spec->n] = spec->conversion;
        spec->text[spec->n + 1] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* checked by read_spec */
        weft_buf_printf(out, spec->text, wefti_tmpl_to_real(value));
        return WEFT_OK;
    }
    double real = wefti_tmpl_to_real(value);
    if (value.kind == WEFTI_TMPL_FLOAT && !(fabs(real) < 9e18))
        return wefti_tmpl_fault(run, "a number over 64 bits");
    long long number = value.kind == WEFTI_TMPL_FLOAT ? (long long)real : (long long)value.number;
    char conversion = spec->conversion == 'i' || spec->conversion == 'u' ? 'd' : spec->conversion;
    const char tail[4] = {'l', 'l', conversion, '\0'};
    memcpy(spec->text + spec->n, tail, sizeof tail);
    weft_buf_printf(out, spec->text, number);
#pragma GCC diagnostic pop
    return WEFT_OK;
}

static weft_err format_text(struct wefti_tmpl_run *run, const struct spec *spec,
                            struct wefti_tmpl_value value, struct weft_buf *out) {
    struct weft_buf text;
    struct wefti_tmpl_value whole, padded;
    wefti_tmpl_buf_init(run, &text);
    weft_err err = wefti_tmpl_write(run, value, spec->conversion == 'r', &text);
    if (err) {
        weft_buf_fini(&text);
        return err;
    }
    err = wefti_tmpl_take_buf(run, &text, &whole);
    if (err) return err;
    unsigned width = 0, cut = UINT32_MAX;
    bool left = memchr(spec->text, '-', spec->n) != NULL;
    char digits[16] = {0};
    memcpy(digits, spec->text + 1, spec->n - 1);
    const char *at = digits + strspn(digits, "-+ #0");
    for (; *at >= '0' && *at <= '9'; at++)
        width = width * 10 + (unsigned)(*at - '0');
    if (*at == '.')
        for (cut = 0, at++; *at >= '0' && *at <= '9'; at++)
            cut = cut * 10 + (unsigned)(*at - '0');
    struct weft_str cut_text = {whole.text, wefti_tmpl_char_at(wefti_tmpl_text_of(whole), cut)};
    err = wefti_tmpl_str_pad(run, cut_text, width,
                             left ? WEFTI_TMPL_ALIGN_LEFT : WEFTI_TMPL_ALIGN_RIGHT,
                             (struct weft_str){" ", 1}, &padded);
    if (!err) weft_buf_add(out, padded.text, padded.n);
    return err;
}

/* The value named by "(name)" after the percent sign. */
static weft_err named_value(struct wefti_tmpl_run *run, const char **at, const char *end,
                            struct wefti_tmpl_value by, struct wefti_tmpl_value *out) {
    const char *close = memchr(*at, ')', (size_t)(end - *at));
    const struct wefti_tmpl_value *found = NULL;
    if (close && by.kind == WEFTI_TMPL_DICT)
        found = wefti_tmpl_dict_named(by, (struct weft_str){*at + 2, (size_t)(close - *at) - 2});
    if (!found) return wefti_tmpl_fault(run, "a format names what is not given");
    *out = *found;
    *at = close;
    return WEFT_OK;
}

static weft_err format_one(struct wefti_tmpl_run *run, const char **at, const char *end,
                           struct wefti_tmpl_value by, uint32_t *n_used, struct weft_buf *out) {
    struct wefti_tmpl_value value = by;
    struct spec spec;
    bool named = end - *at > 1 && (*at)[1] == '(';
    if (named) {
        weft_err err = named_value(run, at, end, by, &value);
        if (err) return err;
    }
    if (!read_spec(at, end, &spec)) return wefti_tmpl_fault(run, "a format that is malformed");
    spec.text[0] = '%'; /* ")" if it was named */
    if (spec.conversion == '%') {
        weft_buf_add_char(out, '%');
        return WEFT_OK;
    }
    if (!named) {
        uint32_t n = by.kind == WEFTI_TMPL_TUPLE ? by.n : 1;
        if (*n_used >= n) return wefti_tmpl_fault(run, "too few values for a format");
        if (by.kind == WEFTI_TMPL_TUPLE) value = by.items[*n_used];
        (*n_used)++;
    }
    if (spec.conversion == 's' || spec.conversion == 'r')
        return format_text(run, &spec, value, out);
    if (strchr("diuxXoeEfFgG", spec.conversion)) return format_number(run, &spec, value, out);
    return wefti_tmpl_fault(run, "a format with the conversion %%%c", spec.conversion);
}

weft_err wefti_tmpl_format(struct wefti_tmpl_run *run, struct wefti_tmpl_value format,
                           struct wefti_tmpl_value by, struct wefti_tmpl_value *out) {
    WEFT_ASSERT(format.kind == WEFTI_TMPL_STR);
    const char *at = format.text, *end = at + format.n;
    struct weft_buf buf;
    uint32_t n_used = 0;
    weft_err err = WEFT_OK;
    wefti_tmpl_buf_init(run, &buf);
    while (at < end && !err) {
        const char *next = memchr(at, '%', (size_t)(end - at));
        if (!next) next = end;
        weft_buf_add(&buf, at, (size_t)(next - at));
        at = next;
        if (at < end) err = format_one(run, &at, end, by, &n_used, &buf);
        if (!err) err = wefti_tmpl_charge(run, 1);
        if (!err && buf.failed) err = wefti_tmpl_too_big(run);
    }
    if (!err && by.kind != WEFTI_TMPL_DICT && n_used < (by.kind == WEFTI_TMPL_TUPLE ? by.n : 1))
        err = wefti_tmpl_fault(run, "too many values for a format");
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}
