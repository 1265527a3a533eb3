/* A .safetensors file is a 64-bit header length, a JSON object {name: {dtype, shape, data_offsets}}
 * and the data. The offsets are redundant (they must tile the data section), which is what makes
 * the format checkable: a file either adds up exactly or is refused. */
#include "hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cursor.h"

struct source {
    const char *path;
    bool quantised; /* types of quantised weights are read, too */
    struct weft_errmsg *why;
};

static weft_err malformed(const struct source *src, const char *name, const char *fault) {
    struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
    return weft_err_set(src->why, WEFT_E_PROTO, "%s: tensor '%s' %s", src->path, shown.text, fault);
}

static weft_err parse_dtype(const json_t *value, const char *name, const struct source *src,
                            enum weft_dtype *dtype_out) {
    static const enum weft_dtype known[] = {WEFT_DT_F32, WEFT_DT_F16, WEFT_DT_BF16, WEFT_DT_F8_E4M3,
                                            WEFT_DT_I32, WEFT_DT_U8,  WEFT_DT_I8,   WEFT_DT_I64};
    const size_t n_plain = 3, n_known = sizeof known / sizeof known[0];
    const char *text = json_string_value(value);
    if (!text) return malformed(src, name, "has no dtype");
    for (size_t i = 0; i < (src->quantised ? n_known : n_plain); i++) {
        if (strcmp(text, weft_dtypes[known[i]].id) != 0) continue;
        *dtype_out = known[i];
        return WEFT_OK;
    }
    struct wefti_model_shown shown_name = wefti_model_show(name, strlen(name));
    struct wefti_model_shown shown_type = wefti_model_show(text, strlen(text));
    return weft_err_set(src->why, WEFT_E_UNSUPPORTED,
                        "%s: tensor '%s' has type '%s', which is not supported (F32, F16 and BF16 "
                        "are)",
                        src->path, shown_name.text, shown_type.text);
}

static bool as_u64(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static weft_err parse_shape(const json_t *shape, const char *name, const struct source *src,
                            struct weft_tensor *tensor) {
    if (!json_is_array(shape)) return malformed(src, name, "has no shape");
    if (json_array_size(shape) > 4) return malformed(src, name, "has more than 4 dimensions");
    tensor->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (!as_u64(json_array_get(shape, i), &tensor->dims[i])) {
            return malformed(src, name, "has a dimension that is not a whole number");
        }
    }
    if (!wefti_model_tensor_bytes(tensor, &tensor->bytes)) {
        return malformed(src, name, "has a shape whose size overflows");
    }
    return WEFT_OK;
}

static weft_err parse_place(const json_t *offsets, const char *name, const struct source *src,
                            const unsigned char *data, size_t data_bytes,
                            struct weft_tensor *tensor) {
    uint64_t begin = 0, end = 0;
    if (json_array_size(offsets) != 2 || !as_u64(json_array_get(offsets, 0), &begin) ||
        !as_u64(json_array_get(offsets, 1), &end)) {
        return malformed(src, name, "has no pair of data_offsets");
    }
    struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
    if (begin > end || end > data_bytes) {
        return weft_err_set(src->why, WEFT_E_PROTO,
                            "%s: tensor '%s' spans bytes %" PRIu64 " to %" PRIu64
                            ", but the data section has %zu",
                            src->path, shown.text, begin, end, data_bytes);
    }
    if (end - begin != tensor->bytes) {
        return weft_err_set(src->why, WEFT_E_PROTO,
                            "%s: tensor '%s' spans %" PRIu64 " bytes, but its shape and type need "
                            "%zu",
                            src->path, shown.text, end - begin, tensor->bytes);
    }
    WEFT_ASSERT(tensor->bytes <= data_bytes - begin);
    tensor->data = data + begin;
    return WEFT_OK;
}

static weft_err add_entry(weft_model *model, const char *name, json_t *entry,
                          const struct source *src, const unsigned char *data, size_t data_bytes) {
    struct weft_tensor tensor = {0};
    if (!json_is_object(entry)) return malformed(src, name, "is not described by an object");
    weft_err err = parse_dtype(json_object_get(entry, "dtype"), name, src, &tensor.dtype);
    if (err) return err;
    err = parse_shape(json_object_get(entry, "shape"), name, src, &tensor);
    if (err) return err;
    err = parse_place(json_object_get(entry, "data_offsets"), name, src, data, data_bytes, &tensor);
    if (err) return err;
    return wefti_model_add_tensor(model, src->path, name, strlen(name), &tensor, src->why);
}

