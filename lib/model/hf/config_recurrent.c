/* What config.json says of layers with a state: which they are, and the sizes of their parts. */
#include <math.h>
#include <string.h>

#include "config_hf.h"
#include "params.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

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

static void set_all(uint32_t bits[WEFT_LAYERS_MAX / 32], const struct weft_model_params *p) {
    for (uint32_t i = 0; i < p->n_layers && i < WEFT_LAYERS_MAX; i++)
        wefti_model_set_bit(bits, i);
}

/* A layer that is recurrent and has no attention. */
static void set_recurrent(struct weft_model_params *p, uint32_t layer) {
    wefti_model_set_bit(p->recurrent.layers, layer);
    wefti_model_set_bit(p->recurrent.no_attention, layer);
}

enum { ALL_RECURRENT = 0, NONE_RECURRENT = 1 }; /* as intervals */

/* Layers whose type is `name`, or the newer name of all that are recurrent; the others are attention's. Without a
 * list every nth layer is. */
static weft_err read_layers(const struct config *c, const char *name, uint32_t interval,
                            struct weft_model_params *p) {
    static const char key[] = "layer_types";
    const json_t *types = get(c->root, key);
    if (types && (!json_is_array(types) || json_array_size(types) != p->n_layers))
        return wrong_type(c, key, "a list of a name per layer");
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_recurrent = interval == ALL_RECURRENT || (i + 1) % interval != 0;
        if (types && !type) return wrong_type(c, key, "a list of names");
        if (type) is_recurrent = strcmp(type, name) == 0 || strcmp(type, "linear_attention") == 0;
        if (type && !is_recurrent && strcmp(type, "full_attention") != 0 &&
            strcmp(type, "attention") != 0)
            return unsupported(c, key, type);
        if (is_recurrent) set_recurrent(p, i);
    }
    return WEFT_OK;
}

/* JSON has no infinity: Python writes a word (json.c), transformers one within an object. */
static bool is_infinity(const json_t *value) {
    const char *word =
        json_string_value(json_is_object(value) ? json_object_get(value, "__float__") : value);
    return word && (strcmp(word, "Infinity") == 0 || strcmp(word, "inf") == 0);
}

/* Two numbers: the least and the largest step of time. */
static weft_err read_limits(const struct config *c, struct weft_model_recurrent *r) {
    static const char key[] = "time_step_limit";
    const json_t *list = get(c->root, key);
    r->dt_min = 0;
    r->dt_max = INFINITY;
    if (!list) return WEFT_OK;
    if (json_array_size(list) != 2) return wrong_type(c, key, "a list of two numbers");
    const json_t *least = json_array_get(list, 0), *most = json_array_get(list, 1);
    if (!json_is_number(least) || !(json_is_number(most) || is_infinity(most)))
        return wrong_type(c, key, "a list of two numbers");
    r->dt_min = (float)json_number_value(least);
    if (json_is_number(most)) r->dt_max = (float)json_number_value(most);
    return WEFT_OK;
}

/* Options that would change the arithmetic. */
static weft_err check_off(const struct config *c, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool on;
        weft_err err = get_bool(c, keys[i], &on);
        if (err) return err;
        if (on) return unsupported(c, keys[i], "true");
    }
    return WEFT_OK;
}

static weft_err read_flag(const struct config *c, const char *key, bool otherwise, bool *out) {
    *out = otherwise;
    return get(c->root, key) ? get_bool(c, key, out) : WEFT_OK;
}

/* That of the convolution, which the mixer has as SiLU. */
static weft_err check_activation(const struct config *c, const char *key) {
    const char *name;
    weft_err err = get_text(c, c->root, key, "silu", &name);
    if (err || strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0) return err;
    return unsupported(c, key, name);
}

/* ------------------------------------------------------------------------------------ LFM2 --- */

