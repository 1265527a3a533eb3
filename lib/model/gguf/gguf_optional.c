/* What GGUF files leave to their tensors to say. */
#include "gguf.h"

#include <stdio.h>
#include <string.h>

#include "arch.h"
#include "params.h"

static bool has_in_some_layer(const weft_model *model, const char *name) {
    char full[64];
    for (uint32_t i = 0; i < model->params.n_layers; i++) {
        (void)snprintf(full, sizeof full, "blk.%u.%s", i, name);
        if (weft_model_find(model, full)) return true;
    }
    return false;
}

/* Layers without values make them of their keys; the table of embeddings for each layer says for how many tokens there
 * are such. */
static void note_unlike(weft_model *model, struct wefti_model_traits traits) {
    struct weft_model_params *p = &model->params;
    char name[64];
    for (uint32_t i = 0; traits.heads_by_kind && i < p->n_layers; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.attn_v.weight", i);
        if (weft_model_kv_layer(p, i) == i && !weft_model_find(model, name))
            wefti_model_set_bit(p->unlike.keys_as_values, i);
    }
    if (traits.layer_scale)
        p->unlike.layer_scale = has_in_some_layer(model, "layer_output_scale.weight");
    const struct weft_tensor *table = weft_model_find(model, "per_layer_token_embd.weight");
    if (p->unlike.layer_input > 0 && table && table->n_dims == 2 && table->dims[0] > 0 &&
        table->dims[0] <= WEFT_VOCAB_MAX)
        p->unlike.n_vocab_input = (uint32_t)table->dims[0];
}

void wefti_model_gguf_optional(weft_model *model) {
    struct weft_model_params *p = &model->params;
    const struct wefti_model_arch *arch =
        wefti_model_arch_of_gguf((struct weft_str){p->arch, strlen(p->arch)});
    if (!arch || arch->traits.latent || arch->traits.encoder) return;
    const bool may_lack = arch->traits.bias_key || arch->traits.layer_norm;
    if (may_lack) {
        p->qkv_bias = false;
        p->block.o_bias = false;
        p->block.ffn_bias = false;
    }
    if (has_in_some_layer(model, "attn_q.bias")) p->qkv_bias = true;
    if (has_in_some_layer(model, "attn_output.bias")) p->block.o_bias = true;
    if (has_in_some_layer(model, "ffn_down.bias")) p->block.ffn_bias = true;
    if (arch->traits.may_qk_norm) p->qk_norm = has_in_some_layer(model, "attn_q_norm.weight");
    if (arch->traits.may_head_norms)
        p->block.head_norms = has_in_some_layer(model, "attn_q_norm.weight");
    if (arch->traits.may_head_norms) /* converters guess the key where config.json lacks it */
        p->block.parallel = p->block.one_norm = !has_in_some_layer(model, "ffn_norm.weight");
    if (arch->traits.beside && !has_in_some_layer(model, "ssm_norm.weight"))
        p->recurrent.norm_groups = 0;
    note_unlike(model, arch->traits);
}
