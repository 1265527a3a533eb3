/* POST /v1/chat/completions and "chat": OpenAI's chat completions with vLLM's fields. */
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "kinds/openai.h"
#include "params/params_internal.h"
#include "render/choice_text.h"
#include "render/logprobs.h"
#include "render/message.h"
#include "render/render.h"
#include "render/token_ids.h"

#define OBJECT "chat.completion"
#define CHUNK_OBJECT "chat.completion.chunk"

/* ---------------------------------------------------------------------------------- parsing --- */

/* vLLM's: the last message goes before the answer, if it is of the one who answers. That is the assistant,
 * or without a generation prompt whoever spoke last. */
static void read_echo(const struct reader *r, struct params *params) {
    bool is_wanted = false;
    const json_t *messages = json_object_get(params->chat.vars, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    wefti_api_json_get_bool(r, "echo", &is_wanted);
    if (!is_wanted || !wefti_api_json_ok(r)) return;
    if (params->add_generation_prompt &&
        !wefti_api_json_is_text(json_object_get(last, "role"), "assistant"))
        return;
    size_t len = json_string_length(content);
    if (len == 0) return;
    struct prompt *prompt = &params->prompts[0];
    prompt->echo = malloc(len);
    if (!prompt->echo) {
        weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
        return;
    }
    memcpy(prompt->echo, json_string_value(content), len);
    prompt->text_len = len;
}

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    int64_t usual = limits->defaults.max_new_tokens;
    params->is_open_ended = true;
    if (usual > 0) params->usual_max_tokens = usual < UINT32_MAX ? (uint32_t)usual : UINT32_MAX;
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_read_messages(r, params);
    wefti_api_params_read_encoding(r, params);
    wefti_api_params_read_tools(r, params);
    wefti_api_params_read_template(r, params);
    wefti_api_params_read_continuation(r, params);
    wefti_api_params_read_stream(r, params);
    read_echo(r, params);
    wefti_api_params_read_output(r, params);
    wefti_api_params_read_sampling(r, limits, params);
    wefti_api_params_read_grammar(r, params);
    wefti_api_params_read_stops(r, "stop", params);
    wefti_api_params_read_stop_tokens(r, limits, params);
    int64_t n_logprobs = wefti_api_params_read_chat_logprobs(r, limits);
    wefti_api_params_read_logprobs(r, limits, n_logprobs, params);
    wefti_api_params_read_choices(r, params);
    (void)wefti_api_params_read_beams(r, params);
    wefti_api_params_read_max_tokens(r, "max_tokens", params);
    wefti_api_params_read_max_tokens(r, "max_completion_tokens", params);
    wefti_api_params_read_llama_names(r, params);
}

/* --------------------------------------------------------------------------------- the body --- */

static void open_body(weft_api_call *call, struct weft_writer *w) {
    wefti_api_openai_open(call, OBJECT, w);
}

static bool open_part(const struct body_piece *at) {
    weft_write_map(at->w);
    weft_write_key(at->w, "index");
    weft_write_uint(at->w, at->choice->index);
    weft_write_key(at->w, "message");
    weft_write_map(at->w);
    weft_write_key(at->w, "role");
    weft_write_str(at->w, "assistant");
    return true;
}

static bool echo_part(const struct body_piece *at) {
    if (!at->choice->job->prompt->echo) return true;
    if (at->call->render.pos == 0) wefti_api_open_text(at, "content");
    return wefti_api_echo_part(at);
}

static bool content_part(const struct body_piece *at) {
    return wefti_api_kind_part(at, WEFT_MSG_CONTENT, "content", false);
}

static bool reasoning_content_part(const struct body_piece *at) {
    return wefti_api_kind_part(at, WEFT_MSG_THOUGHT, "reasoning_content", true);
}

static bool reasoning_part(const struct body_piece *at) {
    return wefti_api_kind_part(at, WEFT_MSG_THOUGHT, "reasoning", true);
}

static void open_call(const struct choice *choice, uint32_t call, struct weft_str id,
                      struct weft_str name, struct weft_writer *w) {
    (void)choice;
    (void)call;
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_text(w, id.data, id.len);
    weft_write_key(w, "type");
    weft_write_str(w, "function");
    weft_write_key(w, "function");
    weft_write_map(w);
    weft_write_key(w, "name");
    weft_write_text(w, name.data, name.len);
    weft_write_key(w, "arguments");
    weft_write_text_open(w);
}

static void close_call(struct weft_writer *w) {
    weft_write_end(w);
    weft_write_end(w);
}

static bool open_calls_part(const struct body_piece *at) {
    if (at->choice->n_calls == 0) return true;
    weft_write_key(at->w, "tool_calls");
    weft_write_list(at->w);
    return true;
}

static bool calls_part(const struct body_piece *at) {
    static const struct call_writer writer = {open_call, close_call, "call_"};
    return wefti_api_calls_part(at, &writer);
}

