/* The metadata of a GGUF file under its architecture's name. Unsupported options that would change
 * the arithmetic are refused by name, never ignored. */
#include "gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "params.h"

struct config {
    const weft_gguf *gguf;
    const char *path;
    struct weft_errmsg *why;
    const struct wefti_model_arch *arch;
};

/* "block_count" */
struct key {
    char text[96];
};

static struct key key_of(const struct config *c, const char *name) {
    struct key key;
    int n = snprintf(key.text, sizeof key.text, "%s.%s", c->arch->name, name);
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof key.text);
    return key;
}

static bool has(const struct config *c, const char *name) {
    return wefti_model_gguf_find(c->gguf, key_of(c, name).text) != NULL;
}

static bool str_is(struct weft_str str, const char *text) {
    return str.len == strlen(text) && memcmp(str.data, text, str.len) == 0;
}

static weft_err wrong_type(const struct config *c, const char *key, const char *wanted) {
    return weft_err_set(c->why, WEFT_E_PROTO, "%s: %s is not %s", c->path, key, wanted);
}

static weft_err unsupported(const struct config *c, const char *key, struct weft_str value) {
    struct wefti_model_shown shown = wefti_model_show(value.data, value.len);
    return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s '%s' is not supported", c->path, key,
                        shown.text);
}

#define REQUIRED UINT32_MAX /* as the default of get_u32 */

/* Ranges are checked later, for all formats alike (params.c). */
static weft_err get_whole(const struct config *c, const char *key, uint32_t default_value,
                          uint32_t *out) {
    uint64_t value;
    size_t count;
    enum weft_gguf_type type;
    *out = default_value;
    if (!wefti_model_gguf_find(c->gguf, key)) {
        if (default_value != REQUIRED) return WEFT_OK;
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: has no %s", c->path, key);
    }
    if (weft_gguf_array(c->gguf, key, &type, &count)) {
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: %s differs from layer to layer, which is not supported", c->path,
                            key);
    }
    if (!weft_gguf_u64(c->gguf, key, &value)) return wrong_type(c, key, "a whole number");
    if (value >= UINT32_MAX) {
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: %s is %" PRIu64 ", which is out of range",
                            c->path, key, value);
    }
    *out = (uint32_t)value;
    return WEFT_OK;
}

static weft_err get_u32(const struct config *c, const char *name, uint32_t default_value,
                        uint32_t *out) {
    return get_whole(c, key_of(c, name).text, default_value, out);
}

/* Element `i` of a list of a number per layer, or the number that all have; 0: it is neither. */
static int64_t number_of_layer(const struct config *c, const char *name, uint32_t i) {
    const struct key key = key_of(c, name);
    int64_t value = 0;
    uint64_t all = 0;
    if (weft_gguf_array_i64(c->gguf, key.text, i, &value)) return value;
    return weft_gguf_u64(c->gguf, key.text, &all) && all < UINT32_MAX ? (int64_t)all : 0;
}

/* The same as get_u32 of a number, or of a list of one number for all layers. In hybrids some, which
 * lack the part, have 0; of layers that are not alike it is the largest (read_unlike). */
static weft_err get_largest(const struct config *c, const char *name, uint32_t default_value,
                            uint32_t *out) {
    const struct key key = key_of(c, name);
    enum weft_gguf_type type;
    size_t count;
    int64_t value;
    const bool by_kind = c->arch->traits.heads_by_kind;
    const bool may_lack = c->arch->traits.mamba || c->arch->traits.conv || by_kind;
    if (!weft_gguf_array(c->gguf, key.text, &type, &count))
        return get_whole(c, key.text, default_value, out);
    *out = 0;
    if (count > WEFT_LAYERS_MAX) return wrong_type(c, key.text, "a list of a number per layer");
    for (size_t i = 0; i < count; i++) {
        if (!weft_gguf_array_i64(c->gguf, key.text, i, &value) || value < 0 || value >= UINT32_MAX)
            return wrong_type(c, key.text, "a list of whole numbers");
        const bool is_lacking = !may_lack && value == 0;
        if (is_lacking || (*out > 0 && value > 0 && (uint32_t)value != *out && !by_kind))
            return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                                "%s: %s differs from layer to layer, which is not supported",
                                c->path, key.text);
        if (value > 0) *out = weft_max_u32(*out, (uint32_t)value);
    }
    return WEFT_OK;
}

/* Leaves *out alone when there is no such key. */
static weft_err get_double(const struct config *c, const char *name, double *out) {
    struct key key = key_of(c, name);
    if (!has(c, name) || weft_gguf_f64(c->gguf, key.text, out)) return WEFT_OK;
    return wrong_type(c, key.text, "a floating-point number");
}

static weft_err check_kind(struct config *c) {
    struct weft_str value;
    if (!weft_gguf_str(c->gguf, "general.architecture", &value)) {
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: has no general.architecture", c->path);
    }
    c->arch = wefti_model_arch_of_gguf(value);
    if (!c->arch || c->arch->traits.folder)
        return wefti_model_arch_refuse(c->path, WEFTI_MODEL_BY_GGUF, value, c->why);
    if (weft_gguf_str(c->gguf, "general.type", &value) && !str_is(value, "model")) {
        return unsupported(c, "general.type", value);
    }
    return WEFT_OK;
}

