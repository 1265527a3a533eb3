/* config.json of a Hugging Face folder. Missing keys have transformers' defaults; unsupported
 * options that would change the arithmetic are refused by name, never ignored. */
#include "config_hf.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "params.h"

/* Defaults of missing sizes; 0: follows from others. */
struct sizes {
    uint32_t n_heads, n_kv_heads, head_dim, n_vocab, n_context;
};

static const struct sizes *default_sizes(struct wefti_model_traits traits) {
    static const struct sizes usual = {REQUIRED, 0, 0, REQUIRED, 2048},
                              gemma2 = {8, 4, 256, 256000, 8192},
                              gemma3 = {8, 4, 256, 262208, 131072};
    if (!traits.gemma) return &usual;
    return traits.local_rope ? &gemma3 : &gemma2;
}

static weft_err read_sizes(const struct config *c, struct wefti_model_traits traits,
                           struct weft_model_params *p) {
    const struct sizes *defaults = default_sizes(traits);
    const struct {
        const char *key;
        uint32_t default_value;
        uint32_t *out;
    } sizes[] = {
        {"num_hidden_layers", REQUIRED, &p->n_layers},
        {"num_attention_heads", defaults->n_heads, &p->n_heads},
        {"num_key_value_heads", defaults->n_kv_heads, &p->n_kv_heads},
        {"head_dim", defaults->head_dim, &p->head_dim},
        {"hidden_size", REQUIRED, &p->n_hidden},
        {"intermediate_size", REQUIRED, &p->n_ffn},
        {"vocab_size", defaults->n_vocab, &p->n_vocab},
        {"max_position_embeddings", defaults->n_context, &p->n_context},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        weft_err err = get_u32(c, c->root, sizes[i].key, sizes[i].default_value, sizes[i].out);
        if (err) return err;
    }
    bool has_head_dim = get(c->root, "head_dim") || defaults->head_dim > 0;
    if (!get(c->root, "num_key_value_heads") && defaults->n_kv_heads == 0)
        p->n_kv_heads = p->n_heads;
    if (has_head_dim || p->n_heads == 0 || traits.latent) return WEFT_OK;
    if (p->n_hidden % p->n_heads != 0) {
        return weft_err_set(
            c->why, WEFT_E_PROTO,
            "%s: \"hidden_size\" %u is not a multiple of \"num_attention_heads\" %u", c->path,
            p->n_hidden, p->n_heads);
    }
    p->head_dim = p->n_hidden / p->n_heads;
    return WEFT_OK;
}

/* Follows read_rope: what turns is not a part of the usual head. */
static weft_err read_latent(const struct config *c, struct weft_model_params *p) {
    static const char pairs_key[] = "rope_interleave";
    bool pairs = true;
    weft_err err = get_u32(c, c->root, "kv_lora_rank", REQUIRED, &p->kv_lora);
    if (!err) err = get_u32(c, c->root, "q_lora_rank", 0, &p->q_lora);
    if (!err) err = get_u32(c, c->root, "qk_nope_head_dim", REQUIRED, &p->nope_dim);
    if (!err) err = get_u32(c, c->root, "qk_rope_head_dim", REQUIRED, &p->rope_dim);
    if (!err) err = get_u32(c, c->root, "v_head_dim", REQUIRED, &p->v_dim);
    if (!err) err = get_u32(c, c->root, "num_nextn_predict_layers", 0, &p->n_predict);
    if (!err && get(c->root, pairs_key)) err = get_bool(c, pairs_key, &pairs);
    p->rope_interleaved = pairs;
    wefti_model_params_set_latent(p);
    return err;
}

/* Whether every layer has an indexer of its own. */
static weft_err check_indexed_layers(const struct config *c) {
    static const char types_key[] = "indexer_types", *const keys[] = {"index_topk_freq",
                                                                      "index_kpool"};
    const json_t *type, *types = get(c->root, types_key);
    size_t i;
    if (get(c->root, "index_topk_pattern"))
        return unsupported(c, "index_topk_pattern", "a pattern");
    if (types && !json_is_array(types)) return wrong_type(c, types_key, "a list");
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (!name) return wrong_type(c, types_key, "a list of names");
        if (strcmp(name, "full") != 0) return unsupported(c, types_key, name);
    }
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint32_t n;
        weft_err err = get_u32(c, c->root, keys[i], 1, &n);
        if (err) return err;
        if (n != 1) return unsupported(c, keys[i], "a number other than 1");
    }
    return WEFT_OK;
}