/* The size of the feed-forward part follows from another one. */
static weft_err adjust_ffn(const struct config *c, struct weft_model_params *p) {
    bool adjusts = true;
    double factor = 1;
    uint32_t multiple = 256;
    if (!get(c->root, "block_auto_adjust_ff_dim")) return WEFT_OK;
    weft_err err = read_flag(c, "block_auto_adjust_ff_dim", true, &adjusts);
    if (!err) err = get_double(c, c->root, "block_ffn_dim_multiplier", &factor);
    if (!err) err = get_u32(c, c->root, "block_multiple_of", 256, &multiple);
    if (err || !adjusts) return err;
    if (p->n_ffn > WEFT_HIDDEN_MAX || !(factor > 0 && factor <= 16) || multiple == 0 ||
        multiple > WEFT_HIDDEN_MAX)
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: a feed-forward size of %u, %g times, in multiples of %u is none",
                            c->path, p->n_ffn, factor, multiple);
    const uint32_t two_thirds = 2 * p->n_ffn / 3, size = (uint32_t)(factor * (double)two_thirds);
    p->n_ffn = (size + multiple - 1) / multiple * multiple;
    return WEFT_OK;
}

/* Older files have the numbers of attention's layers in place of types. */
static weft_err read_attention_layers(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "full_attn_idxs";
    const json_t *list = get(c->root, key), *item;
    bool is_attention[WEFT_LAYERS_MAX] = {false};
    size_t i;
    if (!list || get(c->root, "layer_types")) return read_layers(c, "conv", NONE_RECURRENT, p);
    if (!json_is_array(list)) return wrong_type(c, key, "a list of layers");
    json_array_foreach(list, i, item) {
        uint64_t layer;
        if (!weft_json_u64(item, &layer) || layer >= p->n_layers)
            return wrong_type(c, key, "a list of layers");
        is_attention[layer] = true;
    }
    for (uint32_t layer = 0; layer < p->n_layers; layer++) {
        if (!is_attention[layer]) set_recurrent(p, layer);
    }
    return WEFT_OK;
}

static weft_err read_conv(const struct config *c, struct weft_model_params *p) {
    bool bias = false;
    struct weft_model_recurrent *r = &p->recurrent;
    r->kind = WEFT_MODEL_CONV;
    weft_err err = get_u32(c, c->root, "conv_L_cache", 3, &r->conv_width);
    if (!err) err = read_flag(c, "conv_bias", false, &bias);
    if (!err && bias) return unsupported(c, "conv_bias", "true");
    if (!err) err = adjust_ffn(c, p);
    return err ? err : read_attention_layers(c, p);
}

/* --------------------------------------------------------------------------------- Mamba-2 --- */

/* M: Mamba-2, *: attention, -: a feed-forward part, E: experts; one of them per layer. */
static weft_err read_letters(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "hybrid_override_pattern";
    const char *letters;
    weft_err err = get_text(c, c->root, key, "", &letters);
    if (err) return err;
    if (strlen(letters) != p->n_layers) return wrong_type(c, key, "a letter per layer");
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const char letter[] = {letters[i], '\0'};
        if (!strchr("M*-E", letters[i])) return unsupported(c, key, letter);
        if (letters[i] == 'M') wefti_model_set_bit(p->recurrent.layers, i);
        if (letters[i] != '*') wefti_model_set_bit(p->recurrent.no_attention, i);
        if (letters[i] == 'M' || letters[i] == '*') wefti_model_set_bit(p->recurrent.no_ffn, i);
        if (letters[i] == '-') wefti_model_set_bit(p->no_experts, i);
    }
    return WEFT_OK;
}

static weft_err read_nemotron(const struct config *c, struct weft_model_params *p) {
    static const char *const off[] = {"use_bias", "mamba_proj_bias", "mlp_bias"};
    struct weft_model_recurrent *r = &p->recurrent;
    const struct size sizes[] = {{"mamba_num_heads", REQUIRED, &r->n_heads},
                                 {"mamba_head_dim", REQUIRED, &r->head_dim},
                                 {"n_groups", REQUIRED, &r->n_groups},
                                 {"ssm_state_size", REQUIRED, &r->state_dim},
                                 {"conv_kernel", 4, &r->conv_width}};
    bool bias = true;
    weft_err err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = read_flag(c, "use_conv_bias", true, &bias);
    if (!err) err = check_activation(c, "mamba_hidden_act");
    if (!err) err = check_off(c, off, COUNT(off));
    r->conv_bias = bias;
    r->norm_groups = r->n_groups;
    set_all(p->no_rope, p);
    return err ? err : read_letters(c, p);
}

