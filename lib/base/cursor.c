#include "base/cursor.h"

#include <string.h>

void weft_cursor_init(struct weft_cursor *cur, const void *bytes, size_t n) {
    cur->at = bytes ? bytes : (const void *)"";
    cur->end = cur->at + n;
    cur->failed = false;
}

size_t weft_cursor_left(const struct weft_cursor *cur) {
    return cur->failed ? 0 : (size_t)(cur->end - cur->at);
}

const unsigned char *weft_cursor_take(struct weft_cursor *cur, size_t n) {
    if (cur->failed || n > (size_t)(cur->end - cur->at)) {
        cur->failed = true;
        return NULL;
    }
    const unsigned char *bytes = cur->at;
    cur->at += n;
    return bytes;
}

/* The host is little-endian (x86-64, AArch64 as we run it); a big-endian one needs swaps here. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian host");

#define CURSOR_READ(type, name)                                                                    \
    type name(struct weft_cursor *cur) {                                                           \
        type value = 0;                                                                            \
        const unsigned char *bytes = weft_cursor_take(cur, sizeof value);                          \
        if (bytes) memcpy(&value, bytes, sizeof value);                                            \
        return value;                                                                              \
    }
CURSOR_READ(uint8_t, weft_cursor_u8)
CURSOR_READ(uint16_t, weft_cursor_u16)
CURSOR_READ(uint32_t, weft_cursor_u32)
CURSOR_READ(uint64_t, weft_cursor_u64)