static weft_err read_sizes(const struct config *c, struct weft_model_params *p) {
    enum weft_gguf_type type;
    size_t n_tokens = 0;
    /* The vocabulary's size may be left to the token list. */
    if (!weft_gguf_array(c->gguf, "tokenizer.ggml.tokens", &type, &n_tokens) ||
        n_tokens > WEFT_VOCAB_MAX) {
        n_tokens = REQUIRED;
    }
    const struct {
        const char *key;
        uint32_t default_value;
        uint32_t *out;
    } sizes[] = {
        {"block_count", REQUIRED, &p->n_layers},
        {"attention.head_count", REQUIRED, &p->n_heads},
        {"attention.key_length", 0, &p->head_dim},
        {"embedding_length", REQUIRED, &p->n_hidden},
        {"vocab_size", (uint32_t)n_tokens, &p->n_vocab},
        {"context_length", REQUIRED, &p->n_context},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        weft_err err = get_u32(c, sizes[i].key, sizes[i].default_value, sizes[i].out);
        if (err) return err;
    }
    weft_err err = get_largest(c, "attention.head_count_kv", p->n_heads, &p->n_kv_heads);
    if (!err) err = get_largest(c, "feed_forward_length", REQUIRED, &p->n_ffn);
    if (err) return err;
    if (has(c, "attention.key_length") || p->n_heads == 0) return WEFT_OK;
    if (c->arch->traits.latent) return WEFT_OK;
    if (p->n_hidden % p->n_heads != 0) {
        return weft_err_set(
            c->why, WEFT_E_PROTO,
            "%s: the embedding length %u is not a multiple of the %u attention heads", c->path,
            p->n_hidden, p->n_heads);
    }
    p->head_dim = p->n_hidden / p->n_heads;
    return WEFT_OK;
}

/* Keys that must be absent, or have the one value that changes nothing. */
static weft_err check_options(const struct config *c, const struct weft_model_params *p) {
    static const char value_key[] = "attention.value_length", clamp_key[] = "attention.clamp_kqv";
    uint32_t value_length;
    double clamp = 0;
    bool causal = true;
    weft_err err = get_u32(c, value_key, p->head_dim, &value_length);
    if (!err) err = get_double(c, clamp_key, &clamp);
    if (err) return err;
    if (value_length != p->head_dim && !c->arch->traits.latent)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: %s is %u; only %u is supported in this model", c->path,
                            key_of(c, value_key).text, value_length, p->head_dim);
    if (clamp != 0)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s %g is not supported", c->path,
                            key_of(c, clamp_key).text, clamp);
    struct key key = key_of(c, "attention.causal");
    bool is_encoder = c->arch->traits.encoder, is_said = has(c, "attention.causal");
    if (is_said && !weft_gguf_bool(c->gguf, key.text, &causal))
        return wrong_type(c, key.text, "a boolean");
    if (is_said && causal == is_encoder) {
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s %s is not supported", c->path,
                            key.text, causal ? "true" : "false");
    }
    return WEFT_OK;
}

/* Follows read_rope. Newer files describe the cache's row as the head, and heads by
 * separate keys. */
static weft_err read_latent(const struct config *c, struct weft_model_params *p) {
    const char *key =
        has(c, "attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
    const char *value = has(c, "attention.value_length_mla") ? "attention.value_length_mla"
                                                             : "attention.value_length";
    uint32_t head_dim;
    weft_err err = get_u32(c, "attention.kv_lora_rank", REQUIRED, &p->kv_lora);
    if (!err) err = get_u32(c, "attention.q_lora_rank", 0, &p->q_lora);
    if (!err) err = get_u32(c, key, REQUIRED, &head_dim);
    if (!err) err = get_u32(c, value, REQUIRED, &p->v_dim);
    if (!err) err = get_u32(c, "rope.dimension_count", REQUIRED, &p->rope_dim);
    if (err) return err;
    p->nope_dim = head_dim > p->rope_dim ? head_dim - p->rope_dim : 0; /* refused later */
    wefti_model_params_set_latent(p);
    return WEFT_OK;
}

/* What files do not say is how keys and queries turn: as the architecture has it. */
static weft_err read_indexer(const struct config *c, struct weft_model_params *p) {
    struct weft_model_indexer *indexer = &p->indexer;
    weft_err err = get_u32(c, "attention.indexer.head_count", REQUIRED, &indexer->n_heads);
    if (!err) err = get_u32(c, "attention.indexer.key_length", REQUIRED, &indexer->head_dim);
    if (!err) err = get_u32(c, "attention.indexer.top_k", REQUIRED, &indexer->top_k);
    indexer->pairs = c->arch->traits.index_pairs;
    return err ? err : wefti_model_params_check_indexer(p, c->path, c->why);
}

static weft_err read_window(const struct config *c, struct weft_model_params *p) {
    uint32_t window, missing = strcmp(c->arch->name, "gemma2") == 0 ? c->arch->window : 0;
    weft_err err = get_u32(c, "attention.sliding_window", missing, &window);
    const struct wefti_model_traits *traits = &c->arch->traits;
    if (!err && window && traits->norms_after && !traits->pattern) /* OLMo 3 by OLMo 2's name */
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: %s is %u; a window in some layers alone is not supported", c->path,
                            key_of(c, "attention.sliding_window").text, window);
    p->window = !err && window < p->n_context ? window : 0; /* else nothing is ever outside it */
    return err;
}

