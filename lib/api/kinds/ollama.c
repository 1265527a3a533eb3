/* POST /api/generate and /api/chat: ollama's own endpoints, with its names of fields.
 *
 * Both answer with one object, or a line for each piece of text and then an object with the facts,
 * which is the answer without its text: so it is written by the parts of the body. A request
 * without a prompt only asks whether the model is there. */
#include <math.h>
#include <string.h>

#include "answers/rfc3339.h"
#include "base/check.h"
#include "call/call_internal.h"
#include "kinds/kind.h"
#include "params/params_internal.h"
#include "render/choice_text.h"
#include "render/logprobs.h"
#include "render/render.h"

/* ---------------------------------------------------------------------------------- parsing --- */

static const struct refused_field refused[] = {
    {"template", IF_EMPTY}, {"context", IF_EMPTY}, {"images", IF_EMPTY},
    {"think", IF_FALSE},    {NULL, IF_NULL},
};

/* About the machine and the memory, which are settings of the server here. */
static const char *const ignored_options[] = {
    "numa",     "num_ctx",        "num_batch",        "num_gpu",  "main_gpu",  "low_vram",
    "f16_kv",   "logits_all",     "vocab_only",       "use_mmap", "use_mlock", "num_thread",
    "num_keep", "embedding_only", "penalize_newline", NULL,
};

/* ollama's defaults, where generation_config.json is silent. */
static struct weft_gen_defaults with_defaults(struct weft_gen_defaults d) {
    if (isnan(d.temperature)) d.temperature = 0.8;
    if (isnan(d.top_p)) d.top_p = 0.9;
    if (d.top_k < 0) d.top_k = 40;
    return d;
}

/* Not so many where the context ends before; 0 and less: until then. */
static void read_num_predict(const struct reader *r, const struct weft_api_limits *limits,
                             struct params *params) {
    int64_t usual = limits->defaults.max_new_tokens, n = usual > 0 ? usual : -1;
    wefti_api_json_get_int(r, "num_predict", -2, INT32_MAX, &n);
    params->is_open_ended = n <= 0;
    if (n > 0) params->usual_max_tokens = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static void read_options(const struct reader *r, const struct weft_api_limits *limits,
                         struct params *params) {
    struct weft_api_limits own = *limits;
    struct fields_known known;
    json_t *value = wefti_api_json_get(r, "options");
    const struct reader inner = wefti_api_json_within(r, value, &known);
    own.defaults = with_defaults(limits->defaults);
    if (value && !json_is_object(value))
        wefti_api_json_wrong_type(r, "options", "an object", value);
    wefti_api_params_read_sampling(&inner, &own, params);
    wefti_api_params_read_penalties(&inner, params);
    wefti_api_params_read_stops(&inner, "stop", params);
    wefti_api_params_read_stop_tokens(&inner, limits, params);
    read_num_predict(&inner, limits, params);
    for (size_t i = 0; ignored_options[i]; i++)
        wefti_api_json_note(&inner, ignored_options[i]);
    wefti_api_json_look_for_unknown(&inner, "options.");
}

static void read_shared(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    params->stream = true;
    params->n = 1;
    wefti_api_json_note(r, "keep_alive");
    wefti_api_json_get_bool(r, "stream", &params->stream);
    read_options(r, limits, params);
    wefti_api_params_read_grammar(r, params);
    wefti_api_params_read_ollama_format(r, params);
    int64_t n_logprobs = wefti_api_params_read_chat_logprobs(r, limits);
    wefti_api_params_read_logprobs(r, limits, n_logprobs, params);
}

static void parse_generate(const struct reader *r, const struct weft_api_limits *limits,
                           struct params *params) {
    bool is_raw = false;
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_refuse_beams(r);
    wefti_api_params_refuse_chat(r);
    wefti_api_params_refuse(r, refused);
    wefti_api_json_get_bool(r, "raw", &is_raw);
    if (is_raw) {
        params->add_special = true;
        wefti_api_json_note(r, "system");
        (void)wefti_api_params_read_text(r, "prompt", params);
    } else {
        wefti_api_params_read_question(r, params);
    }
    read_shared(r, limits, params);
}

static void parse_chat(const struct reader *r, const struct weft_api_limits *limits,
                       struct params *params) {
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_refuse_beams(r);
    wefti_api_params_refuse_chat(r);
    wefti_api_params_refuse(r, refused);
    if (!wefti_api_params_is_absent(wefti_api_json_get(r, "messages")))
        wefti_api_params_read_messages(r, params);
    read_shared(r, limits, params);
}

/* --------------------------------------------------------------------------------- the body --- */

static void open_object(const weft_api_call *call, struct weft_writer *w) {
    char time[WEFTI_API_TIME_BYTES];
    wefti_api_time(call->created_s, time);
    weft_write_map(w);
    weft_write_key(w, "model");
    weft_write_str(w, call->model_name);
    weft_write_key(w, "created_at");
    weft_write_str(w, time);
}

static void open_body(weft_api_call *call, struct weft_writer *w) {
    open_object(call, w);
}

static void open_message(struct weft_writer *w) {
    weft_write_key(w, "message");
    weft_write_map(w);
    weft_write_key(w, "role");
    weft_write_str(w, "assistant");
    weft_write_key(w, "content");
}

/* The text of a stream has been sent. */
static void open_text(const struct body_piece *at) {
    if (at->call->params.stream) {
        weft_write_str(at->w, "");
        return;
    }
    wefti_api_text_begin(at->choice);
    weft_write_text_open(at->w);
}

static bool open_response_part(const struct body_piece *at) {
    weft_write_key(at->w, "response");
    open_text(at);
    return true;
}

static bool open_message_part(const struct body_piece *at) {
    open_message(at->w);
    open_text(at);
    return true;
}

static bool text_part(const struct body_piece *at) {
    return at->call->params.stream || wefti_api_text_part(at);
}

static bool close_message_part(const struct body_piece *at) {
    weft_write_end(at->w);
    return true;
}

static bool logprobs_part(const struct body_piece *at) {
    if (at->call->params.logprobs < 0 || at->call->params.stream) return true;
    return wefti_api_render_list(at, "logprobs", wefti_api_seq_len(at->choice),
                                 wefti_api_lp_chat_item);
}

static void write_done(struct weft_writer *w, const char *reason) {
    weft_write_key(w, "done");
    weft_write_bool(w, true);
    weft_write_key(w, "done_reason");
    weft_write_str(w, reason);
}

static void write_ns(struct weft_writer *w, const char *key, uint64_t us) {
    weft_write_key(w, key);
    weft_write_uint(w, us * 1000);
}

/* The prompt's time ends with the first token, and leaves out what the request waited for a
 * place. */
static bool facts_part(const struct body_piece *at) {
    const struct choice *choice = at->choice;
    const weft_api_call *call = at->call;
    uint64_t begun_us = call->arrived_us + choice->job->queued_us, first_us = choice->first_us;
    WEFT_ASSERT(choice->last_us >= first_us && choice->end != WEFT_END_NONE);
    write_done(at->w, choice->end == WEFT_END_LENGTH ? "length" : "stop");
    write_ns(at->w, "total_duration",
             choice->last_us > call->arrived_us ? choice->last_us - call->arrived_us : 0);
    write_ns(at->w, "load_duration", 0);
    weft_write_key(at->w, "prompt_eval_count");
    weft_write_uint(at->w, wefti_api_prompt_tokens(call));
    write_ns(at->w, "prompt_eval_duration", first_us > begun_us ? first_us - begun_us : 0);
    weft_write_key(at->w, "eval_count");
    weft_write_uint(at->w, choice->n_tokens);
    write_ns(at->w, "eval_duration", choice->last_us - first_us);
    return true;
}

static bool end_response_part(const struct body_piece *at) {
    if (at->call->n_choices == 0) { /* nothing was asked for */
        weft_write_key(at->w, "response");
        weft_write_str(at->w, "");
        write_done(at->w, "load");
    }
    weft_write_end(at->w);
    return true;
}

static bool end_message_part(const struct body_piece *at) {
    if (at->call->n_choices == 0) {
        open_message(at->w);
        weft_write_str(at->w, "");
        weft_write_end(at->w);
        write_done(at->w, "load");
    }
    weft_write_end(at->w);
    return true;
}

/* ---------------------------------------------------------------------------------- streams --- */

static void close_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    const struct body_piece at = {
        .call = chunk->choice->job->call, .choice = chunk->choice, .w = w};
    weft_write_key(w, "done");
    weft_write_bool(w, false);
    if (at.call->params.logprobs >= 0 && chunk->from < chunk->to) {
        weft_write_key(w, "logprobs");
        weft_write_list(w);
        for (uint32_t pos = chunk->from; pos < chunk->to; pos++)
            wefti_api_lp_chat_item(&at, pos);
        weft_write_end(w);
    }
    weft_write_end(w);
}

