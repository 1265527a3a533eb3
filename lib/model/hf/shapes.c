/* Folders without weights: what config.json alone tells of the tensors there would be. Their names, shapes and
 * number are those that roles ask for (roles.c); their types follow from "dtype" and "quantization_config" as far
 * as these say, and else from what the tools of a method usually make: the bytes are right to a percent or so. */
#include <string.h>

#include "hf.h"
#include "join.h"

enum weft_dtype wefti_model_usual_type(const struct weft_model_quant *quant, uint64_t k) {
    struct weft_parts parts = {
        .bits = quant->ints.bits ? quant->ints.bits : 4,
        .k = k,
        .group = quant->block_cols ? quant->block_cols : k,
    };
    parts.n_groups = wefti_model_join_div_up(k, parts.group ? parts.group : 1);
    uint32_t needs = quant->ints.has_order ? WEFTI_MODEL_NEEDS_ORDER : 0;
    switch (quant->method) {
    case WEFT_QUANT_FP8:
    case WEFT_QUANT_SCALED_FP8:
        return WEFT_DT_F8_E4M3;
    case WEFT_QUANT_BNB:
        return k % 64 == 0 ? WEFT_DT_NF4 : WEFT_DT_F32;
    case WEFT_QUANT_MXFP4:
        return k % 32 == 0 ? WEFT_DT_MXFP4 : WEFT_DT_BF16;
    case WEFT_QUANT_INT8:
        parts.bits = 8;
        return wefti_model_join_form(&parts, needs);
    case WEFT_QUANT_AWQ:
        return wefti_model_join_form(&parts, WEFTI_MODEL_NEEDS_ZEROS);
    case WEFT_QUANT_GPTQ:
    case WEFT_QUANT_PACKED:
        if (quant->ints.has_zeros) needs |= WEFTI_MODEL_NEEDS_ZEROS;
        return wefti_model_join_form(&parts, needs);
    case WEFT_QUANT_NONE:
    case WEFT_QUANT_COUNT:
        break;
    }
    return WEFT_DT_F32;
}

/* "dtype", which was "torch_dtype" once; of a larger model its language part's, or all of it. */
static const char *find_type(const json_t *root) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const json_t *text = json_object_get(root, "text_config");
    const json_t *const places[] = {text, root};
    for (size_t i = 0; i < 4; i++) {
        const char *name = json_string_value(json_object_get(places[i / 2], keys[i % 2]));
        if (name) return name;
    }
    return "bfloat16";
}

static enum weft_dtype plain_type(const char *name) {
    if (strcmp(name, "float32") == 0) return WEFT_DT_F32;
    return strcmp(name, "float16") == 0 ? WEFT_DT_F16 : WEFT_DT_BF16;
}

weft_err wefti_model_shapes(weft_model *model, const char *dir, struct weft_errmsg *why) {
    json_t *root = NULL;
    if (wefti_model_has_encoder_roles(&model->params))
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "%s: has no weights; without them only the sizes of models that "
                            "generate are known",
                            dir);
    weft_err err = weft_model_json(dir, "config.json", WEFTI_MODEL_CONFIG_BYTES_MAX, &root, why);
    if (err) return err;
    const struct wefti_model_types types = {plain_type(find_type(root)), model->params.quant};
    json_decref(root);
    return wefti_model_imagine(model, dir, &types, why);
}