/* DeepSeek's YaRN gets no factor on magnitudes: it would be 1 in all of its models. */
static weft_err read_yarn(const struct config *c, double factor, struct weft_model_params *p) {
    static const char ext_key[] = "rope.scaling.yarn_ext_factor";
    double log_multiplier = 0, ext = 1;
    p->rope_scaling = WEFT_ROPE_YARN;
    if (p->rope_original_context == 0) p->rope_original_context = p->n_context;
    p->rope_factor = factor != 0 ? factor : (double)p->n_context / p->rope_original_context;
    p->yarn_beta_fast = 32;
    p->yarn_beta_slow = 1;
    weft_err err = get_double(c, "rope.scaling.yarn_beta_fast", &p->yarn_beta_fast);
    if (!err) err = get_double(c, "rope.scaling.yarn_beta_slow", &p->yarn_beta_slow);
    if (!err) err = get_double(c, "rope.scaling.yarn_log_multiplier", &log_multiplier);
    if (!err) err = get_double(c, ext_key, &ext);
    if (!err && ext != 1)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s is %g; only 1 is supported",
                            c->path, key_of(c, ext_key).text, ext);
    /* The file holds a tenth of the factor. */
    p->yarn_mscale = wefti_model_yarn_mscale(p->rope_factor, log_multiplier * 10);
    double magnitude = log_multiplier == 0 ? wefti_model_yarn_mscale(p->rope_factor, 1) : 1;
    if (!err) err = get_double(c, "rope.scaling.yarn_attn_factor", &magnitude);
    p->rope_magnitude *= magnitude;
    wefti_model_yarn_stretch(p);
    return err;
}

/* LongRoPE is known by its tensors (roles.c); files need not say so here. */
static void expect_longrope(struct weft_model_params *p) {
    p->rope_scaling = WEFT_ROPE_LONGROPE;
    if (p->rope_original_context == 0) p->rope_original_context = p->n_context;
    for (size_t i = 0; i < WEFT_HEAD_DIM_MAX / 2; i++)
        p->rope_long_factors[i] = p->rope_short_factors[i] = 1;
}

static weft_err read_rope(const struct config *c, struct weft_model_params *p) {
    const struct key type_key = key_of(c, "rope.scaling.type");
    struct weft_str type = {"linear", 6}; /* a factor alone means linear */
    double factor = 0;
    p->rope_theta = 10000;
    p->rope_factor = 1;
    p->rope_scaling = WEFT_ROPE_NONE;
    weft_err err = get_u32(c, "rope.dimension_count", p->head_dim, &p->rope_dim);
    if (!err) err = get_double(c, "rope.freq_base", &p->rope_theta);
    if (!err) err = get_double(c, "rope.scale_linear", &factor); /* an older name */
    if (!err) err = get_double(c, "rope.scaling.factor", &factor);
    if (!err) err = get_double(c, "rope.scaling.attn_factor", &p->rope_magnitude);
    if (!err)
        err = get_u32(c, "rope.scaling.original_context_length", 0, &p->rope_original_context);
    if (err) return err;
    if (has(c, "rope.scaling.type") && !weft_gguf_str(c->gguf, type_key.text, &type)) {
        return wrong_type(c, type_key.text, "a string");
    }
    if (str_is(type, "none")) return WEFT_OK;
    if (str_is(type, "yarn")) return read_yarn(c, factor, p);
    if (str_is(type, "longrope")) {
        expect_longrope(p);
        return WEFT_OK;
    }
    if (!str_is(type, "linear")) return unsupported(c, type_key.text, type);
    if (factor == 0) return WEFT_OK; /* not given, or written as "unknown" */
    p->rope_scaling = WEFT_ROPE_LINEAR;
    p->rope_factor = factor;
    return WEFT_OK;
}

static weft_err get_bool(const struct config *c, const char *name, bool *out) {
    struct key key = key_of(c, name);
    if (!has(c, name) || weft_gguf_bool(c->gguf, key.text, out)) return WEFT_OK;
    return wrong_type(c, key.text, "a boolean");
}

/* Of as many experts as it counts; too many are refused later. */
static void set_shared(struct weft_model_moe *moe, uint32_t n_shared) {
    if (n_shared > WEFT_EXPERTS_MAX || moe->n_ffn > WEFT_HIDDEN_MAX)
        moe->n_ffn_shared = UINT32_MAX;
    else
        moe->n_ffn_shared = n_shared * moe->n_ffn;
}

