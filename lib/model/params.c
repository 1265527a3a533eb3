#include "params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "file.h"

static weft_err check_ranges(const struct weft_model_params *p, const char *path,
                             struct weft_errmsg *why) {
    const struct {
        const char *what;
        uint32_t value, max;
    } ranges[] = {
        {"number of layers", p->n_layers, WEFT_LAYERS_MAX},
        {"hidden size", p->n_hidden, WEFT_HIDDEN_MAX},
        {"number of attention heads", p->n_heads, WEFT_HEADS_MAX},
        {"number of KV heads", p->n_kv_heads, WEFT_HEADS_MAX},
        {"head dimension", p->head_dim, p->kv_lora ? WEFT_KV_DIM_MAX : WEFT_HEAD_DIM_MAX},
        {"feed-forward size", p->n_ffn, WEFT_HIDDEN_MAX},
        {"vocabulary size", p->n_vocab, WEFT_VOCAB_MAX},
        {"context length", p->n_context, WEFT_CONTEXT_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= 1 && ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %u; 1 to %u are allowed", path,
                            ranges[i].what, ranges[i].value, ranges[i].max);
    }
    return WEFT_OK;
}

static void init_block(struct weft_model_block *block, struct wefti_model_traits has) {
    block->layer_norm = has.layer_norm;
    block->norm_bias = has.norm_bias;
    block->o_bias = has.o_bias;
    block->ffn_bias = has.ffn_bias;
    block->ungated = has.ungated;
    block->parallel = has.parallel;
    block->one_norm = has.one_norm;
    block->norms_turned = has.norms_turned;
    block->attn_gate = has.attn_gate;
    block->sinks = has.sinks;
    block->expert_bias = has.expert_bias;
    block->weighs_inputs = has.llama4;
    block->in_chunks = has.llama4;
    block->gate_in_q = has.gate_in_q;
}

void wefti_model_params_init(struct weft_model_params *p, const struct wefti_model_arch *arch) {
    WEFT_ASSERT(strlen(arch->name) < sizeof p->arch); /* it is looked up again by it */
    (void)snprintf(p->arch, sizeof p->arch, "%s", arch->name);
    init_block(&p->block, arch->traits);
    p->qkv_bias = arch->traits.qkv_bias;
    p->qk_norm = arch->traits.qk_norm;
    p->qk_norm_all = arch->traits.qk_norm_all;
    p->gelu = arch->traits.gemma || arch->traits.gelu || arch->traits.gelu_erf;
    if (arch->traits.gelu_erf) p->block.act = WEFT_MODEL_ACT_GELU_ERF;
    if (arch->traits.relu2) p->block.act = WEFT_MODEL_ACT_RELU2;
    if (arch->traits.clamped) {
        p->block.act = WEFT_MODEL_ACT_CLAMPED;
        p->block.act_limit = 7;
    }
    p->pre_norms = !arch->traits.norms_after;
    p->post_norms = arch->traits.gemma || arch->traits.norms_after || arch->traits.norms_too;
    p->embed_scale = p->residual_scale = p->logit_scale = 1;
    p->rope_magnitude = p->yarn_mscale = 1;
    p->rope_theta = 10000;
    if (arch->traits.local_rope) {
        p->rope_theta = 1e6;
        p->local_rope_theta = 10000;
    }
    if (arch->traits.unscaled) p->attn_scale = 1;
    p->unlike.plain_v_norm = arch->traits.plain_v_norm;
    p->unlike.layer_scale = arch->traits.layer_scale;
    p->wrapped = arch->traits.wrapped;
    p->encoder.is_on = arch->traits.encoder ? 1 : 0;
    p->encoder.has_head = arch->traits.head ? 1 : 0;
}

