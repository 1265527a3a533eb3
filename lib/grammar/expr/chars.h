/* grammar/chars: sets of Unicode characters, and as expressions over their UTF-8 bytes. */
#ifndef WEFTI_GRAMMAR_CHARS_H
#define WEFTI_GRAMMAR_CHARS_H

#include "expr/expr.h"

#define WEFTI_CHAR_MAX 0x10ffffu

struct wefti_char_range {
    uint32_t first, last;
};

/* Zeroed: empty. `failed`: no memory, or over a bound of 65,536 ranges. */
struct wefti_chars {
    struct wefti_char_range *ranges; /* owned; sorted and apart after wefti_chars_sort */
    uint32_t n, cap;
    bool failed;
};

void wefti_chars_fini(struct wefti_chars *chars);
void wefti_chars_add(struct wefti_chars *chars, uint32_t first, uint32_t last);
void wefti_chars_add_all(struct wefti_chars *chars, const struct wefti_chars *more);
void wefti_chars_sort(struct wefti_chars *chars);
/* All others; surrogates are in neither. Sorts. */
void wefti_chars_invert(struct wefti_chars *chars);
/* How characters are written: as they are, or as within a JSON string, where '"', '\\' and control
 * characters are escaped (and "/" may be). */
enum wefti_writing { WEFTI_PLAIN, WEFTI_IN_JSON };

/* One character of the set, in UTF-8. Sorts. */
wefti_expr wefti_chars_expr(wefti_expr_pool *pool, struct wefti_chars *chars,
                            enum wefti_writing writing);
/* Any one character. */
wefti_expr wefti_chars_any(wefti_expr_pool *pool, enum wefti_writing writing);

#endif
