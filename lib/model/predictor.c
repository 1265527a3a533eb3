/* A layer after the last one, which predicts further tokens (multi-token prediction), as a model by
 * itself. The whole model is opened first, with all checks; then it becomes its predictor, whose
 * tensors lie in the same files. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params.h"
#include "roles.h"

struct predictor_name { /* follows a layer's number */
    const char *of[2];  /* by enum weft_model_format */
};

static const struct predictor_name enorm = {{"enorm.weight", "nextn.enorm.weight"}};
static const struct predictor_name hnorm = {{"hnorm.weight", "nextn.hnorm.weight"}};
static const struct predictor_name eh_proj = {{"eh_proj.weight", "nextn.eh_proj.weight"}};
static const struct predictor_name final_norm = {
    {"shared_head.norm.weight", "nextn.shared_head_norm.weight"}};
static const struct predictor_name head = {
    {"shared_head.head.weight", "nextn.shared_head_head.weight"}};
static const struct predictor_name embedding = {
    {"embed_tokens.weight", "nextn.embed_tokens.weight"}};

struct full_name {
    char text[96];
};

static struct full_name name_of(const weft_model *model, enum weft_model_format format,
                                struct predictor_name name) {
    struct full_name full;
    int n = snprintf(full.text, sizeof full.text, "%s%u.%s",
                     format == WEFT_MODEL_GGUF ? "blk." : "model.layers.", model->first_layer,
                     name.of[format]);
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof full.text);
    return full;
}

/* *out stays what the whole model has where the layer has none of its own; NULL: it must have one. */
static weft_err take_own(struct wefti_model_resolver *r, struct predictor_name name,
                         uint32_t n_dims, const uint64_t *dims, const struct weft_tensor **out) {
    const struct full_name full = name_of(r->model, r->format, name);
    const struct weft_tensor *own;
    weft_err err = wefti_model_take(r, full.text, n_dims, dims, &own);
    if (!err && own) *out = own;
    if (!err && !*out)
        err = weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path, full.text);
    return err;
}

weft_err wefti_model_resolve_predictor(struct wefti_model_resolver *r) {
    weft_model *model = r->model;
    const uint64_t n_hidden = model->params.n_hidden, n_vocab = model->params.n_vocab;
    const uint64_t table[2] = {n_vocab, n_hidden}, joined[2] = {n_hidden, 2 * n_hidden};
    struct weft_model_predictor_tensors *to = &model->predictor;
    weft_err err = take_own(r, enorm, 1, &n_hidden, &to->enorm);
    if (!err) err = take_own(r, hnorm, 1, &n_hidden, &to->hnorm);
    if (!err) err = take_own(r, eh_proj, 2, joined, &to->eh_proj);
    if (!err) err = take_own(r, final_norm, 1, &n_hidden, &model->final_norm);
    if (!err) err = take_own(r, head, 2, table, &model->head);
    if (!err) err = take_own(r, embedding, 2, table, &model->embedding);
    model->params.tied = model->head == model->embedding;
    return err;
}

/* The only layer is what the last one of the model is. */
static void keep_last_bit(uint32_t bits[WEFT_LAYERS_MAX / 32], uint32_t n_layers) {
    bool is_set = weft_model_bit(bits, n_layers - 1);
    memset(bits, 0, WEFT_LAYERS_MAX / 8);
    if (is_set) wefti_model_set_bit(bits, 0);
}

weft_err wefti_model_become_predictor(weft_model *model, enum weft_model_format format,
                                      const char *path, struct weft_errmsg *why) {
    struct weft_model_params *p = &model->params;
    model->first_layer = p->n_layers;
    model->predictor.eh_proj = weft_model_find(model, name_of(model, format, eh_proj).text);
    if (p->n_predict == 0 || !model->predictor.eh_proj)
        return weft_err_set(why, WEFT_E_INVAL,
                            "%s has no layer that predicts further tokens (multi-token prediction)",
                            path);
    if (model->packed.arena_bytes)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s is packed, without the layer that predicts further tokens: use the "
                            "model that it was packed from",
                            path);
    keep_last_bit(p->no_rope, p->n_layers);
    keep_last_bit(p->no_window, p->n_layers);
    keep_last_bit(p->no_experts, p->n_layers);
    p->n_layers = 1;
    free(model->layers);
    free(model->experts);
    model->layers = NULL;
    model->experts = NULL;
    return wefti_model_resolve(model, format, path, why);
}
