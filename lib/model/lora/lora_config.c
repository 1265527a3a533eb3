/* adapter_config.json: which modules an adapter has, of which rank and with which scale. A setting
 * under which B A alone is not what was trained is refused by its name. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lora_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "hf/hf.h"

#define FILE_NAME "adapter_config.json"
#define PATTERNS_MAX 4096u
#define PATTERN_BYTES_MAX 1024u
#define CODE_BYTES_MAX (16u << 20) /* of all expressions: one of a kilobyte may become 64 */
#define MATCH_STEPS_MAX 100000u    /* names have a hundred letters */
#define MATCH_KIB_MAX 1024u
/* Of all matches for an adapter: two seconds. A name costs an expression about as many as it has letters,
 * and a plain one a single step; the largest mixtures have 50,000 modules. */
#define ALL_STEPS_MAX 100000000u

struct pattern {
    pcre2_code *code;
    char *plain;  /* an expression that is nothing but a name; NULL: it is more */
    double value; /* of a rank_pattern or alpha_pattern */
};

struct patterns {
    struct pattern *items;
    size_t n;
};

struct wefti_lora_config {
    char *path; /* of the file, for messages */
    double rank, alpha;
    bool has_root_scale; /* use_rslora */
    bool names_all;      /* target_modules says nothing but "all linear layers" */
    bool layers_given;
    uint32_t layers[WEFT_LAYERS_MAX / 32]; /* those of layers_to_transform */
    struct patterns targets, ranks, alphas;
    size_t n_code_bytes;
    uint32_t *n_steps_left; /* matching leaves all else as it is */
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* ------------------------------------------------------------------------------- patterns --- */

static void patterns_free(struct patterns *patterns) {
    for (size_t i = 0; i < patterns->n; i++) {
        pcre2_code_free(patterns->items[i].code);
        free(patterns->items[i].plain);
    }
    free(patterns->items);
    *patterns = (struct patterns){0};
}

static weft_err reserve(struct patterns *patterns, size_t n, const char *path, const char *setting,
                        struct weft_errmsg *why) {
    if (n > PATTERNS_MAX)
        return weft_err_set(why, WEFT_E_PROTO, "%s: %s has %zu entries; the limit is %u", path,
                            setting, n, PATTERNS_MAX);
    patterns->items = calloc(n + 1, sizeof *patterns->items);
    return patterns->items ? WEFT_OK : weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
}

static weft_err count_code(wefti_lora_config *c, const pcre2_code *code, const char *setting,
                           struct weft_errmsg *why) {
    size_t n_bytes = 0;
    (void)pcre2_pattern_info(code, PCRE2_INFO_SIZE, &n_bytes);
    c->n_code_bytes += n_bytes;
    if (c->n_code_bytes <= CODE_BYTES_MAX) return WEFT_OK;
    return weft_err_set(why, WEFT_E_TOOBIG, "%s: the expressions up to %s take over %u bytes",
                        c->path, setting, CODE_BYTES_MAX);
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* What settings name one by one are whole names, or their ends: an expression of letters, digits, '_' and
 * '.', which is any letter. Compared as such they cost nothing. */
static bool is_plain(const char *text) {
    for (; *text; text++) {
        if (!is_letter(*text) && *text != '.') return false;
    }
    return true;
}

/* Whether a name is that, or ends in it from some dot on. */
static bool ends_plainly(struct weft_str name, const char *plain) {
    size_t n = strlen(plain);
    if (name.len < n || (name.len > n && name.data[name.len - n - 1] != '.')) return false;
    const char *end = name.data + name.len - n;
    for (size_t i = n; i-- > 0;) {
        if (plain[i] != end[i] && plain[i] != '.') return false;
    }
    return true;
}

/* Adds an expression that is to match all of a name, or (`is_end`) all of it from some dot on. */
static weft_err add_pattern(wefti_lora_config *c, struct patterns *patterns, const char *setting,
                            const char *text, bool is_end, struct weft_errmsg *why) {
    char whole[PATTERN_BYTES_MAX + 32];
    int error = 0;
    PCRE2_SIZE at = 0;
    struct wefti_model_shown shown = wefti_model_show(text, strlen(text));
    if (strlen(text) > PATTERN_BYTES_MAX)
        return weft_err_set(why, WEFT_E_PROTO, "%s: %s has an expression of over %u bytes", c->path,
                            setting, PATTERN_BYTES_MAX);
    (void)snprintf(whole, sizeof whole, is_end ? "(?:.*\\.)?(?:%s)" : "%s", text);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED,
                      PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_AUTO_CALLOUT, &error, &at, NULL);
    if (!code)
        return weft_err_set(why, WEFT_E_PROTO, "%s: %s: '%s' is not a regular expression", c->path,
                            setting, shown.text);
    char *plain = is_end && is_plain(text) ? strdup(text) : NULL;
    patterns->items[patterns->n++] = (struct pattern){.code = code, .plain = plain};
    return count_code(c, code, setting, why);
}

/* PCRE2 asks before each item of an expression: what it does between two is bounded by the name. */
static int count_step(pcre2_callout_block *block, void *n_left) {
    uint32_t *n = n_left;
    (void)block;
    if (*n == 0) return PCRE2_ERROR_CALLOUT;
    --*n;
    return 0;
}

/* As pcre2_match. */
static int match(const wefti_lora_config *c, const struct pattern *pattern, struct weft_str name) {
    if (!pattern->plain)
        return pcre2_match(pattern->code, (PCRE2_SPTR)name.data, name.len, 0, 0, c->match,
                           c->limits);
    if (count_step(NULL, c->n_steps_left)) return PCRE2_ERROR_CALLOUT;
    return ends_plainly(name, pattern->plain) ? 1 : PCRE2_ERROR_NOMATCH;
}

/* The first pattern that matches, in *found_out; NULL: none does. */
static weft_err find(const wefti_lora_config *c, const struct patterns *patterns,
                     const char *setting, struct weft_str name, const struct pattern **found_out,
                     struct weft_errmsg *why) {
    *found_out = NULL;
    for (size_t i = 0; i < patterns->n; i++) {
        int rc = match(c, &patterns->items[i], name);
        if (rc >= 0) {
            *found_out = &patterns->items[i];
            return WEFT_OK;
        }
        if (rc == PCRE2_ERROR_CALLOUT)
            return weft_err_set(why, WEFT_E_TOOBIG,
                                "%s: all modules by all expressions take too long to match",
                                c->path);
        if (rc != PCRE2_ERROR_NOMATCH)
            return weft_err_set(why, WEFT_E_PROTO,
                                "%s: an expression of %s takes too long to match", c->path,
                                setting);
    }
    return WEFT_OK;
}

/* -------------------------------------------------------------------------------- reading --- */

static weft_err malformed(const wefti_lora_config *c, const char *setting, const char *fault,
                          struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_PROTO, "%s: %s %s", c->path, setting, fault);
}

