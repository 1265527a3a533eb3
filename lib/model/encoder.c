/* The tensors of encoders. Folders name them in the style of the library that each family was written with,
 * GGUF files in one: a table has them all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "file.h"
#include "params.h"
#include "roles.h"

enum style { STYLE_BERT, STYLE_NOMIC, STYLE_MODERN, STYLE_GGUF, STYLE_GTE, STYLES };

enum size { HIDDEN, HEADS, FFN, VOCAB, TYPES, POSITIONS, LABELS, N_SIZES };

enum when {
    ALWAYS,
    WITH_BIAS,
    WITH_NORM_BIAS,
    WITH_SUM_NORMS,
    WITH_SUM_NORM_BIAS,
    WITH_FIRST_NORM, /* of attention: the first layer has none, as embeddings are normalised */
    WITH_FIRST_NORM_BIAS,
    WITH_NORMS,
    WITH_NORMS_BIAS,
    WITH_GATE,
    WITHOUT_GATE,
    WITHOUT_GATE_BIAS,
    WITH_TYPES,
    WITH_POSITIONS,
};

struct role {
    const char *names[STYLES]; /* NULL: models of that style never have it */
    uint32_t n_dims;
    enum size dims[2];
    size_t at; /* its pointer in the layer, or in the model's own list */
    enum when when;
};

static const char *const layer_prefix[STYLES] = {"encoder.layer.", "encoder.layers.", "layers.",
                                                 "blk.", "encoder.layer."};

#define AT(field) offsetof(struct weft_model_layer, field)
static const struct role layer_roles[] = {
    {{NULL, NULL, "attn_norm.weight", "attn_norm.weight"},
     1,
     {HIDDEN},
     AT(attn_norm),
     WITH_FIRST_NORM},
    {{NULL, NULL, "attn_norm.bias", "attn_norm.bias"},
     1,
     {HIDDEN},
     AT(attn_norm_bias),
     WITH_FIRST_NORM_BIAS},
    {{"attention.self.query.weight", "attn.Wq.weight", "attn.Wq.weight", "attn_q.weight",
      "attention.q_proj.weight"},
     2,
     {HEADS, HIDDEN},
     AT(wq),
     ALWAYS},
    {{"attention.self.key.weight", "attn.Wk.weight", "attn.Wk.weight", "attn_k.weight",
      "attention.k_proj.weight"},
     2,
     {HEADS, HIDDEN},
     AT(wk),
     ALWAYS},
    {{"attention.self.value.weight", "attn.Wv.weight", "attn.Wv.weight", "attn_v.weight",
      "attention.v_proj.weight"},
     2,
     {HEADS, HIDDEN},
     AT(wv),
     ALWAYS},
    {{"attention.self.query.bias", NULL, NULL, "attn_q.bias", "attention.q_proj.bias"},
     1,
     {HEADS},
     AT(bq),
     WITH_BIAS},
    {{"attention.self.key.bias", NULL, NULL, "attn_k.bias", "attention.k_proj.bias"},
     1,
     {HEADS},
     AT(bk),
     WITH_BIAS},
    {{"attention.self.value.bias", NULL, NULL, "attn_v.bias", "attention.v_proj.bias"},
     1,
     {HEADS},
     AT(bv),
     WITH_BIAS},
    {{"attention.output.dense.weight", "attn.out_proj.weight", "attn.Wo.weight",
      "attn_output.weight", "attention.o_proj.weight"},
     2,
     {HIDDEN, HEADS},
     AT(wo),
     ALWAYS},
    {{"attention.output.dense.bias", NULL, NULL, "attn_output.bias", "attention.o_proj.bias"},
     1,
     {HIDDEN},
     AT(bo),
     WITH_BIAS},
    {{"attention.output.LayerNorm.weight", "norm1.weight", NULL, "attn_output_norm.weight",
      "attn_ln.weight"},
     1,
     {HIDDEN},
     AT(attn_sum_norm),
     WITH_SUM_NORMS},
    {{"attention.output.LayerNorm.bias", "norm1.bias", NULL, "attn_output_norm.bias",
      "attn_ln.bias"},
     1,
     {HIDDEN},
     AT(attn_sum_bias),
     WITH_SUM_NORM_BIAS},
    {{NULL, NULL, "mlp_norm.weight", "ffn_norm.weight"}, 1, {HIDDEN}, AT(ffn_norm), WITH_NORMS},
    {{NULL, NULL, "mlp_norm.bias", "ffn_norm.bias"},
     1,
     {HIDDEN},
     AT(ffn_norm_bias),
     WITH_NORMS_BIAS},
    {{NULL, "mlp.fc12.weight", "mlp.Wi_gate.weight", "ffn_gate.weight", "mlp.gate_proj.weight"},
     2,
     {FFN, HIDDEN},
     AT(w_gate),
     WITH_GATE},
    {{NULL, "mlp.fc11.weight", "mlp.Wi_up.weight", "ffn_up.weight", "mlp.up_proj.weight"},
     2,
     {FFN, HIDDEN},
     AT(w_up),
     WITH_GATE},
    {{"intermediate.dense.weight", NULL, NULL, "ffn_up.weight"},
     2,
     {FFN, HIDDEN},
     AT(w_gate),
     WITHOUT_GATE},
    {{"intermediate.dense.bias", NULL, NULL, "ffn_up.bias"},
     1,
     {FFN},
     AT(b_gate),
     WITHOUT_GATE_BIAS},
    {{"output.dense.weight", "mlp.fc2.weight", "mlp.Wo.weight", "ffn_down.weight",
      "mlp.down_proj.weight"},
     2,
     {HIDDEN, FFN},
     AT(w_down),
     ALWAYS},
    {{"output.dense.bias", NULL, NULL, "ffn_down.bias", "mlp.down_proj.bias"},
     1,
     {HIDDEN},
     AT(b_down),
     WITH_BIAS},
    {{"output.LayerNorm.weight", "norm2.weight", NULL, "layer_output_norm.weight", "mlp_ln.weight"},
     1,
     {HIDDEN},
     AT(ffn_sum_norm),
     WITH_SUM_NORMS},
    {{"output.LayerNorm.bias", "norm2.bias", NULL, "layer_output_norm.bias", "mlp_ln.bias"},
     1,
     {HIDDEN},
     AT(ffn_sum_bias),
     WITH_SUM_NORM_BIAS},
};
#undef AT

