#include "codec/msgpack_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/msgpack.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "`bin` vectors are copied as they are");

void weft_msgpack_reader_init(struct weft_msgpack_reader *rd, const void *bytes, size_t len,
                              struct weft_errmsg *why) {
    static const uint8_t nothing;
    const uint8_t *at = len > 0 ? bytes : &nothing;
    *rd = (struct weft_msgpack_reader){
        .begin = at, .at = at, .end = at + len, .message = "message", .why = why};
}

size_t weft_msgpack_reader_left(const struct weft_msgpack_reader *rd) {
    return rd->err ? 0 : (size_t)(rd->end - rd->at);
}

void weft_msgpack_reader_fail(struct weft_msgpack_reader *rd, weft_err err, const char *field,
                              const char *fmt, ...) {
    if (rd->err) return;
    rd->err = err;
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)weft_err_set(rd->why, err, "%s: %s %s (byte %zu)", rd->message, field, text,
                       (size_t)(rd->at - rd->begin));
}

/* The next `n` bytes, or NULL with the fault recorded. */
static const uint8_t *take(struct weft_msgpack_reader *rd, const char *field, size_t n) {
    if (weft_msgpack_reader_left(rd) < n) {
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "needs %zu bytes, %zu are left", n,
                                 weft_msgpack_reader_left(rd));
        return NULL;
    }
    const uint8_t *bytes = rd->at;
    rd->at += n;
    return bytes;
}

/* The `n` big-endian bytes (1, 2, 4 or 8) that follow a type byte. */
static uint64_t take_be(struct weft_msgpack_reader *rd, const char *field, size_t n) {
    const uint8_t *bytes = take(rd, field, n);
    uint64_t value = 0;
    for (size_t i = 0; bytes && i < n; i++)
        value = value << 8 | bytes[i];
    return value;
}

static void fail_type(struct weft_msgpack_reader *rd, const char *field, const char *wanted,
                      uint8_t got) {
    if (!rd->err) rd->at--; /* the sentence points at the type byte */
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "should be %s, starts with 0x%02x", wanted,
                             got);
}

/* The type byte of the next item; 0xc1, which MessagePack never uses, after a fault. */
static uint8_t take_type(struct weft_msgpack_reader *rd, const char *field) {
    const uint8_t *byte = take(rd, field, 1);
    return byte ? *byte : 0xc1;
}

uint64_t weft_msgpack_read_u64(struct weft_msgpack_reader *rd, const char *field) {
    uint8_t type = take_type(rd, field);
    if (type < 0x80) return type;
    if (type >= 0xcc && type <= 0xcf) return take_be(rd, field, (size_t)1 << (type - 0xcc));
    fail_type(rd, field, "an unsigned integer", type);
    return 0;
}

uint32_t weft_msgpack_read_u32(struct weft_msgpack_reader *rd, const char *field, uint32_t max) {
    uint64_t value = weft_msgpack_read_u64(rd, field);
    if (value <= max) return (uint32_t)value;
    weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "is %llu, at most %u is allowed",
                             (unsigned long long)value, max);
    return 0;
}

bool weft_msgpack_read_bool(struct weft_msgpack_reader *rd, const char *field) {
    uint8_t type = take_type(rd, field);
    if (type == 0xc2 || type == 0xc3) return type == 0xc3;
    fail_type(rd, field, "a boolean", type);
    return false;
}

float weft_msgpack_read_f32(struct weft_msgpack_reader *rd, const char *field) {
    uint8_t type = take_type(rd, field);
    if (type != 0xca) {
        fail_type(rd, field, "a 32-bit float", type);
        return 0.0f;
    }
    uint32_t bits = (uint32_t)take_be(rd, field, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool weft_msgpack_read_nil(struct weft_msgpack_reader *rd) {
    if (weft_msgpack_reader_left(rd) < 1 || *rd->at != 0xc0) return false;
    rd->at++;
    return true;
}

const void *weft_msgpack_read_bin(struct weft_msgpack_reader *rd, const char *field,
                                  size_t item_bytes, uint32_t n_max, uint32_t *n_out) {
    *n_out = 0;
    uint8_t type = take_type(rd, field);
    if (type < 0xc4 || type > 0xc6) {
        fail_type(rd, field, "binary", type);
        return NULL;
    }
    uint64_t len = take_be(rd, field, (size_t)1 << (type - 0xc4));
    if (len % item_bytes != 0) {
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "has %llu bytes, no multiple of %zu",
                                 (unsigned long long)len, item_bytes);
        return NULL;
    }
    uint64_t n = len / item_bytes;
    if (n > n_max) {
        weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "has %llu items, at most %u are allowed",
                                 (unsigned long long)n, n_max);
        return NULL;
    }
    const void *bytes = take(rd, field, (size_t)len);
    if (bytes) *n_out = (uint32_t)n;
    return bytes;
}

const char *weft_msgpack_read_str(struct weft_msgpack_reader *rd, const char *field, size_t len_max,
                                  size_t *len_out) {
    *len_out = 0;
    uint8_t type = take_type(rd, field);
    uint64_t len;
    if (type >= 0xa0 && type <= 0xbf) {
        len = type & 0x1f;
    } else if (type >= 0xd9 && type <= 0xdb) {
        len = take_be(rd, field, (size_t)1 << (type - 0xd9));
    } else {
        fail_type(rd, field, "a string", type);
        return NULL;
    }
    if (len > len_max) {
        weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field,
                                 "has %llu bytes, at most %zu are allowed", (unsigned long long)len,
                                 len_max);
        return NULL;
    }
    const char *text = (const char *)take(rd, field, (size_t)len);
    if (!text) return NULL;
    if (memchr(text, 0, (size_t)len) || !weft_utf8_valid(text, (size_t)len)) {
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "is not plain UTF-8");
        return NULL;
    }
    *len_out = (size_t)len;
    return text;
}

