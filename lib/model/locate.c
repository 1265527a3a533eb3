/* What a path names. Content decides, not the name: in a content-addressed store the name of a GGUF
 * file is its hash. */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "gguf/gguf.h"
#include "packed/packed.h"

static weft_err set_place(enum weft_model_format format, const char *path, size_t len, bool packed,
                          struct weft_model_place *out, struct weft_errmsg *why) {
    WEFT_ASSERT(len > 0);
    WEFT_ASSERT(len <= strlen(path));
    char *copy = strndup(path, len);
    if (!copy) return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", path);
    *out = (struct weft_model_place){format, copy, packed};
    return WEFT_OK;
}

/* The folder is path[len], with or without slashes at its end. */
static weft_err place_folder(const char *path, size_t len, struct weft_model_place *out,
                             struct weft_errmsg *why) {
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    return set_place(WEFT_MODEL_HF, path, len, false, out, why);
}

static weft_err place_gguf(const char *path, struct weft_model_place *out,
                           struct weft_errmsg *why) {
    char *first;
    weft_err err = wefti_model_gguf_first_part(path, &first, why);
    if (err) return err;
    const char *found = first ? first : path;
    err = set_place(WEFT_MODEL_GGUF, found, strlen(found), false, out, why);
    free(first);
    return err;
}

static weft_err read_magic(const char *path, char *magic, size_t magic_bytes, size_t *n_read_out,
                           struct weft_errmsg *why) {
    int fd;
    size_t n_bytes;
    *n_read_out = 0;
    weft_err err = weft_file_open(path, UINT64_MAX, &fd, &n_bytes, why);
    if (err) return err;
    err = weft_file_fill(fd, path, magic, magic_bytes, n_read_out, why);
    (void)close(fd);
    return err;
}

static weft_err place_packed(const char *path, struct weft_model_place *out,
                             struct weft_errmsg *why) {
    struct wefti_model_file file;
    struct wefti_model_packed_view view;
    weft_err err = wefti_model_file_map(path, UINT64_MAX, &file, why);
    if (err) return err;
    err = wefti_model_packed_parse(&file, &view, why);
    if (!err) err = set_place(view.format, path, strlen(path), true, out, why);
    wefti_model_file_close(&file);
    return err;
}

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* A name as a hub has it, "owner/model", is no path of anything. */
static weft_err not_there(const char *path, int errnum, struct weft_errmsg *why) {
    const char *slash = strchr(path, '/');
    bool is_hub_name = errnum == ENOENT && slash && slash != path && slash[1] && path[0] != '.' &&
                       !strchr(slash + 1, '/') && !ends_with(path, ".gguf");
    weft_err err = weft_err_errno(why, errnum, "cannot open %s", path);
    if (!is_hub_name) return err;
    return weft_err_set(why, err,
                        "cannot open %s: there is no such file or folder, and nothing is "
                        "downloaded",
                        path);
}

weft_err weft_model_locate(const char *path, struct weft_model_place *place_out,
                           struct weft_errmsg *why) {
    struct stat st;
    char magic[WEFT_FILE_LFS_BYTES];
    size_t n;
    *place_out = (struct weft_model_place){0};
    if (stat(path, &st) != 0) return not_there(path, errno, why);
    if (S_ISDIR(st.st_mode)) return place_folder(path, strlen(path), place_out, why);
    weft_err err = read_magic(path, magic, sizeof magic, &n, why);
    if (err) return err;
    WEFT_ASSERT(n <= sizeof magic);
    err = weft_file_check_lfs(path, magic, n, why);
    if (err) return err;
    if (n == 0) return weft_err_set(why, WEFT_E_PROTO, "%s: the file is empty", path);
    if (wefti_model_packed_is(magic, n)) return place_packed(path, place_out, why);
    if (n >= 4 && memcmp(magic, "GGUF", 4) == 0) return place_gguf(path, place_out, why);
    const char *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, "config.json") == 0) {
        if (!slash) return place_folder(".", 1, place_out, why);
        return place_folder(path, (size_t)(slash - path) + 1, place_out, why);
    }
    if (ends_with(path, ".safetensors")) {
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: a .safetensors file alone has no hyper-parameters: name its "
                            "folder instead",
                            path);
    }
    return weft_err_set(
        why, WEFT_E_PROTO,
        "%s: is neither a GGUF or packed file, nor a model's folder or its config.json", path);
}

void weft_model_place_fini(struct weft_model_place *place) {
    free(place->path);
    *place = (struct weft_model_place){0};
}
