/* codec/writer — maps, lists, texts and numbers in two formats: JSON and MessagePack.
 *
 * Model    Each call writes the next item of the innermost open container; in a map texts (the
 *          keys) and any items (their values) take turns. A text may come in pieces.
 * JSON     No white space. Numbers as codec/json_out.h has them; texts are made valid UTF-8.
 * Packed   The shortest form of integers, float64 for floats. A container's header is finished at
 *          its end, so `out` must keep everything while one is open.
 * Pieces   In JSON `out` may be emptied, or be another buffer, between any two calls.
 * Errors   `out` remembers a failed append. A key that is no text or a container left open is our
 *          own mistake and asserts.
 */
#ifndef WEFT_CODEC_WRITER_H
#define WEFT_CODEC_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define WEFT_WRITER_DEPTH_MAX 12

enum weft_writer_format { WEFT_WRITE_JSON, WEFT_WRITE_MSGPACK };

struct weft_writer {
    struct weft_buf *out; /* borrowed */
    enum weft_writer_format format;
    bool in_text;
    uint32_t depth;
    size_t text_at; /* header of a packed text that comes in pieces */
    struct weft_writer_open {
        size_t at;  /* of its header, packed */
        uint32_t n; /* items so far; in a map keys and values */
        bool is_map;
    } open[WEFT_WRITER_DEPTH_MAX];
};

void weft_writer_init(struct weft_writer *w, enum weft_writer_format format, struct weft_buf *out);

void weft_write_map(struct weft_writer *w);
void weft_write_list(struct weft_writer *w);
void weft_write_end(struct weft_writer *w); /* the innermost container */

/* A key that needs no escaping, of at most 48 bytes. */
void weft_write_key(struct weft_writer *w, const char *key);

void weft_write_text(struct weft_writer *w, const char *bytes, size_t len);
void weft_write_str(struct weft_writer *w, const char *text); /* terminated */

/* A text in pieces, none of which ends within a character. */
void weft_write_text_open(struct weft_writer *w);
void weft_write_text_more(struct weft_writer *w, const char *bytes, size_t len);
void weft_write_text_close(struct weft_writer *w);

/* A value whose JSON is there already, in pieces, written as it is; in JSON only. It must be one, and whole
 * (codec/json_check.h). */
void weft_write_json_open(struct weft_writer *w);
void weft_write_json_more(struct weft_writer *w, const char *json, size_t len);
void weft_write_json_close(struct weft_writer *w);

void weft_write_null(struct weft_writer *w);
void weft_write_bool(struct weft_writer *w, bool value);
void weft_write_uint(struct weft_writer *w, uint64_t value);
void weft_write_int(struct weft_writer *w, int64_t value);
void weft_write_float(struct weft_writer *w, float value);   /* -9999.0 for what JSON cannot say */
void weft_write_double(struct weft_writer *w, double value); /* finite; fifteen digits in JSON */

#endif