void wefti_model_params_settle(struct weft_model_params *p) {
    static const uint32_t none[WEFT_LAYERS_MAX / 32] = {0};
    if (memcmp(p->recurrent.layers, none, sizeof none) == 0)
        p->recurrent.kind = WEFT_MODEL_ATTENTION_ALONE; /* what layers lack stays lacking */
    if (p->n_context > WEFT_CONTEXT_MAX && p->n_context <= WEFT_CONTEXT_SAID_MAX)
        p->n_context = WEFT_CONTEXT_MAX;
}

void wefti_model_params_set_encoder(struct weft_model_params *p) {
    WEFT_ASSERT(p->n_heads > 0 && p->n_hidden % p->n_heads == 0);
    p->n_kv_heads = p->n_heads;
    p->head_dim = p->rope_dim = p->n_hidden / p->n_heads;
    if (p->rope_scaling == WEFT_ROPE_NONE) p->rope_factor = 1;
    p->pre_norms = !p->encoder.norms_sums;
    p->post_norms = false;
    for (uint32_t i = 0; i < p->n_layers && i < WEFT_LAYERS_MAX && p->encoder.n_positions > 0; i++)
        wefti_model_set_bit(p->no_rope, i);
}

void wefti_model_set_local(struct weft_model_params *p, uint32_t local, uint32_t every) {
    WEFT_ASSERT(every > 0);
    for (uint32_t i = 0; i < p->n_layers && i < WEFT_LAYERS_MAX; i += every)
        wefti_model_set_bit(p->no_window, i);
    p->window = local / 2 + 1 < p->n_context ? local / 2 + 1 : 0;
}

static weft_err check_encoder(const struct weft_model_params *p, const char *path,
                              struct weft_errmsg *why) {
    const struct weft_model_encoder *e = &p->encoder;
    const struct {
        const char *what;
        uint32_t value, max;
    } ranges[] = {{"number of token types", e->n_types, 2},
                  {"number of positions", e->n_positions, WEFT_CONTEXT_MAX},
                  {"first position", e->first_position, WEFT_CONTEXT_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "%s: the %s is %u; up to %u are supported",
                            path, ranges[i].what, ranges[i].value, ranges[i].max);
    }
    return WEFT_OK;
}

static weft_err check_scales(const struct weft_model_params *p, const char *path,
                             struct weft_errmsg *why) {
    const struct {
        const char *what;
        float value;
    } scales[] = {{"embedding scale", p->embed_scale},
                  {"residual scale", p->residual_scale},
                  {"attention scale", p->attn_scale},
                  {"logit scale", p->logit_scale}};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        bool may_be_zero = i == 2; /* it then follows from the head dimension */
        float value = scales[i].value;
        if ((value > 1e-6f && value < 1e6f) || (may_be_zero && value == 0)) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %g; 1e-6 to 1e6 are allowed", path,
                            scales[i].what, (double)value);
    }
    const struct weft_model_block *b = &p->block;
    const float factors[] = {b->attention_scale, b->recurrent_scale, b->ffn_scale,
                             b->gate_scale,      b->row_scales[0],   b->row_scales[1],
                             b->row_scales[2],   b->row_scales[3],   b->row_scales[4]};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        if (factors[i] == 0 || (fabsf(factors[i]) > 1e-6f && fabsf(factors[i]) < 1e6f)) continue;
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: a factor of parts of a layer is %g; 1e-6 to 1e6 are allowed", path,
                            (double)factors[i]);
    }
    if (!(b->q_beta >= 0 && b->q_beta < 1e3f))
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: queries grow by %g with the position; 0 to 1000 are allowed", path,
                            (double)b->q_beta);
    bool caps_fit = p->attn_soft_cap >= 0 && p->attn_soft_cap < 1e6f && p->logit_soft_cap >= 0 &&
                    p->logit_soft_cap < 1e6f;
    if (caps_fit) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "%s: the soft caps are %g and %g; 0 to 1e6 are allowed",
                        path, (double)p->attn_soft_cap, (double)p->logit_soft_cap);
}

