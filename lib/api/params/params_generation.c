/* How a request wants its tokens: sampling, what ends it, how many, how they are sent. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

/* ------------------------------------------------------------------------- how it shall end --- */

static void read_stop_string(const struct reader *r, const char *field, const json_t *value,
                             struct params *params) {
    if (!json_is_string(value)) {
        weft_api_error_set(r->error, 400, field, NULL, "'%s' must be a string or a list of strings",
                           field);
        return;
    }
    size_t len = json_string_length(value);
    if (len == 0) {
        weft_api_error_set(r->error, 400, field, NULL, "'%s' must not hold an empty string", field);
        return;
    }
    if (len > WEFT_STOP_STRING_BYTES_MAX) {
        weft_api_error_set(r->error, 400, field, NULL,
                           "'%s' holds a string of %zu bytes, at most %d are allowed", field, len,
                           WEFT_STOP_STRING_BYTES_MAX);
        return;
    }
    char *copy = malloc(len + 1);
    if (!copy) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    memcpy(copy, json_string_value(value), len);
    copy[len] = '\0';
    WEFT_ASSERT(params->n_stops < params->cap_stops);
    params->stops[params->n_stops] = copy;
    params->stop_lens[params->n_stops++] = len;
}

void wefti_api_params_read_stops(const struct reader *r, const char *field, struct params *params) {
    const json_t *value = wefti_api_json_get(r, field);
    if (!value) return;
    bool is_list = json_is_array(value);
    size_t n = is_list ? json_array_size(value) : 1;
    if (n > WEFT_STOP_STRINGS_MAX)
        weft_api_error_set(r->error, 400, field, NULL,
                           "'%s' holds %zu strings, at most %d are allowed", field, n,
                           WEFT_STOP_STRINGS_MAX);
    if (n == 0 || !wefti_api_json_ok(r)) return;
    WEFT_ASSERT(!params->stops && !params->stop_lens);
    params->stops = calloc(n, sizeof *params->stops);
    params->stop_lens = calloc(n, sizeof *params->stop_lens);
    if (!params->stops || !params->stop_lens) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    params->cap_stops = (uint32_t)n;
    for (size_t i = 0; i < n && wefti_api_json_ok(r); i++)
        read_stop_string(r, field, is_list ? json_array_get(value, i) : value, params);
}

static bool has_token(const uint32_t *tokens, uint32_t n, uint32_t token) {
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] == token) return true;
    }
    return false;
}

static void add_stop_token(const struct reader *r, struct params *params, uint32_t token) {
    uint32_t *n = &params->sampling.n_stop_tokens;
    if (has_token(params->stop_tokens, *n, token)) return;
    if (*n == WEFT_STOP_TOKENS_MAX) {
        weft_api_error_set(r->error, 400, "stop_token_ids", NULL,
                           "'stop_token_ids' and the model's own together are more than %d",
                           WEFT_STOP_TOKENS_MAX);
        return;
    }
    params->stop_tokens[(*n)++] = token;
}

/* The model's own ends of sequence. If ignored they do not stop, but min_tokens still masks them,
 * as in vLLM. Ids beyond the model's vocabulary are never sampled. */
static void add_eos(const struct reader *r, const struct weft_api_limits *limits,
                    struct params *params) {
    struct weft_sampling *s = &params->sampling;
    uint32_t n_own = params->n_own_stop_tokens;
    WEFT_ASSERT(n_own <= s->n_stop_tokens && s->n_stop_tokens <= WEFT_STOP_TOKENS_MAX);
    if (params->ignore_eos && s->min_tokens == 0) return;
    for (size_t i = 0; i < limits->n_eos && wefti_api_json_ok(r); i++) {
        if (limits->n_vocab == 0 || limits->eos[i] < limits->n_vocab)
            add_stop_token(r, params, limits->eos[i]);
    }
    if (!params->ignore_eos) return;
    s->n_masked_tokens = s->n_stop_tokens - n_own;
    s->masked_tokens = params->stop_tokens + n_own;
    s->n_stop_tokens = n_own;
}