#define AT(field) offsetof(weft_model, field)
static const struct role model_roles[] = {
    {{"embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight",
      "embeddings.tok_embeddings.weight", "token_embd.weight", "embeddings.word_embeddings.weight"},
     2,
     {VOCAB, HIDDEN},
     AT(embedding),
     ALWAYS},
    {{"embeddings.token_type_embeddings.weight", "embeddings.token_type_embeddings.weight", NULL,
      "token_types.weight", "embeddings.token_type_embeddings.weight"},
     2,
     {TYPES, HIDDEN},
     AT(encoder.types),
     WITH_TYPES},
    {{"embeddings.position_embeddings.weight", NULL, NULL, "position_embd.weight"},
     2,
     {POSITIONS, HIDDEN},
     AT(encoder.positions),
     WITH_POSITIONS},
    {{"embeddings.LayerNorm.weight", "emb_ln.weight", "embeddings.norm.weight",
      "token_embd_norm.weight", "embeddings.LayerNorm.weight"},
     1,
     {HIDDEN},
     AT(encoder.embed_norm),
     ALWAYS},
    {{"embeddings.LayerNorm.bias", "emb_ln.bias", "embeddings.norm.bias", "token_embd_norm.bias",
      "embeddings.LayerNorm.bias"},
     1,
     {HIDDEN},
     AT(encoder.embed_bias),
     WITH_NORM_BIAS},
    {{NULL, NULL, "final_norm.weight", "output_norm.weight"},
     1,
     {HIDDEN},
     AT(final_norm),
     WITH_NORMS},
    {{NULL, NULL, "final_norm.bias", "output_norm.bias"},
     1,
     {HIDDEN},
     AT(final_bias),
     WITH_NORMS_BIAS},
};

