/* POST /completion and /infill: llama-server's own endpoints, with its names of fields.
 *
 * A stream ends with the very object that is the answer to a request without one, but for what the
 * stream has told already: so both are written by the parts of the body. */
#include "kinds/llama.h"

#include <math.h>

#include "base/check.h"
#include "call/call_internal.h"
#include "kinds/kind.h"
#include "params/params_internal.h"
#include "render/choice_text.h"
#include "render/logprobs.h"
#include "render/render.h"

/* ---------------------------------------------------------------------------------- parsing --- */

/* What llama-server does not know, or means differently: read here or not at all. */
static const char *const own_fields[] = {
    "repetition_penalty", "min_tokens", "stop_token_ids", "logit_bias", NULL,
};

static const struct refused_field refused[] = {
    {"min_keep", IF_AT_MOST_ZERO},
    {"n_indent", IF_AT_MOST_ZERO},
    {"t_max_predict_ms", IF_AT_MOST_ZERO},
    {"post_sampling_probs", IF_FALSE},
    {"response_fields", IF_EMPTY},
    {"image_data", IF_EMPTY},
    {"n_cmpl", IF_ONE},
    {NULL, IF_NULL},
};

struct weft_gen_defaults wefti_api_llama_defaults(struct weft_gen_defaults d) {
    if (isnan(d.temperature)) d.temperature = 0.8;
    if (isnan(d.top_p)) d.top_p = 0.95;
    if (isnan(d.min_p)) d.min_p = 0.05;
    if (d.top_k < 0) d.top_k = 40;
    return d;
}

static void read_prompt(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    wefti_api_params_read_prompts(r, "prompt", limits, params);
    if (wefti_api_json_ok(r) && params->n_prompts != 1)
        weft_api_error_set(r->error, 400, "prompt", NULL,
                           "'prompt' holds %u prompts, /completion takes one", params->n_prompts);
}

/* A string that must be there. */
static const json_t *need_text(const struct reader *r, const char *name) {
    const json_t *value = wefti_api_json_get(r, name);
    if (!value)
        weft_api_error_set(r->error, 400, name, "missing_required_parameter",
                           "you must provide a '%s' parameter", name);
    else if (!json_is_string(value))
        wefti_api_json_wrong_type(r, name, "a string", value);
    return value;
}

/* What is before the output, with "prompt" at its end, and what comes after; no special tokens in either. */
static void read_parts(const struct reader *r, struct params *params) {
    const json_t *prefix = need_text(r, "input_prefix"), *suffix = need_text(r, "input_suffix");
    const json_t *more = wefti_api_json_get(r, "prompt");
    struct weft_buf text;
    if (more && !json_is_string(more)) wefti_api_json_wrong_type(r, "prompt", "a string", more);
    if (!wefti_api_json_ok(r)) return;
    weft_buf_init(&text, WEFT_BODY_BYTES_MAX);
    weft_buf_add(&text, json_string_value(prefix), json_string_length(prefix));
    if (more) weft_buf_add(&text, json_string_value(more), json_string_length(more));
    json_t *joined = text.failed ? NULL : json_stringn_nocheck(weft_buf_cstr(&text), text.len);
    if (json_object_set_new(r->json, "prompt", joined) == 0)
        (void)wefti_api_params_read_text(r, "prompt", params);
    else
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
    weft_buf_fini(&text);
    params->special_is_text = true;
    wefti_api_params_set_suffix("input_suffix", suffix, params);
}

/* The token of [id, bias]. */
static bool token_of_pair(const json_t *pair, uint32_t n_vocab, uint32_t *out) {
    const json_t *token = json_array_get(pair, 0);
    int64_t id = json_is_integer(token) ? json_integer_value(token) : -1;
    *out = (uint32_t)id;
    return json_array_size(pair) == 2 && id >= 0 && id < (n_vocab ? n_vocab : WEFT_VOCAB_MAX);
}

