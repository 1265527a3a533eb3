/* model/hf/config_quant — "quantization_config", for the files that read the settings of a method. */
#ifndef WEFT_MODEL_CONFIG_QUANT_H
#define WEFT_MODEL_CONFIG_QUANT_H

#include "hf.h"

struct wefti_model_quant_reader {
    const char *path;
    const json_t *config; /* or an object within it */
    struct weft_errmsg *why;
};

/* NULL for null, as in all of config.json. */
const json_t *wefti_model_quant_get(const struct wefti_model_quant_reader *r, const char *key);

/* UNSUPPORTED, with the key and its value, which may be NULL. */
WEFT_MUST_CHECK weft_err wefti_model_quant_refuse(const struct wefti_model_quant_reader *r,
                                                  const char *key, const json_t *value);

/* "compressed-tensors" (config_compressed.c). */
WEFT_MUST_CHECK weft_err wefti_model_quant_compressed(const struct wefti_model_quant_reader *r,
                                                      struct weft_model_quant *quant);

#endif
