/* Values: the arena they live in, and what Python makes of them: truth, equality, order, text. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"
#include "chat_internal.h"

#define CHUNK_BYTES 16384u

struct wefti_tmpl_chunk {
    struct wefti_tmpl_chunk *below;
    size_t cap, used;
    _Alignas(16) char bytes[];
};

/* --- faults and bounds ---------------------------------------------------------------------------
 */

weft_err wefti_tmpl_fault(struct wefti_tmpl_run *run, const char *fmt, ...) {
    char text[sizeof run->why->text];
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    return weft_err_set(run->why, WEFT_E_INVAL, "chat template, line %u: %s", run->line, text);
}

weft_err wefti_tmpl_too_big(struct wefti_tmpl_run *run) {
    return weft_err_set(run->why, WEFT_E_TOOBIG, "the rendered chat prompt is over %zu bytes",
                        run->out_max);
}

weft_err wefti_tmpl_charge(struct wefti_tmpl_run *run, size_t steps) {
    if (run->steps_left >= steps) {
        run->steps_left -= steps;
        return WEFT_OK;
    }
    run->steps_left = 0;
    return weft_err_set(run->why, WEFT_E_TOOBIG,
                        "rendering the chat template takes too many steps (line %u)", run->line);
}

/* A level takes three C frames of a few hundred bytes: 2 MB at most, in a thread of 8. */
#define RUN_DEPTH_MAX 2000

weft_err wefti_tmpl_deeper(struct wefti_tmpl_run *run) {
    if (++run->depth <= RUN_DEPTH_MAX) return wefti_tmpl_charge(run, 1);
    return weft_err_set(run->why, WEFT_E_TOOBIG,
                        "rendering the chat template recurses too deep (line %u)", run->line);
}

/* --- the arena -----------------------------------------------------------------------------------
 */

weft_err wefti_tmpl_alloc(struct wefti_tmpl_run *run, size_t bytes, void **out) {
    *out = NULL;
    weft_err err = wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(bytes));
    if (err) return err;
    if (bytes > run->arena_max || run->arena_bytes > run->arena_max - bytes)
        return weft_err_set(run->why, WEFT_E_TOOBIG,
                            "rendering the chat template needs over %zu bytes of memory",
                            run->arena_max);
    bytes = (bytes + 15) & ~(size_t)15;
    struct wefti_tmpl_chunk *chunk = run->chunks;
    if (!chunk || chunk->cap - chunk->used < bytes) {
        size_t cap = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + cap);
        if (!chunk) return WEFT_E_NOMEM;
        *chunk = (struct wefti_tmpl_chunk){run->chunks, cap, 0};
        run->chunks = chunk;
    }
    *out = chunk->bytes + chunk->used;
    chunk->used += bytes;
    run->arena_bytes += bytes;
    return WEFT_OK;
}

struct wefti_tmpl_mark wefti_tmpl_mark(const struct wefti_tmpl_run *run) {
    return (struct wefti_tmpl_mark){run->chunks, run->chunks ? run->chunks->used : 0, run->escapes};
}

void wefti_tmpl_drop_since(struct wefti_tmpl_run *run, struct wefti_tmpl_mark mark) {
    if (run->escapes != mark.escapes) return;
    while (run->chunks != mark.chunk) {
        struct wefti_tmpl_chunk *gone = run->chunks;
        run->chunks = gone->below;
        run->arena_bytes -= gone->used;
        free(gone);
    }
    if (run->chunks) {
        run->arena_bytes -= run->chunks->used - mark.used;
        run->chunks->used = mark.used;
    }
}

void wefti_tmpl_arena_fini(struct wefti_tmpl_run *run) {
    struct wefti_tmpl_mark none = {NULL, 0, run->escapes};
    wefti_tmpl_drop_since(run, none);
}

weft_err wefti_tmpl_list_add(struct wefti_tmpl_run *run, struct wefti_tmpl_list *list,
                             struct wefti_tmpl_value item) {
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

/* --- what values are -----------------------------------------------------------------------------
 */

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

/* --- characters ----------------------------------------------------------------------------------
 */

size_t wefti_tmpl_char_len(const char *at, const char *end) {
    WEFT_ASSERT(at < end);
    size_t len = weft_utf8_next(at, (size_t)(end - at));
    return len ? len : 1;
}

uint32_t wefti_tmpl_char_get(const char *at, const char *end, size_t *len_out) {
    *len_out = 1;
    if (!weft_utf8_next(at, (size_t)(end - at))) return 0xFFFD;
    return weft_utf8_get(at, len_out);
}

size_t wefti_tmpl_str_chars(struct weft_str text) {
    size_t n = 0;
    for (const char *at = text.data, *end = at + text.len; at < end; n++)
        at += wefti_tmpl_char_len(at, end);
    return n;
}

size_t wefti_tmpl_char_at(struct weft_str text, size_t n_chars) {
    const char *at = text.data, *end = at + text.len;
    for (; n_chars > 0 && at < end; n_chars--)
        at += wefti_tmpl_char_len(at, end);
    return (size_t)(at - text.data);
}

bool wefti_tmpl_is_py_space(uint32_t code) {
    return weft_unicode_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

/* --- text ----------------------------------------------------------------------------------------
 */

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
