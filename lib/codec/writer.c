#include "codec/writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "codec/json_out.h"
#include "codec/msgpack.h"
#include "codec/utf8.h"

#define LONG_HEADER_BYTES 5
/* Up to this length a container's or text's header is made as short as possible at its end: moving
 * so few bytes costs nothing. */
#define SHORT_BYTES_MAX 1024
#define KEY_BYTES_MAX 48

void weft_writer_init(struct weft_writer *w, enum weft_writer_format format, struct weft_buf *out) {
    memset(w, 0, sizeof *w);
    w->format = format;
    w->out = out;
}

/* ------------------------------------------------------------------------------------ items --- */

/* True if a map's next item is a key. Keys and values take turns. */
static bool expects_key(const struct weft_writer *w) {
    if (w->depth == 0) return false;
    const struct weft_writer_open *open = &w->open[w->depth - 1];
    return open->is_map && open->n % 2 == 0;
}

static void begin_item(struct weft_writer *w, bool is_text) {
    WEFT_ASSERT(!w->in_text);
    if (w->depth == 0) return;
    bool is_key = expects_key(w);
    WEFT_ASSERT(is_text || !is_key);
    struct weft_writer_open *open = &w->open[w->depth - 1];
    bool is_first = open->n == 0, follows_key = open->is_map && !is_key;
    if (w->format == WEFT_WRITE_JSON && !is_first && !follows_key) weft_buf_add_char(w->out, ',');
    open->n++;
}

/* After a text, which may have been a key. */
static void end_text(struct weft_writer *w) {
    if (w->format != WEFT_WRITE_JSON || w->depth == 0) return;
    const struct weft_writer_open *open = &w->open[w->depth - 1];
    if (open->is_map && open->n % 2 == 1) weft_buf_add_char(w->out, ':');
}

/* ------------------------------------------------------------------------------- containers --- */

static void open_container(struct weft_writer *w, bool is_map) {
    begin_item(w, false);
    WEFT_ASSERT(w->depth < WEFT_WRITER_DEPTH_MAX);
    w->open[w->depth++] = (struct weft_writer_open){.at = w->out->len, .is_map = is_map};
    if (w->format == WEFT_WRITE_JSON)
        weft_buf_add_char(w->out, is_map ? '{' : '[');
    else
        weft_buf_add(w->out, "\0\0\0\0", LONG_HEADER_BYTES); /* the count comes at the end */
}

void weft_write_map(struct weft_writer *w) {
    open_container(w, true);
}

void weft_write_list(struct weft_writer *w) {
    open_container(w, false);
}

