/* A whole Hugging Face folder. */
#include "hf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

const char *wefti_model_folder_hint(const char *dir) {
    bool has_gguf = false, has_bin = false, has_safetensors = false;
    DIR *handle = opendir(dir);
    if (!handle) return "";
    for (struct dirent *entry; (entry = readdir(handle));) {
        has_gguf |= ends_with(entry->d_name, ".gguf");
        has_bin |= strncmp(entry->d_name, "pytorch_model", 13) == 0;
        has_safetensors |= ends_with(entry->d_name, ".safetensors");
    }
    (void)closedir(handle);
    if (has_gguf) return "; to serve a GGUF file, name the file";
    return has_bin && !has_safetensors ? "; weights in .bin files are not read, only safetensors"
                                       : "";
}

static weft_err read_config(weft_model *model, const char *dir, struct weft_errmsg *why) {
    char *path = NULL;
    if (asprintf(&path, "%s/config.json", dir) < 0) {
        return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
    }
    struct wefti_model_file file;
    weft_err err = wefti_model_file_map(path, WEFTI_MODEL_CONFIG_BYTES_MAX, &file, why);
    free(path);
    if (err == WEFT_E_NOTFOUND)
        return weft_err_set(why, err, "%s: has no config.json%s", dir,
                            wefti_model_folder_hint(dir));
    if (err) return err;
    err = wefti_model_config_hf(&file, &model->params, why);
    wefti_model_file_close(&file);
    return err;
}

weft_err wefti_model_from_folder(const char *dir, weft_model **model_out, struct weft_errmsg *why) {
    weft_err err;
    weft_model *model = wefti_model_new();
    if (!model) {
        err = weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", dir);
        goto cleanup;
    }
    err = read_config(model, dir, why);
    if (err) goto cleanup;
    wefti_model_name_from_path(&model->params, dir, "");
    err = wefti_model_safetensors_folder(model, dir, why);
    if (err) goto cleanup;
    if (model->params.wrapped) wefti_model_unwrap(model);
    err = wefti_model_join(model, dir, why);
    if (err) goto cleanup;
    err = wefti_model_split(model, WEFT_MODEL_HF, dir, why);
    if (err) goto cleanup;
    err = wefti_model_index(model, dir, why);
    if (err) goto cleanup;
    err = wefti_model_resolve(model, WEFT_MODEL_HF, dir, why);
    if (err) goto cleanup;
    *model_out = model;
    model = NULL;
cleanup:
    weft_model_free(model);
    return err;
}
