/* "quantization_config" of config.json: what it says is checked here, what the tensors say when
 * they are joined (parts.c). Which layers are quantised is not read: the tensors show it. */
#include "model/model_internal.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const char *path;
    const json_t *config;
    struct weft_errmsg *why;
};

/* NULL for null, as in all of config.json. */
static const json_t *get(const struct reader *r, const char *key) {
    const json_t *value = json_object_get(r->config, key);
    return json_is_null(value) ? NULL : value;
}

static weft_err refuse(const struct reader *r, const char *key, const json_t *value) {
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    struct wefti_shown shown = text ? wefti_show(text, strlen(text)) : wefti_show("nothing", 7);
    free(text);
    return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                        "%s: \"quantization_config\": \"%s\": %s is not supported", r->path, key,
                        shown.text);
}

/* What is said under `key`, if anything is, must be `only`. */
static weft_err check_text(const struct reader *r, const char *key, const char *only) {
    const json_t *value = get(r, key);
    const char *text = json_string_value(value);
    if (!value || (text && strcmp(text, only) == 0)) return WEFT_OK;
    return refuse(r, key, value);
}

/* weight_block_size: rows and columns. A scale is for 128 columns in panels. */
static weft_err read_fp8(const struct reader *r, struct weft_model_quant *quant) {
    static const char key[] = "weight_block_size";
    const json_t *block = get(r, key);
    uint64_t rows = 0, cols = 0;
    weft_err err = check_text(r, "fmt", "e4m3");
    if (!err) err = check_text(r, "activation_scheme", "dynamic");
    if (err) return err;
    bool fits = json_array_size(block) == 2 && weft_json_u64(json_array_get(block, 0), &rows) &&
                weft_json_u64(json_array_get(block, 1), &cols) && rows > 0 && rows <= UINT32_MAX &&
                cols > 0 && cols <= UINT32_MAX && cols % 128 == 0;
    if (!fits) return refuse(r, key, block);
    quant->block_rows = (uint32_t)rows;
    quant->block_cols = (uint32_t)cols;
    return WEFT_OK;
}

static const struct {
    const char *name;
    enum weft_quant_method method;
    weft_err (*read)(const struct reader *r, struct weft_model_quant *quant);
} methods[] = {{"fp8", WEFT_QUANT_FP8, read_fp8}};

weft_err wefti_config_quant(const char *path, const json_t *config,
                            struct weft_model_quant *quant_out, struct weft_errmsg *why) {
    const struct reader r = {path, config, why};
    const char *name = json_string_value(get(&r, "quant_method"));
    *quant_out = (struct weft_model_quant){0};
    if (!json_is_object(config))
        return weft_err_set(why, WEFT_E_PROTO, "%s: \"quantization_config\" is not an object",
                            path);
    for (size_t i = 0; name && i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(name, methods[i].name) != 0) continue;
        quant_out->method = methods[i].method;
        return methods[i].read(&r, quant_out);
    }
    struct wefti_shown shown = wefti_show(name ? name : "", name ? strlen(name) : 0);
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "%s: \"quantization_config\": checkpoints quantised by \"%s\" are not "
                        "supported (fp8 is)",
                        path, shown.text);
}
