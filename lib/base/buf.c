#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void weft_buf_init(struct weft_buf *buf, size_t max_bytes) {
    WEFT_ASSERT(max_bytes < SIZE_MAX / 4); /* so that doubling in reserve() cannot overflow */
    *buf = (struct weft_buf){.max_bytes = max_bytes};
}

void weft_buf_fini(struct weft_buf *buf) {
    free(buf->data);
    weft_buf_init(buf, buf->max_bytes);
}

void weft_buf_clear(struct weft_buf *buf) {
    buf->len = 0;
    buf->failed = false;
}

/* Room for `n` more bytes and a terminator. */
static bool reserve(struct weft_buf *buf, size_t n) {
    if (n > buf->max_bytes || buf->len > buf->max_bytes - n) goto refuse;
    size_t need = buf->len + n + 1;
    if (need <= buf->cap) return true;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need)
        cap *= 2;
    char *data = realloc(buf->data, cap);
    if (!data) goto refuse;
    buf->data = data;
    buf->cap = cap;
    return true;
refuse:
    buf->failed = true;
    return false;
}

void weft_buf_add(struct weft_buf *buf, const void *bytes, size_t n) {
    if (n == 0 || !reserve(buf, n)) return;
    memcpy(buf->data + buf->len, bytes, n);
    buf->len += n;
}

void weft_buf_add_str(struct weft_buf *buf, const char *text) {
    weft_buf_add(buf, text, strlen(text));
}

void weft_buf_add_char(struct weft_buf *buf, char c) {
    weft_buf_add(buf, &c, 1);
}

void weft_buf_printf(struct weft_buf *buf, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) buf->failed = true; /* over INT_MAX, or a wide character without an encoding */
    if (n > 0 && reserve(buf, (size_t)n)) {
        (void)vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}

void weft_buf_drop_front(struct weft_buf *buf, size_t n) {
    WEFT_ASSERT(n <= buf->len);
    buf->len -= n;
    if (n > 0 && buf->len > 0) memmove(buf->data, buf->data + n, buf->len);
}

const char *weft_buf_cstr(struct weft_buf *buf) {
    if (!buf->data) return "";
    buf->data[buf->len] = 0; /* reserve() always keeps one byte for it */
    return buf->data;
}