/* A number, or false: never that one. */
static void read_bias_of(const struct reader *r, bool has_token, const json_t *value,
                         struct weft_logit_bias *bias) {
    bool is_never = json_is_false(value);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!has_token)
        weft_api_error_set(r->error, 400, "logit_bias", NULL,
                           "'logit_bias' must hold pairs or members that begin with a token id; "
                           "tokens given as text are not supported");
    else if (!is_never && !(number >= -100 && number <= 100))
        weft_api_error_set(r->error, 400, "logit_bias", NULL,
                           "'logit_bias' of token %u must be false or a number between -100 and "
                           "100",
                           bias->token);
    bias->bias = is_never ? WEFT_LOGIT_BIAS_NEVER : (float)number;
}

/* Pairs [[id, bias], ...], or members {"id": bias, ...}. */
static void read_bias(const struct reader *r, const struct weft_api_limits *limits,
                      struct params *params) {
    json_t *value = wefti_api_json_get(r, "logit_bias"), *item;
    bool is_list = json_is_array(value);
    size_t n = is_list ? json_array_size(value) : json_object_size(value);
    uint32_t n_vocab = limits->n_vocab, n_bias = 0;
    const char *key;
    if (value && !is_list && !json_is_object(value))
        wefti_api_json_wrong_type(r, "logit_bias", "an array or an object", value);
    if (!wefti_api_params_open_bias(r, n, params)) return;
    for (size_t i = 0; is_list && i < n && wefti_api_json_ok(r); i++) {
        struct weft_logit_bias *bias = &params->bias[n_bias++];
        item = json_array_get(value, i);
        read_bias_of(r, token_of_pair(item, n_vocab, &bias->token), json_array_get(item, 1), bias);
    }
    json_object_foreach(value, key, item) { /* none of a list */
        if (!wefti_api_json_ok(r)) return;
        struct weft_logit_bias *bias = &params->bias[n_bias++];
        read_bias_of(r, wefti_api_params_token_of_key(key, n_vocab, &bias->token), item, bias);
    }
    if (wefti_api_json_ok(r)) wefti_api_params_close_bias(n_bias, params);
}

static void read_n_probs(const struct reader *r, const struct weft_api_limits *limits,
                         struct params *params) {
    int64_t n = 0;
    wefti_api_json_get_int(r, "n_probs", 0, limits->max_logprobs, &n);
    params->logprobs = params->sampling.n_logprobs = n > 0 ? (int32_t)n : -1;
}

/* Not so many where the context ends before. 0: only the prompt is computed. */
static void read_n_predict(const struct reader *r, const struct weft_api_limits *limits,
                           struct params *params) {
    int64_t usual = limits->defaults.max_new_tokens, n = usual > 0 ? usual : -1;
    wefti_api_json_get_int(r, "n_predict", -1, INT32_MAX, &n);
    params->is_open_ended = n < 0;
    if (n > 0) params->usual_max_tokens = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    if (n != 0) return;
    params->has_max_tokens = true;
    params->sampling.max_tokens = 0;
}

static void read_fields(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    struct reader shared = {r->json, r->error, own_fields, r->known};
    struct weft_api_limits own = *limits;
    own.defaults = wefti_api_llama_defaults(limits->defaults);
    params->n = 1;
    wefti_api_params_refuse_unsupported(&shared);
    wefti_api_params_refuse_beams(&shared);
    wefti_api_params_refuse_chat(&shared);
    wefti_api_params_refuse(r, refused);
    wefti_api_json_get_bool(r, "stream", &params->stream);
    wefti_api_json_get_bool(r, "return_tokens", &params->return_tokens);
    wefti_api_params_read_sampling(&shared, &own, params);
    wefti_api_params_read_grammar(r, params);
    wefti_api_params_read_penalties(r, params);
    read_bias(r, limits, params);
    wefti_api_params_read_stops(r, "stop", params);
    wefti_api_params_read_stop_tokens(&shared, limits, params);
    read_n_probs(r, limits, params);
    read_n_predict(r, limits, params);
}

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    params->add_special = true;
    read_prompt(r, limits, params);
    read_fields(r, limits, params);
}

static void parse_infill(const struct reader *r, const struct weft_api_limits *limits,
                         struct params *params) {
    static const struct refused_field other_files[] = {{"input_extra", IF_EMPTY}, {NULL, IF_NULL}};
    params->add_special = true;
    wefti_api_params_refuse(r, other_files);
    read_parts(r, params);
    read_fields(r, limits, params);
}

/* --------------------------------------------------------------------------------- the body --- */