/* Of `n` factors. */
static bool is_list(const json_t *list, size_t n) {
    if (json_array_size(list) != n) return false;
    for (size_t i = 0; i < n; i++) {
        const double factor = json_number_value(json_array_get(list, i));
        if (!(factor > 1e-6 && factor < 1e6)) return false;
    }
    return true;
}

/* Falcon-H1's factors. Those of what a half reads follow in what it yields, since norms come first and
 * products are linear. */
static weft_err read_multipliers(const struct config *c, struct weft_model_params *p) {
    static const char mlp_key[] = "mlp_multipliers", ssm_key[] = "ssm_multipliers";
    double in = 1, out = 1, key = 1, ssm_in = 1, ssm_out = 1, embed = 1, head = 1;
    const struct {
        const char *name;
        double *out;
    } factors[] = {{"attention_in_multiplier", &in}, {"attention_out_multiplier", &out},
                   {"key_multiplier", &key},         {"ssm_in_multiplier", &ssm_in},
                   {"ssm_out_multiplier", &ssm_out}, {"embedding_multiplier", &embed},
                   {"lm_head_multiplier", &head}};
    const json_t *mlp = get(c->root, mlp_key), *ssm = get(c->root, ssm_key);
    struct weft_model_block *b = &p->block;
    for (size_t i = 0; i < COUNT(factors); i++) {
        weft_err err = get_double(c, c->root, factors[i].name, factors[i].out);
        if (err) return err;
        if (!(*factors[i].out > 1e-6 && *factors[i].out < 1e6))
            return wrong_type(c, factors[i].name, "from 1e-6 to 1e6"); /* 0 would mean 1 here */
    }
    if (mlp && !is_list(mlp, 2))
        return wrong_type(c, mlp_key, "a list of two numbers from 1e-6 to 1e6");
    if (ssm && !is_list(ssm, 5))
        return wrong_type(c, ssm_key, "a list of five numbers from 1e-6 to 1e6");
    p->attn_scale = (float)(in * in * key / sqrt((double)p->head_dim));
    b->attention_scale = (float)(in * out);
    b->recurrent_scale = (float)ssm_out;
    for (size_t i = 0; i < 5; i++)
        b->row_scales[i] =
            (float)(ssm_in * (ssm ? json_number_value(json_array_get(ssm, i)) : 1.0));
    b->gate_scale = mlp ? (float)json_number_value(json_array_get(mlp, 0)) : 0;
    b->ffn_scale = mlp ? (float)json_number_value(json_array_get(mlp, 1)) : 0;
    p->embed_scale = (float)embed;
    p->logit_scale = (float)head;
    return WEFT_OK;
}

/* Heads' size follows from the width where it is "auto"; both say the same otherwise. */
static weft_err read_mamba_width(const struct config *c, bool has_width,
                                 struct weft_model_params *p) {
    static const char key[] = "mamba_d_head", width_key[] = "mamba_d_ssm";
    struct weft_model_recurrent *r = &p->recurrent;
    const char *text = json_string_value(get(c->root, key));
    uint32_t width = 0, expand = 2;
    const bool is_auto = !get(c->root, key) || (text && strcmp(text, "auto") == 0);
    weft_err err = get_u32(c, c->root, "mamba_expand", 2, &expand);
    if (!err && has_width) err = get_u32(c, c->root, width_key, 0, &width);
    if (!err && !is_auto) err = get_u32(c, c->root, key, REQUIRED, &r->head_dim);
    if (err) return err;
    if (width == 0 && expand <= 64 && p->n_hidden <= WEFT_HIDDEN_MAX) width = expand * p->n_hidden;
    if (is_auto && r->n_heads > 0) r->head_dim = width / r->n_heads;
    if ((uint64_t)r->n_heads * r->head_dim == width) return WEFT_OK;
    return weft_err_set(c->why, WEFT_E_PROTO,
                        "%s: \"mamba_n_heads\" is %u and \"%s\" %u, but %s makes %u of them",
                        c->path, r->n_heads, key, r->head_dim,
                        has_width ? "\"mamba_d_ssm\"" : "\"mamba_expand\"", width);
}

