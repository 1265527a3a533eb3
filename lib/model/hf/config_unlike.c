/* What config.json says of layers that are not alike: heads of two sizes, layers that read the keys and values of
 * others, and embeddings for each layer. */
#include <string.h>

#include "config_hf.h"
#include "params.h"

/* Where nothing is said, each sixth layer and the last one see everything. */
static weft_err write_layer_types(const struct config *c, uint32_t n_layers) {
    static const char key[] = "layer_types";
    if (get(c->root, key) || n_layers > WEFT_LAYERS_MAX)
        return WEFT_OK; /* too many: refused later */
    json_t *types = json_array();
    bool ok = types;
    for (uint32_t i = 0; ok && i < n_layers; i++) {
        const bool is_full = (i + 1) % 6 == 0 || i + 1 == n_layers;
        ok = json_array_append_new(
                 types, json_string(is_full ? "full_attention" : "sliding_attention")) == 0;
    }
    ok = ok && json_object_set(c->root, key, types) == 0;
    json_decref(types);
    return ok ? WEFT_OK : weft_err_set(c->why, WEFT_E_NOMEM, "%s: out of memory", c->path);
}

/* Sizes of heads that keys without "global" in their names give are those of layers with a window. */
weft_err wefti_model_config_heads(const struct config *c, struct weft_model_params *p) {
    static const char window_key[] = "sliding_window";
    struct weft_model_unlike *u = &p->unlike;
    const uint32_t head_dim = p->head_dim, n_kv_heads = p->n_kv_heads;
    bool has_own_number = false;
    if (json_is_null(json_object_get(c->root, window_key)))
        return unsupported(c, window_key, "null");
    weft_err err = write_layer_types(c, p->n_layers);
    if (!err) err = get_u32(c, c->root, "global_head_dim", head_dim, &p->head_dim);
    if (!err) err = get_bool(c, "attention_k_eq_v", &has_own_number);
    if (!err && has_own_number)
        err = get_u32(c, c->root, "num_global_key_value_heads", n_kv_heads, &p->n_kv_heads);
    u->local_head_dim = head_dim;
    u->local_kv_heads = n_kv_heads;
    if (!err && (head_dim == 0 || n_kv_heads == 0)) /* which would mean that all are alike */
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: \"head_dim\" is %u and \"num_key_value_heads\" %u; they must be "
                            "over 0",
                            c->path, head_dim, n_kv_heads);
    return err;
}

/* Layers without keys and values of their own; their feed-forward part may be twice as wide. */
static weft_err read_shared(const struct config *c, struct weft_model_params *p) {
    struct weft_model_unlike *u = &p->unlike;
    bool is_wide = false;
    weft_err err = get_u32(c, c->root, "num_kv_shared_layers", 0, &u->n_shared_kv);
    if (!err) err = get_bool(c, "use_double_wide_mlp", &is_wide);
    if (err || !is_wide || u->n_shared_kv == 0 || u->n_shared_kv >= p->n_layers) return err;
    u->n_ffn_wide = p->n_ffn <= WEFT_HIDDEN_MAX ? 2 * p->n_ffn : UINT32_MAX; /* refused later */
    for (uint32_t i = p->n_layers - u->n_shared_kv; i < p->n_layers; i++)
        wefti_model_set_bit(u->wide, i);
    return WEFT_OK;
}

/* In layers without a window. */
static weft_err read_keys_as_values(const struct config *c, struct weft_model_params *p) {
    bool is_on = false;
    weft_err err = get_bool(c, "attention_k_eq_v", &is_on);
    for (uint32_t i = 0; !err && is_on && i < p->n_layers; i++) {
        if (!weft_model_is_local(p, i)) wefti_model_set_bit(p->unlike.keys_as_values, i);
    }
    return err;
}

static weft_err read_inputs(const struct config *c, struct weft_model_params *p) {
    struct weft_model_unlike *u = &p->unlike;
    weft_err err = get_u32(c, c->root, "hidden_size_per_layer_input", 0, &u->layer_input);
    if (err || u->layer_input == 0) return err;
    return get_u32(c, c->root, "vocab_size_per_layer_input", p->n_vocab, &u->n_vocab_input);
}

/* Images may see what comes after them; text may not. */
static weft_err check_direction(const struct config *c) {
    static const char key[] = "use_bidirectional_attention";
    const json_t *value = get(c->root, key);
    const char *name = json_string_value(value);
    if (!value || json_is_false(value) || (name && strcmp(name, "vision") == 0)) return WEFT_OK;
    return unsupported(c, key, name ? name : "that value");
}

weft_err wefti_model_config_unlike(const struct config *c, const struct wefti_model_arch *arch,
                                   struct weft_model_params *p) {
    const struct wefti_model_traits traits = arch->traits;
    double cap = (double)p->logit_soft_cap;
    weft_err err = WEFT_OK;
    if (traits.heads_by_kind) err = read_keys_as_values(c, p);
    if (!err && traits.heads_by_kind) err = check_direction(c);
    if (!err && traits.heads_by_kind) err = get_double(c, c->root, "final_logit_softcapping", &cap);
    if (!err && traits.shares_kv) err = read_shared(c, p);
    if (!err && traits.layer_input) err = read_inputs(c, p);
    p->logit_soft_cap = (float)cap;
    return err;
}