/* DeepSeek's way of choosing, and its layers without experts. */
static weft_err read_deepseek_experts(const struct config *c, struct weft_model_params *p) {
    enum { SOFTMAX = 1, SIGMOID = 2 };
    struct weft_model_moe *moe = &p->moe;
    uint32_t n_plain = 0, n_shared = 0, func = SOFTMAX;
    double scale = 1;
    weft_err err = get_u32(c, "leading_dense_block_count", 0, &n_plain);
    if (!err) err = get_u32(c, "expert_shared_count", 0, &n_shared);
    if (!err) err = get_u32(c, "expert_gating_func", SOFTMAX, &func);
    if (!err) err = get_double(c, "expert_weights_scale", &scale);
    if (err) return err;
    if (func != SOFTMAX && func != SIGMOID)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s %u is not supported", c->path,
                            key_of(c, "expert_gating_func").text, func);
    /* The third version scores by the sigmoid, has the bias, and ranks groups by two experts. */
    moe->sigmoid = moe->score_bias = moe->by_two = func == SIGMOID;
    moe->scale = (float)scale;
    for (uint32_t i = 0; i < p->n_layers && i < n_plain; i++)
        wefti_model_set_bit(p->no_experts, i);
    set_shared(moe, n_shared);
    return WEFT_OK;
}

/* How the others score and choose, their shared experts and the layers without any. */
static weft_err read_router(const struct config *c, struct weft_model_params *p) {
    enum { SOFTMAX = 1, SIGMOID = 2 };
    struct weft_model_moe *moe = &p->moe;
    const struct wefti_model_traits traits = c->arch->traits;
    uint32_t func = traits.sigmoid ? SIGMOID : SOFTMAX, n_plain = 0, n_shared = 0;
    double scale = 1;
    weft_err err = get_u32(c, "expert_gating_func", func, &func);
    if (!err) err = get_u32(c, "leading_dense_block_count", 0, &n_plain);
    if (!err) err = get_u32(c, "expert_shared_count", 0, &n_shared);
    if (!err) err = get_double(c, "expert_weights_scale", &scale);
    if (!err && func != SOFTMAX && func != SIGMOID)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s %u is not supported", c->path,
                            key_of(c, "expert_gating_func").text, func);
    moe->sigmoid = func == SIGMOID;
    moe->by_two = moe->sigmoid && moe->n_groups != 1;
    moe->score_bias = traits.score_bias;
    moe->scale = (float)scale;
    for (uint32_t i = 0; i < p->n_layers && i < n_plain; i++)
        wefti_model_set_bit(p->no_experts, i);
    if (err || traits.shared_gate) return err;
    set_shared(moe, n_shared);
    return get_u32(c, "expert_shared_feed_forward_length", moe->n_ffn_shared, &moe->n_ffn_shared);
}

/* Mixtral's files call themselves "llama". */
static weft_err read_experts(const struct config *c, struct weft_model_params *p) {
    struct weft_model_moe *moe = &p->moe;
    struct wefti_model_traits traits = c->arch->traits;
    *moe = (struct weft_model_moe){.scale = 1, .n_groups = 1, .n_groups_used = 1};
    weft_err err = get_u32(c, "expert_count", 0, &moe->n_experts);
    /* Granite 4's part beside the experts is all there is without them; the other size is theirs. */
    if (!err && moe->n_experts == 0 && traits.scales)
        return get_u32(c, "expert_shared_feed_forward_length", p->n_ffn, &p->n_ffn);
    if (err || moe->n_experts == 0) return err;
    bool is_llama = strcmp(c->arch->name, "llama") == 0;
    if (!is_llama && !traits.experts)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s is %u; only 0 is supported in %s",
                            c->path, key_of(c, "expert_count").text, moe->n_experts, c->arch->name);
    moe->normalise = is_llama || traits.normalised || traits.qk_norm;
    err = get_u32(c, "expert_used_count", REQUIRED, &moe->n_used);
    if (!err) err = get_largest(c, "expert_feed_forward_length", p->n_ffn, &moe->n_ffn);
    if (!err) err = get_bool(c, "expert_weights_norm", &moe->normalise);
    if (!err) err = get_u32(c, "moe_latent_size", 0, &moe->n_latent);
    if (!err) err = get_u32(c, "expert_group_count", 1, &moe->n_groups);
    if (!err) err = get_u32(c, "expert_group_used_count", 1, &moe->n_groups_used);
    if (moe->n_groups == 0) moe->n_groups = moe->n_groups_used = 1; /* as llama.cpp reads it */
    if (!err && traits.shared_gate) {
        moe->shared_gate = true;
        err = get_u32(c, "expert_shared_feed_forward_length", REQUIRED, &moe->n_ffn_shared);
    }
    if (err) return err;
    err = traits.deepseek ? read_deepseek_experts(c, p) : read_router(c, p);
    if (err || !traits.ffn_beside) return err;
    p->unlike.ffn_beside = 1;
    moe->n_ffn_shared = p->n_ffn;
    return WEFT_OK;
}

/* Granite's scales; logits are divided by theirs. */
static weft_err read_scales(const struct config *c, struct weft_model_params *p) {
    double embed = 1, residual = 1, attention = 0, logits = 1;
    weft_err err = get_double(c, "embedding_scale", &embed);
    if (!err) err = get_double(c, "residual_scale", &residual);
    if (!err) err = get_double(c, "attention.scale", &attention);
    if (!err) err = get_double(c, "logit_scale", &logits);
    p->embed_scale = (float)embed;
    p->residual_scale = (float)residual;
    p->attn_scale = (float)attention;
    p->logit_scale = (float)(1 / logits);
    return err;
}