static weft_err check_experts(const struct weft_model_params *p, const char *path,
                              struct weft_errmsg *why) {
    const struct weft_model_moe *moe = &p->moe;
    if (moe->n_experts == 0) return WEFT_OK;
    const struct {
        const char *what;
        uint32_t value, min, max;
    } ranges[] = {
        {"number of experts", moe->n_experts, 1, WEFT_EXPERTS_MAX},
        {"number of experts per token", moe->n_used, 1,
         moe->n_experts < WEFT_EXPERTS_USED_MAX ? moe->n_experts : WEFT_EXPERTS_USED_MAX},
        {"feed-forward size of an expert", moe->n_ffn, 1, WEFT_HIDDEN_MAX},
        {"feed-forward size of the shared expert", moe->n_ffn_shared, 0, WEFT_HIDDEN_MAX},
        {"width of what experts read", weft_model_expert_width(p), 1, p->n_hidden},
        {"number of groups of experts", moe->n_groups, 1, moe->n_experts},
        {"number of groups that a token uses", moe->n_groups_used, 1, moe->n_groups},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %u; %u to %u are allowed", path,
                            ranges[i].what, ranges[i].value, ranges[i].min, ranges[i].max);
    }
    if (moe->n_latent > 0 && (moe->shared_gate || p->block.expert_bias || p->unlike.ffn_beside))
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: experts of another width, %u, are supported without biases and "
                            "gates alone",
                            path, moe->n_latent);
    uint32_t per_group = moe->n_experts / moe->n_groups;
    if (moe->n_experts % moe->n_groups != 0 || per_group * moe->n_groups_used < moe->n_used ||
        (moe->by_two && moe->n_groups > 1 && per_group < 2))
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: %u experts in %u groups, of which %u yield %u, do not go", path,
                            moe->n_experts, moe->n_groups, moe->n_groups_used, moe->n_used);
    if (moe->scale > 1e-6f && moe->scale < 1e6f) return WEFT_OK; /* NaN fails */
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: the scale of routed experts is %g; 1e-6 to 1e6 are allowed", path,
                        (double)moe->scale);
}

static weft_err check_recurrent(const struct weft_model_params *p, const char *path,
                                struct weft_errmsg *why) {
    const struct weft_model_recurrent *r = &p->recurrent;
    const bool has_heads = r->kind != WEFT_MODEL_CONV;
    uint32_t n_attention = 0;
    for (uint32_t i = 0; i < p->n_layers; i++)
        n_attention += !weft_model_bit(r->no_attention, i);
    if (n_attention == 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: no layer has attention; a model of recurrent layers alone is not "
                            "supported",
                            path);
    if (r->kind && p->kv_lora > 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: recurrent layers beside latent attention are not supported", path);
    if (r->kind == WEFT_MODEL_ATTENTION_ALONE) return WEFT_OK;
    if (p->window > 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: a window of %u beside recurrent layers is not supported", path,
                            p->window);
    const struct {
        const char *what;
        uint32_t value, min, max;
    } ranges[] = {
        {"width of convolutions", r->conv_width, 2, WEFT_CONV_WIDTH_MAX},
        {"number of recurrent heads", r->n_heads, has_heads, WEFT_HEADS_MAX},
        {"dimension of recurrent heads", r->head_dim, has_heads, WEFT_HEAD_DIM_MAX},
        {"number of groups of recurrent heads", r->n_groups, has_heads, WEFT_HEADS_MAX},
        {"size of recurrent states", r->state_dim, has_heads, WEFT_HEAD_DIM_MAX},
        {"number of channels of a convolution", weft_model_conv_channels(p), 1, WEFT_HIDDEN_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %u; %u to %u are allowed", path,
                            ranges[i].what, ranges[i].value, ranges[i].min, ranges[i].max);
    }
    if (has_heads && (r->n_heads % r->n_groups != 0 ||
                      (r->norm_groups > 0 && r->n_heads * r->head_dim % r->norm_groups != 0)))
        return weft_err_set(why, WEFT_E_PROTO, "%s: %u recurrent heads in %u groups do not go",
                            path, r->n_heads, r->n_groups);
    if (r->dt_min >= 0 && (r->kind == WEFT_MODEL_CONV || r->dt_max > r->dt_min)) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "%s: steps of time from %g to %g are none", path,
                        (double)r->dt_min, (double)r->dt_max);
}