static void write_response_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    open_object(chunk->choice->job->call, w);
    weft_write_key(w, "response");
    weft_write_text(w, chunk->text, chunk->text_len);
    close_chunk(chunk, w);
}

static void write_message_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    open_object(chunk->choice->job->call, w);
    open_message(w);
    weft_write_text(w, chunk->text, chunk->text_len);
    weft_write_end(w);
    close_chunk(chunk, w);
}

static const body_part response_parts[] = {
    open_response_part, text_part, logprobs_part, facts_part, NULL,
};
static const body_part end_response_parts[] = {end_response_part, NULL};

static const body_part message_parts[] = {
    open_message_part, text_part, close_message_part, logprobs_part, facts_part, NULL,
};
static const body_part end_message_parts[] = {end_message_part, NULL};

const struct weft_api_kind wefti_api_kind_ollama_generate = {
    .path = "/api/generate",
    .id_prefix = "gen",
    .prompt_field = "prompt",
    .logprobs_field = "top_logprobs",
    .generates = true,
    .names_any_token = true,
    .takes_tags = true,
    .framing = &wefti_api_framing_lines,
    .parse = parse_generate,
    .open_body = open_body,
    .choice_parts = response_parts,
    .end_parts = end_response_parts,
    .write_chunk = write_response_chunk,
    .end_stream = wefti_api_render_end_with_body,
};

const struct weft_api_kind wefti_api_kind_ollama_chat = {
    .path = "/api/chat",
    .id_prefix = "chat",
    .prompt_field = "messages",
    .logprobs_field = "top_logprobs",
    .generates = true,
    .names_any_token = true,
    .takes_tags = true,
    .framing = &wefti_api_framing_lines,
    .parse = parse_chat,
    .open_body = open_body,
    .choice_parts = message_parts,
    .end_parts = end_message_parts,
    .write_chunk = write_message_chunk,
    .end_stream = wefti_api_render_end_with_body,
};