static weft_err read_indexer(const struct config *c, const struct wefti_model_arch *arch,
                             struct weft_model_params *p) {
    static const char pairs_key[] = "indexer_rope_interleave";
    struct weft_model_indexer *indexer = &p->indexer;
    bool pairs = arch->traits.index_pairs;
    weft_err err = check_indexed_layers(c);
    if (!err) err = get_u32(c, c->root, "index_n_heads", REQUIRED, &indexer->n_heads);
    if (!err) err = get_u32(c, c->root, "index_head_dim", REQUIRED, &indexer->head_dim);
    if (!err) err = get_u32(c, c->root, "index_topk", REQUIRED, &indexer->top_k);
    if (!err && get(c->root, pairs_key)) err = get_bool(c, pairs_key, &pairs);
    indexer->pairs = pairs;
    return err ? err : wefti_model_params_check_indexer(p, c->path, c->why);
}

static weft_err check_options(const struct config *c, struct weft_model_params *p) {
    static const char clip_key[] = "clip_qkv";
    if (get(c->root, clip_key)) return unsupported(c, clip_key, "a number");
    weft_err err = wefti_model_config_act(c, p);
    if (err) return err;
    const json_t *quantisation = get(c->root, "quantization_config");
    if (quantisation) return wefti_model_config_quant(c->path, quantisation, &p->quant, c->why);
    return WEFT_OK;
}

/* Whether every layer has the window that the configuration names. */
static weft_err check_window_layers(const struct config *c, const struct weft_model_params *p) {
    static const char types_key[] = "layer_types", max_key[] = "max_window_layers";
    uint32_t n_windowed;
    size_t i;
    const json_t *type, *types = get(c->root, types_key);
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "sliding_attention") != 0)
            return unsupported(c, types_key, "a window in some layers alone");
    }
    weft_err err = get_u32(c, c->root, max_key, p->n_layers, &n_windowed);
    if (err || n_windowed >= p->n_layers) return err;
    return unsupported(c, max_key, "a window in some layers alone");
}

/* A config that does not mention the window means the architecture's own. */
static weft_err read_window(const struct config *c, const struct wefti_model_arch *arch,
                            struct weft_model_params *p) {
    static const char key[] = "sliding_window", use_key[] = "use_sliding_window";
    uint32_t window = 0;
    bool use = true;
    if (json_is_null(json_object_get(c->root, key))) return WEFT_OK;
    weft_err err = get(c->root, use_key) ? get_bool(c, use_key, &use) : WEFT_OK;
    if (err || !use) return err;
    if (!get(c->root, key) && arch->window == 0) return WEFT_OK;
    err = get_u32(c, c->root, key, arch->window, &window);
    if (err || window >= p->n_context) return err; /* nothing is ever outside it */
    if (window == 0) {
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" is 0; a token sees itself at least",
                            c->path, key);
    }
    p->window = window;
    return check_window_layers(c, p);
}

static weft_err refuse(const struct config *c, enum wefti_model_arch_name kind, const char *name) {
    return wefti_model_arch_refuse(c->path, kind, (struct weft_str){name, strlen(name)}, c->why);
}

/* Encoders may name what else their weights are for after what they are (gte-multilingual-base). Of a wrapper the
 * architecture is NULL. */
static weft_err read_architecture(const struct config *c, const struct wefti_model_arch **arch_out,
                                  const struct wefti_model_wrapper **wrapper_out) {
    const char *type;
    *arch_out = NULL;
    *wrapper_out = NULL;
    weft_err err = get_text(c, c->root, "model_type", NULL, &type);
    if (err) return err;
    const json_t *list = get(c->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name && !type) {
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: names neither \"architectures\" nor a \"model_type\"", c->path);
    }
    *arch_out = name ? wefti_model_arch_of_class(name) : wefti_model_arch_of_type(type);
    if (!*arch_out) *wrapper_out = wefti_model_wrapper_of(name, type);
    bool is_encoder = *arch_out && (*arch_out)->traits.encoder;
    if (list && (!name || (json_array_size(list) != 1 && !is_encoder)))
        return wrong_type(c, "architectures", "a list of one name");
    if (*wrapper_out) return WEFT_OK;
    if (!*arch_out)
        return refuse(c, name ? WEFTI_MODEL_BY_CLASS : WEFTI_MODEL_BY_TYPE, name ? name : type);
    /* An unknown type (Kimi K2's) changes nothing: the class says what to compute. */
    const struct wefti_model_arch *other = type ? wefti_model_arch_of_type(type) : NULL;
    if (!other || strcmp(type, (*arch_out)->hf_type) == 0) return WEFT_OK;
    return weft_err_set(c->why, WEFT_E_PROTO,
                        "%s: \"architectures\" says %s, but \"model_type\" is \"%s\"", c->path,
                        (*arch_out)->hf_class, type);
}