static void open_body(weft_api_call *call, struct weft_writer *w) {
    (void)call;
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, 0);
    weft_write_key(w, "content");
}

static bool open_content_part(const struct body_piece *at) {
    WEFT_ASSERT(at->call->n_choices == 1);
    if (at->call->params.stream) {
        weft_write_str(at->w, "");
        return true;
    }
    wefti_api_text_begin(at->choice);
    weft_write_text_open(at->w);
    return true;
}

static bool content_part(const struct body_piece *at) {
    return at->call->params.stream || wefti_api_text_part(at);
}

static void token_item(const struct body_piece *at, uint32_t pos) {
    weft_write_uint(at->w, wefti_api_seq_token(at->choice, pos));
}

static bool tokens_part(const struct body_piece *at) {
    const struct params *p = &at->call->params;
    bool is_told = p->return_tokens && !p->stream;
    return wefti_api_render_list(at, "tokens", is_told ? wefti_api_seq_len(at->choice) : 0,
                                 token_item);
}

static bool probs_part(const struct body_piece *at) {
    const struct params *p = &at->call->params;
    if (p->logprobs < 0 || p->stream) return true;
    return wefti_api_render_list(at, "completion_probabilities", wefti_api_seq_len(at->choice),
                                 wefti_api_lp_chat_item);
}

static void write_counts(const weft_api_call *call, uint64_t n_output, struct weft_writer *w) {
    weft_write_key(w, "tokens_predicted");
    weft_write_uint(w, n_output);
    weft_write_key(w, "tokens_evaluated");
    weft_write_uint(w, wefti_api_prompt_tokens(call));
}

static bool counts_part(const struct body_piece *at) {
    weft_write_key(at->w, "stop");
    weft_write_bool(at->w, true);
    weft_write_key(at->w, "model");
    weft_write_str(at->w, at->call->model_name);
    write_counts(at->call, at->choice->n_tokens, at->w);
    return true;
}

static void write_number(struct weft_writer *w, const char *key, float value) {
    weft_write_key(w, key);
    weft_write_float(w, value);
}

static void write_int(struct weft_writer *w, const char *key, int64_t value) {
    weft_write_key(w, key);
    weft_write_int(w, value);
}

static void write_samplers(const struct weft_sampling *s, struct weft_writer *w) {
    enum weft_sampler order[WEFT_SAMPLER_COUNT];
    uint32_t n = weft_samplers_list(s->samplers, order);
    weft_write_key(w, "samplers");
    weft_write_list(w);
    for (uint32_t i = 0; i < n; i++)
        weft_write_str(w, weft_sampler_name(order[i]));
    weft_write_end(w);
    weft_write_key(w, "sampler_variant");
    weft_write_str(w, s->variant == WEFT_VARIANT_LLAMA_CPP ? "llama.cpp" : "vllm");
}

void wefti_api_llama_write_sampling(const struct weft_sampling *s, struct weft_writer *w) {
    write_int(w, "top_k", s->top_k);
    write_number(w, "temperature", s->temperature);
    write_number(w, "dynatemp_range", s->dynatemp_range);
    write_number(w, "dynatemp_exponent", s->dynatemp_exponent);
    write_number(w, "top_p", s->top_p);
    write_number(w, "min_p", s->min_p);
    write_number(w, "top_n_sigma", s->top_n_sigma);
    write_number(w, "xtc_probability", s->xtc_probability);
    write_number(w, "xtc_threshold", s->xtc_threshold);
    write_number(w, "typical_p", s->typical_p);
    write_number(w, "tfs_z", s->tfs_z);
    write_int(w, "repeat_last_n", s->repeat_last_n);
    write_number(w, "repeat_penalty", s->repetition_penalty);
    write_number(w, "presence_penalty", s->presence_penalty);
    write_number(w, "frequency_penalty", s->frequency_penalty);
    write_number(w, "dry_multiplier", s->dry_multiplier);
    write_number(w, "dry_base", s->dry_base);
    write_int(w, "dry_allowed_length", s->dry_allowed_length);
    write_int(w, "dry_penalty_last_n", s->dry_penalty_last_n);
    write_int(w, "mirostat", s->mirostat);
    write_number(w, "mirostat_tau", s->mirostat_tau);
    write_number(w, "mirostat_eta", s->mirostat_eta);
    write_number(w, "adaptive_target", s->adaptive_target);
    write_number(w, "adaptive_decay", s->adaptive_decay);
    write_number(w, "penalty_alpha", s->penalty_alpha);
    write_samplers(s, w);
}

