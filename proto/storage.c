#include "storage.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A chunk that fits every message of ordinary serving: 64 decode rows take 3 KiB, 4096 with their
 * log-probabilities under 1 MiB. */
#define STORAGE_FIRST_BYTES ((size_t)16 << 10)
#define STORAGE_KEEP_BYTES ((size_t)1 << 20)

struct wefti_proto_chunk {
    struct wefti_proto_chunk *next;
    size_t cap, used;
    alignas(max_align_t) unsigned char bytes[];
};

void wefti_proto_storage_fini(struct wefti_proto_storage *storage) {
    while (storage->chunks) {
        struct wefti_proto_chunk *next = storage->chunks->next;
        free(storage->chunks);
        storage->chunks = next;
    }
    storage->used_bytes = 0;
}

/* Adds a chunk of at least `need` bytes at the front of the list. */
static struct wefti_proto_chunk *add_chunk(struct wefti_proto_storage *storage, size_t need) {
    size_t cap = need > STORAGE_FIRST_BYTES ? need : STORAGE_FIRST_BYTES;
    struct wefti_proto_chunk *chunk = malloc(sizeof *chunk + cap);
    if (!chunk) return NULL;
    *chunk = (struct wefti_proto_chunk){.next = storage->chunks, .cap = cap};
    storage->chunks = chunk;
    return chunk;
}

void wefti_proto_storage_reset(struct wefti_proto_storage *storage) {
    size_t used = storage->used_bytes;
    struct wefti_proto_chunk *chunk = storage->chunks;
    if (chunk && !chunk->next && chunk->cap <= STORAGE_KEEP_BYTES) {
        chunk->used = 0;
        storage->used_bytes = 0;
        return;
    }
    wefti_proto_storage_fini(storage);
    /* One chunk for the next message of that size. A failure shows up then. */
    size_t cap = STORAGE_FIRST_BYTES;
    while (cap < used)
        cap *= 2;
    if (cap <= STORAGE_KEEP_BYTES) (void)add_chunk(storage, cap);
}

void *wefti_proto_storage_take(struct wefti_proto_storage *storage, size_t n, size_t item_bytes) {
    const size_t align = alignof(max_align_t);
    if (item_bytes != 0 && n > (SIZE_MAX - align) / item_bytes) return NULL;
    size_t bytes = (n * item_bytes + align - 1) / align * align;
    struct wefti_proto_chunk *chunk = storage->chunks;
    if (!chunk || chunk->cap - chunk->used < bytes) chunk = add_chunk(storage, bytes);
    if (!chunk) return NULL;
    unsigned char *out = chunk->bytes + chunk->used;
    chunk->used += bytes;
    storage->used_bytes += bytes;
    memset(out, 0, bytes);
    return out;
}
