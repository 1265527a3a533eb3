/* The small files beside a model: reading them within bounds, and what the front needs of them. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "text_internal.h"

#define PATH_BYTES_MAX 4096

weft_err wefti_text_read(const char *path, size_t bytes_max, char **text_out, size_t *len_out,
                         struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    char *text = NULL;
    *text_out = NULL;
    *len_out = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return weft_err_errno(why, errno, "%s", path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        err = weft_err_errno(why, errno, "%s", path);
        goto cleanup;
    }
    if (!S_ISREG(st.st_mode)) {
        err = weft_err_set(why, WEFT_E_INVAL, "%s is not a regular file", path);
        goto cleanup;
    }
    if ((uint64_t)st.st_size > bytes_max) {
        err = weft_err_set(why, WEFT_E_TOOBIG, "%s has %lld bytes; the limit is %zu", path,
                           (long long)st.st_size, bytes_max);
        goto cleanup;
    }
    size_t len = (size_t)st.st_size, have = 0;
    text = malloc(len + 1);
    if (!text) {
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: no memory for its %zu bytes", path, len);
        goto cleanup;
    }
    while (have < len) {
        ssize_t n = read(fd, text + have, len - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            err = weft_err_errno(why, errno, "%s", path);
            goto cleanup;
        }
        if (n == 0) break; /* it shrank meanwhile */
        have += (size_t)n;
    }
    text[have] = 0;
    *text_out = text;
    *len_out = have;
    text = NULL;
cleanup:
    free(text);
    close(fd);
    return err;
}

static weft_err join_path(const char *dir, const char *name, char out[PATH_BYTES_MAX],
                          struct weft_errmsg *why) {
    int n = snprintf(out, PATH_BYTES_MAX, "%s/%s", dir, name);
    if (n >= 0 && n < PATH_BYTES_MAX) return WEFT_OK;
    return weft_err_set(why, WEFT_E_TOOBIG, "the path of %s is over %d bytes", name,
                        PATH_BYTES_MAX - 1);
}

weft_err wefti_text_json(const char *dir, const char *name, json_t **root_out,
                         struct weft_errmsg *why) {
    *root_out = NULL;
    char file[PATH_BYTES_MAX], *text = NULL;
    json_t *root = NULL;
    size_t len;
    weft_err err = join_path(dir, name, file, why);
    if (err) return err;
    err = wefti_text_read(file, WEFTI_JSON_BYTES_MAX, &text, &len, why);
    if (err == WEFT_E_NOTFOUND) {
        if (why) why->text[0] = 0;
        err = WEFT_OK;
        goto cleanup;
    }
    if (err) goto cleanup;
    json_error_t at;
    root = json_loadb(text, len, JSON_ALLOW_NUL, &at);
    if (!root) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s: line %d: %s", file, at.line, at.text);
    } else if (!json_is_object(root)) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s: not a JSON object", file);
    } else {
        *root_out = root;
        root = NULL;
    }
cleanup:
    json_decref(root);
    free(text);
    return err;
}

bool wefti_text_is_gguf(const char *path) {
    size_t len = strlen(path);
    return len >= 5 && strcmp(path + len - 5, ".gguf") == 0;
}

/* --- sampling defaults -------------------------------------------------------------------------
 */

static weft_err get_number(const json_t *root, const char *key, double *out,
                           struct weft_errmsg *why) {
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return WEFT_OK;
    if (!json_is_number(value))
        return weft_err_set(why, WEFT_E_PROTO, "generation_config.json: %s is not a number", key);
    *out = json_number_value(value);
    return WEFT_OK;
}

static weft_err get_int(const json_t *root, const char *key, int64_t *out,
                        struct weft_errmsg *why) {
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return WEFT_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return weft_err_set(why, WEFT_E_PROTO,
                            "generation_config.json: %s is not a non-negative integer", key);
    *out = json_integer_value(value);
    return WEFT_OK;
}

weft_err weft_text_gen_defaults(const char *model_path, struct weft_gen_defaults *out,
                                struct weft_errmsg *why) {
    *out = (struct weft_gen_defaults){NAN, NAN, NAN, NAN, -1, -1};
    if (wefti_text_is_gguf(model_path)) return WEFT_OK; /* the format has no such keys */
    json_t *root;
    weft_err err = wefti_text_json(model_path, "generation_config.json", &root, why);
    if (err || !root) return err;
    struct weft_gen_defaults got = *out;
    err = get_number(root, "temperature", &got.temperature, why);
    if (!err) err = get_number(root, "top_p", &got.top_p, why);
    if (!err) err = get_number(root, "min_p", &got.min_p, why);
    if (!err) err = get_number(root, "repetition_penalty", &got.repetition_penalty, why);
    if (!err) err = get_int(root, "top_k", &got.top_k, why);
    if (!err) err = get_int(root, "max_new_tokens", &got.max_new_tokens, why);
    if (!err) *out = got;
    json_decref(root);
    return err;
}

/* --- where a chat template lies ----------------------------------------------------------------
 */

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

weft_err weft_chat_find(const char *model_path, char **text_out, struct weft_errmsg *why) {
    *text_out = NULL;
    if (wefti_text_is_gguf(model_path)) return template_of_gguf(model_path, text_out, why);
    char path[PATH_BYTES_MAX];
    size_t len;
    weft_err err = join_path(model_path, "chat_template.jinja", path, why);
    if (!err) err = wefti_text_read(path, WEFTI_CHAT_BYTES_MAX, text_out, &len, why);
    if (err != WEFT_E_NOTFOUND) return err;
    if (why) why->text[0] = 0;
    json_t *config;
    err = wefti_text_json(model_path, "tokenizer_config.json", &config, why);
    if (err || !config) return err;
    const json_t *text = template_of_config(config);
    if (text)
        err = copy_text((struct weft_str){json_string_value(text), json_string_length(text)},
                        text_out, why);
    json_decref(config);
    return err;
}
