#include "codec/msgpack_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/msgpack.h"
#include "msgpack_head.h"

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

static void fail_short(struct weft_msgpack_reader *rd, const char *field, uint64_t n_wanted) {
    size_t n_left = weft_msgpack_reader_left(rd);
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "needs %llu bytes, %zu are left",
                             (unsigned long long)n_wanted, n_left);
}

static void fail_claim(struct weft_msgpack_reader *rd, const char *field, uint64_t n_items) {
    weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "claims %llu items in the %zu bytes left",
                             (unsigned long long)n_items, weft_msgpack_reader_left(rd));
}

/* The next `n` bytes, or NULL with the fault recorded. */
static const uint8_t *take(struct weft_msgpack_reader *rd, const char *field, uint64_t n) {
    if (weft_msgpack_reader_left(rd) < n) {
        fail_short(rd, field, n);
        return NULL;
    }
    const uint8_t *bytes = rd->at;
    rd->at += n;
    return bytes;
}

/* Records that the next item's head is not whole or not of the form wanted. Out of line, so that the
 * reads get by with few registers. */
static __attribute__((cold, noinline)) void
fail_head(struct weft_msgpack_reader *rd, const char *field, const char *wanted, bool is_wanted) {
    if (weft_msgpack_reader_left(rd) == 0) {
        fail_short(rd, field, 1);
    } else if (!is_wanted) {
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "should be %s, starts with 0x%02x",
                                 wanted, *rd->at);
    } else {
        uint8_t n_operand = wefti_msgpack_tags[*rd->at++].n_operand;
        fail_short(rd, field, n_operand);
    }
}

/* Takes the head of the next item, which must have this form. Its value; 0 after a fault. */
static inline uint64_t take_head(struct weft_msgpack_reader *rd, const char *field,
                                 const char *wanted, enum wefti_msgpack_form form) {
    struct wefti_msgpack_head head;
    size_t n_left = weft_msgpack_reader_left(rd);
    bool is_wanted = n_left > 0 && wefti_msgpack_form(*rd->at) == form;
    if (!is_wanted || wefti_msgpack_head(rd->at, n_left, &head) != WEFT_MP_OK) {
        fail_head(rd, field, wanted, is_wanted);
        return 0;
    }
    rd->at += head.n_bytes;
    return head.value;
}

uint64_t weft_msgpack_read_u64(struct weft_msgpack_reader *rd, const char *field) {
    return take_head(rd, field, "an unsigned integer", WEFTI_MSGPACK_UINT);
}

uint32_t weft_msgpack_read_u32(struct weft_msgpack_reader *rd, const char *field, uint32_t max) {
    uint64_t value = weft_msgpack_read_u64(rd, field);
    if (value <= max) return (uint32_t)value;
    weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "is %llu, at most %u is allowed",
                             (unsigned long long)value, max);
    return 0;
}

int32_t weft_msgpack_read_i32(struct weft_msgpack_reader *rd, const char *field) {
    bool is_negative =
        weft_msgpack_reader_left(rd) > 0 && wefti_msgpack_form(*rd->at) == WEFTI_MSGPACK_INT;
    uint64_t bits =
        take_head(rd, field, "an integer", is_negative ? WEFTI_MSGPACK_INT : WEFTI_MSGPACK_UINT);
    int64_t value = (int64_t)bits;
    bool fits = is_negative ? value >= INT32_MIN && value <= INT32_MAX : bits <= INT32_MAX;
    if (fits) return (int32_t)value;
    weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field, "does not fit 32 bits");
    return 0;
}

bool weft_msgpack_read_bool(struct weft_msgpack_reader *rd, const char *field) {
    return take_head(rd, field, "a boolean", WEFTI_MSGPACK_BOOL) != 0;
}

float weft_msgpack_read_f32(struct weft_msgpack_reader *rd, const char *field) {
    uint32_t bits = (uint32_t)take_head(rd, field, "a 32-bit float", WEFTI_MSGPACK_F32);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool weft_msgpack_read_nil(struct weft_msgpack_reader *rd) {
    struct wefti_msgpack_head head;
    if (wefti_msgpack_head(rd->at, weft_msgpack_reader_left(rd), &head) != WEFT_MP_OK ||
        head.form != WEFTI_MSGPACK_NIL)
        return false;
    rd->at += head.n_bytes;
    return true;
}

const void *weft_msgpack_read_bin(struct weft_msgpack_reader *rd, const char *field,
                                  size_t item_bytes, uint32_t n_max, uint32_t *n_out) {
    *n_out = 0;
    uint64_t len = take_head(rd, field, "binary", WEFTI_MSGPACK_BIN);
    if (rd->err) return NULL;
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
    const void *bytes = take(rd, field, len);
    if (bytes) *n_out = (uint32_t)n;
    return bytes;
}

const char *weft_msgpack_read_str(struct weft_msgpack_reader *rd, const char *field, size_t len_max,
                                  size_t *len_out) {
    *len_out = 0;
    uint64_t len = take_head(rd, field, "a string", WEFTI_MSGPACK_STR);
    if (rd->err) return NULL;
    if (len > len_max) {
        weft_msgpack_reader_fail(rd, WEFT_E_TOOBIG, field,
                                 "has %llu bytes, at most %zu are allowed", (unsigned long long)len,
                                 len_max);
        return NULL;
    }
    const char *text = (const char *)take(rd, field, len);
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
    uint64_t n = take_head(rd, field, "an array", WEFTI_MSGPACK_ARRAY);
    if (n > weft_msgpack_reader_left(rd)) fail_claim(rd, field, n);
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
    if ((uint64_t)n * (n_known + 1) > weft_msgpack_reader_left(rd)) fail_claim(rd, field, n);
    return rd->err ? 0 : n;
}

/* Steps over one item, of a container the head only. Returns the number of items inside. */
static uint64_t skip_item(struct weft_msgpack_reader *rd, const char *field) {
    struct wefti_msgpack_head head;
    enum weft_mp_status status = wefti_msgpack_head(rd->at, weft_msgpack_reader_left(rd), &head);
    if (status != WEFT_MP_OK) {
        fail_head(rd, field, "MessagePack", status == WEFT_MP_MORE);
        return 0;
    }
    rd->at += head.n_bytes;
    (void)take(rd, field, wefti_msgpack_n_content(&head));
    uint64_t n_inside = wefti_msgpack_n_inside(&head);
    if (n_inside > weft_msgpack_reader_left(rd)) fail_claim(rd, field, n_inside);
    return n_inside;
}

/* Skips without recursion: a sender's nesting must not grow our stack. */
static void skip(struct weft_msgpack_reader *rd, const char *field, uint32_t n_items) {
    struct weft_mp_levels levels = {.depth = rd->depth};
    for (uint32_t i = 0; i < levels.depth; i++)
        levels.left[i] = 1; /* each is the last value of the one around it */
    levels.left[levels.depth - 1] = n_items;
    enum weft_mp_status status = WEFT_MP_MORE;
    while (status == WEFT_MP_MORE && !rd->err)
        status = wefti_msgpack_count(&levels, skip_item(rd, field));
    if (status == WEFT_MP_BAD)
        weft_msgpack_reader_fail(rd, WEFT_E_PROTO, field, "nests deeper than %d",
                                 WEFT_MSGPACK_DEPTH_MAX);
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
