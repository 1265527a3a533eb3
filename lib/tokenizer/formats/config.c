/* Sampling defaults from the small files beside a model. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/sampling.h"
#include "formats/formats.h"

weft_err wefti_tok_read_json(const char *dir, const char *name, json_t **root_out,
                             struct weft_errmsg *why) {
    weft_err err = weft_model_json(dir, name, WEFTI_TOK_CONFIG_BYTES_MAX, root_out, why);
    if (err != WEFT_E_NOTFOUND) return err;
    if (why) why->text[0] = 0;
    return WEFT_OK;
}

struct weft_str wefti_tok_json_str(const json_t *value) {
    if (!json_is_string(value)) return (struct weft_str){"", 0};
    return (struct weft_str){json_string_value(value), json_string_length(value)};
}

struct weft_str wefti_tok_json_str_at(const json_t *object, const char *key) {
    return wefti_tok_json_str(json_object_get(object, key));
}

bool wefti_tok_json_bool_at(const json_t *object, const char *key, bool otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool wefti_tok_base64(struct weft_str text, struct weft_buf *out) {
    while (text.len > 0 && text.data[text.len - 1] == '=')
        text.len--;
    uint32_t bits = 0;
    unsigned n_bits = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = base64_digit(text.data[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        weft_buf_add_char(out, (char)(uint8_t)(bits >> n_bits));
    }
    return true;
}

struct wefti_tok_added_token wefti_tok_added_traits(const json_t *entry) {
    return (struct wefti_tok_added_token){
        .special = wefti_tok_json_bool_at(entry, "special", false),
        .single_word = wefti_tok_json_bool_at(entry, "single_word", false),
        .strip_left = wefti_tok_json_bool_at(entry, "lstrip", false),
        .strip_right = wefti_tok_json_bool_at(entry, "rstrip", false),
    };
}

/* --- sampling defaults ------------------------------------------------------------------------ */

/* A value that no client may ask for is skipped and logged; a wrong type is an error. */
static weft_err get_number(const json_t *root, const char *key, double *out,
                           struct weft_errmsg *why) {
    const struct weft_sampling_range range = weft_sampling_api_range(key);
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return WEFT_OK;
    if (!json_is_number(value))
        return weft_err_set(why, WEFT_E_PROTO, "generation_config.json: %s is not a number", key);
    double number = json_number_value(value);
    if (number >= range.least && number <= range.most)
        *out = number;
    else
        weft_warn("generation_config.json: %s is %g, which is not from %g to %g: ignored", key,
                  number, range.least, range.most);
    return WEFT_OK;
}

/* The value `off` also means that the file does not say. */
static weft_err get_count(const json_t *root, const char *key, double off, int64_t *out,
                          struct weft_errmsg *why) {
    const json_t *value = json_object_get(root, key);
    uint64_t count;
    if (!value || json_is_null(value)) return WEFT_OK;
    if (!json_is_number(value))
        return weft_err_set(why, WEFT_E_PROTO, "generation_config.json: %s is not a number", key);
    double number = json_number_value(value);
    if (weft_json_u64(value, &count))
        *out = (int64_t)count;
    else if (number != off)
        weft_warn("generation_config.json: %s is %g, which is no count: ignored", key, number);
    return WEFT_OK;
}

weft_err weft_tok_gen_defaults(const char *model_path, struct weft_gen_defaults *out,
                               struct weft_errmsg *why) {
    struct weft_model_place place;
    json_t *root = NULL;
    *out = (struct weft_gen_defaults){NAN, NAN, NAN, NAN, -1, -1};
    weft_err err = weft_model_locate(model_path, &place, why);
    if (err == WEFT_E_NOTFOUND) {
        if (why) why->text[0] = 0;
        return WEFT_OK;
    }
    if (err) return err;
    if (place.format == WEFT_MODEL_HF) /* GGUF has no such keys */
        err = wefti_tok_read_json(place.path, "generation_config.json", &root, why);
    if (err || !root) goto cleanup;
    struct weft_gen_defaults got = *out;
    err = get_number(root, "temperature", &got.temperature, why);
    if (!err) err = get_number(root, "top_p", &got.top_p, why);
    if (!err) err = get_number(root, "min_p", &got.min_p, why);
    if (!err) err = get_number(root, "repetition_penalty", &got.repetition_penalty, why);
    if (!err) err = get_count(root, "top_k", -1, &got.top_k, why); /* vLLM: -1 is off, as 0 is */
    if (!err) err = get_count(root, "max_new_tokens", -1, &got.max_new_tokens, why);
    if (!err) *out = got;
cleanup:
    json_decref(root);
    weft_model_place_fini(&place);
    return err;
}