/* As in llama.cpp, what the converter leaves out follows from the architecture. */
static weft_err read_gemma(const struct config *c, struct weft_model_params *p) {
    bool is_local = c->arch->traits.local_rope;
    uint32_t pattern = is_local ? 6 : 2;
    uint32_t n_largest = is_local ? 62 : 46; /* layers of the 27B */
    double attn_cap = is_local ? 0 : 50, logit_cap = is_local ? 0 : 30;
    weft_err err = get_double(c, "attn_logit_softcapping", &attn_cap);
    if (!err) err = get_double(c, "final_logit_softcapping", &logit_cap);
    if (!err && is_local) err = get_double(c, "rope.freq_base_swa", &p->local_rope_theta);
    if (is_local && !has(c, "attention.sliding_window")) pattern = 1; /* all layers see all */
    for (uint32_t i = pattern - 1; i < p->n_layers; i += pattern)
        wefti_model_set_bit(p->no_window, i);
    p->embed_scale = sqrtf((float)p->n_hidden);
    p->attn_soft_cap = (float)attn_cap;
    p->logit_soft_cap = (float)logit_cap;
    if (p->n_layers == n_largest) p->attn_scale = sqrtf((float)p->n_heads / (float)p->n_hidden);
    return err;
}

/* Whether layer `i` sees everything: by a list that says who has the window, or each nth. */
static weft_err read_full(const struct config *c, const char *key, uint32_t i, bool *is_full_out) {
    enum weft_gguf_type type;
    size_t count;
    int64_t has_window;
    uint32_t period = c->arch->traits.every_second ? 2 : 4;
    if (weft_gguf_array(c->gguf, key, &type, &count)) {
        if (!weft_gguf_array_i64(c->gguf, key, i, &has_window))
            return wrong_type(c, key, "a list of a flag per layer");
        *is_full_out = !has_window;
        return WEFT_OK;
    }
    weft_err err = get_whole(c, key, period, &period);
    if (!err && period == 0) return wrong_type(c, key, "over 0");
    *is_full_out = !err && (i + 1) % period == 0;
    return err;
}

/* Which layers have the window. */
static weft_err read_pattern(const struct config *c, struct weft_model_params *p) {
    const struct key key = key_of(c, "attention.sliding_window_pattern");
    weft_err err = WEFT_OK;
    if (!has(c, "attention.sliding_window")) return WEFT_OK; /* no layer */
    for (uint32_t i = 0; i < p->n_layers && !err; i++) {
        bool is_full = false;
        err = read_full(c, key.text, i, &is_full);
        if (!is_full) continue;
        wefti_model_set_bit(p->no_window, i);
        if (c->arch->traits.turns_windowed) wefti_model_set_bit(p->no_rope, i);
    }
    return err;
}

/* The number of layer `i`, which all layers with a window share, or all others: *io is 0, or another layer's. */
static weft_err read_by_kind(const struct config *c, const char *name, uint32_t i, uint32_t *io) {
    const int64_t value = number_of_layer(c, name, i);
    if (value <= 0 || value >= UINT32_MAX)
        return wrong_type(c, key_of(c, name).text, "a number over 0, or a list of one per layer");
    if (*io > 0 && *io != (uint32_t)value)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: %s is %u and %u in layers of one kind, which is not supported",
                            c->path, key_of(c, name).text, *io, (uint32_t)value);
    *io = (uint32_t)value;
    return WEFT_OK;
}

/* Layers with a window have heads of their own; some layers may have a wider feed-forward part. */
static weft_err read_layer_sizes(const struct config *c, struct weft_model_params *p) {
    static const char kv_name[] = "attention.head_count_kv", ffn_name[] = "feed_forward_length";
    struct weft_model_unlike *u = &p->unlike;
    uint32_t n_kv[2] = {0, 0}, n_ffn = 0, n_wide = 0; /* by whether there is a window */
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; !err && i < p->n_layers; i++) {
        const int64_t ffn = number_of_layer(c, ffn_name, i);
        err = read_by_kind(c, kv_name, i, &n_kv[weft_model_is_local(p, i)]);
        if (err) break;
        if (n_ffn == 0) n_ffn = ffn > 0 && ffn < UINT32_MAX ? (uint32_t)ffn : 0;
        if (n_ffn == 0)
            return wrong_type(c, key_of(c, ffn_name).text,
                              "a number over 0, or a list of one per layer");
        if (ffn == n_ffn) continue;
        if (n_wide == 0) n_wide = ffn > 0 && ffn < UINT32_MAX ? (uint32_t)ffn : 0;
        if (n_wide == 0 || ffn != n_wide)
            return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                                "%s: %s has more than two sizes, which is not supported", c->path,
                                key_of(c, ffn_name).text);
        wefti_model_set_bit(u->wide, i);
    }
    if (err) return err;
    p->n_kv_heads = n_kv[0] > 0 ? n_kv[0] : n_kv[1];
    u->local_kv_heads = n_kv[1] > 0 ? n_kv[1] : n_kv[0];
    p->n_ffn = n_ffn;
    u->n_ffn_wide = n_wide;
    return WEFT_OK;
}