static bool is_set(const json_t *value) {
    if (!value || json_is_null(value) || json_is_false(value)) return false;
    if (json_is_array(value)) return json_array_size(value) > 0;
    return !json_is_object(value) || json_object_size(value) > 0;
}

/* Settings with which an adapter is more than A and B, or other than them. */
static weft_err refuse_variants(const wefti_lora_config *c, const json_t *root,
                                struct weft_errmsg *why) {
    static const char *const variants[] = {
        "use_dora",          "lora_bias",         "fan_in_fan_out",
        "modules_to_save",   "layer_replication", "trainable_token_indices",
        "target_parameters", "use_qalora",        "alora_invocation_tokens",
        "megatron_config"};
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    const json_t *bias = json_object_get(root, "bias");
    const char *which = json_string_value(bias);
    if (!type)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: peft_type is missing, or no text; only LORA is supported",
                            c->path);
    if (strcmp(type, "LORA") != 0) {
        struct wefti_model_shown shown = wefti_model_show(type, strlen(type));
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: peft_type is '%s'; only LORA is supported", c->path, shown.text);
    }
    if (bias && !json_is_null(bias) && (!which || strcmp(which, "none") != 0))
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "%s: trained biases (bias) are not supported",
                            c->path);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        if (is_set(json_object_get(root, variants[i])))
            return weft_err_set(why, WEFT_E_UNSUPPORTED, "%s: %s is not supported", c->path,
                                variants[i]);
    }
    return WEFT_OK;
}

#define ALPHA_MAX 1e9 /* far above what anybody scales by */