static weft_err read_mamba(const struct config *c, const struct wefti_model_arch *arch,
                           struct weft_model_params *p) {
    static const char *const off[] = {"mamba_proj_bias", "projectors_bias"};
    static const char order_key[] = "mamba_norm_before_gate",
                      position_key[] = "position_embedding_type";
    const bool is_beside = arch->traits.beside;
    struct weft_model_recurrent *r = &p->recurrent;
    const struct size sizes[] = {{"mamba_n_heads", REQUIRED, &r->n_heads},
                                 {"mamba_n_groups", 1, &r->n_groups},
                                 {"mamba_d_state", REQUIRED, &r->state_dim},
                                 {"mamba_d_conv", 4, &r->conv_width}};
    bool bias = true, has_norm = true, is_norm_first = false;
    const char *position;
    weft_err err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = read_mamba_width(c, is_beside, p);
    if (!err) err = read_flag(c, "mamba_conv_bias", true, &bias);
    if (!err) err = read_flag(c, "mamba_rms_norm", true, &has_norm);
    if (!err) err = read_flag(c, order_key, false, &is_norm_first);
    if (!err && has_norm && is_norm_first) return unsupported(c, order_key, "true");
    if (!err) err = check_off(c, off, COUNT(off));
    if (!err) err = check_activation(c, "hidden_act");
    if (!err) err = get_text(c, c->root, position_key, is_beside ? "rope" : "nope", &position);
    if (err) return err;
    r->conv_bias = bias;
    /* Granite normalises all heads as one row. */
    r->norm_groups = !has_norm ? 0 : is_beside ? r->n_groups : 1;
    if (strcmp(position, "rope") != 0) set_all(p->no_rope, p);
    if (!is_beside) return read_layers(c, "mamba", ALL_RECURRENT, p);
    set_all(r->layers, p);
    return read_multipliers(c, p);
}

/* ------------------------------------------------------------------------------- DeltaNet --- */

static weft_err read_delta(const struct config *c, struct weft_model_params *p) {
    static const char gate_key[] = "attn_output_gate", interval_key[] = "full_attention_interval";
    struct weft_model_recurrent *r = &p->recurrent;
    const struct size sizes[] = {{"linear_num_value_heads", 32, &r->n_heads},
                                 {"linear_value_head_dim", 128, &r->head_dim},
                                 {"linear_num_key_heads", 16, &r->n_groups},
                                 {"linear_key_head_dim", 128, &r->state_dim},
                                 {"linear_conv_kernel_dim", 4, &r->conv_width}};
    bool has_gate = true;
    uint32_t interval;
    weft_err err = read_sizes(c, sizes, COUNT(sizes));
    if (!err) err = get_u32(c, c->root, interval_key, 4, &interval);
    if (!err && interval == 0) return wrong_type(c, interval_key, "over 0");
    if (!err) err = check_activation(c, "hidden_act");
    if (!err) err = read_flag(c, gate_key, true, &has_gate);
    if (!err && !has_gate) return unsupported(c, gate_key, "false");
    r->kind = WEFT_MODEL_DELTA;
    r->dt_max = INFINITY;
    return err ? err : read_layers(c, "linear_attention", interval, p);
}

weft_err wefti_model_config_recurrent(const struct config *c, const struct wefti_model_arch *arch,
                                      struct weft_model_params *p) {
    weft_err err = WEFT_OK;
    if (arch->traits.conv) {
        err = read_conv(c, p);
    } else if (arch->traits.delta) {
        err = read_delta(c, p);
    } else if (arch->traits.mamba) {
        p->recurrent.kind = WEFT_MODEL_MAMBA;
        err = read_limits(c, &p->recurrent);
        if (!err) err = arch->traits.letters ? read_nemotron(c, p) : read_mamba(c, arch, p);
    }
    if (!err) wefti_model_params_settle(p);
    return err;
}
