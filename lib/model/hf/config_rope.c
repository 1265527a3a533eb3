/* What config.json says of RoPE: "rope_scaling", or the newer "rope_parameters", and what stands
 * beside them. */
#include "config_hf.h"

#include <string.h>

#include "base/check.h"
#include "params.h"

/* Kinds of layers, where each has a RoPE of its own: those that see all, those with a window. */
static const char *const kinds[] = {"full_attention", "sliding_attention"};

static weft_err read_rope_type(const struct config *c, const char *key, const json_t *rope,
                               enum weft_rope_scaling *scaling_out) {
    static const struct {
        const char *name;
        enum weft_rope_scaling scaling;
    } types[] = {
        {"default", WEFT_ROPE_NONE},      {"linear", WEFT_ROPE_LINEAR},
        {"llama3", WEFT_ROPE_LLAMA3},     {"yarn", WEFT_ROPE_YARN},
        {"longrope", WEFT_ROPE_LONGROPE}, {"su", WEFT_ROPE_LONGROPE}, /* an older name */
        {"dynamic", WEFT_ROPE_DYNAMIC},   {"proportional", WEFT_ROPE_PROPORTIONAL},
    };
    const char *type;
    *scaling_out = WEFT_ROPE_NONE;
    weft_err err = get_text(c, rope, "type", NULL, &type);
    if (err) return err;
    err = get_text(c, rope, "rope_type", type, &type);
    if (err) return err;
    if (!type && get(rope, "factor")) {
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" has a factor and no type", c->path,
                            key);
    }
    if (!type) return WEFT_OK;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].name) != 0) continue;
        *scaling_out = types[i].scaling;
        return WEFT_OK;
    }
    return unsupported(c, key, type);
}

/* Phi-3 has it outside of the object that describes RoPE. */
static weft_err read_original_context(const struct config *c, const json_t *rope,
                                      uint32_t default_value, struct weft_model_params *p) {
    static const char key[] = "original_max_position_embeddings";
    return get_u32(c, get(rope, key) ? rope : c->root, key, default_value,
                   &p->rope_original_context);
}

static weft_err read_llama3(const struct config *c, const json_t *rope,
                            struct weft_model_params *p) {
    weft_err err = get_double(c, rope, "low_freq_factor", &p->rope_low_freq_factor);
    if (!err) err = get_double(c, rope, "high_freq_factor", &p->rope_high_freq_factor);
    return err ? err : read_original_context(c, rope, REQUIRED, p);
}

/* Ministral 3: queries far behind the original context weigh more. */
static weft_err read_q_scaling(const struct config *c, const json_t *rope,
                               struct weft_model_params *p) {
    double beta = 0;
    weft_err err = get_double(c, rope, "llama_4_scaling_beta", &beta);
    if (err || beta == 0) return err;
    p->block.q_beta = (float)beta;
    p->block.q_step = p->rope_original_context;
    return WEFT_OK;
}

static weft_err read_yarn(const struct config *c, const json_t *rope, struct weft_model_params *p) {
    static const char smooth_key[] = "truncate";
    const json_t *truncate = get(rope, smooth_key);
    double mscale = 0, mscale_all = 0;
    if (truncate && !json_is_boolean(truncate)) return wrong_type(c, smooth_key, "a boolean");
    p->block.yarn_smooth = json_is_false(truncate);
    weft_err err = read_original_context(c, rope, p->n_context, p);
    if (err) return err;
    if (!get(rope, "factor")) p->rope_factor = (double)p->n_context / p->rope_original_context;
    p->yarn_beta_fast = 32;
    p->yarn_beta_slow = 1;
    err = get_double(c, rope, "beta_fast", &p->yarn_beta_fast);
    if (!err) err = get_double(c, rope, "beta_slow", &p->yarn_beta_slow);
    if (!err) err = get_double(c, rope, "mscale", &mscale);
    if (!err) err = get_double(c, rope, "mscale_all_dim", &mscale_all);
    p->rope_magnitude = wefti_model_yarn_mscale(p->rope_factor, 1);
    if (mscale != 0 && mscale_all != 0)
        p->rope_magnitude = wefti_model_yarn_mscale(p->rope_factor, mscale) /
                            wefti_model_yarn_mscale(p->rope_factor, mscale_all);
    err = err ? err : read_q_scaling(c, rope, p);
    if (mscale_all != 0) p->yarn_mscale = wefti_model_yarn_mscale(p->rope_factor, mscale_all);
    if (!err) err = get_double(c, rope, "attention_factor", &p->rope_magnitude);
    wefti_model_yarn_stretch(p);
    return err;
}