/* As it was asked for: -1 until the context is full. */
static int64_t n_predict_of(const struct params *p) {
    if (p->has_max_tokens) return p->sampling.max_tokens;
    return p->usual_max_tokens > 0 ? (int64_t)p->usual_max_tokens : -1;
}

static bool settings_part(const struct body_piece *at) {
    const struct params *p = &at->call->params;
    struct weft_writer *w = at->w;
    weft_write_key(w, "generation_settings");
    weft_write_map(w);
    weft_write_key(w, "n_ctx");
    weft_write_uint(w, at->call->limits.max_model_len);
    weft_write_key(w, "n_predict");
    weft_write_int(w, n_predict_of(p));
    weft_write_key(w, "n_keep");
    weft_write_int(w, p->n_keep);
    weft_write_key(w, "seed");
    weft_write_int(w, (int64_t)at->choice->job->seed);
    wefti_api_llama_write_sampling(&p->sampling, w);
    weft_write_key(w, "ignore_eos");
    weft_write_bool(w, p->ignore_eos);
    weft_write_key(w, "stream");
    weft_write_bool(w, p->stream);
    weft_write_key(w, "n_probs");
    weft_write_int(w, p->logprobs > 0 ? p->logprobs : 0);
    weft_write_key(w, "stop");
    weft_write_list(w);
    for (uint32_t i = 0; i < p->n_stops; i++)
        weft_write_text(w, p->stops[i], p->stop_lens[i]);
    weft_write_end(w);
    return true;
}

static void bias_item(const struct body_piece *at, uint32_t pos) {
    const struct weft_logit_bias *bias = &at->call->params.sampling.bias[pos];
    weft_write_map(at->w);
    weft_write_key(at->w, "token");
    weft_write_uint(at->w, bias->token);
    weft_write_key(at->w, "bias");
    if (bias->bias == WEFT_LOGIT_BIAS_NEVER)
        weft_write_bool(at->w, false);
    else
        weft_write_float(at->w, bias->bias);
    weft_write_end(at->w);
}

static bool bias_part(const struct body_piece *at) {
    uint32_t n = at->call->params.sampling.n_bias;
    if (!wefti_api_render_list(at, "logit_bias", n, bias_item)) return false;
    weft_write_end(at->w); /* of the settings */
    return true;
}

static bool open_prompt_part(const struct body_piece *at) {
    weft_write_key(at->w, "prompt");
    wefti_api_spell_begin(at);
    return true;
}

static const char *stop_type(enum weft_end end) {
    switch (end) {
    case WEFT_END_STOP:
    case WEFT_END_COMPLETE:
    case WEFT_END_STOP_TOKEN:
        return "eos";
    case WEFT_END_STOP_STRING:
        return "word";
    case WEFT_END_LENGTH:
        return "limit";
    default:
        return "none";
    }
}

static bool end_part(const struct body_piece *at) {
    const struct choice *choice = at->choice;
    const struct params *p = &at->call->params;
    struct weft_writer *w = at->w;
    int64_t n_predict = n_predict_of(p);
    bool has_room = n_predict >= 0 && n_predict <= p->sampling.max_tokens;
    WEFT_ASSERT(choice->end != WEFT_END_NONE);
    uint32_t n_all = (uint32_t)choice->job->prompt->n_ids + choice->n_tokens;
    bool has_shifted = n_all > at->call->limits.max_model_len;
    weft_write_key(w, "truncated");
    weft_write_bool(w, has_shifted || (choice->end == WEFT_END_LENGTH && !has_room));
    weft_write_key(w, "stop_type");
    weft_write_str(w, stop_type(choice->end));
    weft_write_key(w, "stopping_word");
    if (choice->end == WEFT_END_STOP_STRING)
        weft_write_text(w, p->stops[choice->stop_idx], p->stop_lens[choice->stop_idx]);
    else
        weft_write_str(w, "");
    weft_write_key(w, "tokens_cached");
    weft_write_uint(w, wefti_api_cached_tokens(at->call));
    return true;
}

