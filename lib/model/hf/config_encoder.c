/* config.json of encoders: BERT and XLM-RoBERTa, nomic's BERT, ModernBERT, GTE. What would change the arithmetic
 * and is not served is refused by name. */
#include "config_hf.h"

#include <string.h>

#include "base/check.h"
#include "params.h"

/* A flag that must have one value; `otherwise`: what a missing key means. */
struct wanted {
    const char *key;
    bool value, otherwise;
};

static weft_err check_flags(const struct config *c, const struct wanted *wanted, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool on;
        weft_err err = get_bool(c, wanted[i].key, &on);
        if (!err && !get(c->root, wanted[i].key)) on = wanted[i].otherwise;
        if (err) return err;
        if (on != wanted[i].value) return unsupported(c, wanted[i].key, on ? "true" : "false");
    }
    return WEFT_OK;
}

struct size {
    const char *key;
    uint32_t otherwise;
    uint32_t *out;
};

static weft_err read_sizes(const struct config *c, const struct size *sizes, size_t n) {
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < n && !err; i++)
        err = get_u32(c, c->root, sizes[i].key, sizes[i].otherwise, sizes[i].out);
    return err;
}
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static weft_err read_eps(const struct config *c, const char *key, double otherwise,
                         struct weft_model_params *p) {
    double eps = otherwise;
    weft_err err = get_double(c, c->root, key, &eps);
    p->rms_eps = (float)eps;
    return err;
}

static weft_err read_activation(const struct config *c, const char *key,
                                struct weft_model_params *p) {
    static const char *const tanh_names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
    const char *name;
    weft_err err = get_text(c, c->root, key, "gelu", &name);
    if (err) return err;
    p->gelu = true;
    for (size_t i = 0; i < COUNT(tanh_names); i++)
        if (strcmp(name, tanh_names[i]) == 0) p->encoder.tanh_gelu = 1;
    return p->encoder.tanh_gelu || strcmp(name, "gelu") == 0 ? WEFT_OK : unsupported(c, key, name);
}

/* XLM-RoBERTa's positions begin after the padding token's id, as do the tokens of one type. */
static weft_err read_bert(const struct config *c, const struct wefti_model_arch *arch,
                          struct weft_model_params *p) {
    static const char positions_key[] = "position_embedding_type";
    static const struct wanted flags[] = {{"is_decoder", false, false},
                                          {"add_cross_attention", false, false}};
    bool is_bert = strcmp(arch->hf_type, "bert") == 0;
    struct weft_model_encoder *e = &p->encoder;
    const struct size sizes[] = {{"num_hidden_layers", REQUIRED, &p->n_layers},
                                 {"num_attention_heads", REQUIRED, &p->n_heads},
                                 {"hidden_size", REQUIRED, &p->n_hidden},
                                 {"intermediate_size", REQUIRED, &p->n_ffn},
                                 {"vocab_size", REQUIRED, &p->n_vocab},
                                 {"type_vocab_size", 2, &e->n_types},
                                 {"max_position_embeddings", 512, &p->n_context}};
    const char *positions;
    uint32_t pad = 1;
    weft_err err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = check_flags(c, flags, COUNT(flags));
    if (!err) err = read_eps(c, "layer_norm_eps", 1e-12, p);
    if (!err) err = read_activation(c, "hidden_act", p);
    if (!err) err = get_text(c, c->root, positions_key, "absolute", &positions);
    if (!err && strcmp(positions, "absolute") != 0) return unsupported(c, positions_key, positions);
    if (!err && !is_bert) err = get_u32(c, c->root, "pad_token_id", 1, &pad);
    if (err) return err;
    if (!is_bert) {
        e->first_position = pad + 1;
        p->n_context = pad < p->n_context ? p->n_context - e->first_position : 0; /* 0 is refused */
    }
    e->n_positions = p->n_context;
    e->norms_sums = e->norm_bias = e->bias = 1;
    return WEFT_OK;
}

