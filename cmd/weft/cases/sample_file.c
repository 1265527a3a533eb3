#include "sample_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"

#define FILE_BYTES_MAX (256u << 20)
#define LENGTH_BYTES 8 /* a safetensors file begins with its header's */

static weft_err read_json(const char *path, json_t **out, struct weft_errmsg *why) {
    char *text = NULL;
    size_t len = 0;
    json_error_t where;
    weft_err err = weft_file_read(path, WEFT_FILE_ANY, FILE_BYTES_MAX, &text, &len, why);
    if (!err) *out = json_loadb(text, len, 0, &where);
    if (!err && !*out)
        err = weft_err_set(why, WEFT_E_INVAL, "%s is not JSON: %s at line %d", path, where.text,
                           where.line);
    free(text);
    return err;
}

/* "dir/name.safetensors" of "dir/name.json". NULL: no memory. */
static char *vectors_path(const char *path) {
    size_t len = strlen(path);
    char *beside = NULL;
    if (len > 5 && strcmp(path + len - 5, ".json") == 0) len -= 5;
    if (asprintf(&beside, "%.*s.safetensors", (int)len, path) < 0) return NULL;
    return beside;
}

static weft_err read_vectors(const char *path, struct weft_sample_file *file,
                             struct weft_errmsg *why) {
    uint64_t n_header = 0;
    weft_err err =
        weft_file_read(path, WEFT_FILE_ANY, FILE_BYTES_MAX, &file->bytes, &file->n_bytes, why);
    if (err) return err;
    if (file->n_bytes >= LENGTH_BYTES) memcpy(&n_header, file->bytes, LENGTH_BYTES);
    if (n_header == 0 || n_header > file->n_bytes - LENGTH_BYTES)
        return weft_err_set(why, WEFT_E_INVAL, "%s is no safetensors file", path);
    file->data_at = LENGTH_BYTES + (size_t)n_header;
    file->header = json_loadb(file->bytes + LENGTH_BYTES, (size_t)n_header, 0, NULL);
    if (!json_is_object(file->header))
        return weft_err_set(why, WEFT_E_INVAL, "%s has no header", path);
    return WEFT_OK;
}

weft_err weft_sample_file_open(const char *path, struct weft_sample_file *file,
                               struct weft_errmsg *why) {
    *file = (struct weft_sample_file){.bytes = NULL};
    char *beside = vectors_path(path);
    if (!beside) return weft_err_set(why, WEFT_E_NOMEM, "no memory");
    weft_err err = read_json(path, &file->cases, why);
    if (!err) err = read_vectors(beside, file, why);
    free(beside);
    return err;
}

void weft_sample_file_close(struct weft_sample_file *file) {
    json_decref(file->cases);
    json_decref(file->header);
    free(file->bytes);
}

static size_t size_at(const json_t *list, size_t i) {
    json_int_t n = json_integer_value(json_array_get(list, i));
    return n > 0 ? (size_t)n : 0;
}

/* Whether an array of that shape, with at least one value, has so many bytes. */
static bool is_size_of(const struct weft_sample_array *array, size_t n_bytes) {
    size_t n_values = n_bytes / sizeof(float);
    if (n_bytes % sizeof(float) != 0 || array->n_rows == 0 || array->n_cols == 0) return false;
    return array->n_rows <= n_values && array->n_cols == n_values / array->n_rows &&
           n_values % array->n_rows == 0;
}

weft_err weft_sample_file_find(const struct weft_sample_file *file, const char *name,
                               struct weft_sample_array *out, struct weft_errmsg *why) {
    const json_t *entry = json_object_get(file->header, name);
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    size_t n_dims = json_array_size(shape), begin = size_at(offsets, 0), end = size_at(offsets, 1);
    size_t n_data = file->n_bytes - file->data_at;
    *out = (struct weft_sample_array){.n_rows = n_dims == 2 ? size_at(shape, 0) : 1,
                                      .n_cols = size_at(shape, n_dims == 2)};
    if (!type || strcmp(type, "F32") != 0 || n_dims == 0 || n_dims > 2)
        return weft_err_set(why, WEFT_E_INVAL, "there is no F32 vector or matrix \"%s\"", name);
    if (begin > end || end > n_data || !is_size_of(out, end - begin) ||
        (file->data_at + begin) % sizeof(float) != 0)
        return weft_err_set(why, WEFT_E_INVAL, "\"%s\" is not where its shape and offsets say",
                            name);
    out->values = (const float *)(const void *)(file->bytes + file->data_at + begin);
    return WEFT_OK;
}
