/* Many texts, or other expressions, as one with what they begin with in common. */
#include <stdlib.h>

#include "expr/chars.h"
#include "expr/pool.h"

#define DEPTH_MAX 1000u /* a frame has a kilobyte */
#define LIST_LONG 64u   /* below it nothing is gained */

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
        rest = wefti_expr_literal_before(writer->pool, bytes + n, n_plain, rest);
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

/* Of a choice: its first part, and what is left of it. */
struct choice {
    wefti_expr head, rest;
};

static struct choice choice_of(const wefti_expr_pool *pool, wefti_expr expr) {
    const struct node *node = &pool->nodes[expr];
    if (node->kind == CAT) return (struct choice){node->a, node->b};
    return (struct choice){expr, WEFTI_EXPR_EMPTY};
}

static int compare_choices(const void *x, const void *y) {
    const struct choice *a = x, *b = y;
    if (a->head != b->head) return a->head < b->head ? -1 : 1;
    return a->rest < b->rest ? -1 : a->rest > b->rest;
}

/* Writes over the lists; `choices` is room for n. */
static wefti_expr join_choices(wefti_expr_pool *pool, wefti_expr *list, struct choice *choices,
                               size_t n, uint32_t depth) {
    if (n <= LIST_LONG || depth == DEPTH_MAX) return wefti_expr_alt(pool, list, n);
    for (size_t i = 0; i < n; i++)
        choices[i] = choice_of(pool, list[i]);
    qsort(choices, n, sizeof *choices, compare_choices);
    for (size_t i = 0; i < n; i++)
        list[i] = choices[i].rest;
    size_t n_parts = 0;
    for (size_t i = 0, k; i < n; i = k) {
        wefti_expr head = choices[i].head;
        for (k = i + 1; k < n && choices[k].head == head; k++)
            ;
        wefti_expr rest = join_choices(pool, list + i, choices + i, k - i, depth + 1);
        list[n_parts++] = wefti_expr_cat(pool, head, rest);
    }
    return wefti_expr_alt(pool, list, n_parts);
}

wefti_expr wefti_expr_choices(wefti_expr_pool *pool, const wefti_expr *list, size_t n) {
    if (n <= LIST_LONG) return wefti_expr_alt(pool, list, n);
    wefti_expr *own = malloc(n * sizeof *own);
    struct choice *choices = malloc(n * sizeof *choices);
    wefti_expr whole = WEFTI_EXPR_NONE;
    if (own && choices) {
        memcpy(own, list, n * sizeof *own);
        whole = join_choices(pool, own, choices, n, 0);
    } else {
        pool->failed = true;
    }
    free(own);
    free(choices);
    return whole;
}
