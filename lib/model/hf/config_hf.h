/* config_hf — shared by the readers of config.json: the file, and its values by their keys. */
#ifndef WEFT_MODEL_CONFIG_HF_H
#define WEFT_MODEL_CONFIG_HF_H

#include <math.h>
#include <string.h>

#include "arch.h"
#include "hf.h"

struct config {
    const char *path;
    json_t *root;
    struct weft_errmsg *why;
};

/* NULL both for a missing key and for JSON's null, which mean the same in these files. */
static inline json_t *get(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static inline weft_err wrong_type(const struct config *c, const char *key, const char *wanted) {
    return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" is not %s", c->path, key, wanted);
}

static inline weft_err unsupported(const struct config *c, const char *key, const char *value) {
    struct wefti_model_shown shown = wefti_model_show(value, strlen(value));
    return weft_err_set(c->why, WEFT_E_UNSUPPORTED, "%s: \"%s\": %s is not supported", c->path, key,
                        shown.text);
}

#define REQUIRED UINT32_MAX /* as the default of get_u32 */

/* Ranges are checked later, for all formats alike (params.c). */
static inline weft_err get_u32(const struct config *c, const json_t *object, const char *key,
                               uint32_t default_value, uint32_t *out) {
    const json_t *value = get(object, key);
    *out = default_value;
    if (!value) {
        if (default_value != REQUIRED) return WEFT_OK;
        return weft_err_set(c->why, WEFT_E_PROTO, "%s: has no \"%s\"", c->path, key);
    }
    uint64_t whole;
    if (!json_is_number(value)) return wrong_type(c, key, "a whole number");
    if (weft_json_u64(value, &whole) && whole < UINT32_MAX) {
        *out = (uint32_t)whole;
        return WEFT_OK;
    }
    double number = json_number_value(value);
    if (number != floor(number)) return wrong_type(c, key, "a whole number");
    return weft_err_set(c->why, WEFT_E_PROTO, "%s: \"%s\" is %.17g, which is out of range", c->path,
                        key, number);
}

/* Leaves *out alone when there is no such key. */
static inline weft_err get_double(const struct config *c, const json_t *object, const char *key,
                                  double *out) {
    const json_t *value = get(object, key);
    if (!value) return WEFT_OK;
    if (!json_is_number(value)) return wrong_type(c, key, "a finite number");
    *out = json_number_value(value);
    return WEFT_OK;
}

static inline weft_err get_bool(const struct config *c, const char *key, bool *out) {
    const json_t *value = get(c->root, key);
    *out = false;
    if (!value) return WEFT_OK;
    if (!json_is_boolean(value)) return wrong_type(c, key, "a boolean");
    *out = json_is_true(value);
    return WEFT_OK;
}

/* The text under `key`; `default_text` when there is none. */
static inline weft_err get_text(const struct config *c, const json_t *object, const char *key,
                                const char *default_text, const char **out) {
    const json_t *value = get(object, key);
    *out = default_text;
    if (!value) return WEFT_OK;
    if (!json_is_string(value)) return wrong_type(c, key, "a string");
    *out = json_string_value(value);
    return WEFT_OK;
}

/* Puts into the parsed file what the family need not say (config_family.c). PROTO, UNSUPPORTED, NOMEM. */
WEFT_MUST_CHECK weft_err wefti_model_config_family(const struct config *c,
                                                   const struct wefti_model_arch *arch);

/* The numbers among these that the file does not have and the model uses, as the end of a sentence; "" if there are none.
 * Before wefti_model_config_family, which puts them there. */
void wefti_model_config_left_out(const struct config *c, const struct wefti_model_arch *arch,
                                 bool has_experts, char hint[WEFTI_MODEL_HINT_BYTES]);

/* Reads RoPE (config_rope.c); sizes are known already. */
WEFT_MUST_CHECK weft_err wefti_model_config_rope(const struct config *c,
                                                 struct weft_model_params *p);

/* How a layer is built (config_block.c): the activation, the norms' epsilon, biases and halves; and, where some
 * layers have a window, which. */
WEFT_MUST_CHECK weft_err wefti_model_config_act(const struct config *c,
                                                struct weft_model_params *p);
WEFT_MUST_CHECK weft_err wefti_model_config_eps(const struct config *c,
                                                struct weft_model_params *p);
WEFT_MUST_CHECK weft_err wefti_model_config_block(const struct config *c,
                                                  const struct wefti_model_arch *arch,
                                                  struct weft_model_params *p);
WEFT_MUST_CHECK weft_err wefti_model_config_pattern(const struct config *c,
                                                    const struct wefti_model_arch *arch,
                                                    struct weft_model_params *p);

/* Layers that are not alike (config_unlike.c): the sizes of their heads, before RoPE, and the rest, when it is known
 * which layers have a window. */
WEFT_MUST_CHECK weft_err wefti_model_config_heads(const struct config *c,
                                                  struct weft_model_params *p);
WEFT_MUST_CHECK weft_err wefti_model_config_unlike(const struct config *c,
                                                   const struct wefti_model_arch *arch,
                                                   struct weft_model_params *p);

/* Layers with a state (config_recurrent.c). Follows sizes and RoPE, and comes before experts. */
WEFT_MUST_CHECK weft_err wefti_model_config_recurrent(const struct config *c,
                                                      const struct wefti_model_arch *arch,
                                                      struct weft_model_params *p);

/* Experts, and which layers have none (config_experts.c). */
WEFT_MUST_CHECK weft_err wefti_model_config_experts(const struct config *c,
                                                    const struct wefti_model_arch *arch,
                                                    struct weft_model_params *p);

/* Reads the rest of an encoder's (config_encoder.c). */
WEFT_MUST_CHECK weft_err wefti_model_config_encoder(const struct config *c,
                                                    const struct wefti_model_arch *arch,
                                                    struct weft_model_params *p);

#endif
