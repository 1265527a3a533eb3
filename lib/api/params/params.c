#include "params.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "kinds/kind.h"
#include "names.h"
#include "params/params_internal.h"

#define UNKNOWN_BYTES_MAX 1024

/* -------------------------------------------------------------------------------- the model --- */

/* Without what ollama puts after every name that has no tag. */
static size_t untagged(const char *name, size_t len) {
    static const char tag[] = ":latest";
    size_t n = sizeof tag - 1;
    return len > n && memcmp(name + len - n, tag, n) == 0 ? len - n : len;
}

void wefti_api_params_check_model(const struct reader *r, const char *field,
                                  const struct weft_api_limits *limits, bool takes_tags) {
    const json_t *value = wefti_api_json_get(r, field);
    if (!value) return;
    if (!json_is_string(value)) {
        wefti_api_json_wrong_type(r, field, "a string", value);
        return;
    }
    const char *name = json_string_value(value);
    size_t len = json_string_length(value);
    if (wefti_api_is_model(limits, name, len)) return;
    if (takes_tags && wefti_api_is_model(limits, name, untagged(name, len))) return;
    wefti_api_no_such_model(limits, name, len, r->error);
}

static void refuse_generation(const struct weft_api_limits *limits, struct weft_api_error *error) {
    if (limits->purpose.task == WEFT_MODEL_GENERATES) return;
    bool embeds = limits->purpose.task == WEFT_MODEL_EMBEDS;
    weft_api_error_set(error, 400, "model", "model_not_generating",
                       "this model %s and generates no text: %s",
                       embeds ? "embeds texts" : "classifies texts",
                       embeds ? "/v1/embeddings and /v1/rerank are its endpoints"
                              : "/v1/rerank, /score and /classify are its endpoints");
}

/* ------------------------------------------------------------------------------ the request --- */

bool wefti_api_params_parse(json_t *json, const weft_api_kind *kind,
                            const struct weft_api_limits *limits, struct params *params,
                            struct weft_api_error *error) {
    memset(params, 0, sizeof *params);
    params->json = json;
    params->add_generation_prompt = params->skip_special = true;
    params->logprobs = params->prompt_logprobs = -1;
    struct fields_unknown unknown = {.is_refused = limits->refuses_unknown_fields};
    struct fields_known known = {.n = 0, .unknown = &unknown};
    bool is_watched = limits->refuses_unknown_fields || limits->logs_unknown_fields;
    struct reader r = {json, error, NULL, is_watched ? &known : NULL};
    if (!json_is_object(json)) {
        weft_api_error_set(error, 400, NULL, NULL, "the body must be a JSON object, got %s",
                           json ? wefti_api_json_type_name(json) : "nothing");
        return false;
    }
    weft_buf_init(&unknown.names, UNKNOWN_BYTES_MAX);
    wefti_api_params_check_model(&r, "model", limits, kind->takes_tags);
    if (kind->generates && !kind->pools) refuse_generation(limits, error);
    kind->parse(&r, limits, params);
    if (params->n_run < params->n) params->n_run = params->n;
    if (kind->generates) wefti_api_params_read_service(&r, params);
    if (kind->generates) wefti_api_params_read_shift(&r, kind, params);
    if (kind->generates) wefti_api_params_check_samplers(&r, limits, params);
    if (kind->generates) wefti_api_params_read_adapters(&r, limits, params);
    wefti_api_params_read_ids(&r, kind, limits, params);
    if (params->sampling.grammar.kind != WEFT_GRAMMAR_NONE) {
        params->sampling.grammar.json_blanks = params->is_compact ? 0 : limits->json_blanks;
        params->sampling.grammar.json_digits = limits->json_digits;
    }
    wefti_api_params_note_ignored(&r);
    wefti_api_json_look_for_unknown(&r, "");
    if (unknown.n > 0)
        weft_debug("a request for %s has fields that are not known here: %s%s", kind->path,
                   weft_buf_cstr(&unknown.names), unknown.n == JSON_UNKNOWN_MAX ? ", ..." : "");
    weft_buf_fini(&unknown.names);
    return wefti_api_json_ok(&r);
}

void wefti_api_params_read_encoding(const struct reader *r, struct params *params) {
    wefti_api_json_get_bool(r, "add_special_tokens", &params->add_special);
    wefti_api_json_get_bool(r, "add_generation_prompt", &params->add_generation_prompt);
    wefti_api_json_get_bool(r, "return_token_strs", &params->return_token_strs);
}

/* ------------------------------------------------------------------- once lengths are known --- */

static void too_long(const struct params *params, const weft_api_kind *kind, uint32_t n_most,
                     size_t n_prompt, struct weft_api_error *error) {
    const char *what = kind->prompt_field;
    uint32_t n_new = params->has_max_tokens ? params->sampling.max_tokens : 0;
    if (params->shifts && n_prompt < n_most)
        weft_api_error_set(
            error, 400, what, "context_length_exceeded",
            "With 'context_shift' %s and completion have at most %u tokens together. "
            "However, you requested %zu tokens (%zu in the %s, %u in the "
            "completion). Please reduce the length of the %s or completion.",
            what, n_most, n_prompt + n_new, n_prompt, what, n_new, what);
    else if (n_new && !params->shifts)
        weft_api_error_set(
            error, 400, what, "context_length_exceeded",
            "This model's maximum context length is %u tokens. However, you requested "
            "%zu tokens (%zu in the %s, %u in the completion). Please reduce the length "
            "of the %s or completion.",
            n_most, n_prompt + n_new, n_prompt, what, n_new, what);
    else
        weft_api_error_set(error, 400, what, "context_length_exceeded",
                           "This model's maximum context length is %u tokens. However, your %s "
                           "resulted in %zu tokens. Please reduce the length of the %s.",
                           n_most, what, n_prompt, what);
}

