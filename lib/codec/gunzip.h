/* gunzip — a body that came as gzip, inflated in steps.
 *
 * Steps    A few bytes may become very many. So a step ends when the output has taken the room it was
 *          given, and the next one begins when there is more: who counts memory comes in between.
 * Form     RFC 1952: one member or several, whose texts follow one another; what comes behind them and
 *          begins no member is passed over, as zlib's own reader does.
 * Threads  One at a time.
 */
#ifndef WEFT_CODEC_GUNZIP_H
#define WEFT_CODEC_GUNZIP_H

#include <stddef.h>

#include "base/buf.h"

struct weft_gunzip;

enum weft_gunzip_status {
    WEFT_GUNZIP_DONE,
    WEFT_GUNZIP_FULL,   /* `room` is used up, and there may be more */
    WEFT_GUNZIP_BROKEN, /* not gzip, damaged, or cut off */
    WEFT_GUNZIP_NO_MEMORY,
};

/* Takes `packed` over, unless there is no memory: NULL. */
struct weft_gunzip *weft_gunzip_new(struct weft_buf *packed);
void weft_gunzip_free(struct weft_gunzip *gunzip);

/* Appends to `out` until it holds `room` bytes. Any status but FULL is the last. */
enum weft_gunzip_status weft_gunzip_step(struct weft_gunzip *gunzip, size_t room,
                                         struct weft_buf *out);

size_t weft_gunzip_bytes(const struct weft_gunzip *gunzip); /* as they came */

#endif
