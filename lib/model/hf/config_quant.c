/* "quantization_config" of config.json: its values are checked here, and the tensors when they are
 * joined (join.c). The tensors show which layers are quantised, so that is not read. */
#include "config_quant.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const json_t *wefti_model_quant_get(const struct wefti_model_quant_reader *r, const char *key) {
    const json_t *value = json_object_get(r->config, key);
    return json_is_null(value) ? NULL : value;
}

weft_err wefti_model_quant_refuse(const struct wefti_model_quant_reader *r, const char *key,
                                  const json_t *value) {
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    struct wefti_model_shown shown =
        text ? wefti_model_show(text, strlen(text)) : wefti_model_show("nothing", 7);
    free(text);
    return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                        "%s: \"quantization_config\": \"%s\": %s is not supported", r->path, key,
                        shown.text);
}

/* The value under `key`, if there is one, must be `only`. */
static weft_err check_text(const struct wefti_model_quant_reader *r, const char *key,
                           const char *only) {
    const json_t *value = wefti_model_quant_get(r, key);
    const char *text = json_string_value(value);
    if (!value || (text && strcmp(text, only) == 0)) return WEFT_OK;
    return wefti_model_quant_refuse(r, key, value);
}

/* weight_block_size: rows and columns. A scale is for 128 columns in panels. Without it there is one for a whole
 * matrix, and the tensors have the names of compressed-tensors, or nearly. */
static weft_err read_fp8(const struct wefti_model_quant_reader *r, struct weft_model_quant *quant) {
    static const char key[] = "weight_block_size";
    const json_t *block = wefti_model_quant_get(r, key);
    uint64_t rows = 0, cols = 0;
    const char *scheme = json_string_value(wefti_model_quant_get(r, "activation_scheme"));
    const char *format = json_string_value(wefti_model_quant_get(r, "fmt"));
    const bool is_known = format && strcmp(format, "float8_e4m3fn") == 0; /* MiniMax-M2 */
    weft_err err = is_known ? WEFT_OK : check_text(r, "fmt", "e4m3");
    if (!block) quant->method = WEFT_QUANT_SCALED_FP8;
    if (!err && !block && scheme && strcmp(scheme, "static") == 0) return WEFT_OK;
    if (!err) err = check_text(r, "activation_scheme", "dynamic");
    if (err || !block) return err;
    bool fits = json_array_size(block) == 2 && weft_json_u64(json_array_get(block, 0), &rows) &&
                weft_json_u64(json_array_get(block, 1), &cols) && rows > 0 && rows <= UINT32_MAX &&
                cols > 0 && cols <= UINT32_MAX && cols % 128 == 0;
    if (!fits) return wefti_model_quant_refuse(r, key, block);
    quant->block_rows = (uint32_t)rows;
    quant->block_cols = (uint32_t)cols;
    return WEFT_OK;
}

/* group_size is that of a scale and a zero, -1: all columns. */
static weft_err read_ints(const struct wefti_model_quant_reader *r, bool takes_8,
                          struct weft_model_quant *quant) {
    const json_t *bits = wefti_model_quant_get(r, "bits");
    const json_t *group = wefti_model_quant_get(r, "group_size");
    uint64_t n_bits, n_cols = 0;
    bool is_8 = weft_json_u64(bits, &n_bits) && n_bits == 8 && takes_8;
    if (!is_8 && (!weft_json_u64(bits, &n_bits) || n_bits != 4))
        return wefti_model_quant_refuse(r, "bits", bits);
    bool is_whole = json_is_number(group) && json_number_value(group) == -1;
    bool fits = weft_json_u64(group, &n_cols) && n_cols > 0 && n_cols <= UINT32_MAX;
    if (!is_whole && !fits) return wefti_model_quant_refuse(r, "group_size", group);
    quant->block_rows = 1;
    quant->block_cols = is_whole ? 0 : (uint32_t)n_cols;
    quant->ints.bits = is_8 ? 8 : 0;
    return WEFT_OK;
}

/* Rules by the names of layers: those that leave some out ("-:"), which the tensors show, and those that change
 * nothing. */
static weft_err check_rules(const struct wefti_model_quant_reader *r) {
    static const char key[] = "dynamic";
    json_t *rules = json_object_get(r->config, key), *rule;
    const char *name;
    if (!rules || json_is_null(rules) || json_is_false(rules)) return WEFT_OK;
    if (!json_is_object(rules)) return wefti_model_quant_refuse(r, key, rules);
    json_object_foreach(rules, name, rule) {
        const bool is_out = strncmp(name, "-:", 2) == 0,
                   is_empty = json_is_object(rule) && json_object_size(rule) == 0;
        if (!is_out && !is_empty) return wefti_model_quant_refuse(r, key, rules);
    }
    return WEFT_OK;
}

