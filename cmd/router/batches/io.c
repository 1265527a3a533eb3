#include "batches/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

#define PATH_BYTES_MAX 4096

static struct batch_io *io_of(struct work *work) {
    _Static_assert(offsetof(struct batch_io, work) == 0, "one address for both");
    return (struct batch_io *)work;
}

static void run_first(struct work *work) {
    struct batch_op *op = STAILQ_FIRST(&io_of(work)->ops);
    op->run(op);
}

static void after_first(struct work *work) {
    struct batch_io *io = io_of(work);
    struct batch_op *op = STAILQ_FIRST(&io->ops);
    STAILQ_REMOVE_HEAD(&io->ops, entry);
    if (!STAILQ_EMPTY(&io->ops)) wefti_work_add(io->queue, work, 0, weft_now_ms());
    op->done(op);
}

void wefti_batch_io_init(struct batch_io *io, struct work_queue *queue) {
    memset(io, 0, sizeof *io);
    io->queue = queue;
    io->work.run = run_first;
    io->work.done = after_first;
    STAILQ_INIT(&io->ops);
}

void wefti_batch_io_add(struct batch_io *io, struct batch_op *op) {
    WEFT_ASSERT(op->run && op->done);
    bool was_empty = STAILQ_EMPTY(&io->ops);
    op->err = WEFT_OK;
    STAILQ_INSERT_TAIL(&io->ops, op, entry);
    if (was_empty) wefti_work_add(io->queue, &io->work, 0, weft_now_ms());
}

bool wefti_batch_io_is_idle(const struct batch_io *io) {
    const struct batch_op *op = STAILQ_FIRST(&io->ops);
    while (op && op->only_reads)
        op = STAILQ_NEXT(op, entry);
    return !op;
}

/* --------------------------------------------------------------------------------------- disk --- */

weft_err wefti_disk_err(const char *doing, const char *path, struct weft_errmsg *why) {
    int value = errno;
    bool is_full = value == ENOSPC || value == EDQUOT || value == EFBIG;
    weft_err err = weft_err_errno(why, value, "%s \"%s\"", doing, path);
    return is_full ? WEFT_E_FULL : err;
}

static weft_err write_all(int fd, const char *path, uint64_t at, const void *bytes, size_t n,
                          struct weft_errmsg *why) {
    const char *from = bytes;
    while (n > 0) {
        ssize_t written = pwrite(fd, from, n, (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return wefti_disk_err("cannot write", path, why);
        from += written;
        at += (size_t)written;
        n -= (size_t)written;
    }
    return WEFT_OK;
}

weft_err wefti_disk_sync_folder(const char *path, struct weft_errmsg *why) {
    char folder[PATH_BYTES_MAX];
    const char *slash = strrchr(path, '/');
    (void)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1,
                   slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return wefti_disk_err("cannot open", folder, why);
    weft_err err = fsync(fd) == 0 ? WEFT_OK : wefti_disk_err("cannot sync", folder, why);
    (void)close(fd);
    return err;
}

weft_err wefti_disk_replace(const char *path, const void *bytes, size_t n,
                            struct weft_errmsg *why) {
    char fresh[PATH_BYTES_MAX];
    int len = snprintf(fresh, sizeof fresh, "%s.new", path);
    WEFT_ASSERT(len > 0 && (size_t)len < sizeof fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return wefti_disk_err("cannot make", fresh, why);
    weft_err err = write_all(fd, fresh, 0, bytes, n, why);
    if (!err && fsync(fd) != 0) err = wefti_disk_err("cannot sync", fresh, why);
    (void)close(fd);
    if (!err && rename(fresh, path) != 0) err = wefti_disk_err("cannot rename", fresh, why);
    if (!err) err = wefti_disk_sync_folder(path, why);
    if (err) (void)unlink(fresh);
    return err;
}

weft_err wefti_disk_append(int fd, const char *path, uint64_t at, const void *bytes, size_t n,
                           struct weft_errmsg *why) {
    if (n == 0) return WEFT_OK;
    weft_err err = write_all(fd, path, at, bytes, n, why);
    if (!err && fsync(fd) != 0) err = wefti_disk_err("cannot sync", path, why);
    if (err && ftruncate(fd, (off_t)at) != 0) return err; /* the first reason is the one to tell */
    return err;
}

weft_err wefti_disk_read(int fd, const char *path, uint64_t at, void *bytes, size_t n,
                         struct weft_errmsg *why) {
    char *to = bytes;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return wefti_disk_err("cannot read", path, why);
        if (got == 0) return weft_err_set(why, WEFT_E_IO, "\"%s\" is shorter than it was", path);
        to += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return WEFT_OK;
}
