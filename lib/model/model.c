#include "parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/utf8.h"
#include "gguf/gguf.h"
#include "hf/hf.h"
#include "packed/packed.h"
#include "params.h"

/* ------------------------------------------------------------------------------ the pieces --- */

weft_model *wefti_model_new(void) {
    return calloc(1, sizeof(weft_model));
}

void weft_model_free(weft_model *model) {
    if (!model) return;
    for (size_t i = 0; i < model->n_tensors; i++) {
        free((void *)(uintptr_t)model->tensors[i].name);
    }
    for (size_t i = 0; i < model->n_files; i++) {
        wefti_model_file_close(&model->files[i]);
    }
    free(model->tensors);
    free(model->by_name);
    free(model->files);
    free(model->layers);
    free(model->experts);
    free(model->rope_freqs);
    free(model->stored);
    free(model->parts);
    wefti_model_free_views(model);
    free(model);
}

void weft_model_forget(const weft_model *model, const void *data, size_t n_bytes) {
    for (size_t i = 0; i < model->n_files && n_bytes > 0; i++)
        wefti_model_file_forget(&model->files[i], data, n_bytes);
}

/* Room for one more in an array that doubles; NULL when out of memory. */
static void *grow(void *items, size_t n, size_t *cap, size_t item_bytes) {
    WEFT_ASSERT(n <= *cap);
    if (n < *cap) return items;
    size_t new_cap = *cap ? 2 * *cap : 16;
    void *grown = realloc(items, new_cap * item_bytes);
    if (grown) *cap = new_cap;
    return grown;
}

weft_err wefti_model_add_file(weft_model *model, struct wefti_model_file *file) {
    WEFT_ASSERT(model->n_files <= WEFTI_MODEL_SHARDS_MAX);
    WEFT_ASSERT(file->path); /* not moved before */
    struct wefti_model_file *files =
        grow(model->files, model->n_files, &model->cap_files, sizeof *files);
    if (!files) {
        wefti_model_file_close(file);
        return WEFT_E_NOMEM;
    }
    model->files = files;
    model->files[model->n_files++] = *file;
    *file = (struct wefti_model_file){0};
    return WEFT_OK;
}

weft_err wefti_model_add_tensor(weft_model *model, const char *path, const char *name, size_t len,
                                const struct weft_tensor *tensor, struct weft_errmsg *why) {
    WEFT_ASSERT(tensor->n_dims <= 4);
    struct wefti_model_shown shown = wefti_model_show(name, len);
    if (len == 0 || len > WEFTI_MODEL_TENSOR_NAME_BYTES_MAX || memchr(name, 0, len) ||
        !weft_utf8_valid(name, len)) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: tensor '%s' has an unfit name: 1 to %d bytes of UTF-8 are allowed",
                            path, shown.text, WEFTI_MODEL_TENSOR_NAME_BYTES_MAX);
    }
    if (model->n_tensors >= WEFT_TENSORS_MAX) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: has more than %u tensors", path,
                            WEFT_TENSORS_MAX);
    }
    char *copy = strndup(name, len);
    struct weft_tensor *tensors =
        grow(model->tensors, model->n_tensors, &model->cap_tensors, sizeof *tensors);
    if (tensors) model->tensors = tensors;
    if (!copy || !tensors) {
        free(copy);
        return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory for the tensor list", path);
    }
    struct weft_tensor *added = &model->tensors[model->n_tensors++];
    *added = *tensor;
    added->name = copy;
    return WEFT_OK;
}

/* An empty tensor may share its place with another one and comes first. */
static int by_place(const void *a, const void *b) {
    const struct weft_tensor *x = a, *y = b;
    uintptr_t at_x = (uintptr_t)x->data, at_y = (uintptr_t)y->data;
    if (at_x != at_y) return at_x < at_y ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

weft_err wefti_model_check_layout(weft_model *model, const char *path, size_t first,
                                  const struct wefti_model_region *region,
                                  struct weft_errmsg *why) {
    WEFT_ASSERT(first <= model->n_tensors);
    size_t n = model->n_tensors - first, covered = 0;
    if (n > 0) qsort(model->tensors + first, n, sizeof *model->tensors, by_place);
    for (size_t i = first; i < model->n_tensors; i++) {
        const struct weft_tensor *tensor = &model->tensors[i];
        size_t at = (size_t)((const unsigned char *)tensor->data - region->data);
        struct wefti_model_shown shown = wefti_model_show(tensor->name, strlen(tensor->name));
        WEFT_ASSERT(at <= region->bytes && tensor->bytes <= region->bytes - at);
        if (at < covered) {
            const char *before = model->tensors[i - 1].name;
            struct wefti_model_shown shown_before = wefti_model_show(before, strlen(before));
            return weft_err_set(why, WEFT_E_PROTO, "%s: tensor '%s' overlaps tensor '%s'", path,
                                shown.text, shown_before.text);
        }
        if (region->is_dense && at > covered) {
            return weft_err_set(why, WEFT_E_PROTO,
                                "%s: %zu bytes before tensor '%s' belong to no tensor", path,
                                at - covered, shown.text);
        }
        covered = at + tensor->bytes;
    }
    if (region->is_dense && covered < region->bytes) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the last %zu bytes of the file belong to no tensor", path,
                            region->bytes - covered);
    }
    return WEFT_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct wefti_model_tensor_ref *)a)->name,
                  ((const struct wefti_model_tensor_ref *)b)->name);
}

