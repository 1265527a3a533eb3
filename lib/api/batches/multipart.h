/* multipart — an upload's form (multipart/form-data, RFC 7578), read as its bytes come.
 *
 * Model    Parts, one after another: of the one named "file" the bytes go to whoever takes them, as they come and
 *          in pieces; any other is a short field that is kept. A part's bytes end before CRLF, "--" and the
 *          boundary; whether bytes that look like the beginning of that are its end is known once more have come.
 * Bounds   A part's head WEFT_API_PART_HEAD_BYTES_MAX, a field WEFT_API_FIELD_BYTES_MAX, fields
 *          WEFT_API_FIELDS_MAX; what is over one of them is a fault.
 * Memory   The struct, which is the caller's, all zeros before its start.
 * Checked in tests/unit/test_api_multipart.c and tests/fuzz/fuzz_multipart.c.
 */
#ifndef WEFT_API_MULTIPART_H
#define WEFT_API_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define WEFT_API_BOUNDARY_BYTES_MAX 70 /* RFC 2046 */
#define WEFT_API_PART_HEAD_BYTES_MAX 4096
#define WEFT_API_FIELD_BYTES_MAX 256
#define WEFT_API_FIELDS_MAX 8
#define WEFT_API_FILENAME_BYTES_MAX 255

struct weft_api_field {
    char name[64], value[WEFT_API_FIELD_BYTES_MAX + 1]; /* terminated, and without NUL inside */
};

enum weft_api_multipart_place {
    WEFT_API_PART_BEFORE, /* the first boundary */
    WEFT_API_PART_EDGE,   /* a boundary was there; "--" or a line's end follows */
    WEFT_API_PART_HEAD,
    WEFT_API_PART_BYTES,
    WEFT_API_PART_OVER, /* what follows the last boundary is nobody's */
};

struct weft_api_multipart {
    enum weft_api_multipart_place place;
    char edge[4 + WEFT_API_BOUNDARY_BYTES_MAX + 1]; /* CR LF - - boundary */
    size_t n_edge, n_matched;                       /* of the edge, so far */
    char held[2];                                   /* what follows an edge */
    size_t n_held;
    char head[WEFT_API_PART_HEAD_BYTES_MAX];
    size_t n_head;
    bool is_file;                                   /* the part under way */
    bool has_file;                                  /* one was there, or is */
    char filename[WEFT_API_FILENAME_BYTES_MAX + 1]; /* as the client names it; UTF-8, no NUL */
    struct weft_api_field fields[WEFT_API_FIELDS_MAX];
    size_t n_fields, n_value;
    bool has_failed;
    /* Takes some of the file's bytes; false: it is over, the caller knows why. */
    bool (*take)(void *to, const char *bytes, size_t n);
    void *to;
};

/* `type`: the request's Content-Type. INVAL: it is no form's, or names no fair boundary. */
WEFT_MUST_CHECK weft_err weft_api_multipart_init(struct weft_api_multipart *form,
                                                 struct weft_str type, struct weft_errmsg *why);

/* PROTO: the bytes are no such form; TOOBIG: a bound; CLOSED: `take` said so. Nothing may follow an error. */
WEFT_MUST_CHECK weft_err weft_api_multipart_more(struct weft_api_multipart *form, const char *bytes,
                                                 size_t n, struct weft_errmsg *why);

/* After the body's last byte: PROTO where the form is not whole, or has no file. */
WEFT_MUST_CHECK weft_err weft_api_multipart_end(const struct weft_api_multipart *form,
                                                struct weft_errmsg *why);

/* NULL: there is none of that name. */
const char *weft_api_multipart_field(const struct weft_api_multipart *form, const char *name);

#endif