static weft_err check_metadata(json_t *metadata, const struct source *src) {
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) {
        good = good && json_is_string(value);
    }
    if (good) return WEFT_OK;
    return weft_err_set(src->why, WEFT_E_PROTO, "%s: __metadata__ is not a map of strings",
                        src->path);
}

static weft_err read_header(weft_model *model, json_t *header, const struct source *src,
                            const unsigned char *data, size_t data_bytes) {
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry) {
        weft_err err = strcmp(name, "__metadata__") == 0
                           ? check_metadata(entry, src)
                           : add_entry(model, name, entry, src, data, data_bytes);
        if (err) return err;
    }
    return WEFT_OK;
}

weft_err wefti_model_safetensors_read(weft_model *model, const struct wefti_model_file *file,
                                      struct weft_errmsg *why) {
    const bool quantised = model->params.quant.method != WEFT_QUANT_NONE;
    const struct source src = {file->path, quantised, why};
    uint64_t header_bytes;
    if (file->n_bytes < sizeof header_bytes) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: %zu bytes are too few for a safetensors header",
                            file->path, file->n_bytes);
    }
    memcpy(&header_bytes, file->bytes, sizeof header_bytes);
    size_t rest = file->n_bytes - sizeof header_bytes;
    if (header_bytes > rest) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the header claims %" PRIu64 " bytes and only %zu follow: the file "
                            "is truncated or not safetensors",
                            file->path, header_bytes, rest);
    }
    if (header_bytes > WEFTI_MODEL_SAFETENSORS_HEADER_BYTES_MAX) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the header has %" PRIu64 " bytes; the limit is %u", file->path,
                            header_bytes, WEFTI_MODEL_SAFETENSORS_HEADER_BYTES_MAX);
    }
    const char *text = (const char *)file->bytes + sizeof header_bytes;
    if (header_bytes == 0 || text[0] != '{') {
        return weft_err_set(why, WEFT_E_PROTO, "%s: the safetensors header is not a JSON object",
                            file->path);
    }
    json_t *header;
    weft_err err =
        wefti_model_json_parse(file->path, "the header", (struct weft_str){text, header_bytes},
                               JSON_REJECT_DUPLICATES, &header, why);
    if (err) return err;
    const unsigned char *data = (const unsigned char *)text + header_bytes;
    size_t data_bytes = rest - header_bytes;
    size_t first = model->n_tensors;
    err = read_header(model, header, &src, data, data_bytes);
    json_decref(header);
    if (err) return err;
    return wefti_model_check_layout(model, file->path, first,
                                    &(struct wefti_model_region){data, data_bytes, true}, why);
}

/* ---------------------------------------------------------------------------------- shards --- */

static weft_err read_file_at(weft_model *model, const char *dir, const char *name,
                             struct weft_errmsg *why) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
    }
    struct wefti_model_file file;
    weft_err err = wefti_model_file_map(path, UINT64_MAX, &file, why);
    free(path);
    if (err) return err;
    err = wefti_model_add_file(model, &file);
    if (err) return weft_err_set(why, err, "out of memory while opening %s", dir);
    return wefti_model_safetensors_read(model, &model->files[model->n_files - 1], why);
}

/* The index is untrusted, too: a shard is a plain name in the same folder. */
static bool is_shard_name(const char *name) {
    static const char suffix[] = ".safetensors";
    size_t len = name ? strlen(name) : 0;
    return len > sizeof suffix - 1 && len <= 255 && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + len - (sizeof suffix - 1), suffix) == 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct shard names of the map, sorted; the array is the caller's, the names the map's. */
