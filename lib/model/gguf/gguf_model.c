/* A whole GGUF model. */
#include "gguf.h"

#include "params.h"

weft_err wefti_model_from_gguf(struct wefti_model_file *file, weft_model **model_out,
                               struct weft_errmsg *why) {
    weft_gguf *gguf;
    weft_model *model = NULL;
    *model_out = NULL;
    weft_err err = wefti_model_gguf_parse(file, &gguf, why);
    if (err) return err;
    model = wefti_model_new();
    if (!model) {
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", gguf->file.path);
        goto cleanup;
    }
    err = wefti_model_gguf_check_first(gguf, why);
    if (err) goto cleanup;
    err = wefti_model_config_gguf(gguf, &model->params, why);
    if (err) goto cleanup;
    if (!model->params.name[0])
        wefti_model_name_from_path(&model->params, gguf->file.path, ".gguf");
    err = wefti_model_gguf_tensors(model, gguf, why);
    if (err) goto cleanup;
    err = wefti_model_gguf_add_parts(model, gguf, why);
    if (err) goto cleanup;
    err = wefti_model_rename(model, WEFT_MODEL_GGUF, gguf->file.path, why);
    if (err) goto cleanup;
    err = wefti_model_split(model, WEFT_MODEL_GGUF, gguf->file.path, why);
    if (err) goto cleanup;
    err = wefti_model_gguf_scales(model, gguf->file.path, why);
    if (err) goto cleanup;
    err = wefti_model_index(model, gguf->file.path, why);
    if (err) goto cleanup;
    wefti_model_gguf_optional(model);
    err = wefti_model_resolve(model, WEFT_MODEL_GGUF, gguf->file.path, why);
    if (err) goto cleanup;
    /* The model keeps the mapping, not the index of the metadata. */
    err = wefti_model_add_file(model, &gguf->file);
    if (err) {
        err = weft_err_set(why, err, "out of memory while opening a model");
        goto cleanup;
    }
    *model_out = model;
    model = NULL;
cleanup:
    weft_model_free(model);
    weft_gguf_free(gguf);
    return err;
}