void wefti_api_params_read_stop_tokens(const struct reader *r, const struct weft_api_limits *limits,
                                       struct params *params) {
    const json_t *value = wefti_api_json_get(r, "stop_token_ids");
    if (value && !json_is_array(value))
        wefti_api_json_wrong_type(r, "stop_token_ids", "an array", value);
    for (size_t i = 0; i < json_array_size(value) && wefti_api_json_ok(r); i++) {
        const json_t *item = json_array_get(value, i);
        int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= (limits->n_vocab ? limits->n_vocab : INT32_MAX))
            weft_api_error_set(r->error, 400, "stop_token_ids", NULL,
                               "'stop_token_ids' must hold token ids of the vocabulary");
        else
            add_stop_token(r, params, (uint32_t)id);
    }
    params->n_own_stop_tokens = params->sampling.n_stop_tokens;
    wefti_api_json_get_bool(r, "ignore_eos", &params->ignore_eos);
    add_eos(r, limits, params);
    params->sampling.stop_tokens = params->stop_tokens;
}

/* --------------------------------------------------------------------------------- sampling --- */

static int by_token(const void *a, const void *b) {
    uint32_t x = ((const struct weft_logit_bias *)a)->token;
    uint32_t y = ((const struct weft_logit_bias *)b)->token;
    return (x > y) - (x < y);
}

bool wefti_api_params_token_of_key(const char *key, uint32_t n_vocab, uint32_t *out) {
    uint64_t id = 0;
    size_t len = strlen(key);
    if (len == 0 || len > 9 || (key[0] == '0' && len > 1)) return false;
    for (size_t i = 0; i < len; i++) {
        if (key[i] < '0' || key[i] > '9') return false;
        id = id * 10 + (uint64_t)(key[i] - '0');
    }
    *out = (uint32_t)id;
    return id < (n_vocab ? n_vocab : WEFT_VOCAB_MAX);
}

bool wefti_api_params_open_bias(const struct reader *r, size_t n, struct params *params) {
    WEFT_ASSERT(!params->bias);
    if (n > WEFT_LOGIT_BIAS_MAX)
        weft_api_error_set(r->error, 400, "logit_bias", NULL,
                           "'logit_bias' holds %zu entries, at most %d are allowed", n,
                           WEFT_LOGIT_BIAS_MAX);
    if (n == 0 || !wefti_api_json_ok(r)) return false;
    params->bias = malloc(n * sizeof *params->bias);
    if (!params->bias) weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
    return params->bias != NULL;
}

static float add_biases(float a, float b) {
    bool is_never = a == WEFT_LOGIT_BIAS_NEVER || b == WEFT_LOGIT_BIAS_NEVER;
    return is_never ? WEFT_LOGIT_BIAS_NEVER : a + b;
}

void wefti_api_params_close_bias(uint32_t n, struct params *params) {
    struct weft_logit_bias *bias = params->bias;
    uint32_t n_kept = 0;
    WEFT_ASSERT(bias && n <= WEFT_LOGIT_BIAS_MAX);
    qsort(bias, n, sizeof *bias, by_token);
    for (uint32_t i = 0; i < n; i++) {
        if (n_kept > 0 && bias[n_kept - 1].token == bias[i].token)
            bias[n_kept - 1].bias = add_biases(bias[n_kept - 1].bias, bias[i].bias);
        else
            bias[n_kept++] = bias[i];
    }
    params->sampling.bias = bias;
    params->sampling.n_bias = n_kept;
}

void wefti_api_params_read_bias(const struct reader *r, const struct weft_api_limits *limits,
                                struct params *params) {
    json_t *value = wefti_api_json_get(r, "logit_bias");
    if (!value) return;
    if (!json_is_object(value)) {
        wefti_api_json_wrong_type(r, "logit_bias", "an object", value);
        return;
    }
    size_t n = json_object_size(value);
    if (!wefti_api_params_open_bias(r, n, params)) return;
    uint32_t n_bias = 0;
    const char *key;
    json_t *item;
    json_object_foreach(value, key, item) {
        if (!wefti_api_json_ok(r)) return;
        struct weft_logit_bias *bias = &params->bias[n_bias++];
        double number = json_is_number(item) ? json_number_value(item) : NAN;
        char quoted[48];
        weft_api_quote(key, strlen(key), quoted, sizeof quoted);
        if (!wefti_api_params_token_of_key(key, limits->n_vocab, &bias->token))
            weft_api_error_set(r->error, 400, "logit_bias", NULL,
                               "'logit_bias' has the key '%s', which is not a token id", quoted);
        else if (!(number >= -100 && number <= 100))
            weft_api_error_set(r->error, 400, "logit_bias", NULL,
                               "'logit_bias' of token %u must be a number between -100 and 100",
                               bias->token);
        bias->bias = (float)number;
    }
    WEFT_ASSERT(n_bias == n);
    wefti_api_params_close_bias(n_bias, params);
}