/* Granite's scales. Logits are divided by theirs. */
static weft_err read_scales(const struct config *c, struct weft_model_params *p) {
    double embed = 1, residual = 1, attention = 1, logits = 1;
    weft_err err = get_double(c, c->root, "embedding_multiplier", &embed);
    if (!err) err = get_double(c, c->root, "residual_multiplier", &residual);
    if (!err) err = get_double(c, c->root, "attention_multiplier", &attention);
    if (!err) err = get_double(c, c->root, "logits_scaling", &logits);
    p->embed_scale = (float)embed;
    p->residual_scale = (float)residual;
    p->attn_scale = (float)attention;
    p->logit_scale = (float)(1 / logits);
    return err;
}

/* Layers with a 0 in the list; without a list every fourth, or every nth by the interval. */
static weft_err read_no_rope_layers(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "no_rope_layers";
    const json_t *list = get(c->root, key);
    uint32_t interval = 0;
    weft_err err = get_u32(c, c->root, "no_rope_layer_interval", 4, &interval);
    if (err) return err;
    if (json_is_array(list) && json_array_size(list) == 0) list = NULL; /* as in Llama 4 Scout */
    if (list && json_array_size(list) != p->n_layers)
        return wrong_type(c, key, "a list of a number per layer");
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const json_t *item = json_array_get(list, i);
        if (list && !json_is_number(item)) return wrong_type(c, key, "a list of numbers");
        bool is_off = list ? json_number_value(item) == 0 : interval && (i + 1) % interval == 0;
        if (is_off) wefti_model_set_bit(p->no_rope, i);
    }
    return WEFT_OK;
}

/* Every second layer of Gemma 2, and all but every sixth of Gemma 3, have the window. */
static weft_err read_gemma_window(const struct config *c, const struct wefti_model_arch *arch,
                                  struct weft_model_params *p) {
    bool every_second = !arch->traits.local_rope;
    static const char types_key[] = "layer_types";
    const json_t *types = get(c->root, types_key);
    uint32_t window = 0, pattern = 0;
    weft_err err = get_u32(c, c->root, "sliding_window", arch->window, &window);
    if (!err) err = get_u32(c, c->root, "sliding_window_pattern", every_second ? 2 : 6, &pattern);
    if (err) return err;
    if (types && !json_is_array(types)) return wrong_type(c, types_key, "a list");
    if (window == 0 || pattern == 0 || (types && json_array_size(types) != p->n_layers))
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: the window is %u in a pattern of %u layers, with %zu layer types",
                            c->path, window, pattern, json_array_size(types));
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (types && !type) return wrong_type(c, types_key, "a list of names");
        bool full = type ? strcmp(type, "full_attention") == 0 : (i + 1) % pattern == 0;
        if (type && !full && strcmp(type, "sliding_attention") != 0)
            return unsupported(c, types_key, type);
        if (full) wefti_model_set_bit(p->no_window, i);
    }
    p->window = window < p->n_context ? window : 0; /* else nothing is ever outside it */
    return WEFT_OK;
}

/* null means that there is none; a missing key does not. */
static weft_err read_cap(const struct config *c, const char *key, double default_cap, double *out) {
    *out = json_object_get(c->root, key) ? 0 : default_cap;
    return get_double(c, c->root, key, out);
}

