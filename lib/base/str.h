/* base/str — a stretch of text that somebody else owns. */
#ifndef WEFT_BASE_STR_H
#define WEFT_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct weft_str {
    const char *data; /* NOT terminated: use the length; may be NULL where len is 0 */
    size_t len;
};

static inline bool weft_str_is(struct weft_str str, const char *text, size_t len) {
    return str.len == len && (len == 0 || memcmp(str.data, text, len) == 0);
}

/* Whether `str` is what a string literal says. */
#define WEFT_STR_IS(str, literal) weft_str_is((str), (literal), sizeof(literal) - 1)

#endif