/* Two shapes of a head have the same sense: BERT's pooler and a matrix, XLM-RoBERTa's head. */
static const struct role head_roles[][4] = {
    {{{"pooler.dense.weight", NULL, NULL, "cls.weight", "pooler.dense.weight"},
      2,
      {HIDDEN, HIDDEN},
      AT(encoder.dense),
      ALWAYS},
     {{"pooler.dense.bias", NULL, NULL, "cls.bias", "pooler.dense.bias"},
      1,
      {HIDDEN},
      AT(encoder.dense_bias),
      ALWAYS},
     {{"classifier.weight", NULL, NULL, "cls.output.weight", "classifier.weight"},
      2,
      {LABELS, HIDDEN},
      AT(encoder.classifier),
      ALWAYS},
     {{"classifier.bias", NULL, NULL, "cls.output.bias", "classifier.bias"},
      1,
      {LABELS},
      AT(encoder.labels_bias),
      ALWAYS}},
    {{{"classifier.dense.weight"}, 2, {HIDDEN, HIDDEN}, AT(encoder.dense), ALWAYS},
     {{"classifier.dense.bias"}, 1, {HIDDEN}, AT(encoder.dense_bias), ALWAYS},
     {{"classifier.out_proj.weight"}, 2, {LABELS, HIDDEN}, AT(encoder.classifier), ALWAYS},
     {{"classifier.out_proj.bias"}, 1, {LABELS}, AT(encoder.labels_bias), ALWAYS}},
};
#undef AT

static bool is_there(const struct weft_model_encoder *e, enum when when, uint32_t layer) {
    bool first = layer == 0, sums = e->norms_sums, norm_bias = e->norm_bias;
    switch (when) {
    case ALWAYS:
        return true;
    case WITH_BIAS:
        return e->bias;
    case WITH_NORM_BIAS:
        return norm_bias;
    case WITH_SUM_NORMS:
        return sums;
    case WITH_SUM_NORM_BIAS:
        return sums && norm_bias;
    case WITH_FIRST_NORM:
        return !sums && !first;
    case WITH_FIRST_NORM_BIAS:
        return !sums && !first && norm_bias;
    case WITH_NORMS:
        return !sums;
    case WITH_NORMS_BIAS:
        return !sums && norm_bias;
    case WITH_GATE:
        return e->gated;
    case WITHOUT_GATE:
        return !e->gated;
    case WITHOUT_GATE_BIAS:
        return !e->gated && e->bias;
    case WITH_TYPES:
        return e->n_types > 0;
    case WITH_POSITIONS:
        return e->n_positions > 0;
    }
    return false;
}

static enum style style_of(const struct wefti_model_resolver *r) {
    const char *arch = r->model->params.arch;
    if (r->format == WEFT_MODEL_GGUF) return STYLE_GGUF;
    if (strcmp(arch, "nomic-bert") == 0) return STYLE_NOMIC;
    if (strcmp(arch, "gte") == 0) return STYLE_GTE;
    return strcmp(arch, "modern-bert") == 0 ? STYLE_MODERN : STYLE_BERT;
}

static weft_err take_role(struct wefti_model_resolver *r, const struct role *role,
                          const char *prefix, void *owner) {
    const struct weft_model_params *p = &r->model->params;
    const struct weft_model_encoder *e = &p->encoder;
    const uint64_t sizes[N_SIZES] = {
        [HIDDEN] = p->n_hidden, [HEADS] = (uint64_t)p->n_heads * p->head_dim,
        [FFN] = p->n_ffn,       [VOCAB] = p->n_vocab,
        [TYPES] = e->n_types,   [POSITIONS] = (uint64_t)e->first_position + e->n_positions,
        [LABELS] = e->n_labels};
    const uint64_t dims[2] = {sizes[role->dims[0]], sizes[role->dims[1]]};
    const char *rest = role->names[style_of(r)];
    const struct weft_tensor *tensor;
    char name[128];
    (void)snprintf(name, sizeof name, "%s%s", prefix, rest ? rest : "");
    weft_err err = rest ? wefti_model_take(r, name, role->n_dims, dims, &tensor) : WEFT_OK;
    if (err) return err;
    if (!rest || !tensor)
        return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path, name);
    *(const struct weft_tensor **)(void *)((char *)owner + role->at) = tensor;
    return WEFT_OK;
}

