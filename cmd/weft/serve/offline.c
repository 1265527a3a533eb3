#include "offline.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

#define COPY_BYTES 65536
#define SAY_MS 1000 /* not more often, and once for each percent */
/* Whoever had the output may have been killed just now, and its router with it, but not yet. */
#define LOCK_TRIES 20
#define LOCK_WAIT_US 100000

/* ---------------------------------------------------------------------------------------- files --- */

static weft_err open_nameless(int *fd_out, struct weft_errmsg *why) {
    char path[PATH_MAX];
    const char *dir = getenv("TMPDIR");
    if (!dir || !*dir) dir = "/var/tmp"; /* a disk, where /tmp may be memory */
    int n = snprintf(path, sizeof path, "%s/weft-batch-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_err_set(why, WEFT_E_IO, "TMPDIR is longer than a path may be");
    *fd_out = mkostemp(path, O_CLOEXEC);
    if (*fd_out < 0) return weft_err_errno(why, errno, "cannot make a file in %s", dir);
    (void)unlink(path);
    return WEFT_OK;
}

static weft_err write_all(int fd, const char *bytes, size_t n, struct weft_errmsg *why) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return weft_err_errno(why, errno, "cannot copy --batch to a file in TMPDIR");
        bytes += done;
        n -= (size_t)done;
    }
    return WEFT_OK;
}

/* All that comes from `from`, which is closed, becomes a file. */
static weft_err copy(int from, int *fd_out, struct weft_errmsg *why) {
    char *bytes = malloc(COPY_BYTES);
    weft_err err = bytes ? open_nameless(fd_out, why) : WEFT_E_NOMEM;
    for (ssize_t n = 1; !err && n > 0;) {
        n = read(from, bytes, COPY_BYTES);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            err = weft_err_errno(why, errno, "cannot read --batch");
        else
            err = write_all(*fd_out, bytes, (size_t)n, why);
    }
    (void)close(from);
    free(bytes);
    return err;
}

static weft_err open_input(const char *path, int *fd_out, struct weft_errmsg *why) {
    struct stat st;
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return weft_err_errno(why, errno, "--batch: cannot open \"%s\"", path);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        (void)close(fd);
        return weft_err_set(why, WEFT_E_IO, "--batch: \"%s\" is a folder", path);
    }
    if (is_stdin || !S_ISREG(st.st_mode)) return copy(fd, fd_out, why);
    *fd_out = fd;
    return WEFT_OK;
}

/* The folder's entry lasts, as the file's bytes do. A folder that cannot be synced is nothing to end for. */
static void sync_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1,
                   slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

static weft_err lock(int fd, const char *path, struct weft_errmsg *why) {
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK)
            return weft_err_errno(why, errno, "--output: cannot lock \"%s\"", path);
        if (i == LOCK_TRIES)
            return weft_err_set(why, WEFT_E_AGAIN,
                                "--output: another weft run is writing to \"%s\"", path);
        (void)usleep(LOCK_WAIT_US);
    }
    return WEFT_OK;
}

static weft_err open_output(const char *path, int *fd_out, struct weft_errmsg *why) {
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return weft_err_errno(why, errno, "--output: cannot write \"%s\"", path);
    *fd_out = fd;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return weft_err_set(
            why, WEFT_E_INVAL,
            "--output: \"%s\" is no regular file; without it answers go to standard "
            "output",
            path);
    weft_err err = lock(fd, path, why);
    if (!err) sync_folder(path);
    return err;
}

weft_err weft_offline_open(struct weft_offline *offline, struct weft_config *config,
                           struct weft_errmsg *why) {
    WEFT_ASSERT(config->batch_file && config->batch_fd < 0 && config->answers_fd < 0);
    *offline = (struct weft_offline){.is_on = true, .is_shown = !config->batch_output};
    weft_err err = open_input(config->batch_file, &config->batch_fd, why);
    if (err) return err;
    return config->batch_output ? open_output(config->batch_output, &config->answers_fd, why)
                                : open_nameless(&config->answers_fd, why);
}

/* -------------------------------------------------------------------------------------- progress --- */

static void say(struct weft_offline *o, uint64_t now_ms) {
    uint32_t percent = o->n_total ? (uint32_t)((uint64_t)o->n_done * 100 / o->n_total) : 100;
    if (o->said_ms && (now_ms < o->said_ms + SAY_MS || percent == o->said_percent)) return;
    o->said_ms = now_ms;
    o->said_percent = percent;
    weft_say(WEFT_LOG_INFO, "%u of %u lines have their answers, %u of them errors", o->n_done,
             o->n_total, o->n_failed);
}

void weft_offline_take(struct weft_offline *o, const char *text, uint64_t now_ms) {
    uint32_t n_done, n_failed, n_total;
    uint64_t n_bytes;
    if (sscanf(text, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64, &n_done, &n_failed, &n_total,
               &n_bytes) != 4)
        return;
    o->is_known = true;
    o->n_done = n_done;
    o->n_failed = n_failed;
    o->n_total = n_total;
    if (n_bytes > o->n_bytes) o->n_bytes = n_bytes;
    say(o, now_ms);
}

/* So many bytes go to a pipe at once, or none. */
static bool has_room(int fd) {
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    return poll(&room, 1, 0) > 0;
}

weft_err weft_offline_show(struct weft_offline *o, int answers_fd, struct weft_errmsg *why) {
    char bytes[PIPE_BUF];
    while (weft_offline_lags(o) && has_room(STDOUT_FILENO)) {
        uint64_t left = o->n_bytes - o->n_shown;
        ssize_t n =
            pread(answers_fd, bytes, left < sizeof bytes ? left : sizeof bytes, (off_t)o->n_shown);
        if (n <= 0) return weft_err_set(why, WEFT_E_IO, "the answers cannot be read again");
        n = write(STDOUT_FILENO, bytes, (size_t)n);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return weft_err_errno(why, errno, "cannot write the answers");
        o->n_shown += (uint64_t)n;
    }
    return WEFT_OK;
}

bool weft_offline_lags(const struct weft_offline *o) {
    return o->is_shown && o->n_shown < o->n_bytes;
}

bool weft_offline_is_over(const struct weft_offline *o) {
    return o->is_known && o->n_done == o->n_total && !weft_offline_lags(o);
}
