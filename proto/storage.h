/* storage — the memory of decoded messages; private to proto.
 *
 * A list of chunks that is emptied at each message. One chunk, as large as the largest message up
 * to STORAGE_KEEP_BYTES needed, stays: so in steady state decoding takes nothing from the heap, and
 * a huge message does not keep its memory.
 */
#ifndef WEFT_PROTO_STORAGE_H
#define WEFT_PROTO_STORAGE_H

#include <stddef.h>

struct wefti_proto_chunk;

struct wefti_proto_storage {
    struct wefti_proto_chunk *chunks; /* owned; the newest first */
    size_t used_bytes;                /* since the last reset */
};

void wefti_proto_storage_fini(struct wefti_proto_storage *storage);
void wefti_proto_storage_reset(struct wefti_proto_storage *storage);

/* `n` zeroed items of `item_bytes`, aligned for any type, valid until the next reset. Not NULL for
 * n = 0; NULL when memory is out. */
void *wefti_proto_storage_take(struct wefti_proto_storage *storage, size_t n, size_t item_bytes);

#endif
