#include "build.h"

#include <string.h>

#include "base/check.h"
#include "format.h"

/* ------------------------------------------------------------------------------------- values --- */

static json_t *made(struct wefti_msg_build *b, json_t *value) {
    if (!value) b->failed = true;
    return value;
}

void wefti_msg_set(struct wefti_msg_build *b, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value)) b->failed = true;
}

void wefti_msg_append(struct wefti_msg_build *b, json_t *list, json_t *value) {
    if (json_array_append_new(list, value)) b->failed = true;
}

static int add_piece(const char *text, size_t n, void *context) {
    struct weft_buf *out = context;
    weft_buf_add(out, text, n);
    return out->failed ? -1 : 0;
}

bool wefti_msg_dump(struct wefti_msg_build *b, const json_t *value, struct weft_buf *out) {
    /* 15 digits: what was read as 0.01 is written so again. */
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
    if (b->failed) return false;
    if (!json_dump_callback(value, add_piece, out, flags)) return true;
    b->failed = !out->failed;
    return false;
}

/* ------------------------------------------------------------------------------------- formats --- */

static json_t *format_of(struct wefti_msg_build *b, const char *type) {
    json_t *format = made(b, json_object());
    wefti_msg_set(b, format, "type", json_string(type));
    return format;
}

static json_t *format_with(struct wefti_msg_build *b, const char *type, const char *key,
                           json_t *value) {
    json_t *format = format_of(b, type);
    wefti_msg_set(b, format, key, value);
    return format;
}

json_t *wefti_msg_const(struct wefti_msg_build *b, const char *text, size_t n) {
    return format_with(b, "const_string", "value", json_stringn(text, n));
}

json_t *wefti_msg_regex(struct wefti_msg_build *b, const char *pattern) {
    return format_with(b, "regex", "pattern", json_string(pattern));
}

json_t *wefti_msg_schema(struct wefti_msg_build *b, json_t *schema) {
    return format_with(b, "json_schema", "json_schema", schema);
}

json_t *wefti_msg_optional(struct wefti_msg_build *b, json_t *content) {
    return format_with(b, "optional", "content", content);
}

json_t *wefti_msg_star(struct wefti_msg_build *b, json_t *content) {
    return format_with(b, "star", "content", content);
}

json_t *wefti_msg_any_text(struct wefti_msg_build *b) {
    const struct weft_msg_format *format = b->wish->format;
    json_t *marks = made(b, json_array());
    for (size_t i = 0; i < WEFTI_MSG_MARKS_MAX && format->marks[i]; i++)
        wefti_msg_append(b, marks, json_string(format->marks[i]));
    return format_with(b, "any_text", "excludes", marks);
}

json_t *wefti_msg_seq(struct wefti_msg_build *b) {
    return format_with(b, "sequence", "elements", json_array());
}

json_t *wefti_msg_or(struct wefti_msg_build *b) {
    return format_with(b, "or", "elements", json_array());
}

void wefti_msg_add(struct wefti_msg_build *b, json_t *all, json_t *node) {
    wefti_msg_append(b, json_object_get(all, "elements"), node);
}

/* ---------------------------------------------------------------------------------------- texts --- */

/* The text of the constant at the end of a sequence; NULL: there is none. */
static json_t *last_const(const json_t *seq) {
    const json_t *elements = json_object_get(seq, "elements");
    size_t n = json_array_size(elements);
    return n ? json_object_get(json_array_get(elements, n - 1), "value") : NULL;
}

void wefti_msg_add_text(struct wefti_msg_build *b, json_t *seq, const char *text, size_t n) {
    json_t *before = last_const(seq);
    if (n == 0) return;
    if (!before) {
        wefti_msg_add(b, seq, wefti_msg_const(b, text, n));
        return;
    }
    struct weft_buf both;
    weft_buf_init(&both, (size_t)16 << 20);
    weft_buf_add(&both, json_string_value(before), json_string_length(before));
    weft_buf_add(&both, text, n);
    if (both.failed || json_string_setn(before, both.data, both.len)) b->failed = true;
    weft_buf_fini(&both);
}

/* The mark of the format that is a special token and stands first in the text; NULL: there is none. */
static const char *first_special(const struct wefti_msg_build *b, const char *text,
                                 const char **at_out) {
    const struct weft_msg_format *format = b->wish->format;
    const char *found = NULL;
    for (size_t i = 0; i < WEFTI_MSG_MARKS_MAX && format->marks[i]; i++) {
        const char *mark = format->marks[i], *at = strstr(text, mark);
        if (!at || (found && at >= *at_out)) continue;
        if (!b->wish->has_special(b->wish->context, (struct weft_str){mark, strlen(mark)}))
            continue;
        found = mark;
        *at_out = at;
    }
    return found;
}

