/* codec/msgpack — MessagePack, read and written.
 *
 * Input    Hostile. A message is first measured as its bytes come in, item by item, with a stack of
 *          bounded depth; counts and lengths only ever say how much more must come, never how much
 *          memory to take. Only whole messages within bounds are decoded.
 */
#ifndef WEFT_CODEC_MSGPACK_H
#define WEFT_CODEC_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define WEFT_MSGPACK_DEPTH_MAX 16
#define WEFT_MSGPACK_VALUES_MAX (2u << 20)

enum weft_mp_type {
    WEFT_MP_NIL,
    WEFT_MP_BOOL,
    WEFT_MP_INT,
    WEFT_MP_UINT,
    WEFT_MP_FLOAT,
    WEFT_MP_TEXT,
    WEFT_MP_ARRAY,
    WEFT_MP_MAP,
    WEFT_MP_EXT
};
enum weft_mp_status { WEFT_MP_OK, WEFT_MP_MORE, WEFT_MP_BAD, WEFT_MP_LONG };

struct weft_mp_item {
    enum weft_mp_type type;
    bool is_true;
    int64_t i;  /* INT: negative, or any that fits */
    uint64_t u; /* UINT: over INT64_MAX */
    double d;
    const char *bytes; /* TEXT (str and bin), EXT */
    size_t len;        /* bytes; ARRAY: elements; MAP: pairs */
};

/* Reads the item at bytes[*at], where bytes has length `len`; moves *at past it, or past the header
 * only of a container. MORE: it is not all there yet. BAD: no such item. */
enum weft_mp_status weft_msgpack_item(const char *bytes, size_t len, size_t *at,
                                      struct weft_mp_item *out);

/* The open containers. */
struct weft_mp_levels {
    uint32_t depth;
    uint64_t left[WEFT_MSGPACK_DEPTH_MAX]; /* of each: values not complete yet */
};

/* Measures one value. Zeroed at the start, and again after each message. */
struct weft_mp_scan {
    size_t at;
    struct weft_mp_levels levels;
    uint64_t n_values;
    uint64_t to_skip; /* bytes of a text, for weft_msgpack_skip */
};

/* Continues where it stopped. OK: the value is bytes[0 .. scan->at). BAD: malformed, or over the
 * depth or the number of values; `why` says which. LONG: over `bytes_max`; it can be skipped. After
 * MORE and LONG scan->at is the start of the first item not counted yet. */
enum weft_mp_status weft_msgpack_scan(struct weft_mp_scan *scan, const char *bytes, size_t len,
                                      size_t bytes_max, struct weft_errmsg *why);

/* The same for a value to be thrown away: items that were counted need not be kept. *used_out: how
 * many of these bytes were counted. May begin between any two items of a value. OK: the value ends
 * there. MORE, BAD: as above. */
enum weft_mp_status weft_msgpack_skip(struct weft_mp_scan *scan, const char *bytes, size_t len,
                                      size_t *used_out);

/* The value of a text key in a measured map; false: not a map, or no such key. */
bool weft_msgpack_find(const char *map, size_t len, const char *key, struct weft_mp_item *out);

/* Append: integers in their shortest form. `out` remembers a failure. */
void weft_msgpack_add_array(struct weft_buf *out, size_t n);
void weft_msgpack_add_uint(struct weft_buf *out, uint64_t value);
void weft_msgpack_add_text(struct weft_buf *out, const char *text, size_t len);
void weft_msgpack_add_nil(struct weft_buf *out);
void weft_msgpack_add_bool(struct weft_buf *out, bool value);
void weft_msgpack_add_int(struct weft_buf *out, int64_t value);
void weft_msgpack_add_float(struct weft_buf *out, float value); /* float32, every bit pattern */
void weft_msgpack_add_double(struct weft_buf *out, double value);
void weft_msgpack_add_bin(struct weft_buf *out, const void *bytes, size_t n);

/* Begins a `bin` of `n` bytes: weft_buf_add brings them. */
void weft_msgpack_add_bin_head(struct weft_buf *out, size_t n);

#endif
