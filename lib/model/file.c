#include "file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"

/* The file itself, or memory for as many bytes. */
static void *map(int fd, enum wefti_model_file_way way, size_t n_bytes) {
    if (way == WEFTI_MODEL_FILE_MAPPED) return mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    return mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static weft_err fill(int fd, const struct wefti_model_file *file, struct weft_errmsg *why) {
    size_t n_read;
    weft_err err = weft_file_fill(fd, file->path, file->map, file->map_bytes, &n_read, why);
    if (err || n_read == file->map_bytes) return err;
    return weft_err_set(why, WEFT_E_PROTO, "%s: the file became shorter while it was read",
                        file->path);
}

/* A copy of a path, for messages: a descriptor's is that of its file, as Linux knows it now (it adds " (deleted)"
 * where another one has taken its name). */
static char *copy_path(const char *path) {
    static const char by_descriptor[] = "/proc/self/fd/";
    char to[PATH_MAX];
    ssize_t n = -1;
    if (!strncmp(path, by_descriptor, sizeof by_descriptor - 1))
        n = readlink(path, to, sizeof to - 1);
    if (n <= 0) return strdup(path);
    to[n] = '\0';
    return strdup(to);
}

weft_err wefti_model_file_open(const char *path, enum wefti_model_file_way way, uint64_t max_bytes,
                               struct wefti_model_file *file_out, struct weft_errmsg *why) {
    int fd;
    size_t n_bytes;
    WEFT_ASSERT(path);
    *file_out = (struct wefti_model_file){0};
    weft_err err = weft_file_open(path, max_bytes, &fd, &n_bytes, why);
    if (err) return err;
    char *path_copy = copy_path(path);
    if (!path_copy) {
        err = weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", path);
        goto cleanup;
    }
    if (n_bytes == 0) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s: the file is empty", path_copy);
        free(path_copy);
        goto cleanup;
    }
    void *bytes = map(fd, way, n_bytes);
    if (bytes == MAP_FAILED) {
        err = weft_err_errno(why, errno, "cannot map %s", path_copy);
        free(path_copy);
        goto cleanup;
    }
    *file_out = (struct wefti_model_file){path_copy, bytes,   n_bytes,
                                          bytes,     n_bytes, way == WEFTI_MODEL_FILE_MAPPED};
    if (way == WEFTI_MODEL_FILE_COPIED) err = fill(fd, file_out, why);
    if (!err) err = weft_file_check_lfs(path_copy, bytes, n_bytes, why);
    if (err) wefti_model_file_close(file_out);
cleanup:
    (void)close(fd);
    return err;
}

weft_err wefti_model_file_map(const char *path, uint64_t max_bytes,
                              struct wefti_model_file *file_out, struct weft_errmsg *why) {
    return wefti_model_file_open(path, WEFTI_MODEL_FILE_MAPPED, max_bytes, file_out, why);
}

weft_err wefti_model_file_borrow(const char *label, const void *bytes, size_t n_bytes,
                                 struct wefti_model_file *file_out, struct weft_errmsg *why) {
    WEFT_ASSERT(bytes || n_bytes == 0);
    *file_out = (struct wefti_model_file){strdup(label), bytes, n_bytes, NULL, 0, false};
    if (!file_out->path) return weft_err_set(why, WEFT_E_NOMEM, "out of memory");
    return WEFT_OK;
}

void wefti_model_file_forget(const struct wefti_model_file *file, const void *data,
                             size_t n_bytes) {
    uintptr_t begin = (uintptr_t)data, map = (uintptr_t)file->map;
    if (!file->is_mapped || begin < map || begin >= map + file->map_bytes) return;
    WEFT_ASSERT(n_bytes <= map + file->map_bytes - begin);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = begin / page * page;
    /* Pages that others read as well are mapped again when they do. */
    (void)madvise((void *)first, begin + n_bytes - first, MADV_DONTNEED);
}

void wefti_model_file_close(struct wefti_model_file *file) {
    if (file->map) {
        WEFT_ASSERT(file->map_bytes >= file->n_bytes); /* a part of it may be all that is read */
        int rc = munmap(file->map, file->map_bytes);
        WEFT_ASSERT(rc == 0);
    }
    free(file->path);
    *file = (struct wefti_model_file){0};
}

weft_err wefti_model_file_put(int fd, const char *path, const void *bytes, size_t n_bytes,
                              uint64_t at, struct weft_errmsg *why) {
    const char *from = bytes;
    WEFT_ASSERT(fd >= 0);
    WEFT_ASSERT(at <= INT64_MAX - n_bytes); /* as an off_t */
    while (n_bytes > 0) {
        ssize_t n = pwrite(fd, from, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return weft_err_errno(why, n < 0 ? errno : EIO, "cannot write %s", path);
        from += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return WEFT_OK;
}

struct wefti_model_shown wefti_model_show(const char *text, size_t len) {
    struct wefti_model_shown shown;
    WEFT_ASSERT(text || len == 0);
    size_t n = len < sizeof shown.text ? len : sizeof shown.text - 1;
    for (size_t i = 0; i < n; i++) {
        shown.text[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    }
    shown.text[n] = 0;
    if (n < len) memcpy(shown.text + n - 3, "...", 3);
    return shown;
}