/* ---------------------------------------------------------------------------------- arrays --- */

static uint32_t take_array(struct weft_msgpack_reader *rd, const char *field) {
    uint8_t type = take_type(rd, field);
    uint64_t n = 0;
    if (type >= 0x90 && type <= 0x9f) {
        n = type & 0x0f;
    } else if (type == 0xdc || type == 0xdd) {
        n = take_be(rd, field, type == 0xdc ? 2 : 4);
    } else {
        fail_type(rd, field, "an array", type);
    }
    if (n > weft_msgpack_reader_left(rd))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "claims %llu items in the %zu bytes left",
                                 (unsigned long long)n, weft_msgpack_reader_left(rd));
    WEFT_ASSERT(rd->depth < WEFT_MSGPACK_DEPTH_MAX); /* our own nesting, not the sender's */
    rd->depth++;
    return rd->err ? 0 : (uint32_t)n;
}

uint32_t weft_msgpack_read_open(struct weft_msgpack_reader *rd, const char *field,
                                uint32_t n_known) {
    uint32_t n = take_array(rd, field);
    if (n >= n_known) return n - n_known;
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "has %u fields, needs %u", n, n_known);
    return 0;
}

uint32_t weft_msgpack_read_list(struct weft_msgpack_reader *rd, const char *field, uint32_t n_known,
                                uint32_t n_max) {
    uint32_t n = take_array(rd, field);
    if (n > n_max)
        weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "has %u items, at most %u are allowed",
                                 n, n_max);
    if ((uint64_t)n * (n_known + 1) > weft_msgpack_reader_left(rd))
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "claims %u items in the %zu bytes left",
                                 n, weft_msgpack_reader_left(rd));
    return rd->err ? 0 : n;
}

/* Steps over one item. Returns how many items are inside it: they come next. */
static uint64_t skip_head(struct weft_msgpack_reader *rd, const char *field) {
    uint8_t type = take_type(rd, field);
    if (rd->err || type <= 0x7f || type >= 0xe0) return 0;
    if (type <= 0x8f) return (uint64_t)(type & 0x0f) * 2;
    if (type <= 0x9f) return type & 0x0f;
    if (type <= 0xbf) return take(rd, field, type & 0x1f), 0;
    switch (type) {
    case 0xc0: /* nil */
    case 0xc2: /* false */
    case 0xc3: /* true */
        return 0;
    case 0xc4: /* bin */
    case 0xc5:
    case 0xc6:
        return take(rd, field, (size_t)take_be(rd, field, (size_t)1 << (type - 0xc4))), 0;
    case 0xc7: /* ext: a length, then a type and that many bytes */
    case 0xc8:
    case 0xc9:
        return take(rd, field, (size_t)take_be(rd, field, (size_t)1 << (type - 0xc7)) + 1), 0;
    case 0xca: /* floats */
    case 0xcb:
        return take(rd, field, type == 0xca ? 4 : 8), 0;
    case 0xcc: /* integers */
    case 0xcd:
    case 0xce:
    case 0xcf:
        return take(rd, field, (size_t)1 << (type - 0xcc)), 0;
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return take(rd, field, (size_t)1 << (type - 0xd0)), 0;
    case 0xd4: /* fixext: a type and 1, 2, 4, 8 or 16 bytes */
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return take(rd, field, ((size_t)1 << (type - 0xd4)) + 1), 0;
    case 0xd9: /* str */
    case 0xda:
    case 0xdb:
        return take(rd, field, (size_t)take_be(rd, field, (size_t)1 << (type - 0xd9))), 0;
    case 0xdc: /* array */
    case 0xdd:
        return take_be(rd, field, type == 0xdc ? 2 : 4);
    case 0xde: /* map */
    case 0xdf:
        return take_be(rd, field, type == 0xde ? 2 : 4) * 2;
    default: /* 0xc1 */
        fail_type(rd, field, "MessagePack", type);
        return 0;
    }
}

/* Skips without recursion: a sender's nesting must not grow our stack. */
static void skip(struct weft_msgpack_reader *rd, const char *field, uint64_t n_items) {
    uint64_t left_at[WEFT_MSGPACK_DEPTH_MAX + 1];
    uint32_t level = rd->depth, top = level;
    left_at[level] = n_items;
    while (!rd->err) {
        if (left_at[level] == 0) {
            if (level == top) return;
            level--;
            continue;
        }
        left_at[level]--;
        uint64_t n_inside = skip_head(rd, field);
        if (n_inside == 0) continue;
        if (n_inside > weft_msgpack_reader_left(rd)) {
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field,
                                     "claims %llu items in the %zu bytes left",
                                     (unsigned long long)n_inside, weft_msgpack_reader_left(rd));
        } else if (level == WEFT_MSGPACK_DEPTH_MAX) {
            weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "nests deeper than %d",
                                     WEFT_MSGPACK_DEPTH_MAX);
        } else {
            left_at[++level] = n_inside;
        }
    }
}

void weft_msgpack_read_close(struct weft_msgpack_reader *rd, const char *field, uint32_t n_more) {
    WEFT_ASSERT(rd->depth > 0);
    if (n_more > 0) skip(rd, field, n_more);
    rd->depth--;
}

void weft_msgpack_reader_finish(struct weft_msgpack_reader *rd) {
    WEFT_ASSERT(rd->depth == 0);
    if (weft_msgpack_reader_left(rd) > 0)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, "end", "is followed by %zu more bytes",
                                 weft_msgpack_reader_left(rd));
}
