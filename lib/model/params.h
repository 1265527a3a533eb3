/* model/params — hyper-parameters, as readers of all formats handle them. */
#ifndef WEFT_MODEL_PARAMS_H
#define WEFT_MODEL_PARAMS_H

#include "arch.h"
#include "base/check.h"

/* The defaults of every architecture, and its traits. */
void wefti_model_params_init(struct weft_model_params *params, const struct wefti_model_arch *arch);

/* Ranges and relations of the hyper-parameters (params.c). */
WEFT_MUST_CHECK weft_err wefti_model_params_check(const struct weft_model_params *params,
                                                  const char *path, struct weft_errmsg *why);
/* Of the indexer alone, which the architecture has. */
WEFT_MUST_CHECK weft_err wefti_model_params_check_indexer(const struct weft_model_params *params,
                                                          const char *path,
                                                          struct weft_errmsg *why);
/* The cache's row of latent attention, from kv_lora and rope_dim. */
void wefti_model_params_set_latent(struct weft_model_params *params);
/* The sizes that an encoder's others imply; the hidden size is a multiple of the heads. */
void wefti_model_params_set_encoder(struct weft_model_params *params);
/* All but every nth layer see `local` tokens, half of them to each side (ModernBERT); every >= 1. */
void wefti_model_set_local(struct weft_model_params *params, uint32_t local, uint32_t every);
/* Over all of them but the name (hash.c). */
uint64_t wefti_model_params_hash(const struct weft_model_params *params);
/* Everything is read: a family of hybrids without a recurrent layer is none, and what a model could read beyond the
 * longest sequence that there is, it does not. */
void wefti_model_params_settle(struct weft_model_params *params);
/* Copies a display name: cut at a whole UTF-8 character, '?' for control characters. */
void wefti_model_params_set_name(struct weft_model_params *params, const char *name, size_t len);

/* Adds a layer to a set of layers. */
static inline void wefti_model_set_bit(uint32_t bits[WEFT_LAYERS_MAX / 32], uint32_t layer) {
    WEFT_ASSERT(layer < WEFT_LAYERS_MAX);
    bits[layer / 32] |= 1u << layer % 32;
}

/* YaRN's factor on magnitudes of a context stretched by `factor`, and LongRoPE's. */
double wefti_model_yarn_mscale(double factor, double mscale);
double wefti_model_longrope_magnitude(double factor, uint32_t original_context);
/* Sets the context to what YaRN makes of the original one. */
void wefti_model_yarn_stretch(struct weft_model_params *params);

/* The last part of a path, without `suffix`, as the model's name (model.c). */
void wefti_model_name_from_path(struct weft_model_params *params, const char *path,
                                const char *suffix);

#endif