/* Its keys are GPT-2's, whose class it comes from, defaults included. */
static weft_err check_nomic(const struct config *c) {
    static const struct wanted flags[] = {{"qkv_proj_bias", false, true},
                                          {"mlp_fc1_bias", false, true},
                                          {"mlp_fc2_bias", false, true},
                                          {"prenorm", false, false},
                                          {"causal", false, false},
                                          {"parallel_block", false, false},
                                          {"use_rms_norm", false, false},
                                          {"rotary_emb_interleaved", false, false},
                                          {"shared_prenorm", false, false},
                                          {"scale_attn_weights", true, true},
                                          {"scale_attn_by_inverse_layer_idx", false, false}};
    static const char *const absent[] = {"rotary_emb_scale_base", "moe_every_n_layers",
                                         "num_experts"};
    static const char act_key[] = "activation_function", fraction_key[] = "rotary_emb_fraction";
    const char *act;
    double fraction = 0;
    weft_err err = check_flags(c, flags, COUNT(flags));
    if (!err) err = get_text(c, c->root, act_key, "gelu", &act);
    if (!err && strcmp(act, "swiglu") != 0) return unsupported(c, act_key, act);
    if (!err) err = get_double(c, c->root, fraction_key, &fraction);
    if (!err && fraction != 1) return unsupported(c, fraction_key, "a number other than 1");
    for (size_t i = 0; i < COUNT(absent) && !err; i++) {
        double number = 0;
        err = get_double(c, c->root, absent[i], &number);
        if (!err && number != 0) return unsupported(c, absent[i], "a number");
    }
    return err;
}

/* Texts over the length that it was trained with would need other angles (rotary_scaling_factor): they are
 * cut there. */
static weft_err read_nomic(const struct config *c, struct weft_model_params *p) {
    struct weft_model_encoder *e = &p->encoder;
    uint32_t n_trained;
    const struct size sizes[] = {
        {"n_layer", REQUIRED, &p->n_layers},     {"n_head", REQUIRED, &p->n_heads},
        {"n_embd", REQUIRED, &p->n_hidden},      {"n_inner", REQUIRED, &p->n_ffn},
        {"vocab_size", REQUIRED, &p->n_vocab},   {"type_vocab_size", 2, &e->n_types},
        {"n_positions", REQUIRED, &p->n_context}};
    p->rope_theta = 10000;
    weft_err err = check_nomic(c);
    if (!err) err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = get_u32(c, c->root, "max_trained_positions", p->n_context, &n_trained);
    if (!err) err = read_eps(c, "layer_norm_epsilon", 1e-5, p);
    if (!err) err = get_double(c, c->root, "rotary_emb_base", &p->rope_theta);
    if (err) return err;
    if (n_trained < p->n_context) p->n_context = n_trained;
    e->norms_sums = e->norm_bias = e->gated = 1;
    return WEFT_OK;
}

/* The base of layers of a kind: a key of its own, or (since transformers 5) an object per kind. */
static weft_err read_theta(const struct config *c, const char *key, const char *kind,
                           double otherwise, double *out) {
    const json_t *rope = get(get(c->root, "rope_parameters"), kind);
    *out = otherwise;
    weft_err err = get_double(c, c->root, key, out);
    return err ? err : get_double(c, rope, "rope_theta", out);
}

static weft_err read_modern(const struct config *c, struct weft_model_params *p) {
    static const struct wanted flags[] = {{"attention_bias", false, false},
                                          {"mlp_bias", false, false}};
    uint32_t every, local;
    bool norm_bias = false;
    const struct size sizes[] = {{"num_hidden_layers", REQUIRED, &p->n_layers},
                                 {"num_attention_heads", REQUIRED, &p->n_heads},
                                 {"hidden_size", REQUIRED, &p->n_hidden},
                                 {"intermediate_size", REQUIRED, &p->n_ffn},
                                 {"vocab_size", REQUIRED, &p->n_vocab},
                                 {"max_position_embeddings", 8192, &p->n_context},
                                 {"global_attn_every_n_layers", 3, &every},
                                 {"local_attention", 128, &local}};
    weft_err err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = check_flags(c, flags, COUNT(flags));
    if (!err) err = read_eps(c, "norm_eps", 1e-5, p);
    if (!err) err = read_activation(c, "hidden_activation", p);
    if (!err) err = get_bool(c, "norm_bias", &norm_bias);
    if (!err) err = read_theta(c, "global_rope_theta", "full_attention", 160000, &p->rope_theta);
    if (!err)
        err = read_theta(c, "local_rope_theta", "sliding_attention", 10000, &p->local_rope_theta);
    if (err) return err;
    if (every == 0)
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"global_attn_every_n_layers\" is 0",
                            c->path);
    wefti_model_set_local(p, local, every);
    p->encoder.norm_bias = norm_bias;
    p->encoder.gated = 1;
    return WEFT_OK;
}

