#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

#define FIRST_BYTES 65536u /* for files of unknown length */

struct source {
    int fd;
    const char *path; /* for messages */
    size_t bytes_max;
};

weft_err weft_file_open(const char *path, uint64_t bytes_max, int *fd_out, size_t *n_bytes_out,
                        struct weft_errmsg *why) {
    weft_err err;
    struct stat st;
    *fd_out = -1;
    *n_bytes_out = 0;
    /* Without O_NONBLOCK, opening a FIFO that nobody writes would hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return weft_err_errno(why, errno, "cannot open %s", path);
    if (fstat(fd, &st) != 0) {
        err = weft_err_errno(why, errno, "cannot stat %s", path);
        goto cleanup;
    }
    if (!S_ISREG(st.st_mode)) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s: is not a regular file", path);
        goto cleanup;
    }
    if ((uint64_t)st.st_size > bytes_max) {
        err = weft_err_set(why, WEFT_E_TOOBIG,
                           "%s: the file has %" PRIu64 " bytes; the limit is %" PRIu64, path,
                           (uint64_t)st.st_size, bytes_max);
        goto cleanup;
    }
    *fd_out = fd;
    *n_bytes_out = (size_t)st.st_size;
    return WEFT_OK;
cleanup:
    (void)close(fd);
    return err;
}

weft_err weft_file_fill(int fd, const char *path, void *bytes, size_t n_bytes, size_t *n_read_out,
                        struct weft_errmsg *why) {
    WEFT_ASSERT(bytes || n_bytes == 0);
    size_t have = 0;
    *n_read_out = 0;
    while (have < n_bytes) {
        ssize_t n = read(fd, (char *)bytes + have, n_bytes - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return weft_err_errno(why, errno, "cannot read %s", path);
        if (n == 0) break;
        have += (size_t)n;
    }
    *n_read_out = have;
    return WEFT_OK;
}

weft_err weft_file_check_lfs(const char *path, const void *bytes, size_t n_bytes,
                             struct weft_errmsg *why) {
    static const char first_line[] = "version https://git-lfs.github.com/spec/v1";
    _Static_assert(sizeof first_line - 1 == WEFT_FILE_LFS_BYTES, "enough to tell");
    if (n_bytes < WEFT_FILE_LFS_BYTES || memcmp(bytes, first_line, WEFT_FILE_LFS_BYTES) != 0)
        return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: is a Git LFS pointer, not the file itself: \"git lfs pull\" in its "
                        "folder fetches that",
                        path);
}

/* `guess` bytes are expected. Each read asks for one more, which shows the end of the file and
 * leaves room for the terminator. */
static weft_err read_all(const struct source *from, size_t guess, char **text_out, size_t *len_out,
                         struct weft_errmsg *why) {
    weft_err err;
    size_t room = guess, have = 0, n, bytes_max = from->bytes_max;
    char *text = NULL;
    for (;;) {
        WEFT_ASSERT(room <= bytes_max);
        char *grown = realloc(text, room + 1);
        if (!grown) {
            err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for its %zu bytes", from->path,
                               room);
            goto cleanup;
        }
        text = grown;
        err = weft_file_fill(from->fd, from->path, text + have, room + 1 - have, &n, why);
        if (err) goto cleanup;
        have += n;
        if (have <= room) break;
        if (room == bytes_max) {
            err = weft_err_set(why, WEFT_E_TOOBIG, "%s: the file has over %zu bytes", from->path,
                               bytes_max);
            goto cleanup;
        }
        room = room > bytes_max / 2 ? bytes_max : 2 * room;
        if (room < FIRST_BYTES) room = FIRST_BYTES < bytes_max ? FIRST_BYTES : bytes_max;
    }
    text[have] = 0;
    *text_out = text;
    *len_out = have;
    return WEFT_OK;
cleanup:
    free(text);
    return err;
}

weft_err weft_file_read(const char *path, enum weft_file_kind kind, size_t bytes_max,
                        char **text_out, size_t *len_out, struct weft_errmsg *why) {
    int fd;
    size_t guess = FIRST_BYTES;
    WEFT_ASSERT(bytes_max < SIZE_MAX);
    *text_out = NULL;
    *len_out = 0;
    if (kind == WEFT_FILE_REGULAR) {
        weft_err err = weft_file_open(path, bytes_max, &fd, &guess, why);
        if (err) return err;
    } else {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0) return weft_err_errno(why, errno, "cannot open %s", path);
    }
    struct source from = {fd, path, bytes_max};
    weft_err err = read_all(&from, guess < bytes_max ? guess : bytes_max, text_out, len_out, why);
    (void)close(fd);
    if (err || kind != WEFT_FILE_REGULAR) return err;
    err = weft_file_check_lfs(path, *text_out, *len_out, why);
    if (!err) return WEFT_OK;
    free(*text_out);
    *text_out = NULL;
    *len_out = 0;
    return err;
}

int weft_file_open_temp(char *path) {
    mode_t mask = umask(0);
    (void)umask(mask);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) (void)fchmod(fd, 0666 & ~mask);
    return fd;
}

weft_err weft_file_fresh_open(const char *path, struct weft_file_fresh *fresh,
                              struct weft_errmsg *why) {
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    bool is_written_itself = is_there && !S_ISREG(st.st_mode);
    *fresh = (struct weft_file_fresh){0};
    fresh->path = strdup(path);
    if (!fresh->path ||
        (!is_written_itself && asprintf(&fresh->fresh_path, "%s.XXXXXX", path) < 0)) {
        fresh->fresh_path = NULL;
        weft_file_fresh_drop(fresh);
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    }
    int fd = is_written_itself ? open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY)
                               : weft_file_open_temp(fresh->fresh_path);
    if (fd >= 0) fresh->out = fdopen(fd, "w");
    if (fresh->out) return WEFT_OK;
    weft_err err = weft_err_errno(why, errno, "cannot write %s", path);
    if (fd >= 0) {
        (void)close(fd);
    } else { /* there is nothing to remove */
        free(fresh->fresh_path);
        fresh->fresh_path = NULL;
    }
    weft_file_fresh_drop(fresh);
    return err;
}

weft_err weft_file_fresh_keep(struct weft_file_fresh *fresh, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    errno = 0;
    bool failed = ferror(fresh->out) != 0;
    if (fclose(fresh->out) != 0 || failed)
        err = weft_err_errno(why, errno ? errno : EIO, "cannot write %s", fresh->path);
    fresh->out = NULL;
    if (!err && fresh->fresh_path && rename(fresh->fresh_path, fresh->path) != 0)
        err = weft_err_errno(why, errno, "cannot replace %s", fresh->path);
    if (!err) {
        free(fresh->fresh_path);
        fresh->fresh_path = NULL;
    }
    weft_file_fresh_drop(fresh);
    return err;
}

void weft_file_fresh_drop(struct weft_file_fresh *fresh) {
    if (fresh->out) (void)fclose(fresh->out);
    if (fresh->fresh_path) (void)unlink(fresh->fresh_path);
    free(fresh->fresh_path);
    free(fresh->path);
    *fresh = (struct weft_file_fresh){0};
}
