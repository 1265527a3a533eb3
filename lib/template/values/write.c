/* Values as text, like Python's str() and repr(). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/check.h"
#include "syntax/tree.h"
#include "values/run.h"
#include "values/text.h"

weft_err wefti_tmpl_str_copy(struct wefti_tmpl_run *run, const char *text, size_t len,
                             struct wefti_tmpl_value *out) {
    void *copy;
    *out = wefti_tmpl_of_str("", 0);
    if (len > UINT32_MAX) return wefti_tmpl_too_big(run);
    weft_err err = wefti_tmpl_alloc(run, len, &copy);
    if (err) return err;
    WEFT_ASSERT(copy);
    if (len > 0) memcpy(copy, text, len);
    *out = wefti_tmpl_of_str(copy, len);
    return WEFT_OK;
}

void wefti_tmpl_buf_init(const struct wefti_tmpl_run *run, struct weft_buf *buf) {
    weft_buf_init(buf, run->arena_max < UINT32_MAX ? run->arena_max : UINT32_MAX);
}

weft_err wefti_tmpl_take_buf(struct wefti_tmpl_run *run, struct weft_buf *buf,
                             struct wefti_tmpl_value *out) {
    weft_err err;
    if (buf->failed)
        err = buf->len >= buf->max_bytes / 2 ? wefti_tmpl_too_big(run) : WEFT_E_NOMEM;
    else
        err = wefti_tmpl_str_copy(run, buf->data, buf->len, out);
    weft_buf_fini(buf);
    return err;
}

/* Python's repr: the shortest digits that read back as the same number. */
void wefti_tmpl_write_real(double real, struct weft_buf *out) {
    char text[40];
    if (isnan(real) || isinf(real)) {
        weft_buf_add_str(out, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 1;
    for (; digits < 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real) break;
    }
    (void)snprintf(text, sizeof text, "%.*e", digits - 1, real);
    int exponent = atoi(strchr(text, 'e') + 1); /* NOLINT(cert-err34-c): printf wrote it */
    if (exponent < -4 || exponent >= 16) {
        char *mark = strchr(text, 'e');
        weft_buf_add(out, text, (size_t)(mark - text));
        weft_buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    int decimals = digits - 1 - exponent;
    weft_buf_printf(out, "%.*f", decimals < 1 ? 1 : decimals, real);
}

static bool is_printable(uint32_t code) {
    if (code == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void write_quoted(struct weft_str text, struct weft_buf *out) {
    bool has_single = text.len > 0 && memchr(text.data, '\'', text.len);
    char quote = has_single && !memchr(text.data, '"', text.len) ? '"' : '\'';
    const char *end = text.data + text.len;
    weft_buf_add_char(out, quote);
    for (const char *at = text.data; at < end;) {
        size_t len;
        uint32_t code = wefti_tmpl_char_get(at, end, &len);
        if (code == (uint32_t)quote || code == '\\')
            weft_buf_printf(out, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            weft_buf_printf(out, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (is_printable(code))
            weft_buf_add(out, at, len);
        else if (code < 0x100)
            weft_buf_printf(out, "\\x%02x", code);
        else
            weft_buf_printf(out, code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        at += len;
    }
    weft_buf_add_char(out, quote);
}

static weft_err write_items(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                            struct weft_buf *out) {
    WEFT_ASSERT(value.kind == WEFTI_TMPL_LIST || value.kind == WEFTI_TMPL_TUPLE ||
                value.kind == WEFTI_TMPL_DICT);
    bool is_dict = value.kind == WEFTI_TMPL_DICT;
    const char *marks = is_dict ? "{}" : value.kind == WEFTI_TMPL_TUPLE ? "()" : "[]";
    weft_err err = WEFT_OK;
    weft_buf_add_char(out, marks[0]);
    for (uint32_t i = 0; i < value.n && !err; i++) {
        if (i > 0) weft_buf_add_str(out, ", ");
        const struct wefti_tmpl_value *at = &value.items[is_dict ? 2 * (size_t)i : i];
        err = wefti_tmpl_write(run, *at, true, out);
        if (!is_dict || err) continue;
        weft_buf_add_str(out, ": ");
        err = wefti_tmpl_write(run, at[1], true, out);
    }
    if (value.kind == WEFTI_TMPL_TUPLE && value.n == 1) weft_buf_add_char(out, ',');
    weft_buf_add_char(out, marks[1]);
    return err;
}

static weft_err write_space(struct wefti_tmpl_run *run, const struct wefti_tmpl_space *space,
                            struct weft_buf *out) {
    weft_err err = WEFT_OK;
    weft_buf_add_str(out, "<Namespace {");
    for (uint32_t i = 0; i < space->n && !err; i++) {
        if (i > 0) weft_buf_add_str(out, ", ");
        write_quoted(space->bindings[i].name, out);
        weft_buf_add_str(out, ": ");
        err = wefti_tmpl_write(run, space->bindings[i].value, true, out);
    }
    weft_buf_add_str(out, "}>");
    return err;
}

static weft_err write_deep(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                           struct weft_buf *out) {
    weft_err err = wefti_tmpl_deeper(run);
    if (!err)
        err = value.kind == WEFTI_TMPL_NAMESPACE ? write_space(run, value.space, out)
                                                 : write_items(run, value, out);
    if (!err && out->failed) err = wefti_tmpl_too_big(run);
    run->depth--;
    return err;
}

weft_err wefti_tmpl_write(struct wefti_tmpl_run *run, struct wefti_tmpl_value value, bool quoted,
                          struct weft_buf *out) {
    switch ((enum wefti_tmpl_kind)value.kind) {
    case WEFTI_TMPL_UNDEFINED:
        if (quoted) weft_buf_add_str(out, "Undefined");
        return WEFT_OK;
    case WEFTI_TMPL_NONE:
        weft_buf_add_str(out, "None");
        return WEFT_OK;
    case WEFTI_TMPL_BOOL:
        weft_buf_add_str(out, value.number ? "True" : "False");
        return WEFT_OK;
    case WEFTI_TMPL_INT:
        weft_buf_printf(out, "%" PRId64, value.number);
        return WEFT_OK;
    case WEFTI_TMPL_FLOAT:
        wefti_tmpl_write_real(value.real, out);
        return WEFT_OK;
    case WEFTI_TMPL_STR:
        if (quoted)
            write_quoted(wefti_tmpl_text_of(value), out);
        else
            weft_buf_add(out, value.text, value.n);
        return wefti_tmpl_charge(run, quoted ? wefti_tmpl_chars_steps(value.n)
                                             : wefti_tmpl_bytes_steps(value.n));
    case WEFTI_TMPL_LIST:
    case WEFTI_TMPL_TUPLE:
    case WEFTI_TMPL_DICT:
    case WEFTI_TMPL_NAMESPACE:
        return write_deep(run, value, out);
    case WEFTI_TMPL_MACRO:
        weft_buf_printf(out, "<Macro '%.*s'>", (int)value.macro->node->text.len,
                        value.macro->node->text.data);
        return WEFT_OK;
    default:
        return wefti_tmpl_fault(run, "cannot write %s", wefti_tmpl_kind_name(&value));
    }
}

weft_err wefti_tmpl_to_str(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                           struct wefti_tmpl_value *out) {
    *out = value;
    if (value.kind == WEFTI_TMPL_STR) return WEFT_OK;
    struct weft_buf buf;
    wefti_tmpl_buf_init(run, &buf);
    weft_err err = wefti_tmpl_write(run, value, false, &buf);
    if (!err) return wefti_tmpl_take_buf(run, &buf, out);
    weft_buf_fini(&buf);
    return err;
}
