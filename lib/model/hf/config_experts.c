/* What config.json says of experts. Families have keys of their own for the same numbers, and some write a list
 * of a number per layer. */
#include <string.h>

#include "base/check.h"
#include "config_hf.h"
#include "params.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* The first of the keys that is there; NULL: none is. */
static const char *find_key(const struct config *c, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (get(c->root, keys[i])) return keys[i];
    }
    return NULL;
}

/* A number, or a list of one number for all layers. */
static weft_err read_alike(const struct config *c, const char *key, uint32_t *out) {
    json_t *list = get(c->root, key);
    if (!json_is_array(list)) return get_u32(c, c->root, key, REQUIRED, out);
    const json_t *item, *first = json_array_get(list, 0);
    size_t i;
    uint64_t value;
    json_array_foreach(list, i, item) {
        if (!json_equal(item, first)) return unsupported(c, key, "numbers that differ");
    }
    if (!weft_json_u64(first, &value) || value >= UINT32_MAX)
        return wrong_type(c, key, "a list of whole numbers");
    *out = (uint32_t)value;
    return WEFT_OK;
}

/* By any of its keys; without them `default_value`, or an error if that is REQUIRED. */
static weft_err read_any(const struct config *c, const char *const *keys, size_t n,
                         uint32_t default_value, uint32_t *out) {
    const char *key = find_key(c, keys, n);
    *out = default_value;
    if (key) return read_alike(c, key, out);
    if (default_value != REQUIRED) return WEFT_OK;
    return weft_err_set(c->why, WEFT_E_PROTO, "%s: has no \"%s\"", c->path, keys[0]);
}

static weft_err read_n_experts(const struct config *c, uint32_t *out) {
    static const char *const keys[] = {"n_routed_experts", "num_local_experts", "num_experts",
                                       "moe_num_experts"};
    const char *key = find_key(c, keys, COUNT(keys));
    if (key) return read_alike(c, key, out);
    return weft_err_set(c->why, WEFT_E_PROTO, "%s: does not say how many experts there are",
                        c->path);
}

static void set_plain(struct weft_model_params *p, uint32_t n_first) {
    for (uint32_t i = 0; i < p->n_layers && i < n_first; i++)
        wefti_model_set_bit(p->no_experts, i);
}

/* -1 is the last layer. */
static weft_err read_last(const struct config *c, uint32_t n_layers, uint32_t *out) {
    static const char key[] = "moe_layer_end_index";
    *out = n_layers;
    if (json_number_value(get(c->root, key)) == -1) return WEFT_OK;
    return get_u32(c, c->root, key, n_layers, out);
}

/* Llama 4: those with experts are listed, and the list has the last word. */
static weft_err read_listed(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "moe_layers";
    const json_t *list = get(c->root, key), *item;
    size_t i;
    if (!list) return WEFT_OK;
    if (!json_is_array(list)) return wrong_type(c, key, "a list of layers");
    memset(p->no_experts, 0, sizeof p->no_experts);
    set_plain(p, p->n_layers);
    json_array_foreach(list, i, item) {
        uint64_t layer;
        if (!weft_json_u64(item, &layer) || layer >= p->n_layers)
            return wrong_type(c, key, "a list of layers");
        p->no_experts[layer / 32] &= ~(1u << layer % 32);
    }
    return WEFT_OK;
}

/* Layers without experts: listed, all but every nth, the first ones, or those outside a range. */
static weft_err read_plain_layers(const struct config *c, struct weft_model_params *p) {
    static const char list_key[] = "mlp_only_layers";
    static const char *const first_keys[] = {"first_k_dense_replace", "num_dense_layers",
                                             "moe_layer_start_index"},
                             *const step_keys[] = {"decoder_sparse_step", "moe_layer_interval",
                                                   "interleave_moe_layer_step"};
    uint32_t step, n_first, last;
    weft_err err = read_any(c, step_keys, COUNT(step_keys), 1, &step);
    if (!err) err = read_any(c, first_keys, COUNT(first_keys), 0, &n_first);
    if (!err) err = read_last(c, p->n_layers, &last);
    if (err) return err;
    set_plain(p, n_first);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        if (step == 0 || (i + 1) % step != 0 || i > last) wefti_model_set_bit(p->no_experts, i);
    }
    const json_t *list = get(c->root, list_key), *item;
    size_t i;
    if (list && !json_is_array(list)) return wrong_type(c, list_key, "a list of layers");
    json_array_foreach(list, i, item) {
        uint64_t layer;
        if (!weft_json_u64(item, &layer)) return wrong_type(c, list_key, "a list of layers");
        if (layer < p->n_layers) wefti_model_set_bit(p->no_experts, (uint32_t)layer);
    }
    return read_listed(c, p);
}

/* Defaults of keys that are missing in DeepSeek's family. transformers' third version, and those that came after
 * it, have no keys for how experts are scored and chosen: they know one way only. */
struct family {
    const char *type, *method, *func;
    bool normalise;
    uint32_t n_groups, n_groups_used, n_shared, n_plain;
    double scale;
};