/* Sizes and RoPE of layers with a window. */
static weft_err read_local_heads(const struct config *c, struct weft_model_params *p) {
    uint32_t *dim = &p->unlike.local_head_dim, value_dim, rope_dim;
    weft_err err = get_u32(c, "attention.key_length_swa", p->head_dim, dim);
    if (!err) err = get_u32(c, "attention.value_length_swa", *dim, &value_dim);
    if (!err) err = get_u32(c, "rope.dimension_count_swa", *dim, &rope_dim);
    if (!err) err = get_double(c, "rope.freq_base_swa", &p->local_rope_theta);
    if (err) return err;
    if (*dim == 0) return wrong_type(c, key_of(c, "attention.key_length_swa").text, "over 0");
    if (value_dim == *dim && rope_dim == *dim) return WEFT_OK;
    return weft_err_set(
        c->why, WEFT_E_UNSUPPORTED,
        "%s: heads of layers with a window have %u elements, values %u, of which %u "
        "turn; only equal numbers are supported",
        c->path, *dim, value_dim, rope_dim);
}

/* Layers that are not alike. Follows the pattern of windows; tensors say the rest (gguf_optional.c). */
static weft_err read_unlike(const struct config *c, struct weft_model_params *p) {
    const struct wefti_model_traits traits = c->arch->traits;
    struct weft_model_unlike *u = &p->unlike;
    double cap = (double)p->logit_soft_cap;
    uint32_t window;
    weft_err err = WEFT_OK;
    if (traits.heads_by_kind) {
        err = get_u32(c, "attention.sliding_window", REQUIRED, &window);
        if (!err) err = read_local_heads(c, p);
        if (!err) err = read_layer_sizes(c, p);
        if (!err) err = get_double(c, "final_logit_softcapping", &cap);
    }
    if (!err && traits.shares_kv)
        err = get_u32(c, "attention.shared_kv_layers", 0, &u->n_shared_kv);
    if (!err && traits.layer_input)
        err = get_u32(c, "embedding_length_per_layer_input", 0, &u->layer_input);
    if (u->layer_input > 0) u->n_vocab_input = p->n_vocab;
    p->logit_soft_cap = (float)cap;
    return err;
}

/* A base of their own for layers with a window, in families whose windows usually turn as the other layers do. */
static weft_err read_local_base(const struct config *c, struct weft_model_params *p) {
    static const char name[] = "rope.freq_base_swa";
    double theta = p->rope_theta;
    weft_err err = get_double(c, name, &theta);
    if (err || theta == p->rope_theta || p->window == 0) return err;
    if (p->rope_scaling != WEFT_ROPE_NONE)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: %s %g beside scaled positions is not supported", c->path,
                            key_of(c, name).text, theta);
    p->local_rope_theta = theta;
    return WEFT_OK;
}

/* Ministral 3: queries far behind the original context weigh more. Follows read_rope. */
static weft_err read_q_scaling(const struct config *c, struct weft_model_params *p) {
    static const char name[] = "attention.temperature_scale";
    double beta = 0;
    weft_err err = get_double(c, name, &beta);
    if (err || beta == 0) return err;
    if (!c->arch->traits.scales_q)
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s %g is not supported", c->path,
                            key_of(c, name).text, beta);
    if (p->rope_original_context == 0)
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: %s is %g, but %s is missing", c->path,
                            key_of(c, name).text, beta,
                            key_of(c, "rope.scaling.original_context_length").text);
    p->block.q_beta = (float)beta;
    p->block.q_step = p->rope_original_context;
    return WEFT_OK;
}

/* Layers that are built otherwise than Llama's; which biases there are tells roles.c by the tensors. */
static weft_err read_block(const struct config *c, struct weft_model_params *p) {
    bool parallel = p->block.parallel;
    double logit_scale = 1;
    weft_err err = get_bool(c, "use_parallel_residual", &parallel);
    if (!err && !c->arch->traits.scales) err = get_double(c, "logit_scale", &logit_scale);
    /* Of any family: who cannot guess by them (Qwen3.5) leaves their tensors out. */
    if (!err) err = get_u32(c, "nextn_predict_layers", 0, &p->n_predict);
    if (!err) err = read_q_scaling(c, p);
    if (err) return err;
    if (c->arch->traits.mup) p->embed_scale = sqrtf((float)p->n_hidden);
    if (parallel && !c->arch->traits.parallel) p->block.one_norm = 1;
    p->block.parallel = parallel;
    p->logit_scale = (float)logit_scale;
    p->block.yarn_smooth = p->rope_scaling == WEFT_ROPE_YARN && c->arch->traits.yarn_smooth;
    p->n_layers -= weft_min_u32(p->n_predict, p->n_layers - 1); /* they are counted */
    return WEFT_OK;
}

/* What files do not say of Llama 4 is what llama.cpp takes for granted, Maverick's lack of norms by its number of experts
 * among it. Follows the experts and the layers that do not turn. */
