/* io — what the store of batches does with files, one thing after another, in libuv's threads.
 *
 * Why      Writing and syncing may take seconds on a busy disk: the loop never waits for it, and only one of the
 *          pool's threads does, so prompts go on being prepared. One at a time is also an order: nothing of the
 *          store needs a lock.
 * Threads  `run` belongs to a thread and sees nothing that the loop changes meanwhile; all else to the loop.
 */
#ifndef WEFT_ROUTER_BATCHES_IO_H
#define WEFT_ROUTER_BATCHES_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "work.h"

struct batch_op { /* the first member of its owner's struct */
    STAILQ_ENTRY(batch_op) entry;
    void (*run)(struct batch_op *op);
    void (*done)(struct batch_op *op); /* may free it, and add others */
    bool
        only_reads; /* a file that it has open, and nothing of the store, which may close meanwhile */
    weft_err err;
    struct weft_errmsg why;
};

struct batch_io {
    struct work work;
    struct work_queue *queue;
    STAILQ_HEAD(, batch_op) ops; /* the first one is running */
};

void wefti_batch_io_init(struct batch_io *io, struct work_queue *queue);
void wefti_batch_io_add(struct batch_io *io, struct batch_op *op);
bool wefti_batch_io_is_idle(const struct batch_io *io); /* but for those that only read */

/* ------------------------------------------------------------------------- in a thread: disk --- */

/* FULL: the disk, a quota or a limit of the process; IO: anything else. */
weft_err wefti_disk_err(const char *doing, const char *path, struct weft_errmsg *why);

/* Puts `bytes` in the place of the file at `path`, which is there in whole, old or new, at any time. */
WEFT_MUST_CHECK weft_err wefti_disk_replace(const char *path, const void *bytes, size_t n,
                                            struct weft_errmsg *why);

/* Writes at `at`, which is the file's end, and syncs. After an error the file ends there still. */
WEFT_MUST_CHECK weft_err wefti_disk_append(int fd, const char *path, uint64_t at, const void *bytes,
                                           size_t n, struct weft_errmsg *why);

/* The entries of a folder last. */
WEFT_MUST_CHECK weft_err wefti_disk_sync_folder(const char *path, struct weft_errmsg *why);

/* Reads exactly `n` bytes. */
WEFT_MUST_CHECK weft_err wefti_disk_read(int fd, const char *path, uint64_t at, void *bytes,
                                         size_t n, struct weft_errmsg *why);

#endif