/* As many labels as the last matrix has rows. */
static weft_err resolve_head(struct wefti_model_resolver *r) {
    weft_model *model = r->model;
    enum style style = style_of(r);
    for (size_t i = 0; i < sizeof head_roles / sizeof head_roles[0]; i++) {
        const char *last = head_roles[i][2].names[style];
        const struct weft_tensor *found = last ? weft_model_find(model, last) : NULL;
        weft_err err = WEFT_OK;
        if (!found) continue;
        if (found->n_dims != 2 || found->dims[0] < 1 || found->dims[0] > WEFT_LABELS_MAX)
            return weft_err_set(r->why, WEFT_E_PROTO,
                                "%s: tensor '%s' is no matrix of 1 to %u labels", r->path, last,
                                WEFT_LABELS_MAX);
        model->params.encoder.has_head = 1;
        model->params.encoder.n_labels = (uint32_t)found->dims[0];
        for (size_t k = 0; k < 4 && !err; k++)
            err = take_role(r, &head_roles[i][k], "", model);
        return err;
    }
    return weft_err_set(r->why, WEFT_E_PROTO, "%s: tensor '%s' is missing", r->path,
                        head_roles[0][2].names[STYLE_BERT]);
}

weft_err wefti_model_resolve_encoder(struct wefti_model_resolver *r) {
    weft_model *model = r->model;
    const struct weft_model_encoder *e = &model->params.encoder;
    model->layers = calloc(model->params.n_layers, sizeof *model->layers);
    if (!model->layers) return weft_err_set(r->why, WEFT_E_NOMEM, "%s: out of memory", r->path);
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < sizeof model_roles / sizeof model_roles[0] && !err; i++)
        if (is_there(e, model_roles[i].when, 0)) err = take_role(r, &model_roles[i], "", model);
    for (uint32_t layer = 0; layer < model->params.n_layers && !err; layer++) {
        char prefix[48];
        (void)snprintf(prefix, sizeof prefix, "%s%u.", layer_prefix[style_of(r)], layer);
        for (size_t i = 0; i < sizeof layer_roles / sizeof layer_roles[0] && !err; i++)
            if (is_there(e, layer_roles[i].when, layer))
                err = take_role(r, &layer_roles[i], prefix, &model->layers[layer]);
    }
    bool has_head = e->has_head || (r->format == WEFT_MODEL_GGUF &&
                                    weft_model_find(model, "cls.output.weight") != NULL);
    return err || !has_head ? err : resolve_head(r);
}

/* ----------------------------------------------------------------------- names in folders --- */

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *text, const char *suffix) {
    size_t len = strlen(text), n = strlen(suffix);
    return len >= n && strcmp(text + len - n, suffix) == 0;
}

/* Tables of numbers that follow from the shape, BERT's pooler where nobody classifies, what guessed words in
 * training, and what weighs each token (gte-multilingual-base, for sparse vectors). */
static bool is_idle(const char *name, bool has_head) {
    return ends(name, "position_ids") || begins(name, "cls.") || begins(name, "lm_head.") ||
           (!has_head && (begins(name, "pooler.") || begins(name, "classifier.")));
}

/* TensorFlow's names for what norms multiply by and add: *name_io may be replaced. */
static bool rename_norm(char **name_io) {
    static const char *const names[][2] = {{".gamma", ".weight"}, {".beta", ".bias"}};
    for (size_t i = 0; i < 2; i++) {
        if (!ends(*name_io, names[i][0])) continue;
        char *renamed = NULL;
        int len = (int)(strlen(*name_io) - strlen(names[i][0]));
        if (asprintf(&renamed, "%.*s%s", len, *name_io, names[i][1]) < 0) return false;
        free(*name_io);
        *name_io = renamed;
        return true;
    }
    return true;
}

weft_err wefti_model_clean_encoder(weft_model *model, const char *path, struct weft_errmsg *why) {
    static const char *const prefixes[] = {"bert.", "roberta.", "model.", "new."};
    size_t n = 0;
    weft_err err = WEFT_OK;
    free(model->by_name); /* of the names before */
    model->by_name = NULL;
    for (size_t i = 0; i < model->n_tensors; i++) {
        char *name = (char *)(uintptr_t)model->tensors[i].name; /* the model's own copy */
        for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++) {
            size_t len = strlen(prefixes[k]);
            if (!begins(name, prefixes[k]) || !name[len]) continue;
            memmove(name, name + len, strlen(name + len) + 1);
            break;
        }
        if (is_idle(name, model->params.encoder.has_head)) {
            free(name);
            continue;
        }
        if (!rename_norm(&name))
            err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory for the tensor list", path);
        model->tensors[n] = model->tensors[i];
        model->tensors[n++].name = name;
    }
    model->n_tensors = n;
    return err;
}
