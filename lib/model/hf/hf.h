/* model/hf — Hugging Face folders: config.json, safetensors, and weights that other tools
 * quantised. */
#ifndef WEFT_MODEL_HF_H
#define WEFT_MODEL_HF_H

#include "json.h"
#include "model_internal.h"

#define WEFTI_MODEL_CONFIG_BYTES_MAX (16u << 20)
#define WEFTI_MODEL_INDEX_BYTES_MAX                                                                \
    (64u << 20) /* model.safetensors.index.json: ~100 bytes a tensor */
/* A tensor takes ~110 bytes of a safetensors header, so this is 300,000 of them in one file; parsed
 * JSON is up to twenty times as large as its text, so it is not more. */
#define WEFTI_MODEL_SAFETENSORS_HEADER_BYTES_MAX (32u << 20)

/* config.json to hyper-parameters; `tied` is what the file says, not yet what the tensors say. */
WEFT_MUST_CHECK weft_err wefti_model_config_hf(const struct wefti_model_file *file,
                                               struct weft_model_params *params,
                                               struct weft_errmsg *why);

/* What a hint says of a folder or its configuration. */
#define WEFTI_MODEL_HINT_BYTES 320
/* Numbers that the file leaves out and that have the family's value therefore, as the end of a sentence; "" if there are
 * none. Those of experts only where the model has some. */
void wefti_model_config_missing(const struct wefti_model_file *file, bool has_experts,
                                char hint[WEFTI_MODEL_HINT_BYTES]);

/* One .safetensors file: appends its tensors. */
WEFT_MUST_CHECK weft_err wefti_model_safetensors_read(weft_model *model,
                                                      const struct wefti_model_file *file,
                                                      struct weft_errmsg *why);
/* A folder's model.safetensors, or all shards of its model.safetensors.index.json. */
WEFT_MUST_CHECK weft_err wefti_model_safetensors_folder(weft_model *model, const char *dir,
                                                        struct weft_errmsg *why);

/* Replaces quantised weights and what belongs to them by one tensor each (join.c). */
WEFT_MUST_CHECK weft_err wefti_model_join(weft_model *model, const char *path,
                                          struct weft_errmsg *why);
/* The object under "quantization_config" (config_quant.c). */
WEFT_MUST_CHECK weft_err wefti_model_config_quant(const char *path, const json_t *config,
                                                  struct weft_model_quant *quant_out,
                                                  struct weft_errmsg *why);

/* Reduces a folder that holds more than a language model to that model: leaves out the tensors of
 * the other parts, and gives its own the names of a plain folder (unwrap.c). */
void wefti_model_unwrap(weft_model *model);

/* Folders saved from a decoder without its head, as sentence-transformers does it, lack "model." before
 * the names of tensors: they get it. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_model_add_prefix(weft_model *model, const char *dir,
                                                struct weft_errmsg *why);

/* What a folder holds instead of the files that are read, as the end of a sentence; "" if nothing
 * is known (folder.c). */
void wefti_model_folder_hint(const char *dir, char hint[WEFTI_MODEL_HINT_BYTES]);

/* The tensors that config.json asks for, of a folder that has none (shapes.c). UNSUPPORTED: an encoder. */
WEFT_MUST_CHECK weft_err wefti_model_shapes(weft_model *model, const char *dir,
                                            struct weft_errmsg *why);

/* The type of a quantised weight of k columns in the method's usual settings, as far as config.json tells them. */
enum weft_dtype wefti_model_usual_type(const struct weft_model_quant *quant, uint64_t k);

/* A whole model from a folder; where it may be bare, perhaps without weights (folder.c). */
WEFT_MUST_CHECK weft_err wefti_model_from_folder(const char *dir, bool may_be_bare,
                                                 weft_model **model_out, struct weft_errmsg *why);

#endif
