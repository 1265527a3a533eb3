/* What a model is made for: text, vectors or scores. A sentence-transformers folder says it in small
 * files of its own, beside config.json; a GGUF file in its metadata. What they ask for is done as they
 * ask or refused by name: a vector that is pooled in another way looks like any other. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "json.h"
#include "model_internal.h"

#define SMALL_BYTES_MAX (16u << 20)
/* Those who write 10^30 mean that there is no bound. */
#define NO_BOUND (UINT64_C(1) << 30)

static char *copy_text(const char *text, size_t len) {
    char *copy = malloc(len + 1);
    if (!copy) return NULL;
    memcpy(copy, text, len);
    copy[len] = 0;
    return copy;
}

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

/* "" if it is no string. */
static const char *string_at(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* NULL: there is no such file. */
static weft_err read_object(const char *dir, const char *name, json_t **root_out,
                            struct weft_errmsg *why) {
    struct weft_errmsg missing = {""};
    weft_err err = weft_model_json(dir, name, SMALL_BYTES_MAX, root_out, &missing);
    if (!err || err == WEFT_E_NOTFOUND) return WEFT_OK;
    return weft_err_set(why, err, "%s", missing.text);
}

/* ---------------------------------------------------------------- sentence-transformers --- */

static weft_err set_kind(struct weft_model_pooling *p, const char *path, const char *mode,
                         struct weft_errmsg *why) {
    static const struct {
        const char *name;
        enum weft_pooling_kind kind;
    } modes[] = {
        {"cls", WEFT_POOLING_CLS},        {"cls_token", WEFT_POOLING_CLS},
        {"mean", WEFT_POOLING_MEAN},      {"mean_tokens", WEFT_POOLING_MEAN},
        {"lasttoken", WEFT_POOLING_LAST}, {"last_token", WEFT_POOLING_LAST},
    };
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(mode, modes[i].name) != 0) continue;
        if (p->kind != WEFT_POOLING_NONE && p->kind != modes[i].kind)
            return weft_err_set(why, WEFT_E_UNSUPPORTED,
                                "%s: its vectors are several poolings side by side", path);
        p->kind = modes[i].kind;
        return WEFT_OK;
    }
    struct wefti_model_shown shown = wefti_model_show(mode, strlen(mode));
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "%s: pooling \"%s\" is not supported (cls, mean and lasttoken are)", path,
                        shown.text);
}

/* Either "pooling_mode": "mean", or a truth for each: "pooling_mode_mean_tokens": true. */
static weft_err read_modes(struct weft_model_pooling *p, const char *path, const json_t *config,
                           struct weft_errmsg *why) {
    static const char prefix[] = "pooling_mode_";
    const char *mode = string_at(config, "pooling_mode"), *key;
    const json_t *value;
    weft_err err = *mode ? set_kind(p, path, mode, why) : WEFT_OK;
    json_object_foreach((json_t *)(uintptr_t)config, key, value) {
        if (err || *mode || !json_is_true(value)) continue;
        if (strncmp(key, prefix, strlen(prefix)) == 0)
            err = set_kind(p, path, key + strlen(prefix), why);
    }
    if (err) return err;
    if (p->kind == WEFT_POOLING_NONE)
        return weft_err_set(why, WEFT_E_PROTO, "%s: its pooling has no mode", path);
    if (p->kind == WEFT_POOLING_MEAN && json_is_false(json_object_get(config, "include_prompt")))
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: means that leave out the prompt are not supported", path);
    return WEFT_OK;
}

/* The last part of "sentence_transformers.models.Pooling". */
static const char *module_name(const json_t *module) {
    const char *type = string_at(module, "type"), *dot = strrchr(type, '.');
    return dot ? dot + 1 : type;
}

/* "1_Pooling/config.json", of the folder that a module names. */
static weft_err name_config(const char *path, const json_t *module,
                            char name_out[WEFTI_MODEL_POOLING_NAME_BYTES],
                            struct weft_errmsg *why) {
    const char *folder = string_at(module, "path");
    bool is_plain = *folder && strlen(folder) < 64;
    for (const char *c = folder; *c; c++)
        is_plain &= isalnum((unsigned char)*c) || *c == '_' || *c == '-';
    if (!is_plain)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s/modules.json: the folder of its pooling has no plain name", path);
    (void)snprintf(name_out, WEFTI_MODEL_POOLING_NAME_BYTES, "%s/config.json", folder);
    return WEFT_OK;
}

static weft_err read_pooling(struct weft_model_pooling *p, const char *path, const json_t *module,
                             struct weft_errmsg *why) {
    char name[WEFTI_MODEL_POOLING_NAME_BYTES];
    json_t *config = NULL;
    if (p->kind != WEFT_POOLING_NONE)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s/modules.json: several poolings are not supported", path);
    weft_err err = name_config(path, module, name, why);
    if (!err) err = weft_model_json(path, name, SMALL_BYTES_MAX, &config, why);
    if (!err) err = read_modes(p, path, config, why);
    json_decref(config);
    return err;
}

