/* What GGUF files leave to their tensors to say. */
#include "gguf.h"

#include <stdio.h>
#include <string.h>

#include "arch.h"

static bool has_in_some_layer(const weft_model *model, const char *name) {
    char full[64];
    for (uint32_t i = 0; i < model->params.n_layers; i++) {
        (void)snprintf(full, sizeof full, "blk.%u.%s", i, name);
        if (weft_model_find(model, full)) return true;
    }
    return false;
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
}