static json_t *token(struct wefti_msg_build *b, const char *mark) {
    return format_with(b, "token", "token", json_string(mark));
}

/* Text without marks, in which a number or a line's end may be. */
static void add_plain(struct wefti_msg_build *b, json_t *seq, const char *text, size_t n) {
    while (n > 0) {
        size_t len = 0;
        while (len < n && text[len] != *WEFTI_MSG_NUMBER && text[len] != *WEFTI_MSG_LINE)
            len++;
        wefti_msg_add_text(b, seq, text, len);
        if (len == n) return;
        bool is_number = text[len] == *WEFTI_MSG_NUMBER;
        wefti_msg_add(b, seq, wefti_msg_regex(b, is_number ? "0|[1-9][0-9]{0,5}" : "\\n?"));
        text += len + 1;
        n -= len + 1;
    }
}

void wefti_msg_add_spelt(struct wefti_msg_build *b, json_t *seq, const char *text) {
    const char *at, *mark;
    while ((mark = first_special(b, text, &at))) {
        add_plain(b, seq, text, (size_t)(at - text));
        wefti_msg_add(b, seq, token(b, mark));
        text = at + strlen(mark);
    }
    add_plain(b, seq, text, strlen(text));
}

json_t *wefti_msg_spelt(struct wefti_msg_build *b, const char *text) {
    const char *at, *mark;
    if (!first_special(b, text, &at)) return made(b, json_string(text));
    json_t *list = made(b, json_array());
    while ((mark = first_special(b, text, &at))) {
        if (at > text) wefti_msg_append(b, list, json_stringn(text, (size_t)(at - text)));
        wefti_msg_append(b, list, token(b, mark));
        text = at + strlen(mark);
    }
    if (*text) wefti_msg_append(b, list, json_string(text));
    if (json_array_size(list) > 1) return list;
    json_t *one = json_incref(json_array_get(list, 0));
    json_decref(list);
    return one;
}

/* ----------------------------------------------------------------------------------------- tags --- */

static json_t *one_tag(struct wefti_msg_build *b, json_t *begin, json_t *content) {
    json_t *tag = format_with(b, "tag", "begin", begin), *list = made(b, json_array());
    wefti_msg_set(b, tag, "content", content);
    wefti_msg_set(b, tag, "end", json_string(""));
    wefti_msg_append(b, list, tag);
    return list;
}

json_t *wefti_msg_separated(struct wefti_msg_build *b, json_t *content, const char *separator,
                            bool is_single) {
    json_t *tags = one_tag(b, json_string(""), content);
    json_t *format = format_with(b, "tags_with_separator", "tags", tags);
    wefti_msg_set(b, format, "separator", wefti_msg_spelt(b, separator));
    wefti_msg_set(b, format, "at_least_one", json_true());
    wefti_msg_set(b, format, "stop_after_first", json_boolean(is_single));
    return format;
}

/* Other marks from which the parser reads calls, a token's that is spelt among them: it knows texts only. One that is a
 * word has a list after it. */
static json_t *other_opens(struct wefti_msg_build *b, const struct weft_msg_format *format) {
    const char *at;
    json_t *list = made(b, json_array());
    if (first_special(b, format->open, &at)) wefti_msg_append(b, list, json_string(format->open));
    for (size_t i = 0; i < WEFTI_MSG_OPENS_MAX && format->opens[i]; i++) {
        const char *open = format->opens[i];
        wefti_msg_append(b, list, json_sprintf(open[0] == '<' ? "%s" : "%s[", open));
    }
    if (format->inner) wefti_msg_append(b, list, json_string(format->inner));
    return list;
}

json_t *wefti_msg_triggered(struct wefti_msg_build *b, const char *open, json_t *content,
                            bool is_single) {
    json_t *tags = one_tag(b, wefti_msg_spelt(b, open), content), *triggers = made(b, json_array());
    json_t *format = format_with(b, "triggered_tags", "tags", tags);
    wefti_msg_append(b, triggers, wefti_msg_spelt(b, open));
    wefti_msg_set(b, format, "triggers", triggers);
    wefti_msg_set(b, format, "excludes", other_opens(b, b->wish->format));
    wefti_msg_set(b, format, "stop_after_first", json_boolean(is_single));
    return format;
}