static weft_err read_llama4(const struct config *c, struct weft_model_params *p) {
    enum { CHUNK = 8192, STEP = 8192, MAVERICKS = 128 };
    uint32_t every = 1;
    weft_err err = get_u32(c, "interleave_moe_layer_step", 1, &every);
    if (!err && every == 0)
        return wrong_type(c, key_of(c, "interleave_moe_layer_step").text, "over 0");
    for (uint32_t i = 0; !err && i < p->n_layers; i++) {
        if ((i + 1) % every != 0) wefti_model_set_bit(p->no_experts, i);
        if (weft_model_bit(p->no_rope, i)) wefti_model_set_bit(p->no_window, i);
    }
    p->window = CHUNK < p->n_context ? CHUNK : 0;
    p->block.plain_qk_norm = p->moe.n_experts != MAVERICKS;
    p->block.q_step = STEP;
    p->block.q_beta = 0.1f;
    p->block.q_shift = p->block.q_unturned = 1;
    if (p->moe.n_ffn_shared == 0) p->moe.n_ffn_shared = p->moe.n_ffn;
    return err;
}

/* Whether a layer of gated DeltaNet's has attention: by a list of those that have not, or each nth. */
static weft_err has_full_attention(const struct config *c, uint32_t i, bool *out) {
    const struct key key = key_of(c, "attention.recurrent_layers");
    enum weft_gguf_type type;
    size_t count;
    int64_t is_recurrent = 0;
    uint32_t interval = 4;
    if (weft_gguf_array(c->gguf, key.text, &type, &count)) {
        if (!weft_gguf_array_i64(c->gguf, key.text, i, &is_recurrent))
            return wrong_type(c, key.text, "a list of a flag per layer");
        *out = !is_recurrent;
        return WEFT_OK;
    }
    weft_err err = get_u32(c, "full_attention_interval", 4, &interval);
    if (!err && interval == 0)
        return wrong_type(c, key_of(c, "full_attention_interval").text, "over 0");
    *out = !err && (i + 1) % interval == 0;
    return err;
}

/* Which layers are recurrent: those without KV heads, those of gated DeltaNet, or all. Layers of one part have a feed-forward
 * part where it has a size. */
static weft_err read_recurrent_layers(const struct config *c, struct weft_model_params *p) {
    const struct wefti_model_traits traits = c->arch->traits;
    struct weft_model_recurrent *r = &p->recurrent;
    weft_err err = WEFT_OK;
    for (uint32_t i = 0; !err && i < p->n_layers; i++) {
        bool has_attention = number_of_layer(c, "attention.head_count_kv", i) > 0;
        if (traits.delta) err = has_full_attention(c, i, &has_attention);
        const bool is_alone = traits.letters,
                   has_ffn = !is_alone || number_of_layer(c, "feed_forward_length", i) > 0;
        const bool is_recurrent = traits.beside || (!has_attention && !(is_alone && has_ffn));
        if (is_recurrent) wefti_model_set_bit(r->layers, i);
        if (!has_attention) wefti_model_set_bit(r->no_attention, i);
        if (!has_ffn) wefti_model_set_bit(r->no_ffn, i);
    }
    return err;
}

/* Layers with a state; the converter has turned A_log into what it stands for. */
static weft_err read_recurrent(const struct config *c, struct weft_model_params *p) {
    const struct wefti_model_traits traits = c->arch->traits;
    struct weft_model_recurrent *r = &p->recurrent;
    uint32_t inner = 0;
    weft_err err = WEFT_OK;
    if (traits.conv) {
        r->kind = WEFT_MODEL_CONV;
        err = get_u32(c, "shortconv.l_cache", REQUIRED, &r->conv_width);
        return err ? err : read_recurrent_layers(c, p);
    }
    if (!traits.mamba && !traits.delta) return WEFT_OK;
    err = get_u32(c, "ssm.conv_kernel", REQUIRED, &r->conv_width);
    if (!err) err = get_u32(c, "ssm.state_size", REQUIRED, &r->state_dim);
    if (!err) err = get_u32(c, "ssm.group_count", REQUIRED, &r->n_groups);
    if (!err) err = get_u32(c, "ssm.time_step_rank", REQUIRED, &r->n_heads);
    if (!err) err = get_u32(c, "ssm.inner_size", REQUIRED, &inner);
    if (err) return err;
    r->kind = traits.mamba ? WEFT_MODEL_MAMBA : WEFT_MODEL_DELTA;
    r->head_dim =
        r->n_heads > 0 && inner % r->n_heads == 0 ? inner / r->n_heads : 0; /* 0: refused */
    r->conv_bias = r->kind == WEFT_MODEL_MAMBA;
    r->norm_groups = r->kind == WEFT_MODEL_DELTA ? 0 : traits.granite_shared ? 1 : r->n_groups;
    r->rates_are_plain = 1;
    r->takes_turns = traits.tiled_heads;
    r->dt_max = INFINITY;
    /* Granite's files say whether attention turns by a flag that others have for something else. */
    bool turns = !traits.letters;
    if (traits.granite_shared) err = get_bool(c, "rope.scaling.finetuned", &turns);
    if (err) return err;
    if (!turns) {
        p->rope_dim = p->head_dim; /* whatever the file says of it */
        for (uint32_t i = 0; i < p->n_layers && i < WEFT_LAYERS_MAX; i++)
            wefti_model_set_bit(p->no_rope, i);
    }
    return read_recurrent_layers(c, p);
}