static weft_err list_shards(json_t *map, const struct source *src, const char ***shards_out,
                            size_t *n_out) {
    weft_err err = weft_err_set(src->why, WEFT_E_NOMEM, "%s: out of memory", src->path);
    const char *tensor, *name;
    json_t *value;
    json_t *seen = json_object();
    const char **shards = NULL;
    size_t n = 0;
    if (!seen) goto cleanup;
    json_object_foreach(map, tensor, value) {
        if (!is_shard_name(json_string_value(value))) {
            err = malformed(src, tensor, "is not mapped to the name of a .safetensors file");
            goto cleanup;
        }
        if (json_object_set(seen, json_string_value(value), value) != 0) goto cleanup;
    }
    if (json_object_size(seen) > WEFTI_MODEL_SHARDS_MAX) {
        err = weft_err_set(src->why, WEFT_E_PROTO, "%s: names %zu files; the limit is %d",
                           src->path, json_object_size(seen), WEFTI_MODEL_SHARDS_MAX);
        goto cleanup;
    }
    shards = calloc(json_object_size(seen) + 1, sizeof *shards);
    if (!shards) goto cleanup;
    json_object_foreach(seen, name, value) {
        shards[n++] = json_string_value(value);
    }
    WEFT_ASSERT(n == json_object_size(seen));
    qsort(shards, n, sizeof *shards, by_text);
    *shards_out = shards;
    *n_out = n;
    shards = NULL;
    err = WEFT_OK;
cleanup:
    free(shards);
    json_decref(seen);
    return err;
}

/* A shard must hold what the index says. */
static weft_err check_shard(const weft_model *model, size_t first, json_t *map, const char *shard,
                            const struct source *src) {
    WEFT_ASSERT(first <= model->n_tensors);
    for (size_t i = first; i < model->n_tensors; i++) {
        const char *name = model->tensors[i].name;
        const char *listed = json_string_value(json_object_get(map, name));
        if (listed && strcmp(listed, shard) == 0) continue;
        struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
        struct wefti_model_shown shown_shard = wefti_model_show(shard, strlen(shard));
        return weft_err_set(src->why, WEFT_E_PROTO, "%s: tensor '%s' is in %s, but the index %s",
                            src->path, shown.text, shown_shard.text,
                            listed ? "says another file" : "does not list it");
    }
    return WEFT_OK;
}

static weft_err check_nothing_missing(weft_model *model, json_t *map, const struct source *src) {
    const char *name;
    json_t *value;
    weft_err err = wefti_model_index(model, src->path, src->why);
    if (err) return err;
    json_object_foreach(map, name, value) {
        if (!weft_model_find(model, name)) {
            return malformed(src, name, "is listed in the index, but in no file");
        }
    }
    return WEFT_OK;
}

static weft_err read_shards(weft_model *model, const char *dir,
                            const struct wefti_model_file *index, struct weft_errmsg *why) {
    const struct source src = {index->path, false, why};
    const char **shards = NULL;
    size_t n_shards = 0;
    json_t *root;
    weft_err err = wefti_model_json_parse(
        index->path, "the index", (struct weft_str){(const char *)index->bytes, index->n_bytes},
        JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &root, why);
    if (err) return err;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s: has no weight_map", index->path);
        goto cleanup;
    }
    err = list_shards(map, &src, &shards, &n_shards);
    if (err) goto cleanup;
    for (size_t i = 0; i < n_shards; i++) {
        size_t first = model->n_tensors;
        err = read_file_at(model, dir, shards[i], why);
        if (err) goto cleanup;
        err = check_shard(model, first, map, shards[i], &src);
        if (err) goto cleanup;
    }
    err = check_nothing_missing(model, map, &src);
cleanup:
    free(shards);
    json_decref(root);
    return err;
}

weft_err wefti_model_safetensors_folder(weft_model *model, const char *dir,
                                        struct weft_errmsg *why) {
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, single) < 0) {
        return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
    }
    bool has_single = access(path, F_OK) == 0;
    free(path);
    if (has_single) return read_file_at(model, dir, single, why);

    struct wefti_model_file file;
    if (asprintf(&path, "%s/%s", dir, index) < 0) {
        return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
    }
    weft_err err = wefti_model_file_map(path, WEFTI_MODEL_INDEX_BYTES_MAX, &file, why);
    free(path);
    if (err == WEFT_E_NOTFOUND) {
        char hint[WEFTI_MODEL_HINT_BYTES];
        wefti_model_folder_hint(dir, hint);
        return weft_err_set(why, err, "%s: has neither %s nor %s%s", dir, single, index, hint);
    }
    if (err) return err;
    err = read_shards(model, dir, &file, why);
    wefti_model_file_close(&file);
    return err;
}
