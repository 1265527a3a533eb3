/* The "llama.*" metadata of a GGUF file. Options that would change the arithmetic and are not there
 * yet are refused by name, never ignored.
 */
#include "model/model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct config {
    const weft_gguf *gguf;
    const char *path;
    struct weft_errmsg *why;
};

static bool has(const weft_gguf *gguf, const char *key) {
    return wefti_gguf_find(gguf, key) != NULL;
}

static bool str_is(struct weft_str str, const char *text) {
    return str.len == strlen(text) && memcmp(str.data, text, str.len) == 0;
}

static weft_err wrong_type(const struct config *c, const char *key, const char *wanted) {
    return weft_err_set(c->why, WEFT_E_PROTO, "%s: %s is not %s", c->path, key, wanted);
}

static weft_err unsupported(const struct config *c, const char *key, struct weft_str value) {
    struct wefti_shown shown = wefti_show(value.data, value.len);
    return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: %s '%s' is not supported", c->path, key,
                        shown.text);
}

#define REQUIRED UINT32_MAX /* as the default of get_u32 */

/* Ranges are checked later, for all formats alike (params.c). */
static weft_err get_u32(const struct config *c, const char *key, uint32_t default_value,
                        uint32_t *out) {
    uint64_t value;
    size_t count;
    enum weft_gguf_type type;
    *out = default_value;
    if (!has(c->gguf, key)) {
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

/* Leaves *out alone when there is no such key. */
static weft_err get_double(const struct config *c, const char *key, double *out) {
    if (!has(c->gguf, key) || weft_gguf_f64(c->gguf, key, out)) return WEFT_OK;
    return wrong_type(c, key, "a floating-point number");
}

static weft_err check_kind(const struct config *c) {
    struct weft_str value;
    uint32_t parts;
    if (!weft_gguf_str(c->gguf, "general.architecture", &value)) {
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: has no general.architecture", c->path);
    }
    if (!str_is(value, "llama")) return unsupported(c, "general.architecture", value);
    if (weft_gguf_str(c->gguf, "general.type", &value) && !str_is(value, "model")) {
        return unsupported(c, "general.type", value);
    }
    weft_err err = get_u32(c, "split.count", 1, &parts);
    if (err) return err;
    if (parts <= 1) return WEFT_OK;
    return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                        "%s: is one of %u parts; a GGUF file in parts is not supported", c->path,
                        parts);
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
        {"llama.block_count", REQUIRED, &p->n_layers},
        {"llama.attention.head_count", REQUIRED, &p->n_heads},
        {"llama.attention.head_count_kv", 0, &p->n_kv_heads},
        {"llama.attention.key_length", 0, &p->head_dim},
        {"llama.embedding_length", REQUIRED, &p->n_hidden},
        {"llama.feed_forward_length", REQUIRED, &p->n_ffn},
        {"llama.vocab_size", (uint32_t)n_tokens, &p->n_vocab},
        {"llama.context_length", REQUIRED, &p->n_context},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        weft_err err = get_u32(c, sizes[i].key, sizes[i].default_value, sizes[i].out);
        if (err) return err;
    }
    if (!has(c->gguf, "llama.attention.head_count_kv")) p->n_kv_heads = p->n_heads;
    if (has(c->gguf, "llama.attention.key_length") || p->n_heads == 0) return WEFT_OK;
    if (p->n_hidden % p->n_heads != 0) {
        return weft_err_set(c->why, WEFT_E_PROTO,
                            "%s: llama.embedding_length %u is not a multiple of "
                            "llama.attention.head_count %u",
                            c->path, p->n_hidden, p->n_heads);
    }
    p->head_dim = p->n_hidden / p->n_heads;
    return WEFT_OK;
}

/* Keys that must be absent, or have the one value that changes nothing. */
static weft_err check_options(const struct config *c, const struct weft_model_params *p) {
    const struct {
        const char *key;
        uint32_t neutral;
    } sizes[] = {
        {"llama.rope.dimension_count", p->head_dim},
        {"llama.attention.value_length", p->head_dim},
        {"llama.expert_count", 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t value;
        weft_err err = get_u32(c, sizes[i].key, sizes[i].neutral, &value);
        if (err) return err;
        if (value == sizes[i].neutral) continue;
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: %s is %u; only %u is supported in this model", c->path,
                            sizes[i].key, value, sizes[i].neutral);
    }
    bool causal = true;
    if (weft_gguf_bool(c->gguf, "llama.attention.causal", &causal) && !causal) {
        return weft_err_set(c->why, WEFT_E_UNSUPPORTED,
                            "%s: llama.attention.causal false is not supported", c->path);
    }
    return WEFT_OK;
}

static weft_err read_window(const struct config *c, struct weft_model_params *p) {
    uint32_t window;
    weft_err err = get_u32(c, "llama.attention.sliding_window", 0, &window);
    p->window = !err && window < p->n_context ? window : 0; /* else nothing is ever outside it */
    return err;
}

static weft_err read_rope(const struct config *c, struct weft_model_params *p) {
    static const char type_key[] = "llama.rope.scaling.type";
    struct weft_str type = {"linear", 6}; /* a factor alone means linear */
    double factor = 0;
    p->rope_theta = 10000;
    p->rope_factor = 1;
    p->rope_scaling = WEFT_ROPE_NONE;
    weft_err err = get_double(c, "llama.rope.freq_base", &p->rope_theta);
    if (err) return err;
    err = get_double(c, "llama.rope.scale_linear", &factor); /* the name it once had */
    if (err) return err;
    err = get_double(c, "llama.rope.scaling.factor", &factor);
    if (err) return err;
    if (has(c->gguf, type_key) && !weft_gguf_str(c->gguf, type_key, &type)) {
        return wrong_type(c, type_key, "a string");
    }
    if (str_is(type, "none")) return WEFT_OK;
    if (!str_is(type, "linear")) return unsupported(c, type_key, type);
    if (factor == 0) return WEFT_OK; /* not given, or written as "unknown" */
    p->rope_scaling = WEFT_ROPE_LINEAR;
    p->rope_factor = factor;
    return WEFT_OK;
}

weft_err wefti_config_gguf(const weft_gguf *gguf, struct weft_model_params *p,
                           struct weft_errmsg *why) {
    static const char eps_key[] = "llama.attention.layer_norm_rms_epsilon";
    const struct config c = {gguf, gguf->file.path, why};
    struct weft_str name;
    double eps;
    weft_err err = check_kind(&c);
    if (err) return err;
    err = read_sizes(&c, p);
    if (err) return err;
    err = check_options(&c, p);
    if (err) return err;
    err = read_window(&c, p);
    if (err) return err;
    err = read_rope(&c, p);
    if (err) return err;
    if (!weft_gguf_f64(gguf, eps_key, &eps)) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: has no %s", c.path, eps_key);
    }
    p->rms_eps = (float)eps;
    p->rope_interleaved = true;
    p->tied = false;
    (void)snprintf(p->arch, sizeof p->arch, "llama");
    if (weft_gguf_str(gguf, "general.name", &name)) {
        wefti_params_set_name(p, name.data, name.len);
    }
    return wefti_params_check(p, c.path, why);
}
