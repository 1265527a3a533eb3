/* The arena of packed weights in the memfd that the supervisor gives, or in private memory.
 *
 * The memfd outlives a worker, so that a restarted one maps it in milliseconds and replicas share
 * it. Its first page is a header:
 *
 *   the first worker takes the file lock, sets the size, packs, writes the header, then `complete`
 *   with a release fence, and seals the memfd against every change;
 *   a worker that finds the arena incomplete takes the lock (its predecessor's died with it) and
 *   packs anew; one that finds it complete checks the header and maps it read-only.
 *
 * Packed bits are the same on every ISA, so the layout hash covers types, shapes and offsets only.
 * The file's identity (identity.h) tells whether the arena belongs to the model file: reading
 * gigabytes to hash them would take longer than packing. Where the identity differs (the file was
 * copied or touched) the contents are hashed after all. */
#include "weights/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/memory.h"
#include "weights/identity.h"
#include "weights/pack.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; the C library's headers may be older than the kernel */
#endif

#define ARENA_MAGIC "WEFTPAK1"
enum {
    HEADER_BYTES = WEFT_PACKED_PAGE,
    HUGE_PAGE_BYTES = 2 << 20,
};

struct header {
    char magic[8];
    uint64_t layout_hash, file_identity, model_hash, total_bytes;
    _Atomic uint32_t complete; /* written last */
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the header has a page of its own");

static void pack_all(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                     uint64_t file_identity, struct wefti_weights *weights, uint8_t *base) {
    weights->model_hash = wefti_weights_pack_in_place(plan, pool, base);
    struct header *header = (struct header *)(void *)base;
    memcpy(header->magic, ARENA_MAGIC, sizeof header->magic);
    header->layout_hash = weights->arena_hash;
    header->file_identity = file_identity;
    header->model_hash = weights->model_hash;
    header->total_bytes = weights->bytes;
    atomic_store_explicit(&header->complete, 1, memory_order_release);
}

weft_err wefti_weights_arena_private(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                     struct wefti_weights *weights, struct weft_errmsg *why) {
    uint8_t *base = wefti_memory_map_near(weights->bytes, plan->options->home);
    if (!base)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for %zu bytes of weights",
                            weights->bytes);
    (void)madvise(base, weights->bytes, MADV_HUGEPAGE);
    pack_all(plan, pool, 0, weights, base);
    (void)mprotect(base, weights->bytes, PROT_READ);
    weights->base = base;
    return WEFT_OK;
}

/* Maps the arena where huge pages can be had (see use_huge_pages). Readers map it private: they
 * never write, so they share its pages all the same, and kernels before 6.7 refuse a shared mapping
 * of a sealed memfd. NULL, and why, if it cannot be mapped. */
static uint8_t *map_arena(int fd, size_t bytes, bool writable, struct weft_errmsg *why) {
    uint8_t *room = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        (void)weft_err_errno(why, errno, "no room for %zu bytes of weight memory", bytes);
        return NULL;
    }
    size_t before = weft_round_up((uintptr_t)room, HUGE_PAGE_BYTES) - (uintptr_t)room;
    uint8_t *base = mmap(room + before, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                         (writable ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        (void)weft_err_errno(why, errno, "cannot map %zu bytes of the weight memory", bytes);
        (void)munmap(room, bytes + HUGE_PAGE_BYTES);
        return NULL;
    }
    if (before) (void)munmap(room, before);
    size_t used = before + weft_round_up(bytes, HEADER_BYTES);
    (void)munmap(room + used, bytes + HUGE_PAGE_BYTES - used);
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

struct collapsing {
    struct wefti_pool *pool;
    volatile uint8_t *base;
    uint32_t n_pages;
};

static void collapse_thread(void *ctx, uint32_t thread_idx) {
    struct collapsing *c = ctx;
    for (;;) {
        uint32_t page = wefti_pool_take(c->pool, thread_idx);
        if (page >= c->n_pages) return;
        volatile uint8_t *at = c->base + (size_t)page * HUGE_PAGE_BYTES;
        *at = 0; /* a page that is wholly empty cannot be collapsed */
        (void)madvise((void *)(uintptr_t)at, HUGE_PAGE_BYTES, MADV_COLLAPSE);
    }
}

/* A memory file gets no huge pages by default, even where other mappings do; so they are asked for
 * one by one, while there is nothing in them. A killed worker takes a hundred milliseconds to
 * give back a gigabyte in small pages, and its successor as long to map it: 137 and 111 ms
 * instead of 0.3 and 5 on a busy machine of two cores. Everything works without huge pages (or
 * kernel 6.1), too. */
static void use_huge_pages(struct wefti_pool *pool, uint8_t *base, size_t bytes) {
    struct collapsing c = {pool, base, (uint32_t)(bytes / HUGE_PAGE_BYTES)};
    wefti_pool_run(pool, collapse_thread, &c);
}

/* Only a memfd takes seals; the holders of other files have to be trusted. */
static void seal(int fd) {
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}

static weft_err pack_shared(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                            uint64_t file_identity, struct wefti_weights *weights, int fd,
                            struct weft_errmsg *why) {
    /* It shrinks to nothing first: a killed predecessor's leftovers must not look complete. */
    if (ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)weights->bytes) != 0)
        return weft_err_errno(why, errno, "cannot size the weight memory to %zu bytes",
                              weights->bytes);
    uint8_t *base = map_arena(fd, weights->bytes, true, why);
    if (!base) return WEFT_E_NOMEM;
    wefti_memory_prefer(base, weights->bytes, plan->options->home); /* whoever maps it later */
    use_huge_pages(pool, base, weights->bytes);
    pack_all(plan, pool, file_identity, weights, base);
    (void)munmap(base, weights->bytes); /* while somebody can write, no seal against it is taken */
    seal(fd);
    weights->base = map_arena(fd, weights->bytes, false, why);
    return weights->base ? WEFT_OK : WEFT_E_NOMEM;
}

