/* The samplers of a request: which of them, in which order, as in which engine. Their numbers are
 * read with all others of base/sampling.h's list. */
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "params/params_internal.h"

/* Names that a refusal tells. */
static void list_names(struct weft_buf *buf) {
    weft_buf_init(buf, 1024);
    for (uint32_t i = 0; i < WEFT_SAMPLER_COUNT; i++) {
        weft_buf_add_str(buf, i == 0 ? "'" : ", '");
        weft_buf_add_str(buf, weft_sampler_name((enum weft_sampler)i));
        weft_buf_add_str(buf, "'");
    }
}

static void refuse_name(const struct reader *r, const json_t *item) {
    struct weft_buf names;
    char quoted[48];
    list_names(&names);
    if (json_is_string(item)) {
        weft_api_quote(json_string_value(item), json_string_length(item), quoted, sizeof quoted);
        weft_api_error_set(r->error, 400, "samplers", NULL,
                           "'samplers' holds '%s', which is none of %s", quoted,
                           weft_buf_cstr(&names));
    } else {
        weft_api_error_set(r->error, 400, "samplers", NULL,
                           "'samplers' must hold names of samplers: %s", weft_buf_cstr(&names));
    }
    weft_buf_fini(&names);
}

/* The sampler of that name; COUNT: there is none. A name with a NUL in it is not what it looks. */
static enum weft_sampler sampler_of(const json_t *item) {
    const char *name = json_string_value(item);
    bool is_name = name && strlen(name) == json_string_length(item);
    return is_name ? weft_sampler_of_name(name) : WEFT_SAMPLER_COUNT;
}

static void read_order(const struct reader *r, struct params *params) {
    const json_t *value = wefti_api_json_get(r, "samplers"), *item;
    uint64_t order = WEFT_SAMPLERS_NONE;
    uint32_t seen = 0;
    size_t i;
    if (!value) return;
    if (!json_is_array(value)) wefti_api_json_wrong_type(r, "samplers", "an array of names", value);
    json_array_foreach(value, i, item) {
        enum weft_sampler sampler = sampler_of(item);
        if (sampler == WEFT_SAMPLER_COUNT)
            refuse_name(r, item);
        else if (seen >> sampler & 1)
            weft_api_error_set(r->error, 400, "samplers", NULL, "'samplers' holds '%s' twice",
                               weft_sampler_name(sampler));
        else if (seen >> WEFT_SAMPLER_ADAPTIVE_P & 1)
            weft_api_error_set(r->error, 400, "samplers", NULL,
                               "'samplers' holds '%s' after 'adaptive_p', which draws the token",
                               weft_sampler_name(sampler));
        if (!wefti_api_json_ok(r)) return;
        seen |= 1u << sampler;
        order = weft_samplers_add(order, sampler);
    }
    params->sampling.samplers = order;
}

static void read_variant(const struct reader *r, struct params *params) {
    const json_t *value = wefti_api_json_get(r, "sampler_variant");
    if (!value) return;
    if (wefti_api_json_is_text(value, "llama.cpp"))
        params->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
    else if (wefti_api_json_is_text(value, "vllm"))
        params->sampling.variant = WEFT_VARIANT_VLLM;
    else
        weft_api_error_set(r->error, 400, "sampler_variant", NULL,
                           "'sampler_variant' must be 'vllm' or 'llama.cpp'");
}

/* Their tokens are known later (call/dry_breakers.c). */
static void read_breakers(const struct reader *r, struct params *params) {
    static const char field[] = "dry_sequence_breakers";
    const json_t *value = wefti_api_json_get(r, field), *item;
    size_t i;
    if (!value) return;
    if (!json_is_array(value))
        wefti_api_json_wrong_type(r, field, "an array of strings", value);
    else if (json_array_size(value) > WEFT_DRY_BREAKERS_MAX)
        weft_api_error_set(r->error, 400, field, NULL,
                           "'%s' holds %zu strings, at most %d are allowed", field,
                           json_array_size(value), WEFT_DRY_BREAKERS_MAX);
    json_array_foreach(value, i, item) {
        size_t len = json_string_length(item);
        if (!wefti_api_json_ok(r)) return;
        if (len == 0 || len > API_DRY_BREAKER_BYTES_MAX)
            weft_api_error_set(r->error, 400, field, NULL,
                               "'%s' must hold strings of 1 to %d bytes", field,
                               API_DRY_BREAKER_BYTES_MAX);
    }
    params->breakers_wanted = value;
}

void wefti_api_params_read_samplers(const struct reader *r, struct params *params) {
    read_order(r, params);
    read_variant(r, params);
    read_breakers(r, params);
}

/* What stands beside contrastive search and would not be heeded; grammars are seen when the call is
 * prepared. */
static void check_contrast(const struct reader *r, const struct params *params) {
    static const char *const names[] = {
        "n",        "logprobs", "prompt_logprobs", "use_beam_search",
        "samplers", "mirostat", "adaptive_target", "context_shift"};
    const struct weft_sampling *s = &params->sampling;
    const bool is_set[] = {params->n_run > 1,
                           params->logprobs >= 0 || s->n_logprobs >= 0,
                           s->n_prompt_logprobs >= 0,
                           s->beam_width > 0,
                           s->samplers != WEFT_SAMPLERS_USUAL,
                           s->mirostat > 0,
                           s->adaptive_target >= 0.0f,
                           params->shifts};
    if (!weft_sampling_is_contrastive(s)) return;
    if (s->top_k < 2 || s->top_k > WEFT_CONTRAST_K_MAX)
        weft_api_error_set(r->error, 400, "top_k", NULL,
                           "'penalty_alpha' chooses among the 'top_k' likeliest tokens: 2 to %d, "
                           "not %u",
                           WEFT_CONTRAST_K_MAX, s->top_k);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_set[i])
            weft_api_error_set(r->error, 400, names[i], NULL,
                               "'%s' is not available with 'penalty_alpha'%s", names[i],
                               i == 0 ? ", which finds one output" : "");
}

void wefti_api_params_check_samplers(const struct reader *r, const struct weft_api_limits *limits,
                                     struct params *params) {
    struct weft_sampling *s = &params->sampling;
    check_contrast(r, params);
    if (weft_sampling_sees_too_little(s, limits->max_model_len))
        weft_api_error_set(r->error, 400, "repeat_last_n", "unsupported_parameter",
                           "'repeat_last_n' can only be -1 or 0, for penalties look at all tokens, "
                           "unless 'sampler_variant' is 'llama.cpp'");
    if (s->mirostat > 0 && s->adaptive_target >= 0.0f)
        weft_api_error_set(r->error, 400, "mirostat", NULL,
                           "'mirostat' and 'adaptive_target' both draw the token: choose one");
}
