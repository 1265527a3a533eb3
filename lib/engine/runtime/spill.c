#include "runtime/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/minmax.h"

#define PATH_BYTES 4096

/* ---------------------------------------------------------------------------- open, close --- */

/* Without a name from the start, or (older file systems) as good as. Returns -1 with errno. */
static int open_nameless(const char *dir) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    char path[PATH_BYTES];
    int len = snprintf(path, sizeof path, "%s/weft-spill-XXXXXX", dir);
    if (len < 0 || (size_t)len >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) (void)unlink(path);
    return fd;
}

weft_err wefti_spill_open(struct wefti_spill *spill, const struct weft_eng_options *options,
                          const struct wefti_kv_cache *cache, struct weft_errmsg *why) {
    spill->fd = -1;
    if (options->spill_bytes == 0) return WEFT_OK;
    if (cache->n_blocks[WEFT_KV_WINDOWED] > 0) {
        weft_warn("nothing is spilled to a file: the model has layers with a window");
        return WEFT_OK;
    }
    spill->slot_bytes = cache->block_bytes[WEFT_KV_FULL];
    uint64_t n = weft_min_u64(options->spill_bytes / spill->slot_bytes, WEFT_KV_BLOCKS_MAX);
    if (n == 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "a spill file of %" PRIu64 " bytes holds no block: one takes %" PRIu64,
                            options->spill_bytes, spill->slot_bytes);
    spill->fd = open_nameless(options->spill_dir);
    if (spill->fd < 0)
        return weft_err_errno(why, errno, "cannot make a spill file in %s", options->spill_dir);
    if (fallocate(spill->fd, 0, 0, (off_t)(n * spill->slot_bytes)) != 0 && errno != EOPNOTSUPP)
        return weft_err_errno(why, errno, "no room for a spill file of %" PRIu64 " bytes in %s",
                              n * spill->slot_bytes, options->spill_dir);
    atomic_store_explicit(&spill->n_slots, (uint32_t)n, memory_order_relaxed);
    return WEFT_OK;
}

void wefti_spill_close(struct wefti_spill *spill) {
    atomic_store_explicit(&spill->n_slots, 0, memory_order_relaxed);
    if (spill->slot_bytes > 0 && spill->fd >= 0) (void)close(spill->fd);
    spill->fd = -1;
}

/* Relaxed: the number alone counts. A reader that is told of a step's error by other means was told
 * after the store. */
uint32_t wefti_spill_n_slots(const struct wefti_spill *spill) {
    return atomic_load_explicit(&spill->n_slots, memory_order_relaxed);
}

/* ----------------------------------------------------------------------------------- moving --- */

/* All of it, or -1 with errno. */
static int move(int fd, uint8_t *bytes, size_t n_bytes, off_t at, bool is_write) {
    while (n_bytes > 0) {
        ssize_t n = is_write ? pwrite(fd, bytes, n_bytes, at) : pread(fd, bytes, n_bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO; /* shorter than what was written to it */
        if (n <= 0) return -1;
        bytes += n;
        n_bytes -= (size_t)n;
        at += n;
    }
    return 0;
}

static weft_err move_block(struct wefti_spill *spill, const struct wefti_kv_cache *cache,
                           const struct weft_step_spill *which, bool is_write,
                           struct weft_errmsg *why) {
    WEFT_ASSERT(which->slot < wefti_spill_n_slots(spill) &&
                which->block < cache->n_blocks[WEFT_KV_FULL]);
    uint8_t *bytes = wefti_kv_cache_block(cache, WEFT_KV_FULL, which->block);
    off_t at = (off_t)(which->slot * spill->slot_bytes);
    if (!move(spill->fd, bytes, spill->slot_bytes, at, is_write)) return WEFT_OK;
    weft_err err =
        weft_err_errno(why, errno, "cannot %s the spill file", is_write ? "write to" : "read");
    wefti_spill_close(spill);
    weft_warn("the spill file is given up: this worker has none from now on");
    return err;
}

weft_err wefti_spill_write(struct wefti_spill *spill, const struct wefti_kv_cache *cache,
                           const struct weft_step_spill *which, struct weft_errmsg *why) {
    return move_block(spill, cache, which, true, why);
}

weft_err wefti_spill_read(struct wefti_spill *spill, const struct wefti_kv_cache *cache,
                          const struct weft_step_spill *which, struct weft_errmsg *why) {
    return move_block(spill, cache, which, false, why);
}
