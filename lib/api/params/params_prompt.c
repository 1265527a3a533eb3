/* The text that a request wants continued: prompts, messages, token ids. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

/* ---------------------------------------------------------------------------------- prompts --- */

/* vLLM's and llama-server's prompts of several kinds of data are objects. */
static void refuse_object(const struct reader *r, const char *name) {
    weft_api_error_set(r->error, 400, name, "unsupported_parameter",
                       "'%s' must be text or token ids: images, audio and embeddings are not taken "
                       "by this server",
                       name);
}

/* An array of integers, each below n_vocab (0: not known), as a new array. */
static uint32_t *read_ids(const struct reader *r, const char *name, const json_t *array,
                          uint32_t n_vocab) {
    size_t n = json_array_size(array);
    uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    if (!ids) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return NULL;
    }
    int64_t max = n_vocab ? n_vocab - 1 : INT32_MAX;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        if (json_is_object(item)) refuse_object(r, name);
        if (!json_is_integer(item)) {
            weft_api_error_set(r->error, 400, name, NULL,
                               "'%s' must be a string, a list of strings, a list of token ids or a "
                               "list of lists of token ids; element %zu is %s",
                               name, i, wefti_api_json_type_name(item));
            break;
        }
        int64_t id = json_integer_value(item);
        if (id < 0 || id > max) {
            weft_api_error_set(r->error, 400, name, NULL,
                               "'%s' holds token id %" PRId64 ", which is out of vocabulary", name,
                               id);
            break;
        }
        ids[i] = (uint32_t)id;
    }
    if (wefti_api_json_ok(r)) return ids;
    free(ids);
    return NULL;
}

static void read_prompt(const struct reader *r, const char *name, const json_t *value,
                        uint32_t n_vocab, struct prompt *out) {
    if (json_is_string(value)) {
        out->text = json_string_value(value);
        out->text_len = json_string_length(value);
    } else if (json_is_array(value)) {
        out->ids = read_ids(r, name, value, n_vocab);
        out->n_ids = json_array_size(value);
    } else if (json_is_object(value)) {
        refuse_object(r, name);
    } else {
        wefti_api_json_wrong_type(r, name, "a string, a list of strings, ids or lists of ids",
                                  value);
    }
}

bool wefti_api_params_read_text(const struct reader *r, const char *name, struct params *params) {
    const json_t *value = wefti_api_json_get(r, name);
    if (!value) return false;
    if (!json_is_string(value)) {
        wefti_api_json_wrong_type(r, name, "a string", value);
        return false;
    }
    params->prompts = calloc(1, sizeof *params->prompts);
    if (!params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return false;
    }
    params->n_prompts = 1;
    params->prompts[0].text = json_string_value(value);
    params->prompts[0].text_len = json_string_length(value);
    return true;
}

void wefti_api_params_read_prompts(const struct reader *r, const char *name,
                                   const struct weft_api_limits *limits, struct params *params) {
    const json_t *value = wefti_api_json_get(r, name);
    if (!wefti_api_json_ok(r)) return;
    if (!value) {
        weft_api_error_set(r->error, 400, name, "missing_required_parameter",
                           "you must provide a '%s' parameter", name);
        return;
    }
    const json_t *first = json_array_get(value, 0);
    bool is_list = json_is_array(value) && (json_is_string(first) || json_is_array(first));
    size_t n = is_list ? json_array_size(value) : 1;
    if (json_is_array(value) && !first)
        weft_api_error_set(r->error, 400, name, NULL, "'%s' must not be empty", name);
    if (n > limits->max_prompts)
        weft_api_error_set(r->error, 400, name, NULL,
                           "'%s' holds %zu prompts, at most %u are allowed in one request", name, n,
                           limits->max_prompts);
    if (!wefti_api_json_ok(r)) return;
    params->prompts = calloc(n, sizeof *params->prompts);
    if (!params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    params->n_prompts = (uint32_t)n;
    for (size_t i = 0; i < n && wefti_api_json_ok(r); i++) {
        const json_t *item = is_list ? json_array_get(value, i) : value;
        if (is_list && json_is_string(item) != json_is_string(first))
            weft_api_error_set(r->error, 400, name, NULL, "'%s' must not mix strings and token ids",
                               name);
        else
            read_prompt(r, name, item, limits->n_vocab, &params->prompts[i]);
    }
}

void wefti_api_params_read_tokens(const struct reader *r, const struct weft_api_limits *limits,
                                  struct params *params) {
    const json_t *value = wefti_api_json_get(r, "tokens");
    if (!wefti_api_json_ok(r)) return;
    if (!json_is_array(value)) {
        weft_api_error_set(r->error, 400, "tokens", NULL, "'tokens' must be a list of token ids");
        return;
    }
    params->prompts = calloc(1, sizeof *params->prompts);
    if (!params->prompts) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    params->n_prompts = 1;
    params->prompts[0].ids = read_ids(r, "tokens", value, limits->n_vocab);
    params->prompts[0].n_ids = json_array_size(value);
}
