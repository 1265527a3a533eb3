#include "codec/msgpack.h"

#include <msgpack.h>
#include <string.h>

#include "base/check.h"

/* ------------------------------------------------------------------------------------ items --- */

static uint64_t big_endian(const unsigned char *b, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | b[i];
    return value;
}

static void set_int(struct weft_mp_item *out, uint64_t bits, size_t n_bytes) {
    WEFT_ASSERT(n_bytes >= 1 && n_bytes <= 8);
    unsigned shift = 64 - 8 * (unsigned)n_bytes;
    out->type = WEFT_MP_INT;
    out->i = (int64_t)(bits << shift) >> shift;
}

static void set_uint(struct weft_mp_item *out, uint64_t value) {
    out->type = value > INT64_MAX ? WEFT_MP_UINT : WEFT_MP_INT;
    out->i = (int64_t)(value & INT64_MAX);
    out->u = value;
}

static void set_float(struct weft_mp_item *out, uint64_t bits, size_t n_bytes) {
    float single;
    uint32_t low = (uint32_t)bits;
    out->type = WEFT_MP_FLOAT;
    memcpy(&single, &low, sizeof single);
    memcpy(&out->d, &bits, sizeof out->d);
    if (n_bytes == 4) out->d = (double)single;
}

/* How many bytes of length or value follow a tag from 0xc0 to 0xdf. */
static size_t operand_bytes(unsigned char tag) {
    static const unsigned char bytes[32] = {0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 4, 8, 1, 2, 4, 8,
                                            1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4};
    return bytes[tag - 0xc0];
}

/* Decodes a tag from 0xc0 to 0xdf; `operand` follows it. True if `out->len` more bytes follow. */
static bool decode_tag(unsigned char tag, uint64_t operand, size_t n_operand,
                       struct weft_mp_item *out) {
    out->len = (size_t)operand;
    if (tag == 0xc0) {
        out->type = WEFT_MP_NIL;
    } else if (tag == 0xc2 || tag == 0xc3) {
        out->type = WEFT_MP_BOOL;
        out->is_true = tag == 0xc3;
    } else if (tag <= 0xc6 || (tag >= 0xd9 && tag <= 0xdb)) {
        out->type = WEFT_MP_TEXT;
        return true;
    } else if (tag <= 0xc9 || (tag >= 0xd4 && tag <= 0xd8)) {
        out->type = WEFT_MP_EXT;
        if (tag >= 0xd4) out->len = (size_t)1 << (tag - 0xd4);
        out->len++; /* the type byte */
        return true;
    } else if (tag <= 0xcb) {
        set_float(out, operand, n_operand);
    } else if (tag <= 0xcf) {
        set_uint(out, operand);
    } else if (tag <= 0xd3) {
        set_int(out, operand, n_operand);
    } else {
        out->type = tag <= 0xdd ? WEFT_MP_ARRAY : WEFT_MP_MAP;
    }
    return false;
}

/* Reads an item without the bytes of a text; *has_payload_out: out->len of them follow. */
static enum weft_mp_status read_head(const char *bytes, size_t len, size_t *at,
                                     struct weft_mp_item *out, bool *has_payload_out) {
    const unsigned char *b = (const unsigned char *)bytes + *at;
    size_t left = len - *at, used = 1;
    WEFT_ASSERT(*at <= len);
    memset(out, 0, sizeof *out);
    *has_payload_out = false;
    if (left == 0) return WEFT_MP_MORE;
    unsigned char tag = b[0];
    if (tag <= 0x7f || tag >= 0xe0) {
        set_int(out, tag, 1);
    } else if (tag <= 0x9f) {
        out->type = tag <= 0x8f ? WEFT_MP_MAP : WEFT_MP_ARRAY;
        out->len = tag & 0x0f;
    } else if (tag <= 0xbf) {
        out->type = WEFT_MP_TEXT;
        out->len = tag & 0x1f;
        *has_payload_out = true;
    } else {
        if (tag == 0xc1) return WEFT_MP_BAD; /* never used */
        size_t n = operand_bytes(tag);
        if (left - 1 < n) return WEFT_MP_MORE;
        *has_payload_out = decode_tag(tag, big_endian(b + 1, n), n, out);
        used += n;
    }
    *at += used;
    return WEFT_MP_OK;
}