/* The modules in their order: the model itself, a pooling, and perhaps a normalisation. */
static weft_err read_module(struct weft_model_pooling *p, const char *path, const json_t *module,
                            struct weft_errmsg *why) {
    const char *name = module_name(module);
    if (strcmp(name, "Transformer") == 0) return WEFT_OK;
    if (strcmp(name, "Pooling") == 0) return read_pooling(p, path, module, why);
    if (strcmp(name, "Normalize") == 0) {
        p->normalises = true;
        return WEFT_OK;
    }
    struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "%s/modules.json: a module \"%s\" is not supported", path, shown.text);
}

/* NULL: there is no such file. */
static weft_err open_modules(const char *path, json_t **modules_out, struct weft_errmsg *why) {
    struct weft_errmsg missing = {""};
    char *text = NULL;
    size_t len;
    *modules_out = NULL;
    weft_err err = weft_model_read_in(path, "modules.json", SMALL_BYTES_MAX, &text, &len, &missing);
    if (err == WEFT_E_NOTFOUND) return WEFT_OK;
    if (err) return weft_err_set(why, err, "%s", missing.text);
    err = wefti_model_json_parse(path, "modules.json", (struct weft_str){text, len}, 0, modules_out,
                                 why);
    free(text);
    return err;
}

static weft_err read_modules(struct weft_model_pooling *p, const char *path,
                             struct weft_errmsg *why) {
    json_t *modules = NULL;
    weft_err err = open_modules(path, &modules, why);
    if (err || !modules) return err;
    for (size_t i = 0; i < json_array_size(modules) && !err; i++)
        err = read_module(p, path, json_array_get(modules, i), why);
    if (!err && p->kind == WEFT_POOLING_NONE)
        err = weft_err_set(why, WEFT_E_UNSUPPORTED, "%s/modules.json: has no pooling", path);
    json_decref(modules);
    if (err) return err;
    p->task = WEFT_MODEL_EMBEDS;
    p->judges = false;
    return WEFT_OK;
}

weft_err wefti_model_pooling_file(const char *path, char name_out[WEFTI_MODEL_POOLING_NAME_BYTES],
                                  struct weft_errmsg *why) {
    json_t *modules = NULL;
    *name_out = 0;
    weft_err err = open_modules(path, &modules, why);
    for (size_t i = 0; i < json_array_size(modules) && !err && !*name_out; i++) {
        const json_t *module = json_array_get(modules, i);
        if (strcmp(module_name(module), "Pooling") == 0)
            err = name_config(path, module, name_out, why);
    }
    json_decref(modules);
    return err;
}

static weft_err read_prompts(struct weft_model_pooling *p, const char *path,
                             struct weft_errmsg *why) {
    json_t *config = NULL;
    weft_err err = read_object(path, "config_sentence_transformers.json", &config, why);
    json_t *prompts = json_object_get(config, "prompts");
    size_t n = json_object_size(prompts);
    if (err || n == 0) goto cleanup;
    if (n > WEFT_MODEL_PROMPTS_MAX) {
        err = weft_err_set(why, WEFT_E_TOOBIG, "%s: has %zu prompts, at most %u are read", path, n,
                           WEFT_MODEL_PROMPTS_MAX);
        goto cleanup;
    }
    err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for its prompts", path);
    p->prompts = calloc(n, sizeof *p->prompts);
    if (!p->prompts) goto cleanup;
    const char *key, *chosen = string_at(config, "default_prompt_name");
    json_t *value;
    json_object_foreach(prompts, key, value) {
        struct weft_model_prompt *prompt = &p->prompts[p->n_prompts++];
        if (*chosen && strcmp(chosen, key) == 0) p->default_prompt = p->n_prompts - 1;
        prompt->name = copy_text(key, strlen(key));
        prompt->text = copy_text(json_is_string(value) ? json_string_value(value) : "",
                                 json_string_length(value));
        if (!prompt->name || !prompt->text) goto cleanup;
    }
    err = WEFT_OK;
cleanup:
    json_decref(config);
    return err;
}

/* Of sentence-transformers, else what the tokenizer was made for. */
static weft_err read_length(struct weft_model_pooling *p, const char *path,
                            struct weft_errmsg *why) {
    json_t *config = NULL, *tokenizer = NULL;
    uint64_t n = 0;
    weft_err err = read_object(path, "sentence_bert_config.json", &config, why);
    if (!err) err = read_object(path, "tokenizer_config.json", &tokenizer, why);
    if (!err && !weft_json_u64(json_object_get(config, "max_seq_length"), &n))
        (void)weft_json_u64(json_object_get(tokenizer, "model_max_length"), &n);
    p->n_tokens_max = n < NO_BOUND ? (uint32_t)n : 0;
    json_decref(config);
    json_decref(tokenizer);
    return err;
}