static const struct family *family_of(const struct wefti_model_arch *arch) {
    static const struct family families[] = {
        {"deepseek_v2", "greedy", "softmax", false, 1, 1, 0, 0, 1},
        {"deepseek_v3", "noaux_tc", "sigmoid", true, 8, 4, 1, 3, 2.5},
        {"deepseek_v32", "noaux_tc", "sigmoid", true, 8, 4, 1, 3, 2.5},
        {"glm_moe_dsa", "noaux_tc", "sigmoid", true, 1, 1, 1, 3, 2.5},
        {"glm4_moe", "noaux_tc", "sigmoid", true, 1, 1, 1, 1, 1},
        {"glm4v_moe_text", "noaux_tc", "sigmoid", true, 1, 1, 1, 1, 1},
        {"dots1", "noaux_tc", "sigmoid", false, 1, 1, 0, 0, 1},
    };
    for (size_t i = 0; i < COUNT(families); i++) {
        if (strcmp(arch->hf_type, families[i].type) == 0) return &families[i];
    }
    WEFT_ASSERT(false); /* every row with the trait has defaults here */
    return NULL;
}

/* "mlp_layer_types" has the last word. */
static weft_err read_layer_types(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "mlp_layer_types";
    const json_t *types = get(c->root, key);
    if (!types) return WEFT_OK;
    if (!json_is_array(types) || json_array_size(types) != p->n_layers)
        return wrong_type(c, key, "a list of a name per layer");
    memset(p->no_experts, 0, sizeof p->no_experts);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type) return wrong_type(c, key, "a list of names");
        if (strcmp(type, "dense") == 0)
            wefti_model_set_bit(p->no_experts, i);
        else if (strcmp(type, "sparse") != 0)
            return unsupported(c, key, type);
    }
    return WEFT_OK;
}

/* DeepSeek's way of choosing. */
static weft_err read_choice(const struct config *c, const struct family *family,
                            struct weft_model_moe *moe) {
    static const char method_key[] = "topk_method", func_key[] = "scoring_func";
    const char *method, *func;
    weft_err err = get_text(c, c->root, method_key, family->method, &method);
    if (!err) err = get_text(c, c->root, func_key, family->func, &func);
    if (err) return err;
    /* dots.llm1's file has the method's name here. */
    moe->sigmoid = strcmp(func, "sigmoid") == 0 || strcmp(func, "noaux_tc") == 0;
    if (!moe->sigmoid && strcmp(func, "softmax") != 0) return unsupported(c, func_key, func);
    moe->score_bias = moe->by_two = strcmp(method, "noaux_tc") == 0;
    if (strcmp(method, "greedy") == 0) {
        moe->n_groups = moe->n_groups_used = 1;
    } else if (!moe->score_bias && strcmp(method, "group_limited_greedy") != 0) {
        return unsupported(c, method_key, method);
    }
    return WEFT_OK;
}

/* Of as many experts as it counts; too many are refused later. */
static void set_shared(struct weft_model_moe *moe, uint32_t n_shared) {
    if (n_shared > WEFT_EXPERTS_MAX || moe->n_ffn > WEFT_HIDDEN_MAX)
        moe->n_ffn_shared = UINT32_MAX;
    else
        moe->n_ffn_shared = n_shared * moe->n_ffn;
}

static weft_err read_deepseek_experts(const struct config *c, const struct family *family,
                                      struct weft_model_params *p) {
    struct weft_model_moe *moe = &p->moe;
    static const char freq_key[] = "moe_layer_freq";
    uint32_t n_shared = 0, n_plain = 0, freq = 1;
    double scale = family->scale;
    weft_err err = get_u32(c, c->root, "n_shared_experts", family->n_shared, &n_shared);
    if (!err) err = get_u32(c, c->root, "first_k_dense_replace", family->n_plain, &n_plain);
    if (!err) err = get_u32(c, c->root, freq_key, 1, &freq);
    if (!err) err = get_u32(c, c->root, "n_group", family->n_groups, &moe->n_groups);
    if (!err) err = get_u32(c, c->root, "topk_group", family->n_groups_used, &moe->n_groups_used);
    if (!err) err = get_double(c, c->root, "routed_scaling_factor", &scale);
    if (!err && freq != 1) return unsupported(c, freq_key, "a number other than 1");
    if (!get(c->root, "norm_topk_prob")) moe->normalise = family->normalise;
    set_plain(p, n_plain);
    set_shared(moe, n_shared);
    moe->scale = (float)scale;
    if (!err) err = read_layer_types(c, p);
    return err ? err : read_choice(c, family, moe);
}

/* Nemotron's groups are DeepSeek's; 1 and 1, as with most, are none. */
static weft_err read_groups(const struct config *c, struct weft_model_moe *moe) {
    weft_err err = get_u32(c, c->root, "n_group", 1, &moe->n_groups);
    if (!err) err = get_u32(c, c->root, "topk_group", 1, &moe->n_groups_used);
    moe->by_two = moe->n_groups != 1 && moe->sigmoid;
    return err;
}