static weft_err read_factors(const struct config *c, const json_t *rope, const char *key,
                             uint32_t n, double out[WEFT_HEAD_DIM_MAX / 2]) {
    const json_t *list = get(rope, key);
    WEFT_ASSERT(n <= WEFT_HEAD_DIM_MAX / 2);
    if (!json_is_array(list)) return wrong_type(c, key, "a list");
    if (json_array_size(list) != n)
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" has %zu numbers, %u are needed",
                            c->path, key, json_array_size(list), n);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_number(item)) return wrong_type(c, key, "a list of numbers");
        out[i] = json_number_value(item);
    }
    return WEFT_OK;
}

/* The factor sets the magnitude alone. */
static weft_err read_longrope(const struct config *c, const json_t *rope,
                              struct weft_model_params *p) {
    if (p->rope_dim > WEFT_HEAD_DIM_MAX) return wefti_model_params_check(p, c->path, c->why);
    weft_err err = read_original_context(c, rope, p->n_context, p);
    if (err) return err;
    double factor = (double)p->n_context / p->rope_original_context;
    err = get_double(c, rope, "factor", &factor);
    if (err) return err;
    p->rope_factor = 1;
    p->rope_magnitude = wefti_model_longrope_magnitude(factor, p->rope_original_context);
    err = get_double(c, rope, "attention_factor", &p->rope_magnitude);
    if (!err) err = read_factors(c, rope, "short_factor", p->rope_dim / 2, p->rope_short_factors);
    if (!err) err = read_factors(c, rope, "long_factor", p->rope_dim / 2, p->rope_long_factors);
    return err;
}

/* Whether there may be no factor: it is 1, or follows from the context and the original context. */
static bool may_lack_factor(const struct config *c, const json_t *rope,
                            enum weft_rope_scaling scaling) {
    static const char key[] = "original_max_position_embeddings";
    if (scaling == WEFT_ROPE_LONGROPE || scaling == WEFT_ROPE_PROPORTIONAL) return true;
    return scaling == WEFT_ROPE_YARN && (get(rope, key) || get(c->root, key));
}

/* Hunyuan's: a base that is larger once and for all. */
static weft_err read_alpha(const struct config *c, const json_t *rope,
                           struct weft_model_params *p) {
    double alpha = 1, dim = p->rope_dim;
    weft_err err = get_double(c, rope, "alpha", &alpha);
    if (err) return err;
    if (!(alpha >= 1 && alpha <= 1e6 && dim > 2))
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: \"alpha\" is %g for %u elements of a head; 1 to 1e6 are allowed",
                            c->path, alpha, p->rope_dim);
    p->rope_scaling = WEFT_ROPE_NONE;
    p->rope_theta *= pow(alpha, dim / (dim - 2));
    return WEFT_OK;
}

/* One of the two objects that describe RoPE: "rope_scaling", or the newer "rope_parameters". */
static weft_err read_rope_object(const struct config *c, const char *key, json_t *rope,
                                 struct weft_model_params *p) {
    const char *inner_key;
    json_t *inner;
    if (!json_is_object(rope)) return wrong_type(c, key, "an object");
    json_object_foreach(rope, inner_key, inner) {
        if (json_is_object(inner)) return unsupported(c, key, "one RoPE per kind of layer");
    }
    weft_err err = read_rope_type(c, key, rope, &p->rope_scaling);
    if (err) return err;
    err = get_double(c, rope, "rope_theta", &p->rope_theta);
    if (err) return err;
    if (p->rope_scaling == WEFT_ROPE_NONE) return WEFT_OK;
    if (p->rope_scaling == WEFT_ROPE_DYNAMIC && get(rope, "alpha")) return read_alpha(c, rope, p);
    if (!get(rope, "factor") && !may_lack_factor(c, rope, p->rope_scaling))
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" has no \"factor\"", c->path, key);
    err = get_double(c, rope, "factor", &p->rope_factor);
    if (err) return err;
    if (p->rope_scaling ==
        WEFT_ROPE_PROPORTIONAL) { /* a part of a head's pairs, of all of its elements */
        p->unlike.rope_pairs = p->rope_dim / 2;
        p->rope_dim = p->head_dim;
    }
    if (p->rope_scaling == WEFT_ROPE_LLAMA3) return read_llama3(c, rope, p);
    if (p->rope_scaling == WEFT_ROPE_YARN) return read_yarn(c, rope, p);
    return p->rope_scaling == WEFT_ROPE_LONGROPE ? read_longrope(c, rope, p) : WEFT_OK;
}