static weft_err check_llama3(const struct weft_model_params *p, const char *path,
                             struct weft_errmsg *why) {
    double low = p->rope_low_freq_factor, high = p->rope_high_freq_factor;
    if (low > 0 && low <= high && isfinite(high)) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: the llama3 RoPE scaling needs 0 < low_freq_factor <= "
                        "high_freq_factor and has %g and %g",
                        path, low, high);
}

static weft_err check_yarn(const struct weft_model_params *p, const char *path,
                           struct weft_errmsg *why) {
    double fast = p->yarn_beta_fast, slow = p->yarn_beta_slow;
    if (!(slow > 0 && slow <= fast && isfinite(fast)))
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the YaRN RoPE scaling needs 0 < beta_slow <= beta_fast and has %g "
                            "and %g",
                            path, slow, fast);
    if (p->rope_theta > 1) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "%s: the YaRN RoPE scaling needs a RoPE base over 1",
                        path);
}

static weft_err check_longrope(const struct weft_model_params *p, const char *path,
                               struct weft_errmsg *why) {
    WEFT_ASSERT(p->rope_dim <= WEFT_HEAD_DIM_MAX); /* checked before scaling is */
    for (uint32_t i = 0; i < p->rope_dim; i++) {
        bool is_long = i % 2;
        double factor = (is_long ? p->rope_long_factors : p->rope_short_factors)[i / 2];
        if (factor >= 1e-6 && factor <= 1e6) continue;
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the %s factor %u of LongRoPE is %g; 1e-6 to 1e6 are allowed", path,
                            is_long ? "long" : "short", i / 2, factor);
    }
    return WEFT_OK;
}

static weft_err check_rope_scaling(const struct weft_model_params *p, const char *path,
                                   struct weft_errmsg *why) {
    if (!(p->rope_factor >= 1 && p->rope_factor <= 1e6)) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the RoPE scaling factor is %g; 1 to 1e6 are allowed", path,
                            p->rope_factor);
    }
    if (p->rope_scaling == WEFT_ROPE_LINEAR || p->rope_scaling == WEFT_ROPE_DYNAMIC ||
        p->rope_scaling == WEFT_ROPE_NTK || p->rope_scaling == WEFT_ROPE_PROPORTIONAL)
        return WEFT_OK;
    weft_err err = WEFT_OK;
    if (p->rope_scaling == WEFT_ROPE_LLAMA3) err = check_llama3(p, path, why);
    if (p->rope_scaling == WEFT_ROPE_YARN) err = check_yarn(p, path, why);
    if (p->rope_scaling == WEFT_ROPE_LONGROPE) err = check_longrope(p, path, why);
    if (err) return err;
    if (p->rope_original_context < 1 || p->rope_original_context > WEFT_CONTEXT_MAX) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the original context length of the RoPE scaling is %u; 1 to %u "
                            "are allowed",
                            path, p->rope_original_context, WEFT_CONTEXT_MAX);
    }
    return WEFT_OK;
}

void wefti_model_params_set_latent(struct weft_model_params *p) {
    p->n_kv_heads = 1;
    p->head_dim = UINT32_MAX; /* refused later */
    if (p->kv_lora > 0 && p->kv_lora <= WEFT_KV_DIM_MAX && p->rope_dim <= WEFT_KV_DIM_MAX)
        p->head_dim = p->kv_lora + p->rope_dim;
}