/* "ntk" with a factor is all that its code knows, and of that the form without "mixed_b" all its models have. */
static weft_err read_gte_rope(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "rope_scaling";
    const json_t *scaling = get(c->root, key);
    const char *type;
    p->rope_theta = 10000;
    weft_err err = get_double(c, c->root, "rope_theta", &p->rope_theta);
    if (err || !scaling) return err;
    if (!json_is_object(scaling)) return wrong_type(c, key, "an object");
    err = get_text(c, scaling, "type", "", &type);
    if (err) return err;
    if (strcmp(type, "ntk") != 0) return unsupported(c, key, *type ? type : "no type");
    if (get(scaling, "mixed_b")) return unsupported(c, key, "ntk with mixed_b");
    if (!get(scaling, "factor"))
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" has no \"factor\"", c->path, key);
    p->rope_scaling = WEFT_ROPE_NTK;
    return get_double(c, scaling, "factor", &p->rope_factor);
}

/* How it is computed ("unpad_inputs", "use_memory_efficient_attention") changes nothing, and whether q, k and v
 * are one tensor ("pack_qkv") shows in the file. */
static weft_err read_gte(const struct config *c, struct weft_model_params *p) {
    static const struct wanted flags[] = {{"logn_attention_scale", false, false}};
    static const struct {
        const char *key, *value;
    } texts[] = {{"layer_norm_type", "layer_norm"}, {"position_embedding_type", "rope"}};
    struct weft_model_encoder *e = &p->encoder;
    const struct size sizes[] = {{"num_hidden_layers", REQUIRED, &p->n_layers},
                                 {"num_attention_heads", REQUIRED, &p->n_heads},
                                 {"hidden_size", REQUIRED, &p->n_hidden},
                                 {"intermediate_size", REQUIRED, &p->n_ffn},
                                 {"vocab_size", REQUIRED, &p->n_vocab},
                                 {"type_vocab_size", 1, &e->n_types},
                                 {"max_position_embeddings", 2048, &p->n_context}};
    weft_err err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = check_flags(c, flags, COUNT(flags));
    for (size_t i = 0; i < COUNT(texts) && !err; i++) {
        const char *value;
        err = get_text(c, c->root, texts[i].key, texts[i].value, &value);
        if (!err && strcmp(value, texts[i].value) != 0) return unsupported(c, texts[i].key, value);
    }
    if (!err) err = read_eps(c, "layer_norm_eps", 1e-12, p);
    if (!err) err = read_activation(c, "hidden_act", p);
    if (!err) err = read_gte_rope(c, p);
    e->norms_sums = e->norm_bias = e->bias = e->gated = 1;
    return err;
}

weft_err wefti_model_config_encoder(const struct config *c, const struct wefti_model_arch *arch,
                                    struct weft_model_params *p) {
    static const char quant_key[] = "quantization_config";
    if (get(c->root, quant_key)) return unsupported(c, quant_key, "an object");
    weft_err err;
    if (strcmp(arch->name, "nomic-bert") == 0)
        err = read_nomic(c, p);
    else if (strcmp(arch->name, "modern-bert") == 0)
        err = read_modern(c, p);
    else if (strcmp(arch->name, "gte") == 0)
        err = read_gte(c, p);
    else
        err = read_bert(c, arch, p);
    if (err) return err;
    if (p->n_heads == 0 || p->n_hidden % p->n_heads != 0)
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: the hidden size %u is not a multiple of %u attention heads",
                            c->path, p->n_hidden, p->n_heads);
    wefti_model_params_set_encoder(p);
    return wefti_model_params_check(p, c->path, c->why);
}
