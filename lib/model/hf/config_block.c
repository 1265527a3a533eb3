/* What config.json says of how a layer is built: norms, biases, activations, and which layers have a window. */
#include <math.h>
#include <string.h>

#include "config_hf.h"
#include "params.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

weft_err wefti_model_config_act(const struct config *c, struct weft_model_params *p) {
    static const struct {
        const char *name;
        bool gelu;
        enum weft_model_act act;
    } acts[] = {
        {"silu", false, WEFT_MODEL_ACT_BY_GELU},
        {"swish", false, WEFT_MODEL_ACT_BY_GELU},
        {"gelu_pytorch_tanh", true, WEFT_MODEL_ACT_BY_GELU},
        {"gelu_new", true, WEFT_MODEL_ACT_BY_GELU},
        {"gelu_fast", true, WEFT_MODEL_ACT_BY_GELU},
        {"gelu", true, WEFT_MODEL_ACT_GELU_ERF},
        {"relu2", false, WEFT_MODEL_ACT_RELU2},
    };
    const char *key = get(c->root, "hidden_activation") ? "hidden_activation"
                      : get(c->root, "mlp_hidden_act")  ? "mlp_hidden_act"
                                                        : "hidden_act";
    const char *name;
    weft_err err = get_text(c, c->root, key, NULL, &name);
    if (err || !name) return err; /* the architecture's own */
    for (size_t i = 0; i < COUNT(acts); i++) {
        if (strcmp(name, acts[i].name) != 0) continue;
        if (p->block.act == WEFT_MODEL_ACT_CLAMPED)
            return WEFT_OK; /* the form has no name of its own */
        p->gelu = acts[i].gelu;
        p->block.act = acts[i].act;
        return WEFT_OK;
    }
    return unsupported(c, key, name);
}

weft_err wefti_model_config_eps(const struct config *c, struct weft_model_params *p) {
    static const char *const keys[] = {"rms_norm_eps", "layer_norm_eps", "norm_epsilon",
                                       "layer_norm_epsilon", "norm_eps"};
    double eps = p->block.layer_norm ? 1e-5 : 1e-6;
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < COUNT(keys) && !err; i++) {
        if (!get(c->root, keys[i])) continue;
        err = get_double(c, c->root, keys[i], &eps);
        break;
    }
    p->rms_eps = (float)eps;
    return err;
}

/* A flag whose key may be missing. */
static weft_err read_flag(const struct config *c, const char *key, bool *io) {
    return get(c->root, key) ? get_bool(c, key, io) : WEFT_OK;
}

/* "attention_bias" means q, k, v and o where a family does not say otherwise, "use_bias" everything. Families that
 * have those of q, k and v in any case do not look at the first. */
static weft_err read_biases(const struct config *c, const struct wefti_model_arch *arch,
                            struct weft_model_params *p) {
    const bool is_of_qkv = arch->traits.bias_key;
    bool all = arch->traits.ffn_bias, attention = p->qkv_bias, qkv = false, out = p->block.o_bias,
         ffn = p->block.ffn_bias;
    weft_err err = read_flag(c, "use_bias", &all);
    if (!err && !all && get(c->root, "use_bias")) attention = out = ffn = false;
    const bool has_key =
        (!arch->traits.qkv_bias || arch->traits.o_bias) && get(c->root, "attention_bias");
    if (!err && has_key) err = read_flag(c, "attention_bias", &attention);
    if (has_key && !is_of_qkv) out = attention;
    if (!err) err = read_flag(c, "use_qkv_bias", &qkv);
    if (!err) err = read_flag(c, "attention_out_bias", &out);
    if (!err) err = read_flag(c, "mlp_bias", &ffn);
    p->qkv_bias = attention || qkv;
    p->block.o_bias = out;
    p->block.ffn_bias = ffn;
    return err;
}