/* Maps what another worker packed. *packed_out false: nothing complete is there. */
static weft_err inherit(const struct wefti_weights_plan *plan, uint64_t file_identity,
                        struct wefti_weights *weights, int fd, bool *packed_out,
                        struct weft_errmsg *why) {
    *packed_out = false;
    struct stat st;
    if (fstat(fd, &st) != 0) return weft_err_errno(why, errno, "cannot read the weight memory");
    if ((uint64_t)st.st_size < HEADER_BYTES) return WEFT_OK;
    uint8_t *base = map_arena(fd, (size_t)st.st_size, false, why);
    if (!base) return WEFT_E_NOMEM;
    weft_err err = WEFT_OK;
    const struct header *header = (const struct header *)(const void *)base;
    *packed_out = memcmp(header->magic, ARENA_MAGIC, sizeof header->magic) == 0 &&
                  atomic_load_explicit(&header->complete, memory_order_acquire) == 1;
    if (!*packed_out) goto cleanup;
    if (header->total_bytes != weights->bytes || (uint64_t)st.st_size != weights->bytes ||
        header->layout_hash != weights->arena_hash) {
        err = weft_err_set(why, WEFT_E_STATE,
                           "the weight memory holds another model, or one packed with other "
                           "options: %" PRIu64 " bytes, wanted %zu",
                           header->total_bytes, weights->bytes);
        goto cleanup;
    }
    if (header->file_identity != file_identity &&
        header->model_hash != wefti_weights_calibrated_hash(plan, weft_model_hash(plan->model))) {
        err = weft_err_set(why, WEFT_E_STATE,
                           "the weight memory was packed from another version of the model file");
        goto cleanup;
    }
    seal(fd); /* its packer may have died just before it */
    weights->model_hash = header->model_hash;
    weights->base = base;
    weights->inherited = true;
    base = NULL;
cleanup:
    if (base) (void)munmap(base, (size_t)st.st_size);
    return err;
}

/* One packs, others wait. The lock belongs to the process, so it dies with it. */
static void lock_arena(int fd, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    while (fcntl(fd, F_SETLKW, &lock) != 0 && errno == EINTR) {
    }
}

weft_err wefti_weights_arena_shared(const struct wefti_weights_plan *plan, const char *path,
                                    struct wefti_pool *pool, struct wefti_weights *weights, int fd,
                                    struct weft_errmsg *why) {
    uint64_t file_identity =
        wefti_weights_calibrated_hash(plan, wefti_weights_identity(plan->model, path));
    bool packed = false;
    lock_arena(fd, F_WRLCK);
    weft_err err = inherit(plan, file_identity, weights, fd, &packed, why);
    if (!err && !packed) err = pack_shared(plan, pool, file_identity, weights, fd, why);
    lock_arena(fd, F_UNLCK);
    return err;
}
