/* What a path names. Content decides, not the name: a GGUF file in a content-addressed store is
 * called by its hash.
 */
#include "model/model_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_err set_place(enum weft_model_format format, const char *path, size_t len,
                          struct weft_model_place *out, struct weft_errmsg *why) {
    char *copy = strndup(path, len);
    if (!copy) return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", path);
    *out = (struct weft_model_place){format, copy};
    return WEFT_OK;
}

/* The folder is path[len], with or without slashes at its end. */
static weft_err place_folder(const char *path, size_t len, struct weft_model_place *out,
                             struct weft_errmsg *why) {
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    return set_place(WEFT_MODEL_HF, path, len, out, why);
}

static weft_err is_gguf(const char *path, bool *yes_out, struct weft_errmsg *why) {
    int fd;
    char magic[4];
    size_t n_bytes, n_read;
    *yes_out = false;
    weft_err err = wefti_file_open(path, UINT64_MAX, &fd, &n_bytes, why);
    if (err) return err;
    err = wefti_file_fill(fd, path, magic, sizeof magic, &n_read, why);
    *yes_out = !err && n_read == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
    (void)close(fd);
    return err;
}

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

weft_err weft_model_locate(const char *path, struct weft_model_place *place_out,
                           struct weft_errmsg *why) {
    struct stat st;
    bool gguf;
    *place_out = (struct weft_model_place){0};
    if (stat(path, &st) != 0) return weft_err_errno(why, errno, "cannot open %s", path);
    if (S_ISDIR(st.st_mode)) return place_folder(path, strlen(path), place_out, why);
    weft_err err = is_gguf(path, &gguf, why);
    if (err) return err;
    if (gguf) return set_place(WEFT_MODEL_GGUF, path, strlen(path), place_out, why);
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
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: is neither a GGUF file, nor a model's folder or its config.json",
                        path);
}

void weft_model_place_fini(struct weft_model_place *place) {
    free(place->path);
    *place = (struct weft_model_place){0};
}
