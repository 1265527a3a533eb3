#include "codec/gunzip.h"

#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/check.h"

#define PIECE_BYTES 16384
#define GZIP_ONLY (16 + MAX_WBITS) /* of inflateInit2: the largest window, and no other wrapping */

struct weft_gunzip {
    struct weft_buf packed;
    z_stream stream; /* next_in points into `packed` */
};

struct weft_gunzip *weft_gunzip_new(struct weft_buf *packed) {
    struct weft_gunzip *gunzip = calloc(1, sizeof *gunzip);
    if (!gunzip) return NULL;
    if (inflateInit2(&gunzip->stream, GZIP_ONLY) != Z_OK) {
        free(gunzip);
        return NULL;
    }
    gunzip->packed = *packed;
    gunzip->stream.next_in = (unsigned char *)packed->data;
    weft_buf_init(packed, packed->max_bytes);
    return gunzip;
}

void weft_gunzip_free(struct weft_gunzip *gunzip) {
    if (!gunzip) return;
    (void)inflateEnd(&gunzip->stream);
    weft_buf_fini(&gunzip->packed);
    free(gunzip);
}

size_t weft_gunzip_bytes(const struct weft_gunzip *gunzip) {
    return gunzip->packed.len;
}

static size_t n_left(const struct weft_gunzip *gunzip) {
    if (gunzip->packed.len == 0) return 0; /* there is no memory to point into */
    const unsigned char *end = (const unsigned char *)gunzip->packed.data + gunzip->packed.len;
    WEFT_ASSERT(gunzip->stream.next_in <= end);
    return (size_t)(end - gunzip->stream.next_in);
}

static bool is_member_next(const struct weft_gunzip *gunzip) {
    const unsigned char *at = gunzip->stream.next_in;
    return n_left(gunzip) >= 2 && at[0] == 0x1f && at[1] == 0x8b;
}

/* One call of zlib; its status. */
static int inflate_piece(struct weft_gunzip *gunzip, size_t n_max, struct weft_buf *out) {
    unsigned char piece[PIECE_BYTES];
    z_stream *stream = &gunzip->stream;
    size_t n_in = n_left(gunzip), n_out = n_max < sizeof piece ? n_max : sizeof piece;
    stream->avail_in = n_in < UINT32_MAX ? (unsigned)n_in : UINT32_MAX;
    stream->next_out = piece;
    stream->avail_out = (unsigned)n_out;
    int status = inflate(stream, Z_NO_FLUSH);
    weft_buf_add(out, piece, n_out - stream->avail_out);
    return status;
}

enum weft_gunzip_status weft_gunzip_step(struct weft_gunzip *gunzip, size_t room,
                                         struct weft_buf *out) {
    while (out->len < room) {
        int status = inflate_piece(gunzip, room - out->len, out);
        if (out->failed || status == Z_MEM_ERROR) return WEFT_GUNZIP_NO_MEMORY;
        if (status == Z_STREAM_END && !is_member_next(gunzip)) return WEFT_GUNZIP_DONE;
        if (status == Z_STREAM_END) status = inflateReset(&gunzip->stream);
        if (status != Z_OK) return WEFT_GUNZIP_BROKEN; /* Z_BUF_ERROR: there is no more input */
    }
    return WEFT_GUNZIP_FULL;
}