static weft_err check_latent(const struct weft_model_params *p, const char *path,
                             struct weft_errmsg *why) {
    if (p->kv_lora == 0 && p->v_dim == 0) return WEFT_OK;
    const struct {
        const char *what;
        uint32_t value, min, max;
    } ranges[] = {
        {"rank of the latent", p->kv_lora, 1, WEFT_KV_DIM_MAX},
        {"rank of queries", p->q_lora, 0, WEFT_HIDDEN_MAX},
        {"part of a head that does not turn", p->nope_dim, 1, WEFT_HEAD_DIM_MAX},
        {"part of a head that turns", p->rope_dim, 1, WEFT_HEAD_DIM_MAX},
        {"dimension of a head's values", p->v_dim, 1, WEFT_HEAD_DIM_MAX},
        {"number of predicting layers", p->n_predict, 0, WEFT_LAYERS_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %u; %u to %u are allowed", path,
                            ranges[i].what, ranges[i].value, ranges[i].min, ranges[i].max);
    }
    return WEFT_OK;
}

/* Whether each layer without keys and values has another one to read. */
static weft_err check_shared_kv(const struct weft_model_params *p, const char *path,
                                struct weft_errmsg *why) {
    const uint32_t n_shared = p->unlike.n_shared_kv;
    if (n_shared >= p->n_layers)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: %u of %u layers share the keys and values of earlier ones", path,
                            n_shared, p->n_layers);
    for (uint32_t i = p->n_layers - n_shared; i < p->n_layers; i++) {
        if (weft_model_kv_layer(p, i) != i) continue;
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: layer %u shares keys and values, but no layer of its kind before "
                            "the last %u has any",
                            path, i, n_shared);
    }
    return WEFT_OK;
}

static weft_err check_unlike(const struct weft_model_params *p, const char *path,
                             struct weft_errmsg *why) {
    const struct weft_model_unlike *u = &p->unlike;
    const bool has_inputs = u->layer_input > 0;
    const struct {
        const char *what;
        uint32_t value, min, max;
    } ranges[] = {
        {"head dimension of layers with a window", u->local_head_dim, 0, WEFT_HEAD_DIM_MAX},
        {"number of KV heads of layers with a window", u->local_kv_heads, 0, p->n_heads},
        {"feed-forward size of wide layers", u->n_ffn_wide, 0, WEFT_HIDDEN_MAX},
        {"number of pairs that turn", u->rope_pairs, p->rope_scaling == WEFT_ROPE_PROPORTIONAL,
         p->rope_dim / 2},
        {"size of a layer's embeddings", u->layer_input, 0, WEFT_HIDDEN_MAX / p->n_layers},
        {"number of tokens with an embedding for each layer", u->n_vocab_input, has_inputs,
         WEFT_VOCAB_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %u; %u to %u are allowed", path,
                            ranges[i].what, ranges[i].value, ranges[i].min, ranges[i].max);
    }
    if (u->local_kv_heads > 0 && p->n_heads % u->local_kv_heads != 0)
        return weft_err_set(
            why, WEFT_E_PROTO,
            "%s: %u attention heads are not a multiple of the %u KV heads of layers with a window",
            path, p->n_heads, u->local_kv_heads);
    if (u->local_head_dim % 2 != 0)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: the head dimension of layers with a window is %u; it must be even",
                            path, u->local_head_dim);
    if (u->ffn_beside && u->n_ffn_wide > 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: wide layers beside layers with experts are not supported", path);
    return check_shared_kv(p, path, why);
}

weft_err wefti_model_params_check_indexer(const struct weft_model_params *p, const char *path,
                                          struct weft_errmsg *why) {
    const struct weft_model_indexer *indexer = &p->indexer;
    const struct {
        const char *what;
        uint32_t value, max;
    } ranges[] = {
        {"number of the indexer's heads", indexer->n_heads, WEFT_HEADS_MAX},
        {"dimension of the indexer's heads", indexer->head_dim, WEFT_HEAD_DIM_MAX},
        {"number of positions that the indexer chooses", indexer->top_k, WEFT_CONTEXT_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value >= 1 && ranges[i].value <= ranges[i].max) continue;
        return weft_err_set(why, WEFT_E_PROTO, "%s: the %s is %u; 1 to %u are allowed", path,
                            ranges[i].what, ranges[i].value, ranges[i].max);
    }
    return WEFT_OK;
}