/* -------------------------------------------------------------------------------- config.json --- */

static bool is_encoder(const char *arch) {
    static const char *const beginnings[] = {"Bert",       "Roberta", "XLMRoberta", "NomicBert",
                                             "ModernBert", "New",     "Gte"};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
        if (strncmp(arch, beginnings[i], strlen(beginnings[i])) == 0) return true;
    }
    return false;
}

static weft_err set_activation(struct weft_model_pooling *p, const char *path, const char *fn,
                               struct weft_errmsg *why) {
    const char *dot = strrchr(fn, '.'), *name = dot ? dot + 1 : fn;
    if (!*name)
        p->activation = p->n_labels > 1 ? WEFT_MODEL_SOFTMAX : WEFT_MODEL_SIGMOID;
    else if (strcmp(name, "Sigmoid") == 0)
        p->activation = WEFT_MODEL_SIGMOID;
    else if (strcmp(name, "Identity") == 0)
        p->activation = WEFT_MODEL_IDENTITY;
    else if (strcmp(name, "Softmax") == 0)
        p->activation = WEFT_MODEL_SOFTMAX;
    else {
        struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: scores by \"%s\" are not supported (Sigmoid, Softmax and Identity "
                            "are)",
                            path, shown.text);
    }
    return WEFT_OK;
}

static weft_err make_labels(struct weft_model_pooling *p, const char *path, uint64_t n,
                            struct weft_errmsg *why) {
    if (n > WEFT_MODEL_LABELS_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "%s: has %llu labels, at most %u are read", path,
                            (unsigned long long)n, WEFT_MODEL_LABELS_MAX);
    p->labels = calloc((size_t)n + 1, sizeof *p->labels);
    if (!p->labels) return weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for its labels", path);
    p->n_labels = (uint32_t)n;
    return WEFT_OK;
}

static weft_err read_labels(struct weft_model_pooling *p, const char *path, const json_t *config,
                            struct weft_errmsg *why) {
    const json_t *names = json_object_get(config, "id2label");
    uint64_t n = json_object_size(names);
    if (n == 0 && !weft_json_u64(json_object_get(config, "num_labels"), &n))
        n = 2; /* what transformers takes where nothing is said */
    weft_err err = make_labels(p, path, n, why);
    for (uint32_t i = 0; i < p->n_labels && !err; i++) {
        char key[16], made_up[32];
        (void)snprintf(key, sizeof key, "%u", i);
        (void)snprintf(made_up, sizeof made_up, "LABEL_%u", i);
        const char *name = string_at(names, key);
        if (!*name) name = made_up;
        p->labels[i] = copy_text(name, strlen(name));
        if (!p->labels[i]) err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for labels", path);
    }
    if (err) return err;
    const char *fn = string_at(json_object_get(config, "sentence_transformers"), "activation_fn");
    if (!*fn) fn = string_at(config, "sbert_ce_default_activation_function");
    return set_activation(p, path, fn, why);
}

/* What the architecture's name says; modules.json knows better. */
static weft_err read_config(struct weft_model_pooling *p, const char *path,
                            struct weft_errmsg *why) {
    json_t *config = NULL;
    weft_err err = read_object(path, "config.json", &config, why);
    if (err) return err;
    const char *arch =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    if (!arch) arch = "";
    bool is_one_way = !json_is_false(json_object_get(config, "is_causal"));
    bool has_first = is_encoder(arch) && !ends_with(arch, "ForCausalLM");
    bool reads_both_ways = has_first || !is_one_way;
    p->judges = is_one_way && strcmp(arch, "Qwen3ForCausalLM") == 0;
    p->generates = !reads_both_ways && !ends_with(arch, "ForSequenceClassification");
    if (ends_with(arch, "ForSequenceClassification")) {
        p->task = WEFT_MODEL_CLASSIFIES;
        err = read_labels(p, path, config, why);
    } else if (reads_both_ways || ends_with(arch, "Model")) {
        p->task = WEFT_MODEL_EMBEDS;
    }
    json_decref(config);
    if (!err) err = read_modules(p, path, why);
    if (err || p->kind != WEFT_POOLING_NONE) return err;
    p->kind = has_first ? WEFT_POOLING_CLS : WEFT_POOLING_LAST;
    p->normalises = true;
    return WEFT_OK;
}