/* Whether both halves of a layer read what it reads. */
static weft_err read_parallel(const struct config *c, const struct wefti_model_arch *arch,
                              struct weft_model_params *p) {
    static const char key[] = "use_parallel_residual";
    bool parallel = p->block.parallel;
    if (!p->block.layer_norm) return WEFT_OK; /* no family beside theirs has the key */
    weft_err err = read_flag(c, key, &parallel);
    /* StableLM's parallel layers have one norm, GPT-NeoX's two. */
    if (parallel && !arch->traits.parallel) p->block.one_norm = 1;
    p->block.parallel = parallel;
    return err;
}

/* What embeddings are multiplied by, and what bounds activations. */
static weft_err read_scales(const struct config *c, const struct wefti_model_arch *arch,
                            struct weft_model_params *p) {
    double logit_scale = (double)p->logit_scale, limit = (double)p->block.act_limit;
    bool grows = arch->traits.mup;
    weft_err err = get_double(c, c->root, "logit_scale", &logit_scale);
    if (!err) err = get_double(c, c->root, "swiglu_limit", &limit);
    if (!err && grows) err = read_flag(c, "mup_enabled", &grows);
    if (!err && p->block.act == WEFT_MODEL_ACT_CLAMPED && !(limit > 0 && limit < 1e6))
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"swiglu_limit\" is %g; it must be over 0",
                            c->path, limit);
    if (grows) p->embed_scale = sqrtf((float)p->n_hidden);
    p->logit_scale = (float)logit_scale;
    p->block.act_limit = p->block.act == WEFT_MODEL_ACT_CLAMPED ? (float)limit : 0;
    return err;
}

/* Which layers of Llama 4 see a chunk: those that are listed, or those that turn. */
static weft_err read_chunked(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "layer_types";
    const json_t *types = get(c->root, key);
    if (types && (!json_is_array(types) || json_array_size(types) != p->n_layers))
        return wrong_type(c, key, "a list of a name per layer");
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (types && !type) return wrong_type(c, key, "a list of names");
        bool is_full = type ? strcmp(type, "full_attention") == 0 : weft_model_bit(p->no_rope, i);
        if (type && !is_full && strcmp(type, "chunked_attention") != 0)
            return unsupported(c, key, type);
        if (is_full) wefti_model_set_bit(p->no_window, i);
    }
    return WEFT_OK;
}

/* Llama 4: a chunk in layers that turn, and in the others queries that grow with the position. */
static weft_err read_llama4(const struct config *c, struct weft_model_params *p) {
    static const char tunes_key[] = "attn_temperature_tuning";
    bool tunes = true, has_norm = true;
    double beta = 0.1;
    uint32_t chunk = 0, step = 0;
    weft_err err = get_u32(c, c->root, "attention_chunk_size", 8192, &chunk);
    if (!err) err = get_u32(c, c->root, "floor_scale", 8192, &step);
    if (!err) err = get_double(c, c->root, "attn_scale", &beta);
    if (!err && json_is_number(get(c->root, tunes_key)))
        tunes = json_number_value(get(c->root, tunes_key)) != 0; /* older files have a number */
    else if (!err)
        err = read_flag(c, tunes_key, &tunes);
    if (!err) err = read_flag(c, "use_qk_norm", &has_norm);
    if (err) return err;
    if (chunk == 0 || (tunes && step == 0))
        return weft_err_set(
            c->why, WEFT_E_PROTO,
            "%s: \"attention_chunk_size\" is %u and \"floor_scale\" %u; they must be over 0",
            c->path, chunk, step);
    err = read_chunked(c, p);
    if (err) return err;
    p->window = chunk < p->n_context ? chunk : 0;
    p->block.plain_qk_norm = has_norm;
    p->block.q_step = tunes ? step : 0;
    p->block.q_beta = tunes ? (float)beta : 0;
    p->block.q_shift = p->block.q_unturned = tunes;
    return WEFT_OK;
}