weft_err wefti_model_index(weft_model *model, const char *path, struct weft_errmsg *why) {
    free(model->by_name);
    model->by_name = calloc(model->n_tensors + 1, sizeof *model->by_name);
    if (!model->by_name) return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < model->n_tensors; i++) {
        model->by_name[i] =
            (struct wefti_model_tensor_ref){model->tensors[i].name, &model->tensors[i]};
    }
    qsort(model->by_name, model->n_tensors, sizeof *model->by_name, by_name);
    for (size_t i = 1; i < model->n_tensors; i++) {
        const char *name = model->by_name[i].name;
        if (strcmp(model->by_name[i - 1].name, name) != 0) continue;
        struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
        return weft_err_set(why, WEFT_E_PROTO, "%s: tensor '%s' is there twice", path, shown.text);
    }
    return WEFT_OK;
}

/* --------------------------------------------------------------------------------- opening --- */

void wefti_model_name_from_path(struct weft_model_params *params, const char *path,
                                const char *suffix) {
    char *real = realpath(path, NULL); /* "." and "models/x/" have no name of their own */
    const char *text = real ? real : path;
    const char *slash = strrchr(text, '/');
    const char *base = slash && slash[1] ? slash + 1 : text;
    size_t len = strlen(base), suffix_len = strlen(suffix);
    if (len > suffix_len && strcmp(base + len - suffix_len, suffix) == 0) len -= suffix_len;
    wefti_model_params_set_name(params, base, len);
    free(real);
}

static weft_err open_file(const char *path, bool packed, weft_model **model_out,
                          struct weft_errmsg *why) {
    struct wefti_model_file file;
    weft_err err = wefti_model_file_map(path, UINT64_MAX, &file, why);
    if (err) return err;
    return packed ? wefti_model_from_packed(&file, model_out, why)
                  : wefti_model_from_gguf(&file, model_out, why);
}

static weft_err open_model(const char *path, bool may_be_bare, weft_model **model_out,
                           struct weft_errmsg *why) {
    struct weft_model_place place;
    *model_out = NULL;
    weft_err err = weft_model_locate(path, &place, why);
    if (err) return err;
    err = place.packed || place.format == WEFT_MODEL_GGUF
              ? open_file(place.path, place.packed, model_out, why)
              : wefti_model_from_folder(place.path, may_be_bare, model_out, why);
    WEFT_ASSERT(!err == (*model_out != NULL));
    weft_model_place_fini(&place);
    return err;
}

weft_err weft_model_open(const char *path, weft_model **model_out, struct weft_errmsg *why) {
    return open_model(path, false, model_out, why);
}

weft_err weft_model_open_shapes(const char *path, weft_model **model_out, struct weft_errmsg *why) {
    return open_model(path, true, model_out, why);
}

bool weft_model_is_bare(const weft_model *model) {
    return model->is_bare;
}

weft_err weft_model_open_predictor(const char *path, weft_model **model_out,
                                   struct weft_errmsg *why) {
    struct weft_model_place place;
    weft_model *model = NULL;
    *model_out = NULL;
    weft_err err = weft_model_locate(path, &place, why);
    if (err) return err;
    err = weft_model_open(path, &model, why);
    if (!err) err = wefti_model_become_predictor(model, place.format, place.path, why);
    weft_model_place_fini(&place);
    if (err)
        weft_model_free(model);
    else
        *model_out = model;
    return err;
}

/* ------------------------------------------------------------------------------- accessors --- */

const struct weft_model_params *weft_model_params(const weft_model *model) {
    return &model->params;
}

const struct weft_model_layer *weft_model_layers(const weft_model *model) {
    return model->layers;
}

const struct weft_tensor *weft_model_embedding(const weft_model *model) {
    return model->embedding;
}

const struct weft_tensor *weft_model_final_norm(const weft_model *model) {
    return model->final_norm;
}

const struct weft_tensor *weft_model_final_bias(const weft_model *model) {
    return model->final_bias;
}

const struct weft_tensor *weft_model_head(const weft_model *model) {
    return model->head;
}

const struct weft_model_encoder_tensors *weft_model_encoder(const weft_model *model) {
    return &model->encoder;
}

const struct weft_model_input_tensors *weft_model_inputs(const weft_model *model) {
    return &model->inputs;
}

const struct weft_model_predictor_tensors *weft_model_predictor(const weft_model *model) {
    return model->predictor.eh_proj ? &model->predictor : NULL;
}

bool weft_model_has_file(const weft_model *model, const struct stat *st) {
    for (size_t i = 0; i < model->n_files; i++) {
        struct stat mine;
        if (stat(model->files[i].path, &mine) == 0 && mine.st_dev == st->st_dev &&
            mine.st_ino == st->st_ino)
            return true;
    }
    return false;
}

const char *weft_model_file(const weft_model *model, size_t idx) {
    return idx < model->n_files ? model->files[idx].path : NULL;
}

size_t weft_model_n_tensors(const weft_model *model) {
    return model->n_tensors;
}

const struct weft_tensor *weft_model_tensor(const weft_model *model, size_t idx) {
    WEFT_ASSERT(idx < model->n_tensors);
    return &model->tensors[idx];
}

const struct weft_tensor *weft_model_find(const weft_model *model, const char *name) {
    WEFT_ASSERT(model->by_name); /* its index was made */
    const struct wefti_model_tensor_ref wanted = {.name = name};
    const struct wefti_model_tensor_ref *found =
        bsearch(&wanted, model->by_name, model->n_tensors, sizeof *model->by_name, by_name);
    return found ? found->tensor : NULL;
}
