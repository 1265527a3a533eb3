/* A whole Hugging Face folder. */
#include "hf.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "params.h"
#include "roles.h"

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static bool has_config(const char *dir) {
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/config.json", dir);
    return len > 0 && (size_t)len < sizeof path && access(path, F_OK) == 0;
}

struct found {
    bool has_bin, has_safetensors;
    char gguf[NAME_MAX + 1];  /* the first by name; "": none */
    char inner[NAME_MAX + 1]; /* the same of folders that are models' */
};

static void keep_first(char first[NAME_MAX + 1], const char *name) {
    if (*first && strcmp(first, name) <= 0) return;
    (void)snprintf(first, NAME_MAX + 1, "%s", name);
}

static void look_around(const char *dir, struct found *found) {
    *found = (struct found){.has_bin = false};
    DIR *handle = opendir(dir);
    if (!handle) return;
    for (struct dirent *entry; (entry = readdir(handle));) {
        const char *name = entry->d_name;
        char path[PATH_MAX];
        if (ends_with(name, ".gguf")) keep_first(found->gguf, name);
        found->has_bin |= strncmp(name, "pytorch_model", 13) == 0;
        found->has_safetensors |= ends_with(name, ".safetensors");
        int len = snprintf(path, sizeof path, "%s/%s", dir, name);
        if (name[0] != '.' && len > 0 && (size_t)len < sizeof path && has_config(path))
            keep_first(found->inner, name);
    }
    (void)closedir(handle);
}

void wefti_model_folder_hint(const char *dir, char hint[WEFTI_MODEL_HINT_BYTES]) {
    struct found found;
    look_around(dir, &found);
    hint[0] = '\0';
    if (found.gguf[0])
        (void)snprintf(hint, WEFTI_MODEL_HINT_BYTES, "; to serve a GGUF file, name the file: %s/%s",
                       dir, found.gguf);
    else if (found.has_bin && !found.has_safetensors)
        (void)snprintf(hint, WEFTI_MODEL_HINT_BYTES,
                       "; weights in .bin files are not read, only safetensors");
    else if (found.inner[0])
        (void)snprintf(hint, WEFTI_MODEL_HINT_BYTES, "; %s/%s is one", dir, found.inner);
}

weft_err weft_model_check_folder(const char *dir, struct weft_errmsg *why) {
    char hint[WEFTI_MODEL_HINT_BYTES];
    if (has_config(dir)) return WEFT_OK;
    wefti_model_folder_hint(dir, hint);
    return weft_err_set(why, WEFT_E_NOTFOUND, "%s is not a model folder: no config.json%s", dir,
                        hint);
}

static weft_err read_config(weft_model *model, const char *dir, struct weft_errmsg *why) {
    char *path = NULL;
    weft_err missing = weft_model_check_folder(dir, why);
    if (missing) return missing;
    if (asprintf(&path, "%s/config.json", dir) < 0) {
        return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
    }
    struct wefti_model_file file;
    weft_err err = wefti_model_file_map(path, WEFTI_MODEL_CONFIG_BYTES_MAX, &file, why);
    free(path);
    if (err) return err;
    err = wefti_model_config_hf(&file, &model->params, why);
    wefti_model_file_close(&file);
    return err;
}

/* After a tensor did not fit: what config.json leaves out may be why. */
static void name_missing(const weft_model *model, const char *dir, struct weft_errmsg *why) {
    char hint[WEFTI_MODEL_HINT_BYTES], path[PATH_MAX];
    struct wefti_model_file file;
    struct weft_errmsg other;
    int len = snprintf(path, sizeof path, "%s/config.json", dir);
    if (!why || len <= 0 || (size_t)len >= sizeof path ||
        wefti_model_file_map(path, WEFTI_MODEL_CONFIG_BYTES_MAX, &file, &other))
        return;
    wefti_model_config_missing(&file, model->params.moe.n_experts > 0, hint);
    wefti_model_file_close(&file);
    size_t at = strlen(why->text);
    if (at + strlen(hint) < sizeof why->text) memcpy(why->text + at, hint, strlen(hint) + 1);
}

/* With the names that everything after this knows. */
static weft_err read_tensors(weft_model *model, const char *dir, struct weft_errmsg *why) {
    weft_err err = wefti_model_safetensors_folder(model, dir, why);
    if (err) return err;
    if (model->params.wrapped) wefti_model_unwrap(model);
    err = wefti_model_has_encoder_roles(&model->params) ? wefti_model_clean_encoder(model, dir, why)
                                                        : wefti_model_add_prefix(model, dir, why);
    if (!err) err = wefti_model_rename(model, WEFT_MODEL_HF, dir, why);
    if (!err) err = wefti_model_join(model, dir, why);
    return err ? err : wefti_model_split(model, WEFT_MODEL_HF, dir, why);
}

weft_err wefti_model_from_folder(const char *dir, bool may_be_bare, weft_model **model_out,
                                 struct weft_errmsg *why) {
    struct found found = {.has_safetensors = true};
    weft_err err;
    weft_model *model = wefti_model_new();
    if (!model) {
        err = weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
        goto cleanup;
    }
    err = read_config(model, dir, why);
    if (err) goto cleanup;
    wefti_model_name_from_path(&model->params, dir, "");
    if (may_be_bare) look_around(dir, &found);
    model->is_bare = !found.has_safetensors;
    err = model->is_bare ? wefti_model_shapes(model, dir, why) : read_tensors(model, dir, why);
    if (err) goto cleanup;
    err = wefti_model_index(model, dir, why);
    if (err) goto cleanup;
    err = wefti_model_resolve(model, WEFT_MODEL_HF, dir, why);
    if (err && err != WEFT_E_NOMEM) name_missing(model, dir, why);
    if (err) goto cleanup;
    *model_out = model;
    model = NULL;
cleanup:
    weft_model_free(model);
    return err;
}