static bool read_positive(const json_t *value, double max, double *out) {
    *out = json_number_value(value);
    return json_is_number(value) && *out > 0 && *out <= max;
}

static bool is_rank(double value) {
    return value == floor(value) && value >= 1 && value <= WEFT_LORA_RANK_MAX;
}

static weft_err read_pattern_map(wefti_lora_config *c, const json_t *root, const char *setting,
                                 bool is_of_ranks, struct patterns *out, struct weft_errmsg *why) {
    json_t *map = json_object_get(root, setting), *value;
    const char *key;
    if (!map || json_is_null(map)) return WEFT_OK;
    if (!json_is_object(map)) return malformed(c, setting, "is not an object", why);
    weft_err err = reserve(out, json_object_size(map), c->path, setting, why);
    json_object_foreach(map, key, value) {
        double number = 0;
        bool ok = read_positive(value, ALPHA_MAX, &number) && (!is_of_ranks || is_rank(number));
        if (!err && !ok) err = malformed(c, setting, "has a value that is out of range", why);
        if (!err) err = add_pattern(c, out, setting, key, true, why);
        if (!err) out->items[out->n - 1].value = number;
    }
    return err;
}

/* Names of modules' ends are expressions without anything special. */
static weft_err add_name(wefti_lora_config *c, const char *name, struct weft_errmsg *why) {
    char quoted[PATTERN_BYTES_MAX];
    size_t n = 0;
    for (const char *at = name; *at; at++) {
        if (n + 3 > sizeof quoted)
            return malformed(c, "target_modules", "has too long a name", why);
        if (!is_letter(*at)) quoted[n++] = '\\';
        quoted[n++] = *at;
    }
    quoted[n] = 0;
    return add_pattern(c, &c->targets, "target_modules", quoted, true, why);
}

static weft_err read_targets(wefti_lora_config *c, const json_t *root, struct weft_errmsg *why) {
    static const char setting[] = "target_modules";
    const json_t *targets = json_object_get(root, setting);
    const char *text = json_string_value(targets);
    size_t n = text ? 1 : json_array_size(targets);
    c->names_all = text && strcmp(text, "all-linear") == 0;
    if (c->names_all) return WEFT_OK;
    if (n == 0) return malformed(c, setting, "names no modules", why);
    weft_err err = reserve(&c->targets, n, c->path, setting, why);
    if (!err && text) return add_pattern(c, &c->targets, setting, text, false, why);
    for (size_t i = 0; i < n && !err; i++) {
        const char *name = json_string_value(json_array_get(targets, i));
        err = name ? add_name(c, name, why)
                   : malformed(c, setting, "has a name that is no text", why);
    }
    return err;
}

static weft_err read_layers(wefti_lora_config *c, const json_t *root, struct weft_errmsg *why) {
    static const char setting[] = "layers_to_transform";
    const json_t *value = json_object_get(root, setting);
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (!value || json_is_null(value)) return WEFT_OK;
    c->layers_given = true;
    for (size_t i = 0; i < n; i++) {
        uint64_t layer;
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        if (!weft_json_u64(item, &layer) || layer >= WEFT_LAYERS_MAX)
            return malformed(c, setting, "has a value that is no layer's number", why);
        c->layers[layer / 32] |= 1u << layer % 32;
    }
    return WEFT_OK;
}

static weft_err read_settings(wefti_lora_config *c, const json_t *root, struct weft_errmsg *why) {
    weft_err err = refuse_variants(c, root, why);
    if (err) return err;
    if (!read_positive(json_object_get(root, "r"), WEFT_LORA_RANK_MAX, &c->rank) ||
        !is_rank(c->rank))
        return weft_err_set(why, WEFT_E_PROTO, "%s: r is not a whole number from 1 to %u", c->path,
                            WEFT_LORA_RANK_MAX);
    if (!read_positive(json_object_get(root, "lora_alpha"), ALPHA_MAX, &c->alpha))
        return malformed(c, "lora_alpha", "is not a positive number of at most 1e9", why);
    const json_t *root_scale = json_object_get(root, "use_rslora");
    if (root_scale && !json_is_boolean(root_scale) && !json_is_null(root_scale))
        return malformed(c, "use_rslora", "is neither true nor false", why);
    c->has_root_scale = json_is_true(root_scale);
    err = read_targets(c, root, why);
    if (!err) err = read_layers(c, root, why);
    if (!err) err = read_pattern_map(c, root, "rank_pattern", true, &c->ranks, why);
    if (!err) err = read_pattern_map(c, root, "alpha_pattern", false, &c->alphas, why);
    return err;
}