/* How the others score and choose: the function by the family, or a key that names it. */
static weft_err read_router(const struct config *c, const struct wefti_model_arch *arch,
                            struct weft_model_moe *moe) {
    static const char *const func_keys[] = {"score_func", "scoring_func"},
                             *const scale_keys[] = {"route_scale", "routed_scaling_factor"};
    const char *key = find_key(c, func_keys, COUNT(func_keys)), *func;
    const char *scale_key = find_key(c, scale_keys, COUNT(scale_keys));
    double scale = 1;
    bool by_sigmoid = arch->traits.sigmoid, has_bias = false;
    weft_err err =
        get_text(c, c->root, key ? key : func_keys[0], by_sigmoid ? "sigmoid" : "softmax", &func);
    if (!err && scale_key) err = get_double(c, c->root, scale_key, &scale);
    if (err) return err;
    moe->sigmoid = strcmp(func, "sigmoid") == 0;
    if (!moe->sigmoid && strcmp(func, "softmax") != 0) return unsupported(c, key, func);
    has_bias = arch->traits.score_bias;
    if (get(c->root, "use_routing_bias")) err = get_bool(c, "use_routing_bias", &has_bias);
    if (!err && get(c->root, "use_expert_bias")) err = get_bool(c, "use_expert_bias", &has_bias);
    moe->score_bias = has_bias;
    moe->scale = (float)scale;
    return err ? err : read_groups(c, moe);
}

/* A size of its own, or as many experts as it counts. */
static weft_err read_shared(const struct config *c, const struct wefti_model_arch *arch,
                            struct weft_model_moe *moe) {
    static const char *const size_keys[] = {"shared_intermediate_size",
                                            "moe_shared_expert_intermediate_size"};
    const char *size_key = find_key(c, size_keys, COUNT(size_keys));
    if (size_key) return get_u32(c, c->root, size_key, 0, &moe->n_ffn_shared);
    static const char *const keys[] = {"num_shared_experts", "moe_num_shared_experts",
                                       "num_shared_expert", "n_shared_experts"};
    uint32_t n_shared = 0;
    if (arch->traits.shared_gate) {
        moe->shared_gate = true;
        return get_u32(c, c->root, "shared_expert_intermediate_size", REQUIRED, &moe->n_ffn_shared);
    }
    weft_err err = read_any(c, keys, COUNT(keys), arch->traits.llama4 ? 1 : 0, &n_shared);
    if (!err) set_shared(moe, n_shared);
    return err;
}

/* Of a pattern of letters (config_recurrent.c). */
static bool has_experts_letter(const struct config *c) {
    const char *letters = json_string_value(get(c->root, "hybrid_override_pattern"));
    return letters && strchr(letters, 'E');
}

weft_err wefti_model_config_experts(const struct config *c, const struct wefti_model_arch *arch,
                                    struct weft_model_params *p) {
    static const char *const used_keys[] = {"num_experts_per_tok", "moe_topk", "moe_k",
                                            "top_k_experts"},
                             *const ffn_keys[] = {"moe_intermediate_size"},
                             *const norm_keys[] = {"norm_topk_prob"}; /* not AFMoE's "route_norm" */
    struct weft_model_moe *moe = &p->moe;
    *moe = (struct weft_model_moe){.scale = 1, .n_groups = 1, .n_groups_used = 1};
    if (arch->traits.letters && !has_experts_letter(c)) return WEFT_OK;
    bool is_on = true;
    weft_err err = arch->traits.ffn_beside ? get_bool(c, "enable_moe_block", &is_on) : WEFT_OK;
    if (err || !is_on) return err;
    err = read_n_experts(c, &moe->n_experts);
    if (!err && moe->n_experts == 0 && arch->traits.granite_shared)
        return get_u32(c, c->root, "shared_intermediate_size", p->n_ffn, &p->n_ffn);
    if (err || moe->n_experts == 0) return err; /* whatever else is said of them */
    err = read_any(c, used_keys, COUNT(used_keys), REQUIRED, &moe->n_used);
    if (!err) err = read_any(c, ffn_keys, COUNT(ffn_keys), p->n_ffn, &moe->n_ffn);
    if (!err) err = get_u32(c, c->root, "moe_latent_size", 0, &moe->n_latent);
    const char *norm_key = find_key(c, norm_keys, COUNT(norm_keys));
    moe->normalise = arch->traits.normalised;
    if (!err && norm_key) err = get_bool(c, norm_key, &moe->normalise);
    if (err) return err;
    if (arch->traits.deepseek) return read_deepseek_experts(c, family_of(arch), p);
    err = read_router(c, arch, moe);
    if (!err) err = read_shared(c, arch, moe);
    if (!err && arch->traits.ffn_beside) {
        p->unlike.ffn_beside = 1;
        moe->n_ffn_shared = p->n_ffn;
    }
    if (!err) err = get_u32(c, c->root, "intermediate_size_mlp", p->n_ffn, &p->n_ffn);
    return err ? err : read_plain_layers(c, p);
}