enum weft_mp_status weft_msgpack_item(const char *bytes, size_t len, size_t *at,
                                      struct weft_mp_item *out) {
    size_t end = *at;
    bool has_payload;
    enum weft_mp_status status = read_head(bytes, len, &end, out, &has_payload);
    if (status != WEFT_MP_OK) return status;
    if (has_payload) {
        if (len - end < out->len) return WEFT_MP_MORE;
        out->bytes = bytes + end;
        end += out->len;
    }
    *at = end;
    return WEFT_MP_OK;
}

/* -------------------------------------------------------------------------------- measuring --- */

/* Closes the containers whose last value was just completed. True: all are closed. */
static bool close_levels(struct weft_mp_scan *scan) {
    while (scan->depth > 0) {
        if (--scan->left[scan->depth - 1] > 0) return false;
        scan->depth--;
    }
    return true;
}

/* Counts one more item. OK: it completes the value; MORE: it does not. */
static enum weft_mp_status count_item(struct weft_mp_scan *scan, const struct weft_mp_item *item,
                                      struct weft_errmsg *why) {
    uint64_t n = 0;
    if (item->type == WEFT_MP_ARRAY || item->type == WEFT_MP_MAP)
        n = (uint64_t)item->len * (item->type == WEFT_MP_MAP ? 2 : 1);
    if (++scan->n_values > WEFT_MSGPACK_VALUES_MAX || n > WEFT_MSGPACK_VALUES_MAX) {
        (void)weft_err_set(why, WEFT_E_TOOBIG, "the message holds over %u values",
                           WEFT_MSGPACK_VALUES_MAX);
        return WEFT_MP_BAD;
    }
    if (n == 0) return close_levels(scan) ? WEFT_MP_OK : WEFT_MP_MORE;
    if (scan->depth == WEFT_MSGPACK_DEPTH_MAX) {
        (void)weft_err_set(why, WEFT_E_TOOBIG, "the message nests deeper than %d",
                           WEFT_MSGPACK_DEPTH_MAX);
        return WEFT_MP_BAD;
    }
    scan->left[scan->depth++] = n;
    return WEFT_MP_MORE;
}

enum weft_mp_status weft_msgpack_scan(struct weft_mp_scan *scan, const char *bytes, size_t len,
                                      size_t bytes_max, struct weft_errmsg *why) {
    for (;;) {
        struct weft_mp_item item;
        size_t end = scan->at;
        enum weft_mp_status status = weft_msgpack_item(bytes, len, &end, &item);
        /* An unfinished item may already say that it is longer than anything may be. */
        bool is_long =
            status == WEFT_MP_MORE ? len > bytes_max || item.len > bytes_max : end > bytes_max;
        if (status == WEFT_MP_BAD) {
            (void)weft_err_set(why, WEFT_E_PROTO, "malformed MessagePack");
            return status;
        }
        if (is_long) {
            (void)weft_err_set(why, WEFT_E_TOOBIG, "the message is larger than %zu bytes",
                               bytes_max);
            return WEFT_MP_LONG;
        }
        if (status == WEFT_MP_MORE) return status;
        scan->at = end;
        status = count_item(scan, &item, why);
        if (status != WEFT_MP_MORE) return status;
    }
}