static weft_err read_traits(const struct config *c, struct weft_model_params *p) {
    weft_err err = read_window(c, p);
    if (!err) err = read_block(c, p);
    if (!err && c->arch->traits.pattern) err = read_pattern(c, p);
    if (!err && c->arch->traits.pattern && !c->arch->traits.heads_by_kind)
        err = read_local_base(c, p);
    if (!err) err = read_recurrent(c, p);
    if (!err) wefti_model_params_settle(p);
    if (!err) err = read_unlike(c, p);
    if (!err && c->arch->traits.gemma) err = read_gemma(c, p);
    if (!err && c->arch->traits.scales) err = read_scales(c, p);
    for (uint32_t i = 3; i < p->n_layers && c->arch->traits.no_rope; i += 4)
        wefti_model_set_bit(p->no_rope, i);
    if (!err) err = read_experts(c, p);
    return !err && c->arch->traits.llama4 ? read_llama4(c, p) : err;
}

/* llama.cpp's files do not say which GELU a BERT has: it is the exact one, as in all of its configurations. */
static weft_err read_encoder(const struct config *c, struct weft_model_params *p) {
    struct weft_model_encoder *e = &p->encoder;
    const struct key act_key = key_of(c, "hidden_activation");
    struct weft_str act = {"gelu", 4};
    uint32_t local = 0, every = 3;
    bool is_nomic = strcmp(c->arch->name, "nomic-bert") == 0;
    bool is_modern = strcmp(c->arch->name, "modern-bert") == 0;
    weft_err err = get_whole(c, "tokenizer.ggml.token_type_count", 0, &e->n_types);
    if (!err) err = get_u32(c, "attention.sliding_window", 0, &local);
    if (!err) err = get_u32(c, "attention.sliding_window_pattern", 3, &every);
    if (!err && is_modern) err = get_double(c, "rope.freq_base_swa", &p->local_rope_theta);
    if (err) return err;
    (void)weft_gguf_str(c->gguf, act_key.text, &act);
    e->tanh_gelu = str_is(act, "gelu_pytorch_tanh") || str_is(act, "gelu_new");
    if (!e->tanh_gelu && !str_is(act, "gelu")) return unsupported(c, act_key.text, act);
    if (every == 0 || (local > 0 && !is_modern))
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: a window of %u in a pattern of %u layers is not supported in %s",
                            c->path, local, every, c->arch->name);
    p->gelu = !is_nomic;
    e->gated = is_nomic || is_modern;
    e->norms_sums = e->norm_bias = !is_modern;
    e->bias = !is_nomic && !is_modern;
    e->n_positions = e->bias ? p->n_context : 0;
    if (is_modern && local > 0) wefti_model_set_local(p, local, every);
    if (p->n_heads == 0 || p->n_hidden % p->n_heads != 0)
        return weft_err_set(
            c->why, WEFT_E_PROTO,
            "%s: the embedding length %u is not a multiple of the %u attention heads", c->path,
            p->n_hidden, p->n_heads);
    wefti_model_params_set_encoder(p);
    return WEFT_OK;
}

weft_err wefti_model_config_gguf(const weft_gguf *gguf, struct weft_model_params *p,
                                 struct weft_errmsg *why) {
    struct config c = {gguf, gguf->file.path, why, NULL};
    struct weft_str name;
    double eps;
    weft_err err = check_kind(&c);
    if (err) return err;
    WEFT_ASSERT(c.arch != NULL);
    wefti_model_params_init(p, c.arch);
    bool is_encoder = p->encoder.is_on;
    const struct key eps_key =
        key_of(&c, is_encoder || p->block.layer_norm ? "attention.layer_norm_epsilon"
                                                     : "attention.layer_norm_rms_epsilon");
    err = read_sizes(&c, p);
    if (err) return err;
    err = check_options(&c, p);
    if (err) return err;
    if (p->n_layers == 0 || p->n_layers > WEFT_LAYERS_MAX)
        return wefti_model_params_check(p, c.path, why);
    err = read_rope(&c, p);
    if (!err && c.arch->traits.latent) err = read_latent(&c, p);
    if (!err && c.arch->traits.indexer) err = read_indexer(&c, p);
    if (err) return err;
    err = is_encoder ? read_encoder(&c, p) : read_traits(&c, p);
    if (err) return err;
    if (!weft_gguf_f64(gguf, eps_key.text, &eps)) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: has no %s", c.path, eps_key.text);
    }
    p->rms_eps = (float)eps;
    p->rope_interleaved = c.arch->gguf_rope_interleaved || c.arch->traits.pairs;
    p->tied = false;
    if (weft_gguf_str(gguf, "general.name", &name)) {
        wefti_model_params_set_name(p, name.data, name.len);
    }
    return wefti_model_params_check(p, c.path, why);
}
