/* "quantization_config" of compressed-tensors: "config_groups" say how the weights of some layers are
 * stored, and "format" in which tensors. One way for all of them is supported. Which layers are left
 * out ("targets", "ignore") the tensors show. What it says of activations and of the cache is for
 * engines that quantise these as the checkpoint says, and is not read. */
#include "config_quant.h"

#include <string.h>

/* What "format" says of the tensors of a weight, by the type of its codes. */
static const struct format {
    const char *name, *type;
    enum weft_quant_method method;
} formats[] = {
    {"int-quantized", "int", WEFT_QUANT_INT8},
    {"naive-quantized", "int", WEFT_QUANT_INT8},
    {"pack-quantized", "int", WEFT_QUANT_PACKED},
    {"float-quantized", "float", WEFT_QUANT_SCALED_FP8},
    {"naive-quantized", "float", WEFT_QUANT_SCALED_FP8},
};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static bool is_text(const json_t *value, const char *text) {
    const char *own = json_string_value(value);
    return own && strcmp(own, text) == 0;
}

/* `format` NULL: of the whole configuration. */
static weft_err read_format(const struct wefti_model_quant_reader *r, const json_t *format,
                            const struct wefti_model_quant_reader *weights,
                            struct weft_model_quant *quant) {
    const json_t *type = wefti_model_quant_get(weights, "type");
    bool is_known = false;
    if (!format) format = wefti_model_quant_get(r, "format");
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (!is_text(format, formats[i].name)) continue;
        is_known = true;
        if (type && !is_text(type, formats[i].type)) continue;
        quant->method = formats[i].method;
        return WEFT_OK;
    }
    return is_known ? wefti_model_quant_refuse(weights, "type", type)
                    : wefti_model_quant_refuse(r, "format", format);
}

/* Words hold 4 or 8 bits; a code in a byte of its own may have fewer. */
static weft_err read_bits(const struct wefti_model_quant_reader *weights,
                          struct weft_model_quant *quant) {
    static const char key[] = "num_bits";
    const json_t *bits = wefti_model_quant_get(weights, key);
    uint64_t n;
    if (!bits) n = 8; /* what it is by default */
    if (bits && !weft_json_u64(bits, &n)) return wefti_model_quant_refuse(weights, key, bits);
    if (n != 8 && (n != 4 || quant->method == WEFT_QUANT_SCALED_FP8))
        return wefti_model_quant_refuse(weights, key, bits);
    if (quant->method != WEFT_QUANT_SCALED_FP8) quant->ints.bits = (uint32_t)n;
    return WEFT_OK;
}

/* Columns that share a scale; 0: all of a row. Those of e4m3 lie in panels with one for 128. */
static weft_err read_group_size(const struct wefti_model_quant_reader *weights, bool has_groups,
                                struct weft_model_quant *quant) {
    static const char key[] = "group_size";
    const json_t *size = wefti_model_quant_get(weights, key);
    uint64_t n = 0;
    bool is_whole = !size || (json_is_number(size) && json_number_value(size) == -1);
    bool fits = is_whole || (weft_json_u64(size, &n) && n > 0 && n <= UINT32_MAX);
    if (!fits || is_whole == has_groups || (quant->method == WEFT_QUANT_SCALED_FP8 && n % 128 != 0))
        return wefti_model_quant_refuse(weights, key, size);
    quant->block_cols = (uint32_t)n;
    return WEFT_OK;
}

static weft_err read_block(const struct wefti_model_quant_reader *weights,
                           struct weft_model_quant *quant) {
    static const char key[] = "block_structure";
    const json_t *block = wefti_model_quant_get(weights, key);
    uint64_t rows = 0, cols = 0;
    bool fits = json_array_size(block) == 2 && weft_json_u64(json_array_get(block, 0), &rows) &&
                weft_json_u64(json_array_get(block, 1), &cols) && rows > 0 && rows <= UINT32_MAX &&
                cols > 0 && cols <= UINT32_MAX && cols % 128 == 0;
    if (!fits) return wefti_model_quant_refuse(weights, key, block);
    quant->block_rows = (uint32_t)rows;
    quant->block_cols = (uint32_t)cols;
    return WEFT_OK;
}

/* Which weights share a scale. Without a name for it, "group_size" tells. */
static weft_err read_strategy(const struct wefti_model_quant_reader *weights,
                              struct weft_model_quant *quant) {
    static const char key[] = "strategy";
    const json_t *strategy = wefti_model_quant_get(weights, key);
    const json_t *size = wefti_model_quant_get(weights, "group_size");
    const char *name = json_string_value(strategy);
    if (!strategy) name = !size ? "tensor" : json_number_value(size) < 0 ? "channel" : "group";
    quant->block_rows = 1;
    if (name && strcmp(name, "block") == 0 && quant->method == WEFT_QUANT_SCALED_FP8)
        return read_block(weights, quant);
    if (name && strcmp(name, "group") == 0) return read_group_size(weights, true, quant);
    if (name && strcmp(name, "tensor") == 0)
        quant->block_rows = 0;
    else if (!name || strcmp(name, "channel") != 0)
        return wefti_model_quant_refuse(weights, key, strategy);
    return read_group_size(weights, false, quant);
}