static void apply_default(double value, float *out) {
    if (!isnan(value)) *out = (float)value;
}

/* Values of generation_config.json that are out of range were dropped when it was read. */
void wefti_api_params_usual_sampling(const struct weft_gen_defaults *d, struct weft_sampling *s) {
    weft_sampling_init(s);
    s->temperature = 1.0f;
    apply_default(d->temperature, &s->temperature);
    apply_default(d->top_p, &s->top_p);
    apply_default(d->min_p, &s->min_p);
    apply_default(d->repetition_penalty, &s->repetition_penalty);
    if (d->top_k >= 0) s->top_k = d->top_k < WEFT_VOCAB_MAX ? (uint32_t)d->top_k : WEFT_VOCAB_MAX;
}

/* Below zero means zero, and above `most` means `most`. */
static void read_u32(const struct reader *r, const char *name, int64_t api_least, int64_t api_most,
                     uint32_t most, uint32_t *out) {
    int64_t value = 0;
    if (!wefti_api_json_get_int(r, name, api_least, api_most, &value)) return;
    *out = value < 0 ? 0 : value > most ? most : (uint32_t)value;
}

static void read_i32(const struct reader *r, const char *name, int64_t api_least, int64_t api_most,
                     int32_t most, int32_t *out) {
    int64_t value = 0;
    if (!wefti_api_json_get_int(r, name, api_least, api_most, &value)) return;
    *out = value > most ? most : (int32_t)value;
}

