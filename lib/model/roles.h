/* model/roles — looking for tensors by their roles: what decoders and encoders share. */
#ifndef WEFT_MODEL_ROLES_H
#define WEFT_MODEL_ROLES_H

#include "model_internal.h"

struct wefti_model_resolver {
    weft_model *model;
    enum weft_model_format format;
    const char *path;
    uint64_t *sizes; /* of roles.c */
    bool *used;      /* [model->n_tensors] */
    /* Gets what is asked for, of one of `types`, which then counts as found. NULL: the model has tensors. */
    weft_model *imagined;
    const struct wefti_model_types *types;
    struct weft_errmsg *why;
};

/* Finds a tensor by name, checks its shape and marks it. *out is NULL when it is not there. */
weft_err wefti_model_take(struct wefti_model_resolver *r, const char *name, uint32_t n_dims,
                          const uint64_t *dims, const struct weft_tensor **out);

/* Everything of an encoder; its embedding table may be of any type (encoder.c). */
weft_err wefti_model_resolve_encoder(struct wefti_model_resolver *r);

/* What a layer that predicts further tokens has beside a layer's tensors (predictor.c). */
weft_err wefti_model_resolve_predictor(struct wefti_model_resolver *r);

/* Of a folder: tensors get the names of the bare model, and lose what plays no part, before the index is
 * made (encoder.c). */
weft_err wefti_model_clean_encoder(weft_model *model, const char *path, struct weft_errmsg *why);

#endif
