/* Which tensor plays which part. One table has the names of both formats and the shape each must
 * have; a tensor that plays no part is refused, because ignoring it (a bias, an expert, a scale of
 * some quantisation) would give a model that runs and is wrong.
 */
#include "model/model_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum size {
    SIZE_HIDDEN,
    SIZE_Q,
    SIZE_KV,
    SIZE_FFN,
    SIZE_VOCAB,
    SIZE_HEAD,
    SIZE_HALF_HEAD,
    SIZE_COUNT
};

struct role {
    const char *names[2]; /* by enum weft_model_format */
    uint32_t n_dims;
    enum size dims[2];
};

static const struct role embedding_role = {
    {"model.embed_tokens.weight", "token_embd.weight"}, 2, {SIZE_VOCAB, SIZE_HIDDEN}};
static const struct role final_norm_role = {
    {"model.norm.weight", "output_norm.weight"}, 1, {SIZE_HIDDEN}};
static const struct role head_role = {
    {"lm_head.weight", "output.weight"}, 2, {SIZE_VOCAB, SIZE_HIDDEN}};
static const struct role rope_freqs_role = {{"", "rope_freqs.weight"}, 1, {SIZE_HALF_HEAD}};

static const char *const layer_prefix[2] = {"model.layers.", "blk."};

enum when { ALWAYS, WITH_QKV_BIAS, WITH_QK_NORM, WITH_POST_NORMS, WITHOUT_POST_NORMS };