/* Some models turn only the first elements of a head. */
static weft_err read_rope_dim(const struct config *c, const json_t *parameters,
                              const json_t *scaling, struct weft_model_params *p) {
    static const char key[] = "partial_rotary_factor", dim_key[] = "rotary_dim";
    double part = 1;
    if (get(c->root, dim_key)) return get_u32(c, c->root, dim_key, REQUIRED, &p->rope_dim);
    weft_err err = get_double(c, c->root, "rotary_pct", &part);
    if (!err) err = get_double(c, c->root, key, &part);
    if (!err) err = get_double(c, parameters, key, &part);
    if (!err) err = get_double(c, scaling, key, &part);
    if (err) return err;
    if (!(part > 0 && part <= 1)) /* written so that NaN fails */
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" is %g; it must be over 0 and up to 1",
                            c->path, key, part);
    p->rope_dim = (uint32_t)(p->head_dim * part);
    return WEFT_OK;
}

/* One RoPE per kind of layer: that of those with a window is never scaled. *parameters_io becomes
 * the other one. */
static weft_err read_rope_kinds(const struct config *c, json_t **parameters_io,
                                struct weft_model_params *p) {
    static const char key[] = "rope_parameters";
    json_t *full = get(*parameters_io, kinds[0]), *local = get(*parameters_io, kinds[1]);
    enum weft_rope_scaling scaling = WEFT_ROPE_NONE;
    if (!json_is_object(full) || !json_is_object(local))
        return wrong_type(c, key, "an object per kind of layer");
    weft_err err = read_rope_type(c, key, local, &scaling);
    if (err) return err;
    if (scaling != WEFT_ROPE_NONE || get(local, "partial_rotary_factor"))
        return unsupported(c, key, "scaling or a part of a head in layers with a window");
    *parameters_io = full;
    return get_double(c, local, "rope_theta", &p->local_rope_theta);
}

/* One RoPE per kind of layer where all kinds have the same: *parameters_io becomes that. Kinds that turn nothing have
 * null. */
static weft_err read_same_kinds(const struct config *c, json_t **parameters_io) {
    static const char key[] = "rope_parameters";
    json_t *first = NULL, *item;
    const char *name;
    json_object_foreach(*parameters_io, name, item) {
        if (!json_is_object(item) && !json_is_null(item))
            return WEFT_OK; /* it is the RoPE itself */
        if (json_is_null(item)) continue;
        if (first && !json_equal(first, item))
            return unsupported(c, key, "one RoPE per kind of layer");
        first = item;
    }
    if (first) *parameters_io = first;
    return WEFT_OK;
}

weft_err wefti_model_config_rope(const struct config *c, struct weft_model_params *p) {
    json_t *parameters = get(c->root, "rope_parameters");
    json_t *scaling = get(c->root, "rope_scaling");
    p->rope_factor = 1;
    weft_err err = get_double(c, c->root, "rotary_emb_base", &p->rope_theta);
    if (!err) err = get_double(c, c->root, "rope_theta", &p->rope_theta);
    if (!err && p->local_rope_theta > 0 && get(parameters, kinds[0]))
        err = read_rope_kinds(c, &parameters, p);
    else if (!err)
        err = read_same_kinds(c, &parameters);
    if (err) return err;
    err = read_rope_dim(c, parameters, scaling, p);
    if (err) return err;
    if (parameters) {
        err = read_rope_object(c, "rope_parameters", parameters, p);
        if (err) return err;
    }
    return scaling ? read_rope_object(c, "rope_scaling", scaling, p) : WEFT_OK;
}
