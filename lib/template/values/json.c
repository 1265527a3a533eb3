/* Values from JSON and to JSON, as Python's json module writes them. */
#include <inttypes.h>
#include <math.h>

#include "base/check.h"
#include "base/json_escape.h"
#include "values/json.h"
#include "values/run.h"
#include "values/text.h"

static weft_err from_array(struct wefti_tmpl_run *run, const json_t *json,
                           struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < json_array_size(json) && !err; i++) {
        struct wefti_tmpl_value item;
        err = wefti_tmpl_from_json(run, json_array_get(json, i), &item);
        if (!err) err = wefti_tmpl_list_add(run, &list, item);
    }
    *out = wefti_tmpl_of_list(&list, WEFTI_TMPL_LIST);
    return err;
}

/* Keys of an object are distinct, so a look-up, which would cost n^2, is not needed. */
static weft_err from_object(struct wefti_tmpl_run *run, const json_t *json,
                            struct wefti_tmpl_value *out) {
    struct wefti_tmpl_list list = {0};
    weft_err err = WEFT_OK;
    json_t *object = (json_t *)json; /* jansson iterates over what it could change */
    for (void *at = json_object_iter(object); at && !err; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        struct wefti_tmpl_value value;
        err = wefti_tmpl_from_json(run, json_object_iter_value(at), &value);
        if (!err) err = wefti_tmpl_list_add(run, &list, wefti_tmpl_of_str(key, strlen(key)));
        if (!err) err = wefti_tmpl_list_add(run, &list, value);
    }
    *out = wefti_tmpl_of_pairs(&list);
    return err;
}