static weft_err read_folder(struct weft_model_pooling *p, const char *path,
                            struct weft_errmsg *why) {
    weft_err err = read_config(p, path, why);
    if (!err && p->task == WEFT_MODEL_EMBEDS) err = read_prompts(p, path, why);
    if (!err && p->task != WEFT_MODEL_GENERATES) err = read_length(p, path, why);
    return err;
}

/* --------------------------------------------------------------------------------------- GGUF --- */

static weft_err read_gguf_labels(struct weft_model_pooling *p, const char *path,
                                 const weft_gguf *gguf, const char *key, size_t n,
                                 struct weft_errmsg *why) {
    weft_err err = make_labels(p, path, n, why);
    for (uint32_t i = 0; i < p->n_labels && !err; i++) {
        struct weft_str name = {"", 0};
        (void)weft_gguf_array_str(gguf, key, i, &name);
        p->labels[i] = copy_text(name.data, name.len);
        if (!p->labels[i]) err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for labels", path);
    }
    return err ? err : set_activation(p, path, "", why);
}

/* <arch>.pooling_type: 0 none, 1 mean, 2 cls, 3 last, 4 rank. Normalised as llama-server does. */
static weft_err read_metadata(struct weft_model_pooling *p, const char *path, const weft_gguf *gguf,
                              struct weft_errmsg *why) {
    static const enum weft_pooling_kind kinds[] = {WEFT_POOLING_NONE, WEFT_POOLING_MEAN,
                                                   WEFT_POOLING_CLS, WEFT_POOLING_LAST};
    struct weft_str arch = {"", 0};
    char key[96];
    uint64_t type = 0;
    size_t n_labels = 0;
    enum weft_gguf_type of_labels = WEFT_GGUF_TYPE_COUNT;
    bool sees_ahead = false, is_causal = true;
    (void)weft_gguf_str(gguf, "general.architecture", &arch);
    int len = (int)(arch.len < 32 ? arch.len : 32);
    p->judges = arch.len == 5 && memcmp(arch.data, "qwen3", 5) == 0;
    (void)snprintf(key, sizeof key, "%.*s.attention.causal", len, arch.data);
    if (weft_gguf_bool(gguf, key, &is_causal)) sees_ahead = !is_causal;
    (void)snprintf(key, sizeof key, "%.*s.pooling_type", len, arch.data);
    (void)weft_gguf_u64(gguf, key, &type);
    (void)snprintf(key, sizeof key, "%.*s.classifier.output_labels", len, arch.data);
    (void)weft_gguf_array(gguf, key, &of_labels, &n_labels);
    p->kind = sees_ahead ? WEFT_POOLING_CLS : WEFT_POOLING_LAST;
    p->normalises = true;
    p->generates = !sees_ahead;
    if (type > 4)
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "%s: pooling_type %llu is not supported", path,
                            (unsigned long long)type);
    if (sees_ahead || (type > 0 && type < 4)) p->task = WEFT_MODEL_EMBEDS;
    if (type > 0 && type < 4) {
        p->kind = kinds[type];
        p->judges = false;
    }
    if (!sees_ahead || of_labels != WEFT_GGUF_STRING || n_labels == 0) return WEFT_OK;
    p->task = WEFT_MODEL_CLASSIFIES;
    return read_gguf_labels(p, path, gguf, key, n_labels, why);
}

static weft_err read_gguf(struct weft_model_pooling *p, const char *path, struct weft_errmsg *why) {
    weft_gguf *gguf;
    weft_err err = weft_gguf_open(path, &gguf, why);
    if (err) return err;
    err = read_metadata(p, path, gguf, why);
    weft_gguf_free(gguf);
    return err;
}

/* ----------------------------------------------------------------------------------- together --- */

weft_err weft_model_pooling_read(const char *path, struct weft_model_pooling **pooling_out,
                                 struct weft_errmsg *why) {
    struct weft_model_place place;
    *pooling_out = NULL;
    weft_err err = weft_model_locate(path, &place, why);
    if (err) return err;
    struct weft_model_pooling *p = calloc(1, sizeof *p);
    if (!p) {
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for what %s is made for", path);
    } else {
        p->default_prompt = UINT32_MAX;
        err = place.format == WEFT_MODEL_GGUF ? read_gguf(p, place.path, why)
                                              : read_folder(p, place.path, why);
    }
    weft_model_place_fini(&place);
    if (err)
        weft_model_pooling_free(p);
    else
        *pooling_out = p;
    return err;
}

void weft_model_pooling_free(struct weft_model_pooling *pooling) {
    if (!pooling) return;
    for (uint32_t i = 0; i < pooling->n_prompts; i++) {
        free(pooling->prompts[i].name);
        free(pooling->prompts[i].text);
    }
    for (uint32_t i = 0; pooling->labels && i < pooling->n_labels; i++)
        free(pooling->labels[i]);
    free(pooling->prompts);
    free(pooling->labels);
    free(pooling);
}