void wefti_api_params_read_sampling(const struct reader *r, const struct weft_api_limits *limits,
                                    struct params *params) {
    struct weft_sampling *s = &params->sampling;
    wefti_api_params_usual_sampling(&limits->defaults, s);
#define READ_F32(name, most, api_least, api_most)                                                  \
    wefti_api_json_get_float(r, #name, api_least, api_most, &s->name);
#define READ_I32(name, most, api_least, api_most)                                                  \
    read_i32(r, #name, api_least, api_most, most, &s->name);
#define READ_U32(name, most, api_least, api_most)                                                  \
    read_u32(r, #name, api_least, api_most, most, &s->name);
#define READ(type, name, flag, value, least, most, api_least, api_most, help)                      \
    READ_##type(name, most, api_least, api_most)
#define PASS_OVER(...)
    WEFT_SAMPLING_LIST(READ, PASS_OVER)
#undef PASS_OVER
#undef READ
#undef READ_U32
#undef READ_I32
#undef READ_F32
    int64_t seed = 0;
    /* -1 means "any seed" in vLLM, as does absence. */
    params->has_seed = wefti_api_json_get_int(r, "seed", INT64_MIN, INT64_MAX, &seed) && seed != -1;
    s->seed = (uint64_t)seed;
    /* Divisors this small turn logits into infinities; the result is greedy either way. */
    if (s->temperature > 0 && s->temperature < 1e-4f) s->temperature = 1e-4f;
    wefti_api_params_read_bias(r, limits, params);
    wefti_api_params_read_tokens_wanted(r, limits, params);
    wefti_api_params_read_samplers(r, params);
}

void wefti_api_params_read_penalties(const struct reader *r, struct params *params) {
    wefti_api_json_get_float(r, "repeat_penalty", 1e-3, 1e3, &params->sampling.repetition_penalty);
}

/* ------------------------------------------------------------------------ log-probabilities --- */

void wefti_api_params_read_n_logprobs(const struct reader *r, const char *name,
                                      const struct weft_api_limits *limits, int64_t *out) {
    int64_t n = 0;
    if (!wefti_api_json_get_int(r, name, -1, limits->max_logprobs, &n)) return;
    *out = n < 0 ? limits->n_vocab : n; /* while that is not known nothing is served */
    if (*out > limits->max_logprobs)
        weft_api_error_set(r->error, 400, name, NULL,
                           "'%s' = -1 asks for all %u tokens of the vocabulary, more than the %u "
                           "of --max-logprobs",
                           name, limits->n_vocab, limits->max_logprobs);
}

int64_t wefti_api_params_read_chat_logprobs(const struct reader *r,
                                            const struct weft_api_limits *limits) {
    int64_t n_top = -1;
    bool is_wanted = false;
    wefti_api_json_get_bool(r, "logprobs", &is_wanted);
    wefti_api_params_read_n_logprobs(r, "top_logprobs", limits, &n_top);
    if (n_top > 0 && !is_wanted)
        weft_api_error_set(r->error, 400, "top_logprobs", NULL,
                           "'top_logprobs' needs 'logprobs' to be true");
    if (!is_wanted) return -1;
    return n_top < 0 ? 0 : n_top;
}

void wefti_api_params_read_logprobs(const struct reader *r, const struct weft_api_limits *limits,
                                    int64_t n, struct params *params) {
    int64_t n_prompt = -1;
    wefti_api_params_read_n_logprobs(r, "prompt_logprobs", limits, &n_prompt);
    if (n_prompt >= 0 && params->stream)
        weft_api_error_set(r->error, 400, "prompt_logprobs", NULL,
                           "'prompt_logprobs' are not available with 'stream': true");
    params->logprobs = (int32_t)n;
    params->prompt_logprobs = (int32_t)n_prompt;
    params->sampling.n_logprobs = (int32_t)n;
    if (params->echo && n > n_prompt) n_prompt = n;
    params->sampling.n_prompt_logprobs = (int32_t)n_prompt;
}

/* --------------------------------------------------------------------------------- the rest --- */

void wefti_api_params_read_stream(const struct reader *r, struct params *params) {
    wefti_api_json_get_bool(r, "stream", &params->stream);
    json_t *options = wefti_api_json_get(r, "stream_options");
    if (!options) return;
    if (!json_is_object(options)) {
        wefti_api_json_wrong_type(r, "stream_options", "an object", options);
        return;
    }
    if (!params->stream) {
        weft_api_error_set(r->error, 400, "stream_options", NULL,
                           "'stream_options' is only allowed with 'stream': true");
        return;
    }
    struct fields_known known;
    const struct reader inner = wefti_api_json_within(r, options, &known);
    wefti_api_json_get_bool(&inner, "include_usage", &params->include_usage);
    wefti_api_json_get_bool(&inner, "continuous_usage_stats", &params->continuous_usage);
    wefti_api_json_note(&inner, "include_obfuscation"); /* OpenAI's: events padded to one length */
    wefti_api_json_look_for_unknown(&inner, "stream_options.");
}

void wefti_api_params_read_output(const struct reader *r, struct params *params) {
    wefti_api_json_get_bool(r, "include_stop_str_in_output", &params->include_stop);
    wefti_api_json_get_bool(r, "skip_special_tokens", &params->skip_special);
    wefti_api_json_get_bool(r, "return_tokens_as_token_ids", &params->tokens_as_ids);
}

/* A field between `least` and the most there is. */
static void read_most_tokens(const struct reader *r, const char *name, int64_t least,
                             struct params *params) {
    int64_t n = 0;
    if (!wefti_api_json_get_int(r, name, least, INT32_MAX, &n)) return;
    params->has_max_tokens = n >= 0;
    params->sampling.max_tokens = n < 0 ? 0 : (uint32_t)n;
    if (n >= 0) return;
    params->is_open_ended = true;
    params->usual_max_tokens = 0;
}

static int64_t least_max_tokens(const struct params *params) {
    return params->echo || params->sampling.n_prompt_logprobs >= 0 ? 0 : 1;
}

void wefti_api_params_read_max_tokens(const struct reader *r, const char *name,
                                      struct params *params) {
    read_most_tokens(r, name, least_max_tokens(params), params);
}

void wefti_api_params_read_llama_names(const struct reader *r, struct params *params) {
    read_most_tokens(r, "n_predict", -1, params);
    if (params->has_max_tokens && params->sampling.max_tokens < least_max_tokens(params))
        weft_api_error_set(r->error, 400, "n_predict", NULL, "'n_predict' must not be 0 here");
    wefti_api_params_read_penalties(r, params);
}
