#include "codec/msgpack.h"

#include <msgpack.h>
#include <string.h>

#include "base/check.h"
#include "msgpack_head.h"

/* ------------------------------------------------------------------------------------ items --- */

static void set_number(struct weft_mp_item *out, const struct wefti_msgpack_head *head) {
    if (head->form == WEFTI_MSGPACK_UINT) {
        out->type = head->value > INT64_MAX ? WEFT_MP_UINT : WEFT_MP_INT;
        out->i = (int64_t)(head->value & INT64_MAX);
        out->u = head->value;
    } else {
        out->type = WEFT_MP_INT;
        out->i = (int64_t)head->value;
    }
}

static void set_float(struct weft_mp_item *out, const struct wefti_msgpack_head *head) {
    float single;
    uint32_t low = (uint32_t)head->value;
    out->type = WEFT_MP_FLOAT;
    memcpy(&single, &low, sizeof single);
    memcpy(&out->d, &head->value, sizeof out->d);
    if (head->form == WEFTI_MSGPACK_F32) out->d = (double)single;
}

/* Fills `out` from a whole head. */
static void set_item(struct weft_mp_item *out, const struct wefti_msgpack_head *head) {
    switch (head->form) {
    case WEFTI_MSGPACK_NEVER:
        break;
    case WEFTI_MSGPACK_NIL:
        out->type = WEFT_MP_NIL;
        break;
    case WEFTI_MSGPACK_BOOL:
        out->type = WEFT_MP_BOOL;
        out->is_true = head->value != 0;
        break;
    case WEFTI_MSGPACK_UINT:
    case WEFTI_MSGPACK_INT:
        set_number(out, head);
        break;
    case WEFTI_MSGPACK_F32:
    case WEFTI_MSGPACK_F64:
        set_float(out, head);
        break;
    case WEFTI_MSGPACK_STR:
    case WEFTI_MSGPACK_BIN:
        out->type = WEFT_MP_TEXT;
        out->len = (size_t)head->value;
        break;
    case WEFTI_MSGPACK_EXT:
        out->type = WEFT_MP_EXT;
        out->len = (size_t)head->value;
        break;
    case WEFTI_MSGPACK_ARRAY:
        out->type = WEFT_MP_ARRAY;
        out->len = (size_t)head->value;
        break;
    case WEFTI_MSGPACK_MAP:
        out->type = WEFT_MP_MAP;
        out->len = (size_t)head->value;
        break;
    }
}

static enum weft_mp_status read_head(const char *bytes, size_t len, size_t at,
                                     struct wefti_msgpack_head *out) {
    WEFT_ASSERT(at <= len);
    return wefti_msgpack_head((const unsigned char *)bytes + at, len - at, out);
}

enum weft_mp_status weft_msgpack_item(const char *bytes, size_t len, size_t *at,
                                      struct weft_mp_item *out) {
    struct wefti_msgpack_head head;
    enum weft_mp_status status = read_head(bytes, len, *at, &head);
    memset(out, 0, sizeof *out);
    if (status != WEFT_MP_OK) return status;
    set_item(out, &head);
    uint64_t n_content = wefti_msgpack_n_content(&head);
    size_t begin = *at + head.n_bytes;
    if (len - begin < n_content) return WEFT_MP_MORE;
    if (out->type == WEFT_MP_TEXT || out->type == WEFT_MP_EXT) out->bytes = bytes + begin;
    *at = begin + (size_t)n_content;
    return WEFT_MP_OK;
}

/* -------------------------------------------------------------------------------- measuring --- */

/* Closes the containers whose last value was just completed. True: all are closed. */
static bool close_levels(struct weft_mp_levels *levels) {
    while (levels->depth > 0) {
        if (--levels->left[levels->depth - 1] > 0) return false;
        levels->depth--;
    }
    return true;
}

enum weft_mp_status wefti_msgpack_count(struct weft_mp_levels *levels, uint64_t n_inside) {
    WEFT_ASSERT(levels->depth <= WEFT_MSGPACK_DEPTH_MAX);
    if (n_inside == 0) return close_levels(levels) ? WEFT_MP_OK : WEFT_MP_MORE;
    if (levels->depth == WEFT_MSGPACK_DEPTH_MAX) return WEFT_MP_BAD;
    levels->left[levels->depth++] = n_inside;
    return WEFT_MP_MORE;
}

/* Counts one more item. OK: it completes the value; MORE: it does not. */
static enum weft_mp_status count_item(struct weft_mp_scan *scan, uint64_t n_inside,
                                      struct weft_errmsg *why) {
    if (++scan->n_values > WEFT_MSGPACK_VALUES_MAX || n_inside > WEFT_MSGPACK_VALUES_MAX) {
        (void)weft_err_set(why, WEFT_E_TOOBIG, "the message holds over %u values",
                           WEFT_MSGPACK_VALUES_MAX);
        return WEFT_MP_BAD;
    }
    enum weft_mp_status status = wefti_msgpack_count(&scan->levels, n_inside);
    if (status == WEFT_MP_BAD)
        (void)weft_err_set(why, WEFT_E_TOOBIG, "the message nests deeper than %d",
                           WEFT_MSGPACK_DEPTH_MAX);
    return status;
}

enum weft_mp_status weft_msgpack_scan(struct weft_mp_scan *scan, const char *bytes, size_t len,
                                      size_t bytes_max, struct weft_errmsg *why) {
    for (;;) {
        struct wefti_msgpack_head head;
        enum weft_mp_status status = read_head(bytes, len, scan->at, &head);
        uint64_t n_content = wefti_msgpack_n_content(&head);
        uint64_t end = scan->at + head.n_bytes + n_content;
        if (status == WEFT_MP_OK && end > len) status = WEFT_MP_MORE;
        /* An unfinished item may already say that it is longer than anything may be. */
        bool is_long =
            status == WEFT_MP_MORE ? len > bytes_max || n_content > bytes_max : end > bytes_max;
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
        scan->at = (size_t)end;
        status = count_item(scan, wefti_msgpack_n_inside(&head), why);
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
            status = close_levels(&scan->levels) ? WEFT_MP_OK : WEFT_MP_MORE;
            continue;
        }
        struct wefti_msgpack_head head;
        status = read_head(bytes, len, at, &head);
        if (status != WEFT_MP_OK) return status;
        at += head.n_bytes;
        scan->to_skip = wefti_msgpack_n_content(&head);
        is_known = scan->to_skip > 0;
        if (is_known && ++scan->n_values > WEFT_MSGPACK_VALUES_MAX) return WEFT_MP_BAD;
        status = is_known ? WEFT_MP_MORE : count_item(scan, wefti_msgpack_n_inside(&head), &why);
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

void weft_msgpack_add_float(struct weft_buf *out, float value) {
    msgpack_packer packer = packer_of(out);
    msgpack_pack_float(&packer, value);
}

void weft_msgpack_add_bin_head(struct weft_buf *out, size_t n) {
    msgpack_packer packer = packer_of(out);
    WEFT_ASSERT(n <= UINT32_MAX);
    msgpack_pack_bin(&packer, n);
}

void weft_msgpack_add_bin(struct weft_buf *out, const void *bytes, size_t n) {
    weft_msgpack_add_bin_head(out, n);
    weft_buf_add(out, bytes, n);
}
