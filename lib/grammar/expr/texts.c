/* Many texts as one expression, with what they begin with in common. */
#include <stdlib.h>

#include "expr/chars.h"
#include "expr/expr.h"

#define DEPTH_MAX 1000u /* a frame has a kilobyte */

static int compare(const void *x, const void *y) {
    const struct weft_str *a = x, *b = y;
    size_t n = a->len < b->len ? a->len : b->len;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    if (order) return order;
    return a->len < b->len ? -1 : a->len > b->len;
}

/* Bytes from `from` on that the first and the last share, and so all between. */
static size_t n_shared(const struct weft_str *texts, size_t n, size_t from) {
    const struct weft_str *a = &texts[0], *b = &texts[n - 1];
    size_t at = from, len = a->len < b->len ? a->len : b->len;
    while (at < len && a->data[at] == b->data[at])
        at++;
    return at - from;
}

/* How texts become expressions: as they are, or as JSON strings. */
struct writer {
    wefti_expr_pool *pool;
    bool is_json;
    wefti_expr end;          /* what follows a text */
    wefti_expr escaped[128]; /* of characters that have several writings; NONE: not yet */
};

static bool has_one_writing(const struct writer *writer, unsigned char c) {
    return !writer->is_json || (c >= 0x20 && c != '"' && c != '\\' && c != '/');
}

static wefti_expr escape(struct writer *writer, unsigned char c) {
    struct wefti_chars one = {0};
    if (writer->escaped[c] != WEFTI_EXPR_NONE) return writer->escaped[c];
    wefti_chars_add(&one, c, c);
    writer->escaped[c] = wefti_chars_expr(writer->pool, &one, WEFTI_IN_JSON);
    wefti_chars_fini(&one);
    return writer->escaped[c];
}

/* The bytes, and then `rest`. From their end, so that nothing is made twice. */
static wefti_expr write_before(struct writer *writer, const char *bytes, size_t n,
                               wefti_expr rest) {
    while (n > 0) {
        size_t n_plain = 0;
        while (n_plain < n && has_one_writing(writer, (unsigned char)bytes[n - n_plain - 1]))
            n_plain++;
        n -= n_plain;
        rest = wefti_expr_cat(writer->pool, wefti_expr_literal(writer->pool, bytes + n, n_plain),
                              rest);
        if (n > 0)
            rest = wefti_expr_cat(writer->pool, escape(writer, (unsigned char)bytes[--n]), rest);
    }
    return rest;
}

/* One by one: what they begin with is not shared. */
static wefti_expr list_rests(struct writer *writer, const struct weft_str *texts, size_t n,
                             size_t from) {
    wefti_expr whole = WEFTI_EXPR_NONE;
    for (size_t i = 0; i < n; i++)
        whole = wefti_expr_alt2(
            writer->pool, whole,
            write_before(writer, texts[i].data + from, texts[i].len - from, writer->end));
    return whole;
}

/* Sorted texts that are the same up to `from`. */
static wefti_expr join(struct writer *writer, const struct weft_str *texts, size_t n, size_t from,
                       uint32_t depth) {
    if (depth == DEPTH_MAX) return list_rests(writer, texts, n, from);
    size_t shared = n_shared(texts, n, from), at = from + shared, n_parts = 0;
    wefti_expr parts[257];
    for (size_t i = 0, k; i < n; i = k) {
        if (texts[i].len == at) {
            parts[n_parts] = writer->end;
            for (k = i + 1; k < n && texts[k].len == at; k++)
                ;
        } else {
            for (k = i + 1; k < n && texts[k].data[at] == texts[i].data[at]; k++)
                ;
            parts[n_parts] = join(writer, texts + i, k - i, at, depth + 1);
        }
        n_parts++;
    }
    wefti_expr rest = n_parts == 1 ? parts[0] : wefti_expr_alt(writer->pool, parts, n_parts);
    return write_before(writer, texts[0].data + from, shared, rest);
}

static wefti_expr join_all(struct writer *writer, const struct weft_str *texts, size_t n) {
    struct weft_str *sorted = n ? malloc(n * sizeof *sorted) : NULL;
    if (!sorted) return WEFTI_EXPR_NONE;
    memcpy(sorted, texts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    wefti_expr whole = join(writer, sorted, n, 0, 0);
    free(sorted);
    return whole;
}

wefti_expr wefti_expr_texts(wefti_expr_pool *pool, const struct weft_str *texts, size_t n) {
    struct writer writer = {.pool = pool, .end = WEFTI_EXPR_EMPTY};
    return join_all(&writer, texts, n);
}

wefti_expr wefti_expr_json_strings(wefti_expr_pool *pool, const struct weft_str *texts, size_t n) {
    wefti_expr quote = wefti_expr_literal(pool, "\"", 1);
    struct writer writer = {.pool = pool, .is_json = true, .end = quote};
    return wefti_expr_cat(pool, quote, join_all(&writer, texts, n));
}