weft_err wefti_lora_config_parse(const char *path, const char *text, size_t len,
                                 wefti_lora_config **config_out, struct weft_errmsg *why) {
    json_t *root = NULL;
    *config_out = NULL;
    weft_err err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", path);
    wefti_lora_config *c = calloc(1, sizeof *c);
    if (!c) return err;
    c->path = strdup(path);
    c->match = pcre2_match_data_create(1, NULL);
    c->limits = pcre2_match_context_create(NULL);
    c->n_steps_left = malloc(sizeof *c->n_steps_left);
    if (!c->path || !c->match || !c->limits || !c->n_steps_left) goto cleanup;
    (void)pcre2_set_match_limit(c->limits, MATCH_STEPS_MAX);
    (void)pcre2_set_heap_limit(c->limits, MATCH_KIB_MAX);
    *c->n_steps_left = ALL_STEPS_MAX;
    (void)pcre2_set_callout(c->limits, count_step, c->n_steps_left);
    err = wefti_model_json_parse(path, "the file", (struct weft_str){text, len},
                                 JSON_DECODE_INT_AS_REAL, &root, why);
    if (!err) err = read_settings(c, root, why);
    if (err) goto cleanup;
    *config_out = c;
    c = NULL;
cleanup:
    json_decref(root);
    wefti_lora_config_free(c);
    return err;
}

weft_err wefti_lora_config_read(const char *dir, wefti_lora_config **config_out,
                                struct weft_errmsg *why) {
    char *path = NULL, *text = NULL;
    size_t len = 0;
    *config_out = NULL;
    weft_err err =
        weft_model_read_in(dir, FILE_NAME, WEFTI_MODEL_CONFIG_BYTES_MAX, &text, &len, why);
    if (err) return err;
    if (asprintf(&path, "%s/" FILE_NAME, dir) < 0) {
        free(text);
        return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", dir);
    }
    err = wefti_lora_config_parse(path, text, len, config_out, why);
    free(path);
    free(text);
    return err;
}

void wefti_lora_config_free(wefti_lora_config *c) {
    if (!c) return;
    patterns_free(&c->targets);
    patterns_free(&c->ranks);
    patterns_free(&c->alphas);
    pcre2_match_data_free(c->match);
    pcre2_match_context_free(c->limits);
    free(c->n_steps_left);
    free(c->path);
    free(c);
}

/* ---------------------------------------------------------------------------------- asking --- */

weft_err wefti_lora_config_of(const wefti_lora_config *c, const struct wefti_lora_named *named,
                              uint32_t layer, struct wefti_lora_measure *measure_out,
                              struct weft_errmsg *why) {
    const struct pattern *target, *of_rank, *of_alpha;
    struct wefti_model_shown shown = wefti_model_show(named->tensor, strlen(named->tensor));
    WEFT_ASSERT(layer < WEFT_LAYERS_MAX);
    weft_err err = find(c, &c->targets, "target_modules", named->module, &target, why);
    if (!err) err = find(c, &c->ranks, "rank_pattern", named->module, &of_rank, why);
    if (!err) err = find(c, &c->alphas, "alpha_pattern", named->module, &of_alpha, why);
    if (err) return err;
    if (!c->names_all && !target)
        return weft_err_set(why, WEFT_E_PROTO, "%s: tensor '%s' is not among target_modules",
                            c->path, shown.text);
    if (c->layers_given && !weft_model_bit(c->layers, layer))
        return weft_err_set(why, WEFT_E_PROTO, "%s: tensor '%s' is not among layers_to_transform",
                            c->path, shown.text);
    double rank = of_rank ? of_rank->value : c->rank, alpha = of_alpha ? of_alpha->value : c->alpha;
    measure_out->rank = (uint32_t)rank;
    measure_out->scale = (float)(alpha / (c->has_root_scale ? sqrt(rank) : rank));
    return WEFT_OK;
}