/* Norms of q and k, of families that may have them, have them if nothing is said, or have none. */
static weft_err read_head_norms(const struct config *c, const struct wefti_model_arch *arch,
                                struct weft_model_params *p) {
    static const char use_key[] = "use_qk_norm", layer_key[] = "qk_layernorm";
    const bool has_them = p->qk_norm || p->qk_norm_all;
    bool uses = has_them, by_layer_norms = false;
    weft_err err = read_flag(c, use_key, &uses);
    if (!err) err = read_flag(c, layer_key, &by_layer_norms);
    if (err) return err;
    if (uses && !has_them && !arch->traits.may_qk_norm) return unsupported(c, use_key, "true");
    if (by_layer_norms && !arch->traits.may_head_norms) return unsupported(c, layer_key, "true");
    p->qk_norm = uses && !p->qk_norm_all;
    p->qk_norm_all = uses && p->qk_norm_all;
    p->block.head_norms = by_layer_norms;
    return WEFT_OK;
}

weft_err wefti_model_config_block(const struct config *c, const struct wefti_model_arch *arch,
                                  struct weft_model_params *p) {
    weft_err err = read_biases(c, arch, p);
    if (!err) err = read_parallel(c, arch, p);
    if (!err && !arch->traits.llama4) err = read_head_norms(c, arch, p);
    if (!err && arch->traits.predicts)
        err = get_u32(c, c->root, "num_nextn_predict_layers", 0, &p->n_predict);
    if (!err) err = read_scales(c, arch, p);
    if (!err && arch->traits.llama4) err = read_llama4(c, p);
    if (arch->traits.plus_one) p->norm_plus_one = true;
    return err;
}

/* "LLLG": the last of each four sees everything. */
static uint32_t period_of(const struct config *c) {
    const char *pattern = json_string_value(get(c->root, "sliding_window_pattern"));
    const size_t n = pattern ? strspn(pattern, "L") : 0;
    return n > 0 && n < WEFT_LAYERS_MAX && strcmp(pattern + n, "G") == 0 ? (uint32_t)n + 1 : 0;
}

static weft_err read_period(const struct config *c, uint32_t otherwise, uint32_t *out) {
    static const char *const keys[] = {"sliding_window_pattern", "global_attn_every_n_layers"};
    *out = period_of(c);
    if (*out > 0) return WEFT_OK;
    const char *key = keys[get(c->root, keys[1]) != NULL];
    weft_err err = get_u32(c, c->root, key, otherwise, out);
    if (!err && *out == 0) return wrong_type(c, key, "over 0");
    return err;
}

/* Whether layer `i` sees everything, by its type or by the period. */
static weft_err read_layer_type(const struct config *c, const json_t *types, uint32_t period,
                                uint32_t i, bool *is_full_out) {
    static const char key[] = "layer_types";
    *is_full_out = (i + 1) % period == 0;
    if (!types) return WEFT_OK;
    const char *type = json_string_value(json_array_get(types, i));
    if (!type) return wrong_type(c, key, "a list of a name per layer");
    *is_full_out = strcmp(type, "full_attention") == 0;
    if (*is_full_out || strcmp(type, "sliding_attention") == 0) return WEFT_OK;
    return unsupported(c, key, type);
}

weft_err wefti_model_config_pattern(const struct config *c, const struct wefti_model_arch *arch,
                                    struct weft_model_params *p) {
    static const char key[] = "sliding_window";
    const json_t *types = get(c->root, "layer_types");
    uint32_t window = 0, period;
    if (json_is_null(json_object_get(c->root, key))) { /* no layer has one */
        const bool is_known = !arch->traits.turns_windowed || arch->traits.turns_alone;
        return is_known ? WEFT_OK : unsupported(c, key, "null");
    }
    weft_err err = get_u32(c, c->root, key, arch->window, &window);
    if (!err) err = read_period(c, arch->traits.every_second ? 2 : 4, &period);
    if (err) return err;
    if (types && (!json_is_array(types) || json_array_size(types) != p->n_layers))
        return wrong_type(c, "layer_types", "a list of a name per layer");
    if (window == 0)
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" is 0; a token sees itself at least",
                            c->path, key);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        bool is_full;
        err = read_layer_type(c, types, period, i, &is_full);
        if (err) return err;
        if (!is_full) continue;
        wefti_model_set_bit(p->no_window, i);
        if (arch->traits.turns_windowed) wefti_model_set_bit(p->no_rope, i);
    }
    p->window = window < p->n_context ? window : 0; /* else nothing is ever outside it */
    return WEFT_OK;
}