static bool close_calls_part(const struct body_piece *at) {
    if (at->choice->n_calls > 0) weft_write_end(at->w);
    return true;
}

static bool logprobs_part(const struct body_piece *at) {
    weft_write_end(at->w); /* the message */
    weft_write_key(at->w, "logprobs");
    if (at->call->params.logprobs < 0)
        weft_write_null(at->w);
    else
        weft_write_map(at->w);
    return true;
}

static bool tokens_part(const struct body_piece *at) {
    if (at->call->params.logprobs < 0) return true;
    uint32_t n = wefti_api_seq_len(at->choice);
    if (!wefti_api_render_list(at, "content", n, wefti_api_lp_chat_item)) return false;
    weft_write_end(at->w);
    return true;
}

static const body_part choice_parts[] = {
    open_part,
    echo_part,
    content_part,
    reasoning_content_part,
    reasoning_part,
    open_calls_part,
    calls_part,
    close_calls_part,
    logprobs_part,
    tokens_part,
    wefti_api_openai_finish_part,
    wefti_api_ids_output_part,
    wefti_api_openai_close_part,
    NULL,
};

static const body_part end_parts[] = {
    wefti_api_openai_close_part,
    wefti_api_lp_prompt_part,
    wefti_api_ids_prompt_part,
    wefti_api_openai_usage_part,
    NULL,
};

/* ---------------------------------------------------------------------------------- streams --- */

static void write_role(const struct choice *choice, struct weft_writer *w) {
    wefti_api_openai_open_chunk(choice->job->call, CHUNK_OBJECT, w);
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, choice->index);
    weft_write_key(w, "delta");
    weft_write_map(w);
    weft_write_key(w, "role");
    weft_write_str(w, "assistant");
    weft_write_key(w, "content");
    weft_write_str(w, "");
    weft_write_end(w);
    weft_write_key(w, "logprobs");
    weft_write_null(w);
    wefti_api_openai_finish(choice, false, w);
    weft_write_end(w);
}

static void open_choice(struct choice *choice, struct weft_writer *w) {
    write_role(choice, w);
    wefti_api_openai_close_chunk(choice->job->call, w);
}

static bool role_part(const struct body_piece *at) {
    write_role(at->choice, at->w);
    return true;
}

static bool chunk_end_part(const struct body_piece *at) {
    wefti_api_openai_end_chunk(at->call, at->w);
    return true;
}

static const body_part ids_parts[] = {
    role_part, wefti_api_openai_close_part, wefti_api_ids_prompt_part, chunk_end_part, NULL,
};

static void write_chunk_logprobs(const struct render_chunk *chunk, struct weft_writer *w) {
    wefti_api_lp_chat(chunk->choice, chunk->from, chunk->to, w);
}

static void write_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    weft_api_call *call = chunk->choice->job->call;
    wefti_api_openai_open_chunk(call, CHUNK_OBJECT, w);
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, chunk->choice->index);
    weft_write_key(w, "delta");
    weft_write_map(w);
    bool is_told = wefti_api_write_kind(chunk->pieces, WEFT_MSG_THOUGHT, "reasoning_content", w);
    (void)wefti_api_write_kind(chunk->pieces, WEFT_MSG_THOUGHT, "reasoning", w);
    is_told = wefti_api_write_kind(chunk->pieces, WEFT_MSG_CONTENT, "content", w) || is_told;
    is_told = wefti_api_write_calls(chunk->choice, chunk->pieces, w) || is_told;
    if (!is_told && !chunk->is_last) {
        weft_write_key(w, "content");
        weft_write_str(w, "");
    }
    weft_write_end(w);
    wefti_api_render_chunk_logprobs(chunk, w);
    wefti_api_openai_finish(chunk->choice, chunk->is_last, w);
    wefti_api_ids_of_chunk(chunk, w);
    weft_write_end(w);
    wefti_api_openai_close_chunk(call, w);
}

static bool end_stream(weft_api_call *call, struct weft_buf *out, size_t limit) {
    (void)limit; /* they are short */
    wefti_api_openai_end_stream(call, CHUNK_OBJECT, out);
    return true;
}

const struct weft_api_kind wefti_api_kind_chat = {
    .path = "/v1/chat/completions",
    .rpc_method = "chat",
    .id_prefix = "chatcmpl",
    .prompt_field = "messages",
    .logprobs_field = "top_logprobs",
    .generates = true,
    .framing = &wefti_api_framing_sse,
    .names_any_token = true,
    .tells_messages = true,
    .parse = parse,
    .open_body = open_body,
    .choice_parts = choice_parts,
    .end_parts = end_parts,
    .open_choice = open_choice,
    .ids_parts = ids_parts,
    .write_chunk = write_chunk,
    .write_chunk_logprobs = write_chunk_logprobs,
    .end_stream = end_stream,
};
