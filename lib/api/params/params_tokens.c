/* Which tokens may come: allowed_token_ids, bad_words, and how many of them thoughts may have. */
#include <stdlib.h>

#include "base/check.h"
#include "params/params_internal.h"

static int by_number(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Ascending, each once. */
static uint32_t sort_out(uint32_t *tokens, uint32_t n) {
    uint32_t n_kept = 0;
    qsort(tokens, n, sizeof *tokens, by_number);
    for (uint32_t i = 0; i < n; i++) {
        if (n_kept == 0 || tokens[n_kept - 1] != tokens[i]) tokens[n_kept++] = tokens[i];
    }
    return n_kept;
}

static void read_allowed(const struct reader *r, const struct weft_api_limits *limits,
                         struct params *params) {
    static const char field[] = "allowed_token_ids";
    const json_t *value = wefti_api_json_get(r, field);
    if (!value) return;
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        wefti_api_json_wrong_type(r, field, "an array", value);
    else if (n == 0)
        weft_api_error_set(r->error, 400, field, NULL,
                           "'%s' must not be empty: nothing could be generated", field);
    else if (n > WEFT_ALLOWED_TOKENS_MAX)
        weft_api_error_set(r->error, 400, field, NULL, "'%s' holds %zu ids, at most %d are allowed",
                           field, n, WEFT_ALLOWED_TOKENS_MAX);
    if (!wefti_api_json_ok(r) || n == 0) return;
    WEFT_ASSERT(!params->allowed_tokens);
    uint32_t *tokens = params->allowed_tokens = calloc(n, sizeof *tokens);
    if (!tokens) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    for (size_t i = 0; i < n && wefti_api_json_ok(r); i++) {
        const json_t *item = json_array_get(value, i);
        int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= (limits->n_vocab ? limits->n_vocab : WEFT_VOCAB_MAX))
            weft_api_error_set(r->error, 400, field, NULL,
                               "'%s' must hold token ids of the vocabulary", field);
        tokens[i] = (uint32_t)id;
    }
    if (!wefti_api_json_ok(r)) return;
    params->sampling.allowed_tokens = tokens;
    params->sampling.n_allowed_tokens = sort_out(tokens, (uint32_t)n);
}

/* Their tokens are known later (call/bad_words.c). */
static void read_bad_words(const struct reader *r, struct params *params) {
    static const char field[] = "bad_words";
    const json_t *value = wefti_api_json_get(r, field), *item;
    size_t i;
    if (!value) return;
    if (!json_is_array(value))
        wefti_api_json_wrong_type(r, field, "an array of strings", value);
    else if (json_array_size(value) > API_BAD_WORDS_MAX)
        weft_api_error_set(r->error, 400, field, NULL,
                           "'%s' holds %zu words, at most %d are allowed", field,
                           json_array_size(value), API_BAD_WORDS_MAX);
    json_array_foreach(value, i, item) {
        size_t len = json_string_length(item);
        if (!wefti_api_json_ok(r)) return;
        if (len == 0)
            weft_api_error_set(r->error, 400, field, NULL,
                               "'%s' must hold strings that are not empty", field);
        else if (len > API_BAD_WORD_BYTES_MAX)
            weft_api_error_set(r->error, 400, field, NULL,
                               "'%s' holds a word of %zu bytes, at most %d are allowed", field, len,
                               API_BAD_WORD_BYTES_MAX);
    }
    if (json_array_size(value) > 0) params->bad_words_wanted = value;
}

void wefti_api_params_read_tokens_wanted(const struct reader *r,
                                         const struct weft_api_limits *limits,
                                         struct params *params) {
    int64_t budget = -1;
    read_allowed(r, limits, params);
    read_bad_words(r, params);
    wefti_api_json_get_int(r, "thinking_token_budget", -1, INT32_MAX, &budget);
    if (budget >= 0) params->sampling.thinking_token_budget = (uint32_t)budget;
}
