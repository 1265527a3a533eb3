/* POST /v1/completions and "generate": OpenAI's completions with vLLM's fields. */
#include "api/error.h"
#include "kinds/openai.h"
#include "params/params_internal.h"
#include "render/choice_text.h"
#include "render/logprobs.h"
#include "render/render.h"
#include "render/token_ids.h"

#define OBJECT "text_completion"
#define USUAL_MAX_TOKENS 16 /* OpenAI's */

/* ---------------------------------------------------------------------------------- parsing --- */

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    int64_t n_logprobs = -1;
    params->add_special = true;
    params->usual_max_tokens = USUAL_MAX_TOKENS;
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_refuse_chat(r);
    wefti_api_params_read_prompts(r, "prompt", limits, params);
    wefti_api_params_read_encoding(r, params);
    wefti_api_params_read_stream(r, params);
    wefti_api_json_get_bool(r, "echo", &params->echo);
    wefti_api_params_read_output(r, params);
    wefti_api_params_read_sampling(r, limits, params);
    wefti_api_params_read_grammar(r, params);
    wefti_api_params_read_stops(r, "stop", params);
    wefti_api_params_read_stop_tokens(r, limits, params);
    wefti_api_params_read_n_logprobs(r, "logprobs", limits, &n_logprobs);
    wefti_api_params_read_logprobs(r, limits, n_logprobs, params);
    wefti_api_params_read_choices(r, params);
    if (!wefti_api_params_read_beams(r, params)) wefti_api_params_read_best_of(r, params);
    wefti_api_params_read_max_tokens(r, "max_tokens", params);
    wefti_api_params_read_llama_names(r, params);
}

/* --------------------------------------------------------------------------------- the body --- */

static void open_body(weft_api_call *call, struct weft_writer *w) {
    wefti_api_openai_open(call, OBJECT, w);
}

static bool open_part(const struct body_piece *at) {
    wefti_api_text_begin(at->choice);
    weft_write_map(at->w);
    weft_write_key(at->w, "index");
    weft_write_uint(at->w, at->choice->index);
    weft_write_key(at->w, "text");
    weft_write_text_open(at->w);
    return true;
}

static bool logprobs_part(const struct body_piece *at) {
    weft_write_key(at->w, "logprobs");
    if (at->call->params.logprobs < 0)
        weft_write_null(at->w);
    else
        weft_write_map(at->w);
    return true;
}

static bool list_part(const struct body_piece *at, const char *key, body_item item) {
    if (at->call->params.logprobs < 0) return true;
    return wefti_api_render_list(at, key, wefti_api_seq_len(at->choice), item);
}

static bool tokens_part(const struct body_piece *at) {
    return list_part(at, "tokens", wefti_api_lp_token_item);
}

static bool values_part(const struct body_piece *at) {
    return list_part(at, "token_logprobs", wefti_api_lp_value_item);
}

static bool top_part(const struct body_piece *at) {
    return list_part(at, "top_logprobs", wefti_api_lp_top_item);
}

static bool offsets_part(const struct body_piece *at) {
    if (!list_part(at, "text_offset", wefti_api_lp_offset_item)) return false;
    if (at->call->params.logprobs >= 0) weft_write_end(at->w);
    return true;
}

static const body_part choice_parts[] = {
    open_part,
    wefti_api_echo_part,
    wefti_api_text_part,
    logprobs_part,
    tokens_part,
    values_part,
    top_part,
    offsets_part,
    wefti_api_openai_finish_part,
    wefti_api_lp_prompt_part,
    wefti_api_ids_prompt_part,
    wefti_api_ids_output_part,
    wefti_api_openai_close_part,
    NULL,
};

static const body_part end_parts[] = {
    wefti_api_openai_close_part,
    wefti_api_openai_usage_part,
    NULL,
};

/* ---------------------------------------------------------------------------------- streams --- */

static bool open_chunk_part(const struct body_piece *at) {
    wefti_api_openai_open_chunk(at->call, OBJECT, at->w);
    weft_write_map(at->w);
    weft_write_key(at->w, "index");
    weft_write_uint(at->w, at->choice->index);
    weft_write_key(at->w, "text");
    weft_write_str(at->w, "");
    weft_write_key(at->w, "logprobs");
    weft_write_null(at->w);
    wefti_api_openai_finish(at->choice, false, at->w);
    return true;
}

static bool close_chunk_part(const struct body_piece *at) {
    weft_write_key(at->w, "token_ids");
    weft_write_list(at->w);
    weft_write_end(at->w);
    weft_write_end(at->w);
    wefti_api_openai_close_chunk(at->call, at->w);
    return true;
}

static const body_part ids_parts[] = {
    open_chunk_part,
    wefti_api_ids_prompt_part,
    close_chunk_part,
    NULL,
};

static void write_chunk_logprobs(const struct render_chunk *chunk, struct weft_writer *w) {
    wefti_api_lp_lists(chunk->choice, chunk->from, chunk->to, w);
}

static void write_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    weft_api_call *call = chunk->choice->job->call;
    wefti_api_openai_open_chunk(call, OBJECT, w);
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, chunk->choice->index);
    weft_write_key(w, "text");
    weft_write_text(w, chunk->text, chunk->text_len);
    wefti_api_render_chunk_logprobs(chunk, w);
    wefti_api_openai_finish(chunk->choice, chunk->is_last, w);
    wefti_api_ids_of_chunk(chunk, w);
    weft_write_end(w);
    wefti_api_openai_close_chunk(call, w);
}

static bool end_stream(weft_api_call *call, struct weft_buf *out, size_t limit) {
    (void)limit; /* they are short */
    wefti_api_openai_end_stream(call, OBJECT, out);
    return true;
}

const struct weft_api_kind wefti_api_kind_completion = {
    .path = "/v1/completions",
    .rpc_method = "generate",
    .id_prefix = "cmpl",
    .prompt_field = "prompt",
    .logprobs_field = "logprobs",
    .generates = true,
    .takes_suffix = true,
    .framing = &wefti_api_framing_sse,
    .parse = parse,
    .open_body = open_body,
    .choice_parts = choice_parts,
    .end_parts = end_parts,
    .ids_parts = ids_parts,
    .write_chunk = write_chunk,
    .write_chunk_logprobs = write_chunk_logprobs,
    .end_stream = end_stream,
};
