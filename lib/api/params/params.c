#include "params/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "params/params_internal.h"

/* -------------------------------------------------------------------------------- the model --- */

static void check_model(const struct reader *r, const struct weft_api_limits *limits) {
    const json_t *value = wefti_api_json_get(r, "model");
    if (!value) return;
    if (!json_is_string(value)) {
        wefti_api_json_wrong_type(r, "model", "a string", value);
        return;
    }
    if (!wefti_api_json_is_text(value, limits->model_name))
        weft_api_error_set(r->error, 404, "model", "model_not_found",
                           "The model '%.200s' does not exist.", json_string_value(value));
}

/* ------------------------------------------------------------------------- how it shall end --- */

static void read_stop_string(const struct reader *r, const json_t *value, struct params *params) {
    if (!json_is_string(value)) {
        weft_api_error_set(r->error, 400, "stop", NULL,
                           "'stop' must be a string or a list of strings");
        return;
    }
    size_t len = json_string_length(value);
    if (len == 0) {
        weft_api_error_set(r->error, 400, "stop", NULL, "'stop' must not hold an empty string");
        return;
    }
    if (len > WEFT_STOP_STRING_BYTES_MAX) {
        weft_api_error_set(r->error, 400, "stop", NULL,
                           "'stop' holds a string of %zu bytes, at most %d are allowed", len,
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
    params->stops[params->n_stops] = copy;
    params->stop_lens[params->n_stops++] = len;
}

static void read_stops(const struct reader *r, struct params *params) {
    const json_t *value = wefti_api_json_get(r, "stop");
    if (!value) return;
    if (!json_is_array(value)) {
        read_stop_string(r, value, params);
        return;
    }
    if (json_array_size(value) > WEFT_STOP_STRINGS_MAX) {
        weft_api_error_set(r->error, 400, "stop", NULL,
                           "'stop' holds %zu strings, at most %d are allowed",
                           json_array_size(value), WEFT_STOP_STRINGS_MAX);
        return;
    }
    for (size_t i = 0; i < json_array_size(value) && wefti_api_json_ok(r); i++)
        read_stop_string(r, json_array_get(value, i), params);
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

/* The model's own ends of sequence. Where they are ignored they do not stop, but min_tokens keeps
 * them back all the same, as in vLLM. What lies beyond the model's vocabulary is never sampled. */
static void add_eos(const struct reader *r, const struct weft_api_limits *limits,
                    struct params *params) {
    struct weft_sampling *s = &params->sampling;
    uint32_t n_own = params->n_own_stop_tokens;
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

static void read_stop_tokens(const struct reader *r, const struct weft_api_limits *limits,
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

/* A key such as "42": digits only, no leading zero, below n_vocab. */
static bool token_of_key(const char *key, uint32_t n_vocab, uint32_t *out) {
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

static void read_bias(const struct reader *r, const struct weft_api_limits *limits,
                      struct params *params) {
    json_t *value = wefti_api_json_get(r, "logit_bias");
    if (!value) return;
    if (!json_is_object(value)) {
        wefti_api_json_wrong_type(r, "logit_bias", "an object", value);
        return;
    }
    size_t n = json_object_size(value);
    if (n > WEFT_LOGIT_BIAS_MAX)
        weft_api_error_set(r->error, 400, "logit_bias", NULL,
                           "'logit_bias' holds %zu entries, at most %d are allowed", n,
                           WEFT_LOGIT_BIAS_MAX);
    if (n == 0 || !wefti_api_json_ok(r)) return;
    params->bias = malloc(n * sizeof *params->bias);
    if (!params->bias) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    uint32_t n_bias = 0;
    const char *key;
    json_t *item;
    json_object_foreach(value, key, item) {
        if (!wefti_api_json_ok(r)) return;
        struct weft_logit_bias *bias = &params->bias[n_bias++];
        double number = json_is_number(item) ? json_number_value(item) : NAN;
        if (!token_of_key(key, limits->n_vocab, &bias->token))
            weft_api_error_set(r->error, 400, "logit_bias", NULL,
                               "'logit_bias' has the key '%.40s', which is not a token id", key);
        else if (!(number >= -100 && number <= 100))
            weft_api_error_set(r->error, 400, "logit_bias", NULL,
                               "'logit_bias' of token %u must be a number between -100 and 100",
                               bias->token);
        bias->bias = (float)number;
    }
    qsort(params->bias, n_bias, sizeof *params->bias, by_token);
    params->sampling.bias = params->bias;
    params->sampling.n_bias = n_bias;
}

static void apply_default(double value, float *out) {
    if (!isnan(value)) *out = (float)value;
}

/* generation_config.json speaks where the request is silent; values out of range were passed over
 * when it was read. */
static void apply_defaults(const struct weft_gen_defaults *d, struct weft_sampling *s) {
    s->temperature = 1.0f;
    apply_default(d->temperature, &s->temperature);
    apply_default(d->top_p, &s->top_p);
    apply_default(d->min_p, &s->min_p);
    apply_default(d->repetition_penalty, &s->repetition_penalty);
    if (d->top_k >= 0) s->top_k = d->top_k < WEFT_VOCAB_MAX ? (uint32_t)d->top_k : WEFT_VOCAB_MAX;
}

/* Below zero means zero, and what is above `most` is as good as that. */
static void read_u32(const struct reader *r, const char *name, int64_t api_least, int64_t api_most,
                     uint32_t most, uint32_t *out) {
    int64_t value = 0;
    if (!wefti_api_json_get_int(r, name, api_least, api_most, &value)) return;
    *out = value < 0 ? 0 : value > most ? most : (uint32_t)value;
}

static void read_sampling(const struct reader *r, const struct weft_api_limits *limits,
                          struct params *params) {
    struct weft_sampling *s = &params->sampling;
    weft_sampling_init(s);
    apply_defaults(&limits->defaults, s);
#define READ_F32(name, most, api_least, api_most)                                                  \
    wefti_api_json_get_float(r, #name, api_least, api_most, &s->name);
#define READ_U32(name, most, api_least, api_most)                                                  \
    read_u32(r, #name, api_least, api_most, most, &s->name);
#define READ(type, name, flag, value, least, most, api_least, api_most, help)                      \
    READ_##type(name, most, api_least, api_most)
#define PASS_OVER(...)
    WEFT_SAMPLING_LIST(READ, PASS_OVER)
#undef PASS_OVER
#undef READ
#undef READ_U32
#undef READ_F32
    int64_t seed = 0;
    /* -1 means "any" to vLLM's users, as absence does. */
    params->has_seed = wefti_api_json_get_int(r, "seed", INT64_MIN, INT64_MAX, &seed) && seed != -1;
    s->seed = (uint64_t)seed;
    /* Divisors this small turn logits into infinities; the result is greedy either way. */
    if (s->temperature > 0 && s->temperature < 1e-4f) s->temperature = 1e-4f;
    read_bias(r, limits, params);
}

/* ------------------------------------------------------------------------ log-probabilities --- */

static void read_logprobs(const struct reader *r, enum call_kind kind,
                          const struct weft_api_limits *limits, struct params *params) {
    int64_t n = -1, n_prompt = -1, top = -1;
    bool wanted = false;
    if (kind == CALL_COMPLETION) {
        wefti_api_json_get_int(r, "logprobs", 0, limits->max_logprobs, &n);
    } else {
        wefti_api_json_get_bool(r, "logprobs", &wanted);
        wefti_api_json_get_int(r, "top_logprobs", 0, limits->max_logprobs, &top);
        if (top > 0 && !wanted)
            weft_api_error_set(r->error, 400, "top_logprobs", NULL,
                               "'top_logprobs' needs 'logprobs' to be true");
        if (wanted) n = top < 0 ? 0 : top;
    }
    wefti_api_json_get_int(r, "prompt_logprobs", 0, limits->max_logprobs, &n_prompt);
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

static void read_stream(const struct reader *r, struct params *params) {
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
    struct reader inner = {options, r->error};
    wefti_api_json_get_bool(&inner, "include_usage", &params->include_usage);
    wefti_api_json_get_bool(&inner, "continuous_usage_stats", &params->continuous_usage);
}

static void read_counts(const struct reader *r, enum call_kind kind, struct params *params) {
    int64_t n = 1, best_of = 0, max_tokens = 0;
    wefti_api_json_get_int(r, "n", 1, WEFT_CHOICES_MAX, &n);
    if (kind == CALL_COMPLETION && wefti_api_json_get_int(r, "best_of", 0, INT32_MAX, &best_of) &&
        best_of != n && best_of != 0)
        weft_api_error_set(r->error, 400, "best_of", "unsupported_parameter",
                           "'best_of' is only supported where it equals 'n'");
    params->n = (uint32_t)n;
    if (wefti_api_json_ok(r) && n * params->n_prompts > WEFT_API_CALL_CHOICES_MAX)
        weft_api_error_set(r->error, 400, "n", NULL,
                           "%u prompts with 'n' = %u are more than %d choices in one request",
                           params->n_prompts, params->n, WEFT_API_CALL_CHOICES_MAX);
    int64_t least = params->echo || params->sampling.n_prompt_logprobs >= 0 ? 0 : 1;
    params->has_max_tokens = wefti_api_json_get_int(r, "max_tokens", least, INT32_MAX, &max_tokens);
    if (kind == CALL_CHAT &&
        wefti_api_json_get_int(r, "max_completion_tokens", least, INT32_MAX, &max_tokens))
        params->has_max_tokens = true;
    params->sampling.max_tokens = (uint32_t)max_tokens;
    /* A worker computes a prompt alone only where its log-probabilities are wanted. */
    if (params->has_max_tokens && max_tokens == 0 && params->sampling.n_prompt_logprobs < 0)
        params->sampling.n_prompt_logprobs = 0;
}

static void read_generation(const struct reader *r, enum call_kind kind,
                            const struct weft_api_limits *limits, struct params *params) {
    read_stream(r, params);
    wefti_api_json_get_bool(r, "echo", &params->echo);
    if (kind == CALL_CHAT && params->echo)
        weft_api_error_set(r->error, 400, "echo", "unsupported_parameter",
                           "'echo' is not supported in chat completions");
    wefti_api_json_get_bool(r, "include_stop_str_in_output", &params->include_stop);
    wefti_api_json_get_bool(r, "skip_special_tokens", &params->skip_special);
    wefti_api_json_get_bool(r, "return_tokens_as_token_ids", &params->tokens_as_ids);
    read_sampling(r, limits, params);
    read_stops(r, params);
    read_stop_tokens(r, limits, params);
    read_logprobs(r, kind, limits, params);
    read_counts(r, kind, params);
    const json_t *user = wefti_api_json_get(r, "user");
    if (user && !json_is_string(user)) wefti_api_json_wrong_type(r, "user", "a string", user);
}

bool wefti_api_params_parse(json_t *json, enum call_kind kind, const struct weft_api_limits *limits,
                            struct params *params, struct weft_api_error *error) {
    memset(params, 0, sizeof *params);
    params->json = json;
    params->add_generation_prompt = params->skip_special = true;
    params->add_special = kind == CALL_COMPLETION || kind == CALL_TOKENIZE;
    params->logprobs = params->prompt_logprobs = -1;
    struct reader r = {json, error};
    if (!json_is_object(json)) {
        weft_api_error_set(error, 400, NULL, NULL, "the body must be a JSON object, got %s",
                           json ? wefti_api_json_type_name(json) : "nothing");
        return false;
    }
    check_model(&r, limits);
    wefti_api_params_refuse_unsupported(&r);
    bool is_chat =
        kind == CALL_CHAT || (kind == CALL_TOKENIZE && wefti_api_json_get(&r, "messages"));
    if (kind == CALL_DETOKENIZE)
        wefti_api_params_read_tokens(&r, limits, params);
    else if (is_chat)
        wefti_api_params_read_messages(&r, params);
    else
        wefti_api_params_read_prompts(&r, limits, params);
    if (is_chat) params->add_special = false;
    wefti_api_json_get_bool(&r, "add_special_tokens", &params->add_special);
    wefti_api_json_get_bool(&r, "add_generation_prompt", &params->add_generation_prompt);
    wefti_api_json_get_bool(&r, "return_token_strs", &params->return_token_strs);
    if (kind == CALL_COMPLETION || kind == CALL_CHAT) read_generation(&r, kind, limits, params);
    return wefti_api_json_ok(&r);
}

/* ------------------------------------------------------------------- once lengths are known --- */

static void too_long(const struct params *params, enum call_kind kind,
                     const struct weft_api_limits *limits, size_t n_prompt,
                     struct weft_api_error *error) {
    const char *what = kind == CALL_CHAT ? "messages" : "prompt";
    uint32_t n_new = params->has_max_tokens ? params->sampling.max_tokens : 0;
    if (n_new)
        weft_api_error_set(
            error, 400, what, "context_length_exceeded",
            "This model's maximum context length is %u tokens. However, you requested "
            "%zu tokens (%zu in the %s, %u in the completion). Please reduce the length "
            "of the %s or completion.",
            limits->max_model_len, n_prompt + n_new, n_prompt, what, n_new, what);
    else
        weft_api_error_set(error, 400, what, "context_length_exceeded",
                           "This model's maximum context length is %u tokens. However, your %s "
                           "resulted in %zu tokens. Please reduce the length of the %s.",
                           limits->max_model_len, what, n_prompt, what);
}

static uint64_t entry_bytes(int32_t n_logprobs) {
    return n_logprobs < 0 ? 0 : 12 + 8 * (uint64_t)n_logprobs;
}

/* What was asked for, and has to be held until the end; of a stream that lets go at least an entry.
 * What a chat's silence about max_tokens may come to, and what waits of a stream, only time will
 * tell: call.c looks at those. An entry: log-probability, rank, count, then an id and a value for
 * each alternative. */
static uint64_t logprob_bytes(const struct params *params, enum call_kind kind,
                              uint64_t n_prompt_tokens) {
    const struct weft_sampling *s = &params->sampling;
    uint64_t of_prompt = entry_bytes(s->n_prompt_logprobs), of_token = entry_bytes(s->n_logprobs);
    if (params->drops_sent_logprobs) return of_prompt > of_token ? of_prompt : of_token;
    uint64_t bytes = n_prompt_tokens * of_prompt;
    if (params->has_max_tokens || kind != CALL_CHAT)
        bytes += (uint64_t)params->n_prompts * params->n * s->max_tokens * of_token;
    return bytes;
}

bool wefti_api_params_fit(struct params *params, enum call_kind kind,
                          const struct weft_api_limits *limits, struct weft_api_error *error) {
    WEFT_ASSERT(limits->max_model_len > 0);
    size_t longest = 0, total = 0;
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        size_t n = params->prompts[i].n_ids;
        if (n == 0)
            weft_api_error_set(error, 400, kind == CALL_CHAT ? "messages" : "prompt", NULL,
                               "the prompt must hold at least one token");
        if (n > longest) longest = n;
        total += n;
    }
    struct weft_sampling *s = &params->sampling;
    uint32_t n_least = params->has_max_tokens ? s->max_tokens : 1;
    if (longest + n_least > limits->max_model_len) {
        too_long(params, kind, limits, longest, error);
        return false;
    }
    if (!params->has_max_tokens) {
        uint32_t left = limits->max_model_len - (uint32_t)longest;
        s->max_tokens = kind == CALL_CHAT ? left : 16;
        int64_t usual = limits->defaults.max_new_tokens;
        if (kind == CALL_CHAT && usual > 0 && usual < left) s->max_tokens = (uint32_t)usual;
        if (s->max_tokens > left) s->max_tokens = left;
    }
    if (s->min_tokens > s->max_tokens)
        weft_api_error_set(
            error, 400, "min_tokens", NULL,
            "'min_tokens' must not exceed the %u tokens the request may generate, got "
            "%u",
            s->max_tokens, s->min_tokens);
    uint64_t bytes = params->logprob_bytes = logprob_bytes(params, kind, total);
    if (bytes > limits->max_logprob_bytes)
        weft_api_error_set(error, 400, kind == CALL_CHAT ? "top_logprobs" : "logprobs", NULL,
                           "the log-probabilities asked for could take %" PRIu64
                           " bytes, more than the %" PRIu64
                           " of --max-logprob-bytes; ask for fewer "
                           "of them, fewer tokens or choices, or for a stream over HTTP",
                           bytes, limits->max_logprob_bytes);
    return error->status == 0;
}

/* -------------------------------------------------------------------------------- lifetimes --- */

void wefti_api_params_drop_json(struct params *params) {
    for (uint32_t i = 0; i < params->n_owned; i++)
        free(params->owned_texts[i]);
    free(params->owned_texts);
    free(params->messages);
    params->owned_texts = NULL;
    params->messages = NULL;
    params->n_owned = params->n_messages = 0;
    for (uint32_t i = 0; i < params->n_prompts; i++)
        params->prompts[i].text = NULL;
    json_decref(params->json);
    params->json = NULL;
}

void wefti_api_params_fini(struct params *params) {
    wefti_api_params_drop_json(params);
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        free(params->prompts[i].ids);
        free(params->prompts[i].echo);
    }
    free(params->prompts);
    for (uint32_t i = 0; i < params->n_stops; i++)
        free(params->stops[i]);
    free(params->bias);
    memset(params, 0, sizeof *params);
}