static uint64_t entry_bytes(int32_t n_logprobs) {
    return n_logprobs < 0 ? 0 : 12 + 8 * (uint64_t)n_logprobs;
}

/* The bytes that must be held until the end; for a stream that frees them, at least an entry. Only
 * time tells how much an absent max_tokens, bounded by the context, or the backlog of a stream will
 * need: call.c checks those. An entry: log-probability, rank, count, then an id and a value for
 * each alternative. */
static uint64_t logprob_bytes(const struct params *params, uint64_t n_prompt_tokens) {
    const struct weft_sampling *s = &params->sampling;
    uint64_t of_prompt = entry_bytes(s->n_prompt_logprobs),
             of_token = entry_bytes(params->logprobs);
    if (params->drops_sent_logprobs) return of_prompt > of_token ? of_prompt : of_token;
    uint64_t bytes = n_prompt_tokens * of_prompt;
    if (params->has_max_tokens || !params->is_open_ended)
        bytes += (uint64_t)params->n_prompts * params->n_run * s->max_tokens * of_token;
    return bytes;
}

uint64_t wefti_api_params_logprob_bytes_most(const struct params *params) {
    uint64_t n_prompt = 0, n_run = (uint64_t)params->n_prompts * params->n_run;
    for (uint32_t i = 0; i < params->n_prompts; i++)
        n_prompt += params->prompts[i].n_ids;
    return n_prompt * entry_bytes(params->sampling.n_prompt_logprobs) +
           n_run * params->sampling.max_tokens * entry_bytes(params->logprobs);
}

/* Texts were cut where they became ids. */
static bool fit_pooled(struct params *params, const weft_api_kind *kind,
                       const struct weft_api_limits *limits, struct weft_api_error *error) {
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        size_t n = params->prompts[i].n_ids;
        WEFT_ASSERT(n <= limits->max_model_len);
        if (n == 0 && !params->prompts[i].text)
            weft_api_error_set(error, 400, kind->prompt_field, NULL,
                               "a list of token ids must not be empty");
        else if (n == 0)
            weft_api_error_set(error, 400, kind->prompt_field, NULL,
                               "a text without tokens has nothing to go by, and this model's "
                               "tokenizer adds none");
    }
    params->sampling.max_tokens = 0;
    return error->status == 0;
}

bool wefti_api_params_fit(struct params *params, const weft_api_kind *kind,
                          const struct weft_api_limits *limits, struct weft_api_error *error) {
    WEFT_ASSERT(limits->max_model_len > 0);
    WEFT_ASSERT(kind->generates);
    if (kind->pools) return fit_pooled(params, kind, limits, error);
    wefti_api_params_truncate(params, limits);
    size_t longest = 0, total = 0;
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        size_t n = params->prompts[i].n_ids;
        if (n == 0)
            weft_api_error_set(error, 400, kind->prompt_field, NULL,
                               "the prompt must hold at least one token");
        if (n > longest) longest = n;
        total += n;
    }
    struct weft_sampling *s = &params->sampling;
    uint32_t n_least = params->has_max_tokens ? s->max_tokens : 1;
    uint32_t n_most = wefti_api_params_longest(params, limits);
    bool has_room = !params->shifts || longest < limits->max_model_len;
    if (longest + n_least > n_most || !has_room) {
        too_long(params, kind, has_room ? n_most : limits->max_model_len, longest, error);
        return false;
    }
    if (!params->has_max_tokens) {
        uint32_t left = n_most - (uint32_t)longest;
        uint32_t usual = params->usual_max_tokens;
        s->max_tokens = usual > 0 && usual < left ? usual : left;
    }
    if (s->min_tokens > s->max_tokens)
        weft_api_error_set(
            error, 400, "min_tokens", NULL,
            "'min_tokens' must not exceed the %u tokens the request may generate, got "
            "%u",
            s->max_tokens, s->min_tokens);
    uint64_t bytes = params->logprob_bytes = logprob_bytes(params, total);
    if (bytes > limits->max_logprob_bytes)
        weft_api_error_set(error, 400, kind->logprobs_field, NULL,
                           "the log-probabilities asked for could take %" PRIu64
                           " bytes, more than the %" PRIu64
                           " of --max-logprob-bytes; ask for fewer "
                           "of them, fewer tokens or choices, or for a stream over HTTP",
                           bytes, limits->max_logprob_bytes);
    return error->status == 0;
}

/* -------------------------------------------------------------------------------- lifetimes --- */

void wefti_api_params_drop_json(struct params *params) {
    json_decref(params->chat.vars);
    params->chat.vars = NULL;
    for (uint32_t i = 0; i < params->n_prompts; i++)
        params->prompts[i].text = params->prompts[i].second = NULL;
    params->suffix = params->pooled.instruction = NULL;
    json_decref(params->json);
    params->json = NULL;
}

void wefti_api_params_fini(struct params *params) {
    wefti_api_params_drop_json(params);
    for (uint32_t i = 0; i < params->n_prompts; i++) {
        free(params->prompts[i].ids);
        free(params->prompts[i].echo);
        free(params->prompts[i].document);
    }
    free(params->prompts);
    for (uint32_t i = 0; i < params->n_stops; i++)
        free(params->stops[i]);
    free(params->stops);
    free(params->stop_lens);
    free(params->bias);
    free(params->allowed_tokens);
    free(params->bad_words);
    free(params->grammar_text);
    free(params->lora_name);
    free(params->lora_path);
    free(params->answer_fields);
    free(params->kept_items);
    weft_msg_tools_free(params->chat.tools);
    weft_msg_tools_free(params->chat.callable_tools);
    memset(params, 0, sizeof *params);
}