weft_err wefti_tmpl_from_json(struct wefti_tmpl_run *run, const json_t *json,
                              struct wefti_tmpl_value *out) {
    *out = wefti_tmpl_of_kind(WEFTI_TMPL_NONE);
    switch (json_typeof(json)) {
    case JSON_NULL:
        return WEFT_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = wefti_tmpl_of_bool(json_is_true(json));
        return WEFT_OK;
    case JSON_INTEGER:
        *out = wefti_tmpl_of_int(json_integer_value(json));
        return WEFT_OK;
    case JSON_REAL:
        *out = wefti_tmpl_of_float(json_real_value(json));
        return WEFT_OK;
    case JSON_STRING:
        if (json_string_length(json) > UINT32_MAX) return wefti_tmpl_too_big(run);
        *out = wefti_tmpl_of_str(json_string_value(json), json_string_length(json));
        return WEFT_OK;
    default:
        break;
    }
    weft_err err = wefti_tmpl_deeper(run);
    if (!err) err = json_is_array(json) ? from_array(run, json, out) : from_object(run, json, out);
    run->depth--;
    return err;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_escaped(uint32_t code, struct weft_buf *out) {
    if (code >= 0x10000) {
        code -= 0x10000;
        weft_buf_printf(out, "\\u%04x\\u%04x", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    } else {
        weft_buf_printf(out, "\\u%04x", code);
    }
}

/* Writes a string as json.dumps does, with or without ensure_ascii. */
static void write_string(struct weft_str text, bool ascii, struct weft_buf *out) {
    const char *end = text.data + text.len, *plain = text.data;
    weft_buf_add_char(out, '"');
    for (const char *at = text.data; at < end;) {
        char escaped[WEFT_JSON_ESCAPE_BYTES_MAX];
        size_t len = 1, n_escaped = weft_json_escape(*at, escaped);
        if (n_escaped == 0 && ((unsigned char)*at < 0x80 || !ascii)) {
            at++;
            continue;
        }
        weft_buf_add(out, plain, (size_t)(at - plain));
        if (n_escaped > 0)
            weft_buf_add(out, escaped, n_escaped);
        else
            write_escaped(wefti_tmpl_char_get(at, end, &len), out);
        at += len;
        plain = at;
    }
    weft_buf_add(out, plain, (size_t)(end - plain));
    weft_buf_add_char(out, '"');
}

static void write_number(struct wefti_tmpl_value value, struct weft_buf *out) {
    if (value.kind == WEFTI_TMPL_INT)
        weft_buf_printf(out, "%" PRId64, value.number);
    else if (isnan(value.real) || isinf(value.real))
        weft_buf_add_str(out, isnan(value.real) ? "NaN"
                              : value.real < 0  ? "-Infinity"
                                                : "Infinity");
    else
        wefti_tmpl_write_real(value.real, out);
}

static weft_err write_value(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                            const struct wefti_tmpl_json_style *style, uint32_t level,
                            struct weft_buf *out);

static void new_line(const struct wefti_tmpl_json_style *style, uint32_t level,
                     struct weft_buf *out) {
    if (!style->indented) return;
    weft_buf_add_char(out, '\n');
    for (uint32_t i = 0; i < level; i++)
        weft_buf_add(out, style->indent.data, style->indent.len);
}

static weft_err write_key(struct wefti_tmpl_run *run, struct wefti_tmpl_value key,
                          const struct wefti_tmpl_json_style *style, struct weft_buf *out) {
    switch ((enum wefti_tmpl_kind)key.kind) {
    case WEFTI_TMPL_STR:
        write_string(wefti_tmpl_text_of(key), style->ascii, out);
        return WEFT_OK;
    case WEFTI_TMPL_NONE:
    case WEFTI_TMPL_BOOL:
    case WEFTI_TMPL_INT:
    case WEFTI_TMPL_FLOAT: {
        weft_buf_add_char(out, '"');
        weft_err err = write_value(run, key, style, 0, out);
        weft_buf_add_char(out, '"');
        return err;
    }
    default:
        return wefti_tmpl_fault(run, "JSON has no keys like %s", wefti_tmpl_kind_name(&key));
    }
}

/* A heap sort: keys come from clients, so insertion sort could take quadratic time. */
static weft_err sift(struct wefti_tmpl_run *run, struct wefti_tmpl_value *pairs, uint32_t at,
                     uint32_t n) {
    WEFT_ASSERT(at < n);
    for (;;) {
        uint32_t child = 2 * at + 1;
        int order = 0;
        weft_err err = WEFT_OK;
        if (child >= n) return WEFT_OK;
        if (child + 1 < n)
            err = wefti_tmpl_compare(run, pairs[2 * (size_t)child], pairs[2 * (size_t)child + 2],
                                     &order);
        if (!err && order < 0) child++;
        if (!err)
            err = wefti_tmpl_compare(run, pairs[2 * (size_t)at], pairs[2 * (size_t)child], &order);
        if (err || order >= 0) return err;
        struct wefti_tmpl_value *a = &pairs[2 * (size_t)at], *b = &pairs[2 * (size_t)child], old[2];
        memcpy(old, a, sizeof old);
        memcpy(a, b, sizeof old);
        memcpy(b, old, sizeof old);
        at = child;
    }
}

static weft_err sort_keys(struct wefti_tmpl_run *run, struct wefti_tmpl_value *dict) {
    WEFT_ASSERT(dict->kind == WEFTI_TMPL_DICT);
    void *copy;
    size_t bytes = 2 * (size_t)dict->n * sizeof *dict->items;
    weft_err err = wefti_tmpl_alloc(run, bytes, &copy);
    if (err || dict->n == 0) return err;
    struct wefti_tmpl_value *pairs = memcpy(copy, dict->items, bytes), old[2];
    for (uint32_t i = dict->n / 2; i-- > 0 && !err;)
        err = sift(run, pairs, i, dict->n);
    for (uint32_t n = dict->n; n-- > 1 && !err;) {
        memcpy(old, pairs, sizeof old);
        memcpy(pairs, pairs + 2 * (size_t)n, sizeof old);
        memcpy(pairs + 2 * (size_t)n, old, sizeof old);
        err = sift(run, pairs, 0, n);
    }
    dict->items = pairs;
    return err;
}

static weft_err write_container(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                                const struct wefti_tmpl_json_style *style, uint32_t level,
                                struct weft_buf *out) {
    WEFT_ASSERT(style->item_sep.data && style->key_sep.data);
    bool is_dict = value.kind == WEFTI_TMPL_DICT;
    weft_err err = is_dict && style->sort ? sort_keys(run, &value) : WEFT_OK;
    weft_buf_add_char(out, is_dict ? '{' : '[');
    for (uint32_t i = 0; i < value.n && !err; i++) {
        const struct wefti_tmpl_value *at = &value.items[is_dict ? 2 * (size_t)i : i];
        if (i > 0) weft_buf_add(out, style->item_sep.data, style->item_sep.len);
        new_line(style, level + 1, out);
        if (is_dict) {
            err = write_key(run, *at++, style, out);
            weft_buf_add(out, style->key_sep.data, style->key_sep.len);
        }
        if (!err) err = write_value(run, *at, style, level + 1, out);
    }
    if (value.n > 0) new_line(style, level, out);
    weft_buf_add_char(out, is_dict ? '}' : ']');
    return err;
}

static weft_err write_value(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                            const struct wefti_tmpl_json_style *style, uint32_t level,
                            struct weft_buf *out) {
    switch ((enum wefti_tmpl_kind)value.kind) {
    case WEFTI_TMPL_NONE:
        weft_buf_add_str(out, "null");
        return WEFT_OK;
    case WEFTI_TMPL_BOOL:
        weft_buf_add_str(out, value.number ? "true" : "false");
        return WEFT_OK;
    case WEFTI_TMPL_INT:
    case WEFTI_TMPL_FLOAT:
        write_number(value, out);
        return WEFT_OK;
    case WEFTI_TMPL_STR:
        write_string(wefti_tmpl_text_of(value), style->ascii, out);
        return wefti_tmpl_charge(run, wefti_tmpl_bytes_steps(value.n));
    case WEFTI_TMPL_LIST:
    case WEFTI_TMPL_TUPLE:
    case WEFTI_TMPL_DICT:
        break;
    default:
        return wefti_tmpl_fault(run, "%s cannot be written as JSON", wefti_tmpl_kind_name(&value));
    }
    weft_err err = wefti_tmpl_deeper(run);
    if (!err) err = write_container(run, value, style, level, out);
    if (!err && out->failed) err = wefti_tmpl_too_big(run);
    run->depth--;
    return err;
}

weft_err wefti_tmpl_to_json(struct wefti_tmpl_run *run, struct wefti_tmpl_value value,
                            const struct wefti_tmpl_json_style *style, struct weft_buf *out) {
    return write_value(run, value, style, 0, out);
}