static void put_long_header(struct weft_buf *out, size_t at, unsigned char tag, size_t n) {
    unsigned char head[LONG_HEADER_BYTES] = {tag, (unsigned char)(n >> 24),
                                             (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                             (unsigned char)n};
    memcpy(out->data + at, head, sizeof head);
}

/* Writes the header at `at` for what follows it: one byte, or all the bytes reserved. */
static void close_packed(struct weft_buf *out, size_t at, size_t n, size_t n_short,
                         unsigned char short_tag, unsigned char long_tag) {
    if (out->failed) return;
    WEFT_ASSERT(at + LONG_HEADER_BYTES <= out->len && n <= UINT32_MAX);
    size_t n_bytes = out->len - at - LONG_HEADER_BYTES;
    if (n > n_short || n_bytes > SHORT_BYTES_MAX) {
        put_long_header(out, at, long_tag, n);
        return;
    }
    out->data[at] = (char)(short_tag | n);
    memmove(out->data + at + 1, out->data + at + LONG_HEADER_BYTES, n_bytes);
    out->len = at + 1 + n_bytes;
}

void weft_write_end(struct weft_writer *w) {
    WEFT_ASSERT(w->depth > 0 && !w->in_text);
    const struct weft_writer_open *open = &w->open[--w->depth];
    WEFT_ASSERT(!open->is_map || open->n % 2 == 0);
    if (w->format == WEFT_WRITE_JSON)
        weft_buf_add_char(w->out, open->is_map ? '}' : ']');
    else if (open->is_map)
        close_packed(w->out, open->at, open->n / 2, 15, 0x80, 0xdf);
    else
        close_packed(w->out, open->at, open->n, 15, 0x90, 0xdd);
}

/* ------------------------------------------------------------------------------------ texts --- */

void weft_write_key(struct weft_writer *w, const char *key) {
    size_t len = strlen(key);
    WEFT_ASSERT(expects_key(w) && len <= KEY_BYTES_MAX);
    if (w->format == WEFT_WRITE_MSGPACK) {
        begin_item(w, true);
        weft_msgpack_add_text(w->out, key, len);
        return;
    }
    char text[KEY_BYTES_MAX + 4]; /* one append: streams write ten of them per token */
    size_t n = 0;
    if (w->open[w->depth - 1].n++ > 0) text[n++] = ',';
    text[n++] = '"';
    memcpy(text + n, key, len); /* NOLINT(bugprone-not-null-terminated-result): has a length */
    n += len;
    text[n++] = '"';
    text[n++] = ':';
    weft_buf_add(w->out, text, n);
}

void weft_write_text(struct weft_writer *w, const char *bytes, size_t len) {
    if (w->format == WEFT_WRITE_JSON) {
        begin_item(w, true);
        weft_json_str(w->out, bytes, len);
        end_text(w);
        return;
    }
    weft_write_text_open(w);
    weft_write_text_more(w, bytes, len);
    weft_write_text_close(w);
}

void weft_write_str(struct weft_writer *w, const char *text) {
    weft_write_text(w, text, strlen(text));
}

void weft_write_text_open(struct weft_writer *w) {
    begin_item(w, true);
    w->in_text = true;
    w->text_at = w->out->len;
    if (w->format == WEFT_WRITE_JSON)
        weft_buf_add_char(w->out, '"');
    else
        weft_buf_add(w->out, "\0\0\0\0", LONG_HEADER_BYTES);
}

void weft_write_text_more(struct weft_writer *w, const char *bytes, size_t len) {
    WEFT_ASSERT(w->in_text);
    if (len == 0) return;
    if (w->format == WEFT_WRITE_JSON)
        weft_json_text(w->out, bytes, len);
    else
        weft_utf8_clean(w->out, bytes, len);
}

void weft_write_text_close(struct weft_writer *w) {
    WEFT_ASSERT(w->in_text);
    w->in_text = false;
    if (w->format == WEFT_WRITE_JSON) {
        weft_buf_add_char(w->out, '"');
        end_text(w);
    } else {
        size_t n_bytes = w->out->len - w->text_at - LONG_HEADER_BYTES;
        close_packed(w->out, w->text_at, n_bytes, 31, 0xa0, 0xdb);
    }
}

void weft_write_json_open(struct weft_writer *w) {
    WEFT_ASSERT(w->format == WEFT_WRITE_JSON);
    begin_item(w, false);
    w->in_text = true;
}

void weft_write_json_more(struct weft_writer *w, const char *json, size_t len) {
    WEFT_ASSERT(w->in_text && w->format == WEFT_WRITE_JSON);
    weft_buf_add(w->out, json, len);
}

void weft_write_json_close(struct weft_writer *w) {
    WEFT_ASSERT(w->in_text);
    w->in_text = false;
}

/* ---------------------------------------------------------------------------------- scalars --- */

void weft_write_null(struct weft_writer *w) {
    begin_item(w, false);
    if (w->format == WEFT_WRITE_JSON)
        weft_buf_add_str(w->out, "null");
    else
        weft_msgpack_add_nil(w->out);
}

void weft_write_bool(struct weft_writer *w, bool value) {
    begin_item(w, false);
    if (w->format == WEFT_WRITE_JSON)
        weft_buf_add_str(w->out, value ? "true" : "false");
    else
        weft_msgpack_add_bool(w->out, value);
}

void weft_write_uint(struct weft_writer *w, uint64_t value) {
    begin_item(w, false);
    if (w->format == WEFT_WRITE_JSON)
        weft_json_uint(w->out, value);
    else
        weft_msgpack_add_uint(w->out, value);
}

void weft_write_int(struct weft_writer *w, int64_t value) {
    if (value >= 0) {
        weft_write_uint(w, (uint64_t)value);
        return;
    }
    begin_item(w, false);
    if (w->format == WEFT_WRITE_JSON)
        weft_buf_printf(w->out, "%" PRId64, value);
    else
        weft_msgpack_add_int(w->out, value);
}

void weft_write_float(struct weft_writer *w, float value) {
    begin_item(w, false);
    if (w->format == WEFT_WRITE_JSON)
        weft_json_float(w->out, value);
    else if (isfinite(value))
        weft_msgpack_add_double(w->out, (double)value);
    else
        weft_msgpack_add_double(w->out, value > 0 ? 9999.0 : -9999.0);
}

void weft_write_double(struct weft_writer *w, double value) {
    WEFT_ASSERT(isfinite(value));
    begin_item(w, false);
    if (w->format == WEFT_WRITE_JSON) {
        char text[32];
        (void)snprintf(text, sizeof text, "%.15g", value);
        weft_buf_add_str(w->out, text);
        if (!strpbrk(text, ".e")) weft_buf_add_str(w->out, ".0"); /* a float for typed readers */
    } else {
        weft_msgpack_add_double(w->out, value);
    }
}