/* "symmetric" is true by default. Columns in the order of their groups need no list of them, which
 * "actorder" "weight" and "static" see to. */
static weft_err read_zeros_and_order(const struct wefti_model_quant_reader *weights,
                                     struct weft_model_quant *quant) {
    const json_t *symmetric = wefti_model_quant_get(weights, "symmetric");
    const json_t *order = wefti_model_quant_get(weights, "actorder");
    const json_t *dynamic = wefti_model_quant_get(weights, "dynamic");
    const bool is_float = quant->method == WEFT_QUANT_SCALED_FP8;
    const bool lists = is_text(order, "group") || is_text(order, "dynamic") || json_is_true(order);
    const bool keeps =
        !order || json_is_false(order) || is_text(order, "weight") || is_text(order, "static");
    if (symmetric && !json_is_boolean(symmetric))
        return wefti_model_quant_refuse(weights, "symmetric", symmetric);
    if (is_float && json_is_false(symmetric))
        return wefti_model_quant_refuse(weights, "symmetric", symmetric);
    if (!lists && !keeps) return wefti_model_quant_refuse(weights, "actorder", order);
    if (lists && is_float) return wefti_model_quant_refuse(weights, "actorder", order);
    if (dynamic && !json_is_false(dynamic))
        return wefti_model_quant_refuse(weights, "dynamic", dynamic);
    quant->ints.has_zeros = json_is_false(symmetric);
    quant->ints.has_order = lists;
    return WEFT_OK;
}

/* How the weights of a group are stored; of a group that says nothing of them, no method. */
static weft_err read_group(const struct wefti_model_quant_reader *r, const json_t *group,
                           struct weft_model_quant *quant) {
    const json_t *value = json_object_get(group, "weights");
    const json_t *format = json_object_get(group, "format");
    const struct wefti_model_quant_reader weights = {r->path, value, r->why};
    *quant = (struct weft_model_quant){0};
    if (!value || json_is_null(value)) return WEFT_OK;
    if (!json_is_object(value)) return wefti_model_quant_refuse(r, "weights", value);
    weft_err err = read_format(r, json_is_null(format) ? NULL : format, &weights, quant);
    if (!err) err = read_bits(&weights, quant);
    if (!err) err = read_strategy(&weights, quant);
    return err ? err : read_zeros_and_order(&weights, quant);
}

static bool is_same(const struct weft_model_quant *a, const struct weft_model_quant *b) {
    return a->method == b->method && a->block_rows == b->block_rows &&
           a->block_cols == b->block_cols && memcmp(&a->ints, &b->ints, sizeof a->ints) == 0;
}

/* What else may change weights: they would be stored in yet another way, or turned. */
static weft_err refuse_more(const struct wefti_model_quant_reader *r) {
    const json_t *sparse = wefti_model_quant_get(r, "sparsity_config");
    const json_t *turned = wefti_model_quant_get(r, "transform_config");
    const json_t *format = json_object_get(sparse, "format");
    if (sparse && (json_object_size(sparse) > 0 || !json_is_object(sparse)) &&
        !is_text(format, "dense"))
        return wefti_model_quant_refuse(r, "sparsity_config", sparse);
    if (turned && (json_object_size(turned) > 0 || !json_is_object(turned)) &&
        json_object_size(json_object_get(turned, "config_groups")) > 0)
        return wefti_model_quant_refuse(r, "transform_config", turned);
    return WEFT_OK;
}

weft_err wefti_model_quant_compressed(const struct wefti_model_quant_reader *r,
                                      struct weft_model_quant *quant) {
    json_t *groups = json_object_get(r->config, "config_groups"), *group;
    const char *name;
    *quant = (struct weft_model_quant){0};
    weft_err err = refuse_more(r);
    if (err) return err;
    json_object_foreach(groups, name, group) {
        struct weft_model_quant own;
        err = read_group(r, group, &own);
        if (err) return err;
        if (own.method == WEFT_QUANT_NONE) continue;
        if (quant->method != WEFT_QUANT_NONE && !is_same(quant, &own)) {
            struct wefti_model_shown shown = wefti_model_show(name, strlen(name));
            return weft_err_set(r->why, WEFT_E_UNSUPPORTED,
                                "%s: \"config_groups\": weights of \"%s\" are stored in another "
                                "way than those before, which is not supported",
                                r->path, shown.text);
        }
        *quant = own;
    }
    return quant->method == WEFT_QUANT_NONE
               ? wefti_model_quant_refuse(r, "config_groups", json_is_null(groups) ? NULL : groups)
               : WEFT_OK;
}