enum weft_mp_status weft_msgpack_skip(struct weft_mp_scan *scan, const char *bytes, size_t len,
                                      size_t *used_out) {
    struct weft_errmsg why;
    size_t at = 0;
    enum weft_mp_status status = WEFT_MP_MORE;
    bool is_known = scan->to_skip > 0; /* its head was counted; only the text's end is to come */
    while (status == WEFT_MP_MORE) {
        size_t n = scan->to_skip < len - at ? (size_t)scan->to_skip : len - at;
        at += n;
        scan->to_skip -= n;
        *used_out = at;
        if (scan->to_skip > 0) return WEFT_MP_MORE;
        if (is_known) {
            is_known = false;
            status = close_levels(scan) ? WEFT_MP_OK : WEFT_MP_MORE;
            continue;
        }
        struct weft_mp_item item;
        bool has_payload;
        status = read_head(bytes, len, &at, &item, &has_payload);
        if (status != WEFT_MP_OK) return status;
        scan->to_skip = has_payload ? item.len : 0;
        is_known = scan->to_skip > 0;
        if (is_known && ++scan->n_values > WEFT_MSGPACK_VALUES_MAX) return WEFT_MP_BAD;
        status = is_known ? WEFT_MP_MORE : count_item(scan, &item, &why);
        *used_out = at;
    }
    return status;
}

/* Moves *at past one value that is known to be whole. */
static void skip_value(const char *bytes, size_t len, size_t *at) {
    struct weft_mp_scan scan = {0};
    struct weft_errmsg why;
    enum weft_mp_status status = weft_msgpack_scan(&scan, bytes + *at, len - *at, len, &why);
    WEFT_ASSERT(status == WEFT_MP_OK);
    *at += scan.at;
}

bool weft_msgpack_find(const char *map, size_t len, const char *key, struct weft_mp_item *out) {
    size_t at = 0, key_len = strlen(key);
    struct weft_mp_item head, name;
    if (weft_msgpack_item(map, len, &at, &head) != WEFT_MP_OK || head.type != WEFT_MP_MAP)
        return false;
    for (size_t i = 0; i < head.len; i++) {
        size_t start = at;
        if (weft_msgpack_item(map, len, &at, &name) != WEFT_MP_OK) return false;
        bool is_it = name.type == WEFT_MP_TEXT && name.len == key_len &&
                     (key_len == 0 || memcmp(name.bytes, key, key_len) == 0);
        at = start;
        skip_value(map, len, &at);
        start = at;
        if (is_it) return weft_msgpack_item(map, len, &start, out) == WEFT_MP_OK;
        skip_value(map, len, &at);
    }
    return false;
}

/* ---------------------------------------------------------------------------------- packing --- */

static int write_to_buf(void *context, const char *bytes, size_t n) {
    weft_buf_add(context, bytes, n);
    return 0; /* the buffer remembers a failure */
}

static msgpack_packer packer_of(struct weft_buf *out) {
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, write_to_buf);
    return packer;
}

void weft_msgpack_add_array(struct weft_buf *out, size_t n) {
    msgpack_packer packer = packer_of(out);
    msgpack_pack_array(&packer, n);
}

void weft_msgpack_add_uint(struct weft_buf *out, uint64_t value) {
    msgpack_packer packer = packer_of(out);
    msgpack_pack_uint64(&packer, value);
}

void weft_msgpack_add_text(struct weft_buf *out, const char *text, size_t len) {
    msgpack_packer packer = packer_of(out);
    (void)msgpack_pack_str_with_body(&packer, text, len);
}

void weft_msgpack_add_nil(struct weft_buf *out) {
    msgpack_packer packer = packer_of(out);
    msgpack_pack_nil(&packer);
}

void weft_msgpack_add_bool(struct weft_buf *out, bool value) {
    msgpack_packer packer = packer_of(out);
    if (value)
        msgpack_pack_true(&packer);
    else
        msgpack_pack_false(&packer);
}

void weft_msgpack_add_int(struct weft_buf *out, int64_t value) {
    msgpack_packer packer = packer_of(out);
    msgpack_pack_int64(&packer, value);
}

void weft_msgpack_add_double(struct weft_buf *out, double value) {
    msgpack_packer packer = packer_of(out);
    msgpack_pack_double(&packer, value);
}