static weft_err read_gemma(const struct config *c, const struct wefti_model_arch *arch,
                           struct weft_model_params *p) {
    double attention = 256, attn_cap = 0, logit_cap = 0;
    bool is_local = arch->traits.local_rope;
    weft_err err = read_gemma_window(c, arch, p);
    if (!err) err = get_double(c, c->root, "query_pre_attn_scalar", &attention);
    if (!err) err = read_cap(c, "attn_logit_softcapping", is_local ? 0 : 50, &attn_cap);
    if (!err) err = read_cap(c, "final_logit_softcapping", is_local ? 0 : 30, &logit_cap);
    if (!err && is_local)
        err = get_double(c, c->root, "rope_local_base_freq", &p->local_rope_theta);
    p->norm_plus_one = true;
    p->embed_scale = sqrtf((float)p->n_hidden);
    p->attn_scale = (float)(1 / sqrt(attention));
    p->attn_soft_cap = (float)attn_cap;
    p->logit_soft_cap = (float)logit_cap;
    return err;
}

/* Qwen's and SmolLM's window, which none of their models uses. */
static weft_err check_no_window(const struct config *c) {
    static const char key[] = "use_sliding_window", types_key[] = "layer_types";
    const json_t *type;
    size_t i;
    bool on;
    weft_err err = get_bool(c, key, &on);
    if (err || on) return err ? err : unsupported(c, key, "true");
    const json_t *types = get(c->root, types_key);
    if (types && !json_is_array(types)) return wrong_type(c, types_key, "a list");
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (!name) return wrong_type(c, types_key, "a list of names");
        if (strcmp(name, "full_attention") != 0) return unsupported(c, types_key, name);
    }
    return WEFT_OK;
}

static bool reads_own_layer_types(struct wefti_model_traits traits) {
    return traits.llama4 || traits.conv || traits.mamba || traits.delta;
}

/* Sizes are known and in range. */
static weft_err read_traits(const struct config *c, const struct wefti_model_arch *arch,
                            struct weft_model_params *p) {
    weft_err err = WEFT_OK;
    if (arch->traits.gemma)
        err = read_gemma(c, arch, p);
    else if (arch->traits.pattern)
        err = wefti_model_config_pattern(c, arch, p);
    else if (arch->traits.window)
        err = read_window(c, arch, p);
    else if (!reads_own_layer_types(arch->traits))
        err = check_no_window(c);
    if (!err && arch->traits.no_rope) err = read_no_rope_layers(c, p);
    if (!err && arch->traits.scales) err = read_scales(c, p);
    if (!err) err = wefti_model_config_block(c, arch, p);
    if (!err) err = wefti_model_config_recurrent(c, arch, p);
    if (!err && arch->traits.experts) err = wefti_model_config_experts(c, arch, p);
    return err ? err : wefti_model_config_unlike(c, arch, p);
}

/* GTE's Qwen2 and its like: a decoder's weights, trained to embed with all tokens in sight. A window or a latent
 * would ask for kernels that are for one direction. */
static weft_err read_causal(const struct config *c, struct weft_model_params *p) {
    static const char key[] = "is_causal";
    bool is_causal = true;
    weft_err err = get(c->root, key) ? get_bool(c, key, &is_causal) : WEFT_OK;
    if (err || is_causal) return err;
    if (p->window > 0 || p->kv_lora > 0 || weft_model_has_recurrent(p))
        return unsupported(c, key, "false in a model with a window, a latent or recurrent layers");
    p->encoder.is_on = p->encoder.as_decoder = 1;
    return WEFT_OK;
}

/* The part of a larger model's file that describes its language model, with keys for all parts. */
static weft_err unwrap(const struct config *c, struct config *text_out) {
    static const char key[] = "text_config";
    static const char *const shared[] = {"tie_word_embeddings", "quantization_config"};
    *text_out = (struct config){c->path, get(c->root, key), c->why};
    if (!json_is_object(text_out->root)) return wrong_type(c, key, "an object");
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        json_t *value = get(c->root, shared[i]);
        if (!value || get(text_out->root, shared[i])) continue;
        if (json_object_set(text_out->root, shared[i], value) != 0)
            return weft_err_set(c->why, WEFT_E_NOMEM, "%s: out of memory", c->path);
    }
    return WEFT_OK;
}

/* Where there is no such part, the file describes the language model itself, beside the others. */
static weft_err read_wrapper(const struct config *c, const struct wefti_model_wrapper *wrapper,
                             struct config *text_out, const struct wefti_model_arch **arch_out) {
    const char *type = wrapper->text_type;
    weft_err err = WEFT_OK;
    if (get(c->root, "text_config")) {
        err = unwrap(c, text_out);
        if (!err) err = get_text(text_out, text_out->root, "model_type", type, &type);
    }
    if (err) return err;
    *arch_out = wefti_model_arch_of_type(type);
    if (*arch_out && !(*arch_out)->traits.encoder && !(*arch_out)->traits.wrapped) return WEFT_OK;
    return refuse(c, WEFTI_MODEL_BY_TYPE, type);
}