#define AT(field) offsetof(struct weft_model_layer, field)
static const struct {
    struct role role; /* names follow the prefix and the layer's number */
    size_t at;        /* its pointer in struct weft_model_layer */
    enum when when;
} layer_roles[] = {
    {{{"input_layernorm.weight", "attn_norm.weight"}, 1, {SIZE_HIDDEN}}, AT(attn_norm), ALWAYS},
    {{{"self_attn.q_proj.weight", "attn_q.weight"}, 2, {SIZE_Q, SIZE_HIDDEN}}, AT(wq), ALWAYS},
    {{{"self_attn.k_proj.weight", "attn_k.weight"}, 2, {SIZE_KV, SIZE_HIDDEN}}, AT(wk), ALWAYS},
    {{{"self_attn.v_proj.weight", "attn_v.weight"}, 2, {SIZE_KV, SIZE_HIDDEN}}, AT(wv), ALWAYS},
    {{{"self_attn.q_proj.bias", "attn_q.bias"}, 1, {SIZE_Q}}, AT(bq), WITH_QKV_BIAS},
    {{{"self_attn.k_proj.bias", "attn_k.bias"}, 1, {SIZE_KV}}, AT(bk), WITH_QKV_BIAS},
    {{{"self_attn.v_proj.bias", "attn_v.bias"}, 1, {SIZE_KV}}, AT(bv), WITH_QKV_BIAS},
    {{{"self_attn.q_norm.weight", "attn_q_norm.weight"}, 1, {SIZE_HEAD}}, AT(q_norm), WITH_QK_NORM},
    {{{"self_attn.k_norm.weight", "attn_k_norm.weight"}, 1, {SIZE_HEAD}}, AT(k_norm), WITH_QK_NORM},
    {{{"self_attn.o_proj.weight", "attn_output.weight"}, 2, {SIZE_HIDDEN, SIZE_Q}}, AT(wo), ALWAYS},
    {{{"post_attention_layernorm.weight", "ffn_norm.weight"}, 1, {SIZE_HIDDEN}},
     AT(ffn_norm),
     WITHOUT_POST_NORMS},
    {{{"post_attention_layernorm.weight", "post_attention_norm.weight"}, 1, {SIZE_HIDDEN}},
     AT(post_attn_norm),
     WITH_POST_NORMS},
    {{{"pre_feedforward_layernorm.weight", "ffn_norm.weight"}, 1, {SIZE_HIDDEN}},
     AT(ffn_norm),
     WITH_POST_NORMS},
    {{{"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}, 1, {SIZE_HIDDEN}},
     AT(post_ffn_norm),
     WITH_POST_NORMS},
    {{{"mlp.gate_proj.weight", "ffn_gate.weight"}, 2, {SIZE_FFN, SIZE_HIDDEN}}, AT(w_gate), ALWAYS},
    {{{"mlp.up_proj.weight", "ffn_up.weight"}, 2, {SIZE_FFN, SIZE_HIDDEN}}, AT(w_up), ALWAYS},
    {{{"mlp.down_proj.weight", "ffn_down.weight"}, 2, {SIZE_HIDDEN, SIZE_FFN}}, AT(w_down), ALWAYS},
};
#define N_LAYER_ROLES (sizeof layer_roles / sizeof layer_roles[0])

struct resolver {
    weft_model *model;
    enum weft_model_format format;
    const char *path;
    uint64_t sizes[SIZE_COUNT];
    bool *used; /* [model->n_tensors] */
    struct weft_errmsg *why;
};

static void print_shape(char *out, size_t out_bytes, uint32_t n_dims, const uint64_t *dims) {
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < n_dims && at < out_bytes; i++) {
        int n = snprintf(out + at, out_bytes - at, "%s%" PRIu64, i ? ", " : "", dims[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

static weft_err check_shape(const struct resolver *r, const struct role *role,
                            const struct weft_tensor *tensor) {
    uint64_t wanted[2] = {r->sizes[role->dims[0]], r->sizes[role->dims[1]]};
    if (tensor->n_dims == role->n_dims &&
        memcmp(tensor->dims, wanted, role->n_dims * sizeof wanted[0]) == 0) {
        return WEFT_OK;
    }
    char has[96], wants[96];
    struct wefti_shown shown = wefti_show(tensor->name, strlen(tensor->name));
    print_shape(has, sizeof has, tensor->n_dims, tensor->dims);
    print_shape(wants, sizeof wants, role->n_dims, wanted);
    return weft_err_set(r->why, WEFT_E_PROTO,
                        "%s: tensor '%s' has shape [%s], but the hyper-parameters ask for [%s]",
                        r->path, shown.text, has, wants);
}

/* Finds a tensor by name, checks its shape and marks it. *out is NULL when it is not there. */
static weft_err take(struct resolver *r, const struct role *role, const char *name,
                     const struct weft_tensor **out) {
    *out = weft_model_find(r->model, name);
    if (!*out) return WEFT_OK;
    r->used[*out - r->model->tensors] = true;
    if (role->n_dims == 1 && (*out)->dtype > WEFT_DT_Q8_0) {
        struct wefti_shown shown = wefti_show(name, strlen(name));
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                            "%s: tensor '%s' is a vector of type %s, which is for matrices only",
                            r->path, shown.text, weft_dtype_name((*out)->dtype));
    }
    return check_shape(r, role, *out);
}

static weft_err take_needed(struct resolver *r, const struct role *role, const char *name,
                            const struct weft_tensor **out) {
    weft_err err = take(r, role, name, out);
    if (!err && !*out) {
        err = weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path, name);
    }
    return err;
}

static bool is_there(const struct weft_model_params *p, enum when when) {
    switch (when) {
    case ALWAYS:
        break;
    case WITH_QKV_BIAS:
        return p->qkv_bias;
    case WITH_QK_NORM:
        return p->qk_norm;
    case WITH_POST_NORMS:
        return p->post_norms;
    case WITHOUT_POST_NORMS:
        return !p->post_norms;
    }
    return true;
}

static weft_err resolve_layers(struct resolver *r) {
    weft_model *model = r->model;
    model->layers = calloc(model->params.n_layers, sizeof *model->layers);
    if (!model->layers) return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    for (uint32_t layer = 0; layer < model->params.n_layers; layer++) {
        for (size_t i = 0; i < N_LAYER_ROLES; i++) {
            const struct role *role = &layer_roles[i].role;
            const struct weft_tensor *tensor;
            char name[96];
            if (!is_there(&model->params, layer_roles[i].when)) continue;
            (void)snprintf(name, sizeof name, "%s%u.%s", layer_prefix[r->format], layer,
                           role->names[r->format]);
            weft_err err = take_needed(r, role, name, &tensor);
            if (err) return err;
            char *fields = (char *)&model->layers[layer];
            *(const struct weft_tensor **)(void *)(fields + layer_roles[i].at) = tensor;
        }
    }
    return WEFT_OK;
}

static weft_err resolve_head(struct resolver *r) {
    weft_model *model = r->model;
    weft_err err = take(r, &head_role, head_role.names[r->format], &model->head);
    if (err) return err;
    /* As transformers does: when the configuration ties them, the embedding is what counts. */
    if (!model->head || model->params.tied) {
        model->params.tied = true;
        model->head = model->embedding;
    }
    return WEFT_OK;
}

/* Llama 3's scaling comes in a GGUF file as one divisor for each frequency. */
static weft_err resolve_rope_freqs(struct resolver *r) {
    const struct weft_tensor *tensor;
    if (r->format != WEFT_MODEL_GGUF) return WEFT_OK;
    weft_err err = take(r, &rope_freqs_role, rope_freqs_role.names[r->format], &tensor);
    if (err || !tensor) return err;
    if (!tensor->data)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: was packed without the values of '%s'",
                            r->path, tensor->name);
    float *freqs = malloc(tensor->dims[0] * sizeof *freqs);
    if (!freqs) return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    r->model->rope_freqs = freqs;
    weft_tensor_row_f32(tensor, 0, freqs);
    for (uint64_t i = 0; i < tensor->dims[0]; i++) {
        if (isfinite(freqs[i]) && freqs[i] > 0) continue;
        return weft_err_set(r->why, WEFT_E_PROTO,
                            "%s: tensor '%s' has %g at %" PRIu64 "; it must be positive", r->path,
                            tensor->name, (double)freqs[i], i);
    }
    return WEFT_OK;
}

/* Older checkpoints store the table of rotary frequencies, which follows from the configuration. */
static bool is_derived(const char *name) {
    static const char suffix[] = "rotary_emb.inv_freq";
    size_t len = strlen(name);
    return len >= sizeof suffix - 1 && strcmp(name + len - (sizeof suffix - 1), suffix) == 0;
}

static weft_err check_all_used(const struct resolver *r) {
    for (size_t i = 0; i < r->model->n_tensors; i++) {
        const char *name = r->model->tensors[i].name;
        if (r->used[i] || is_derived(name)) continue;
        struct wefti_shown shown = wefti_show(name, strlen(name));
        return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                            "%s: tensor '%s' has no part in a %s model of %u layers", r->path,
                            shown.text, r->model->params.arch, r->model->params.n_layers);
    }
    return WEFT_OK;
}

weft_err wefti_model_resolve(weft_model *model, enum weft_model_format format, const char *path,
                             struct weft_errmsg *why) {
    const struct weft_model_params *p = &model->params;
    struct resolver r = {
        .model = model,
        .format = format,
        .path = path,
        .sizes = {[SIZE_HIDDEN] = p->n_hidden,
                  [SIZE_Q] = (uint64_t)p->n_heads * p->head_dim,
                  [SIZE_KV] = (uint64_t)p->n_kv_heads * p->head_dim,
                  [SIZE_FFN] = p->n_ffn,
                  [SIZE_VOCAB] = p->n_vocab,
                  [SIZE_HEAD] = p->head_dim,
                  [SIZE_HALF_HEAD] = p->head_dim / 2},
        .used = calloc(model->n_tensors + 1, sizeof *r.used),
        .why = why,
    };
    weft_err err = WEFT_E_NOMEM;
    if (!r.used) {
        err = weft_err_set(why, err, "%s: out of memory", path);
        goto cleanup;
    }
    err = take_needed(&r, &embedding_role, embedding_role.names[format], &model->embedding);
    if (err) goto cleanup;
    err = take_needed(&r, &final_norm_role, final_norm_role.names[format], &model->final_norm);
    if (err) goto cleanup;
    err = resolve_layers(&r);
    if (err) goto cleanup;
    err = resolve_head(&r);
    if (err) goto cleanup;
    err = resolve_rope_freqs(&r);
    if (err) goto cleanup;
    err = check_all_used(&r);
cleanup:
    free(r.used);
    return err;
}