/* What an indexer needs of the rest. */
static weft_err check_indexed(const struct weft_model_params *p, const char *path,
                              struct weft_errmsg *why) {
    const struct weft_model_indexer *indexer = &p->indexer;
    if (indexer->n_heads == 0) return WEFT_OK;
    if (p->rope_dim > indexer->head_dim)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: %u elements turn, but the indexer's heads have %u", path,
                            p->rope_dim, indexer->head_dim);
    if (p->window > 0)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: a window of %u beside an indexer is not supported", path,
                            p->window);
    if (p->q_lora > 0) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: the indexer reads queries of a lower rank, which are not there: the "
                        "rank of queries is 0",
                        path);
}

static weft_err check_rope(const struct weft_model_params *p, const char *path,
                           struct weft_errmsg *why) {
    /* Written so that NaN fails. */
    if (!(p->rope_theta >= 1 && p->rope_theta <= 1e15)) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: the RoPE base is %g; 1 to 1e15 are allowed",
                            path, p->rope_theta);
    }
    if (!(p->local_rope_theta == 0 || (p->local_rope_theta >= 1 && p->local_rope_theta <= 1e15)))
        return weft_err_set(
            why, WEFT_E_PROTO,
            "%s: the RoPE base of layers with a window is %g; 1 to 1e15 are allowed", path,
            p->local_rope_theta);
    weft_err err = p->rope_scaling == WEFT_ROPE_NONE ? WEFT_OK : check_rope_scaling(p, path, why);
    if (err) return err;
    double magnitude = p->rope_magnitude, mscale = p->yarn_mscale;
    if (magnitude > 0 && magnitude <= 1e3 && mscale > 0 && mscale <= 1e3) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: RoPE's factors on attention are %g and %g; over 0 and up to 1000 are "
                        "allowed",
                        path, magnitude, mscale);
}

weft_err wefti_model_params_check(const struct weft_model_params *p, const char *path,
                                  struct weft_errmsg *why) {
    weft_err err = check_latent(p, path, why);
    if (!err) err = check_indexed(p, path, why);
    if (!err) err = check_ranges(p, path, why);
    if (err) return err;
    if (p->n_heads % p->n_kv_heads != 0) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: %u attention heads are not a multiple of %u KV heads", path,
                            p->n_heads, p->n_kv_heads);
    }
    if (p->head_dim % 2 != 0 && p->kv_lora == 0) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: the head dimension is %u; it must be even",
                            path, p->head_dim);
    }
    if (!(p->rms_eps >= 0 && p->rms_eps < 1)) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: the RMS norm epsilon is %g; 0 to 1 are allowed",
                            path, (double)p->rms_eps);
    }
    if (p->rope_dim % 2 != 0 || p->rope_dim < 2 || p->rope_dim > p->head_dim) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: %u of %u elements of a head turn; it must be an even number", path,
                            p->rope_dim, p->head_dim);
    }
    err = check_encoder(p, path, why);
    if (!err) err = check_scales(p, path, why);
    if (!err) err = check_experts(p, path, why);
    if (!err) err = check_recurrent(p, path, why);
    if (!err) err = check_unlike(p, path, why);
    return err ? err : check_rope(p, path, why);
}

void wefti_model_params_set_name(struct weft_model_params *params, const char *name, size_t len) {
    size_t n = len < sizeof params->name ? len : sizeof params->name - 1;
    /* A cut may fall into a character; then its leading bytes (at most three) go, too. */
    for (size_t cut = 0; cut < 3 && n < len && n > 0 && !weft_utf8_valid(name, n); cut++) {
        n--;
    }
    bool utf8 = weft_utf8_valid(name, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        bool keep = c >= 0x20 && c != 0x7f && (c < 0x80 || utf8);
        params->name[i] = keep ? name[i] : '?';
    }
    WEFT_ASSERT(n < sizeof params->name);
    params->name[n] = 0;
}