static weft_err read_model(const struct config *c, const struct wefti_model_arch *arch,
                           struct weft_model_params *p) {
    weft_err err = check_options(c, p);
    if (err) return err;
    err = read_sizes(c, arch->traits, p);
    if (err) return err;
    if (arch->traits.heads_by_kind) err = wefti_model_config_heads(c, p);
    if (err) return err;
    err = wefti_model_config_rope(c, p);
    if (err) return err;
    err = wefti_model_config_eps(c, p);
    if (err) return err;
    err = get_bool(c, "tie_word_embeddings", &p->tied);
    if (err) return err;
    p->untied = json_is_false(get(c->root, "tie_word_embeddings"));
    if (!get(c->root, "tie_word_embeddings")) p->tied = arch->traits.gemma || arch->traits.tied;
    p->rope_interleaved = arch->traits.pairs;
    if (arch->traits.latent) err = read_latent(c, p);
    if (!err && arch->traits.indexer) err = read_indexer(c, arch, p);
    if (err) return err;
    if (p->n_layers > WEFT_LAYERS_MAX) return wefti_model_params_check(p, c->path, c->why);
    err = read_traits(c, arch, p);
    if (!err) err = read_causal(c, p);
    if (err) return err;
    wefti_model_params_settle(p);
    return wefti_model_params_check(p, c->path, c->why);
}

/* Which architecture the file is of, and the part of it that describes the language model. */
static weft_err find_text(const struct config *c, struct config *text_out,
                          const struct wefti_model_arch **arch_out, bool *is_wrapped_out) {
    const struct wefti_model_wrapper *wrapper;
    *text_out = *c;
    if (!json_is_object(c->root)) {
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: is not a JSON object", c->path);
    }
    weft_err err = read_architecture(c, arch_out, &wrapper);
    if (!err && wrapper) err = read_wrapper(c, wrapper, text_out, arch_out);
    if (err) return err;
    WEFT_ASSERT(*arch_out != NULL);
    *is_wrapped_out = wrapper || (*arch_out)->traits.wrapped;
    return (*arch_out)->traits.wrapped ? unwrap(c, text_out) : WEFT_OK;
}

static weft_err read_config(const struct config *c, struct weft_model_params *p) {
    const struct wefti_model_arch *arch = NULL;
    struct config text;
    bool is_wrapped = false;
    weft_err err = find_text(c, &text, &arch, &is_wrapped);
    if (err) return err;
    WEFT_ASSERT(arch != NULL);
    wefti_model_params_init(p, arch);
    if (p->encoder.is_on) return wefti_model_config_encoder(c, arch, p);
    p->wrapped = is_wrapped;
    err = wefti_model_config_family(&text, arch);
    return err ? err : read_model(&text, arch, p);
}

static weft_err parse_config(const struct wefti_model_file *file, struct config *c) {
    return wefti_model_json_parse(file->path, "the configuration",
                                  (struct weft_str){(const char *)file->bytes, file->n_bytes},
                                  JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &c->root,
                                  c->why);
}

void wefti_model_config_missing(const struct wefti_model_file *file, bool has_experts,
                                char hint[WEFTI_MODEL_HINT_BYTES]) {
    struct weft_errmsg why;
    struct config c = {.path = file->path, .why = &why}, text;
    const struct wefti_model_arch *arch = NULL;
    bool is_wrapped;
    hint[0] = '\0';
    if (parse_config(file, &c)) return;
    if (!find_text(&c, &text, &arch, &is_wrapped) && arch)
        wefti_model_config_left_out(&text, arch, has_experts, hint);
    json_decref(c.root);
}

weft_err wefti_model_config_hf(const struct wefti_model_file *file,
                               struct weft_model_params *params, struct weft_errmsg *why) {
    struct config c = {.path = file->path, .why = why};
    weft_err err = parse_config(file, &c);
    if (err) return err;
    err = read_config(&c, params);
    json_decref(c.root);
    return err;
}
