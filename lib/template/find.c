/* Finds a model's chat template. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "syntax/tree.h"
#include "template.h"

#define CONFIG_BYTES_MAX (16u << 20) /* a vocabulary's added tokens may stand beside the template */

static weft_err copy_text(struct weft_str text, char **text_out, struct weft_errmsg *why) {
    char *copy = malloc(text.len + 1);
    if (!copy) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a chat template");
    memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    *text_out = copy;
    return WEFT_OK;
}

static weft_err template_of_gguf(const char *path, char **text_out, struct weft_errmsg *why) {
    weft_gguf *gguf;
    weft_err err = weft_gguf_open(path, &gguf, why);
    if (err) return err;
    struct weft_str text;
    if (weft_gguf_str(gguf, "tokenizer.chat_template", &text)) err = copy_text(text, text_out, why);
    weft_gguf_free(gguf);
    return err;
}

/* "chat_template" is a string, or a list of {"name", "template"}. NULL: neither. */
static const json_t *template_of_config(const json_t *config) {
    const json_t *value = json_object_get(config, "chat_template");
    if (json_is_string(value)) return value;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const json_t *text = json_object_get(entry, "template");
        if (name && strcmp(name, "default") == 0 && json_is_string(text)) return text;
    }
    return NULL;
}

/* *config_out stays NULL if there is no such file. */
static weft_err read_config(const char *dir, const char *name, json_t **config_out,
                            struct weft_errmsg *why) {
    weft_err err = weft_model_json(dir, name, CONFIG_BYTES_MAX, config_out, why);
    if (err != WEFT_E_NOTFOUND) return err;
    if (why) why->text[0] = 0;
    return WEFT_OK;
}

static weft_err template_of_folder(const char *dir, char **text_out, struct weft_errmsg *why) {
    size_t len;
    weft_err err = weft_model_read_in(dir, "chat_template.jinja", WEFTI_TMPL_SOURCE_BYTES_MAX,
                                      text_out, &len, why);
    if (err != WEFT_E_NOTFOUND) return err;
    if (why) why->text[0] = 0;
    static const char *const names[] = {"tokenizer_config.json", "chat_template.json"};
    err = WEFT_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !err && !*text_out; i++) {
        json_t *config;
        err = read_config(dir, names[i], &config, why);
        if (err || !config) continue;
        const json_t *text = template_of_config(config);
        if (text)
            err = copy_text((struct weft_str){json_string_value(text), json_string_length(text)},
                            text_out, why);
        json_decref(config);
    }
    return err;
}

weft_err weft_tmpl_find(const char *model_path, char **text_out, struct weft_errmsg *why) {
    struct weft_model_place place;
    *text_out = NULL;
    weft_err err = weft_model_locate(model_path, &place, why);
    if (err) return err;
    err = place.format == WEFT_MODEL_GGUF ? template_of_gguf(place.path, text_out, why)
                                          : template_of_folder(place.path, text_out, why);
    weft_model_place_fini(&place);
    return err;
}
