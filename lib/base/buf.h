/* base/buf — a byte string that grows by doubling, up to a ceiling its owner states.
 *
 * Appending never fails half-way: it appends all of it or nothing and remembers the failure, so a
 * writer can append many pieces and look at `failed` once at the end.
 */
#ifndef WEFT_BASE_BUF_H
#define WEFT_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct weft_buf {
    char *data; /* owned; NULL while empty. Not terminated: see weft_buf_cstr. */
    size_t len, cap;
    size_t max_bytes;
    bool failed; /* an append was refused: over max_bytes, or out of memory */
};

void weft_buf_init(struct weft_buf *buf, size_t max_bytes);
void weft_buf_fini(struct weft_buf *buf);  /* frees; the buf is as after init */
void weft_buf_clear(struct weft_buf *buf); /* len = 0, failed = false; keeps the memory */

void weft_buf_add(struct weft_buf *buf, const void *bytes, size_t n);
void weft_buf_add_str(struct weft_buf *buf, const char *text);
void weft_buf_add_char(struct weft_buf *buf, char c);
void weft_buf_printf(struct weft_buf *buf, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* Drops the first `n` bytes (n <= len). */
void weft_buf_drop_front(struct weft_buf *buf, size_t n);

/* `data` with a terminating 0 after len; "" when empty. Valid until the next change. */
const char *weft_buf_cstr(struct weft_buf *buf);

#endif