/* The tensors show whether columns are in another order, and zeros all the same. */
static weft_err read_gptq(const struct wefti_model_quant_reader *r,
                          struct weft_model_quant *quant) {
    const json_t *format = wefti_model_quant_get(r, "checkpoint_format");
    const json_t *marlin = wefti_model_quant_get(r, "is_marlin_format");
    const char *name = format ? json_string_value(format) : "gptq";
    bool is_second = name && strcmp(name, "gptq_v2") == 0;
    if (!name || (!is_second && strcmp(name, "gptq") != 0))
        return wefti_model_quant_refuse(r, "checkpoint_format", format);
    if (json_is_true(marlin)) return wefti_model_quant_refuse(r, "is_marlin_format", marlin);
    weft_err err = check_rules(r);
    if (!err) err = check_text(r, "pack_dtype", "int32");
    quant->zeros_less_one = !is_second;
    return err ? err : read_ints(r, true, quant);
}

static weft_err read_awq(const struct wefti_model_quant_reader *r, struct weft_model_quant *quant) {
    const json_t *version = wefti_model_quant_get(r, "version"),
                 *zeros = wefti_model_quant_get(r, "zero_point");
    const char *name = version ? json_string_value(version) : "gemm";
    if (!name || strcasecmp(name, "gemm") != 0)
        return wefti_model_quant_refuse(r, "version", version);
    if (zeros && !json_is_true(zeros)) return wefti_model_quant_refuse(r, "zero_point", zeros);
    return read_ints(r, false, quant);
}

static weft_err read_nothing(const struct wefti_model_quant_reader *r,
                             struct weft_model_quant *quant) {
    (void)r;
    (void)quant;
    return WEFT_OK;
}

static weft_err read_bitsandbytes(const struct wefti_model_quant_reader *r,
                                  struct weft_model_quant *quant) {
    static const char type_key[] = "bnb_4bit_quant_type";
    const json_t *eight = wefti_model_quant_get(r, "load_in_8bit"),
                 *type = wefti_model_quant_get(r, type_key);
    (void)quant;
    if (json_is_true(eight)) return wefti_model_quant_refuse(r, "load_in_8bit", eight);
    if (!type) return wefti_model_quant_refuse(r, type_key, type);
    weft_err err = check_text(r, type_key, "nf4");
    return err ? err : check_text(r, "bnb_4bit_quant_storage", "uint8");
}

static const struct {
    const char *name;
    enum weft_quant_method method;
    weft_err (*read)(const struct wefti_model_quant_reader *r, struct weft_model_quant *quant);
} methods[] = {
    {"fp8", WEFT_QUANT_FP8, read_fp8},
    {"gptq", WEFT_QUANT_GPTQ, read_gptq},
    {"awq", WEFT_QUANT_AWQ, read_awq},
    {"mxfp4", WEFT_QUANT_MXFP4, read_nothing},
    {"bitsandbytes", WEFT_QUANT_BNB, read_bitsandbytes},
    {"compressed-tensors", WEFT_QUANT_INT8,
     wefti_model_quant_compressed}, /* which says it itself */
};

_Static_assert(sizeof methods / sizeof methods[0] == WEFT_QUANT_COUNT - 3,
               "all but none; compressed-tensors is three of them");

weft_err wefti_model_config_quant(const char *path, const json_t *config,
                                  struct weft_model_quant *quant_out, struct weft_errmsg *why) {
    const struct wefti_model_quant_reader r = {path, config, why};
    const char *name = json_string_value(wefti_model_quant_get(&r, "quant_method"));
    *quant_out = (struct weft_model_quant){0};
    if (!json_is_object(config))
        return weft_err_set(why, WEFT_E_PROTO, "%s: \"quantization_config\" is not an object",
                            path);
    /* bitsandbytes may leave its name out. */
    if (!name &&
        (wefti_model_quant_get(&r, "load_in_4bit") || wefti_model_quant_get(&r, "load_in_8bit")))
        name = "bitsandbytes";
    for (size_t i = 0; name && i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(name, methods[i].name) != 0) continue;
        quant_out->method = methods[i].method;
        return methods[i].read(&r, quant_out);
    }
    struct wefti_model_shown shown = wefti_model_show(name ? name : "", name ? strlen(name) : 0);
    return weft_err_set(
        why, WEFT_E_UNSUPPORTED,
        "%s: \"quantization_config\": checkpoints quantised by \"%s\" are not "
        "supported (fp8, gptq, awq, bitsandbytes, mxfp4 and compressed-tensors are)",
        path, shown.text);
}
