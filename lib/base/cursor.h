/* base/cursor — reads binary data from outside without ever looking past its end.
 *
 * A failed read sets `failed`, returns zero, and every later read fails too: parse straight
 * through, test once. Little-endian, as GGUF and safetensors are.
 */
#ifndef WEFT_BASE_CURSOR_H
#define WEFT_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_cursor {
    const unsigned char *at, *end;
    bool failed;
};

/* `bytes` may be NULL where n is 0. */
void weft_cursor_init(struct weft_cursor *cur, const void *bytes, size_t n);
size_t weft_cursor_left(const struct weft_cursor *cur);

/* The next `n` bytes, borrowed from the input; NULL and `failed` if there are fewer. */
const unsigned char *weft_cursor_take(struct weft_cursor *cur, size_t n);

uint8_t weft_cursor_u8(struct weft_cursor *cur);
uint16_t weft_cursor_u16(struct weft_cursor *cur);
uint32_t weft_cursor_u32(struct weft_cursor *cur);
uint64_t weft_cursor_u64(struct weft_cursor *cur);

#endif
