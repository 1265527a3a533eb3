/* Many texts as one expression. */
#include <stdlib.h>

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

/* One by one: what they begin with is not shared. */
static wefti_expr list_rests(wefti_expr_pool *pool, const struct weft_str *texts, size_t n,
                             size_t from) {
    wefti_expr whole = WEFTI_EXPR_NONE;
    for (size_t i = 0; i < n; i++)
        whole = wefti_expr_alt2(
            pool, whole, wefti_expr_literal(pool, texts[i].data + from, texts[i].len - from));
    return whole;
}

/* Sorted texts that are the same up to `from`. */
static wefti_expr join(wefti_expr_pool *pool, const struct weft_str *texts, size_t n, size_t from,
                       uint32_t depth) {
    if (depth == DEPTH_MAX) return list_rests(pool, texts, n, from);
    size_t shared = n_shared(texts, n, from), at = from + shared, n_parts = 0;
    wefti_expr parts[257];
    for (size_t i = 0, k; i < n; i = k) {
        if (texts[i].len == at) {
            parts[n_parts] = WEFTI_EXPR_EMPTY;
            for (k = i + 1; k < n && texts[k].len == at; k++)
                ;
        } else {
            for (k = i + 1; k < n && texts[k].data[at] == texts[i].data[at]; k++)
                ;
            parts[n_parts] = join(pool, texts + i, k - i, at, depth + 1);
        }
        n_parts++;
    }
    wefti_expr rest = n_parts == 1 ? parts[0] : wefti_expr_alt(pool, parts, n_parts);
    return wefti_expr_cat(pool, wefti_expr_literal(pool, texts[0].data + from, shared), rest);
}

wefti_expr wefti_expr_texts(wefti_expr_pool *pool, const struct weft_str *texts, size_t n) {
    struct weft_str *sorted = n ? malloc(n * sizeof *sorted) : NULL;
    if (!sorted) return WEFTI_EXPR_NONE;
    memcpy(sorted, texts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    wefti_expr whole = join(pool, sorted, n, 0, 0);
    free(sorted);
    return whole;
}