/* Under the keys for: how many tokens, milliseconds, those of each, and how many in a second. */
static void write_pace(const char *const keys[4], uint32_t n, uint64_t us, struct weft_writer *w) {
    double ms = (double)us * 1e-3;
    weft_write_key(w, keys[0]);
    weft_write_uint(w, n);
    weft_write_key(w, keys[1]);
    weft_write_double(w, ms);
    weft_write_key(w, keys[2]);
    weft_write_double(w, n > 0 ? ms / n : 0.0);
    weft_write_key(w, keys[3]);
    weft_write_double(w, us > 0 ? n * 1e3 / ms : 0.0);
}

/* The prompt's time ends with the first token, and leaves out what the request waited for a place;
 * its tokens are those that were computed. That of the output goes from the first token to the
 * last. */
static bool timings_part(const struct body_piece *at) {
    static const char *const prompt_keys[4] = {"prompt_n", "prompt_ms", "prompt_per_token_ms",
                                               "prompt_per_second"};
    static const char *const output_keys[4] = {"predicted_n", "predicted_ms",
                                               "predicted_per_token_ms", "predicted_per_second"};
    const struct choice *choice = at->choice;
    uint64_t begun_us = at->call->arrived_us + choice->job->queued_us, first_us = choice->first_us;
    WEFT_ASSERT(choice->last_us >= first_us);
    uint32_t n_prompt = (uint32_t)choice->job->prompt->n_ids, n_cached = choice->job->n_cached;
    weft_write_key(at->w, "timings");
    weft_write_map(at->w);
    weft_write_key(at->w, "cache_n");
    weft_write_uint(at->w, n_cached);
    write_pace(prompt_keys, n_prompt > n_cached ? n_prompt - n_cached : 0,
               first_us > begun_us ? first_us - begun_us : 0, at->w);
    write_pace(output_keys, choice->n_tokens, choice->last_us - first_us, at->w);
    weft_write_end(at->w);
    weft_write_end(at->w); /* of all */
    return true;
}

static const body_part choice_parts[] = {
    open_content_part,    content_part,  tokens_part,  probs_part,
    counts_part,          settings_part, bias_part,    open_prompt_part,
    wefti_api_spell_part, end_part,      timings_part, NULL,
};
static const body_part end_parts[] = {NULL};

/* ---------------------------------------------------------------------------------- streams --- */

static void write_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    weft_api_call *call = chunk->choice->job->call;
    const struct body_piece at = {.call = call, .choice = chunk->choice, .w = w};
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, 0);
    weft_write_key(w, "content");
    weft_write_text(w, chunk->text, chunk->text_len);
    weft_write_key(w, "tokens");
    weft_write_list(w);
    for (uint32_t pos = chunk->from; pos < chunk->to; pos++)
        token_item(&at, pos);
    weft_write_end(w);
    weft_write_key(w, "stop");
    weft_write_bool(w, false);
    write_counts(call, call->render.n_streamed, w);
    if (call->params.logprobs >= 0) {
        weft_write_key(w, "completion_probabilities");
        weft_write_list(w);
        for (uint32_t pos = chunk->from; pos < chunk->to; pos++)
            wefti_api_lp_chat_item(&at, pos);
        weft_write_end(w);
    }
    weft_write_end(w);
}

/* Seeds are told: clients that read numbers as doubles keep short ones. */
#define KIND                                                                                       \
    .id_prefix = "cmpl", .logprobs_field = "n_probs", .generates = true,                           \
    .framing = &wefti_api_framing_sse, .names_any_token = true, .logprobs_have_ids = true,         \
    .draws_short_seeds = true, .open_body = open_body, .choice_parts = choice_parts,               \
    .end_parts = end_parts, .write_chunk = write_chunk,                                            \
    .end_stream = wefti_api_render_end_with_body

const struct weft_api_kind wefti_api_kind_llama = {
    .path = "/completion", .prompt_field = "prompt", .parse = parse, KIND};

const struct weft_api_kind wefti_api_kind_llama_infill = {
    .path = "/infill", .prompt_field = "input_prefix", .parse = parse_infill, KIND};
