/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API. Streams are in messages_stream.c.
 *
 * The input of a call is an object within the answer, and not a text: so a body reads its choice once more, before it
 * writes any of it, to learn of which calls the arguments are whole. One that max_tokens has cut
 * off has the input {}. */
#include "kinds/messages.h"

#include <string.h>

#include "base/check.h"
#include "codec/json_check.h"
#include "params/params_internal.h"
#include "render/choice_text.h"

#define COUNT_TOKENS_MAX (1u << 20) /* as /tokenize */

/* ---------------------------------------------------------------------------------- parsing --- */

/* An upper bound: not so many where the context ends before. */
static void read_max_tokens(const struct reader *r, struct params *params) {
    int64_t n = 0;
    if (!wefti_api_json_get_int(r, "max_tokens", 1, INT32_MAX, &n) && wefti_api_json_ok(r))
        weft_api_error_set(r->error, 400, "max_tokens", "missing_required_parameter",
                           "you must provide a 'max_tokens' parameter");
    params->is_open_ended = true;
    params->usual_max_tokens = (uint32_t)n;
}

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    params->n = 1;
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_refuse_beams(r);
    wefti_api_params_read_anthropic(r, params);
    read_max_tokens(r, params);
    wefti_api_json_get_bool(r, "stream", &params->stream);
    wefti_api_params_read_sampling(r, limits, params);
    wefti_api_params_read_anthropic_answer(r, limits, params);
    wefti_api_params_read_stops(r, "stop_sequences", params);
    wefti_api_params_read_stop_tokens(r, limits, params);
}

/* ----------------------------------------------------------------------------------- blocks --- */

bool wefti_api_messages_begins(struct choice *choice, const struct message_piece *piece) {
    const struct block_view *blocks = &choice->view.blocks;
    if (piece->kind == WEFT_MSG_CALL) return true;
    if (piece->kind == WEFT_MSG_ARGUMENTS || piece->len == 0) return false;
    return !blocks->is_open || blocks->kind != piece->kind;
}

void wefti_api_messages_note(struct choice *choice, const struct message_pieces *pieces,
                             const struct message_piece *piece) {
    struct block_view *blocks = &choice->view.blocks;
    if (piece->kind == WEFT_MSG_ARGUMENTS && piece->len > 0)
        weft_json_check_more(&blocks->check, wefti_api_piece_text(pieces, piece), piece->len);
    if (!wefti_api_messages_begins(choice, piece)) return;
    WEFT_ASSERT(!blocks->is_open);
    blocks->n++;
    blocks->is_open = true;
    blocks->kind = piece->kind;
    blocks->check = (struct weft_json_check){0};
    blocks->n_calls += piece->kind == WEFT_MSG_CALL;
}

void wefti_api_messages_close(struct choice *choice) {
    struct block_view *blocks = &choice->view.blocks;
    bool is_call = blocks->is_open && blocks->kind == WEFT_MSG_CALL;
    if (is_call && blocks->n_whole + 1 == blocks->n_calls &&
        weft_json_check_is_whole(&blocks->check))
        blocks->n_whole++;
    blocks->is_open = false;
    choice->n_whole_calls = blocks->n_whole;
}

void wefti_api_messages_block(const struct choice *choice, const struct message_pieces *pieces,
                              const struct message_piece *piece, struct weft_writer *w) {
    static const char *const types[] = {
        [WEFT_MSG_THOUGHT] = "thinking", [WEFT_MSG_CONTENT] = "text", [WEFT_MSG_CALL] = "tool_use"};
    char storage[WEFTI_API_CALL_ID_BYTES];
    weft_write_key(w, "type");
    weft_write_str(w, types[piece->kind]);
    if (piece->kind != WEFT_MSG_CALL) return;
    struct weft_str id = wefti_api_call_id(choice, pieces, piece, "toolu_", storage);
    weft_write_key(w, "id");
    weft_write_text(w, id.data, id.len);
    weft_write_key(w, "name");
    weft_write_text(w, wefti_api_piece_text(pieces, piece), piece->len);
}

/* ------------------------------------------------------------------------------------ facts --- */

void wefti_api_messages_head(const weft_api_call *call, struct weft_writer *w) {
    weft_write_key(w, "id");
    weft_write_str(w, call->id);
    weft_write_key(w, "type");
    weft_write_str(w, "message");
    weft_write_key(w, "role");
    weft_write_str(w, "assistant");
    weft_write_key(w, "model");
    weft_write_str(w, call->model_name);
    weft_write_key(w, "content");
    weft_write_list(w);
}

/* Calls are made only where all of them are whole. */
static const char *stop_reason(const struct choice *choice) {
    const struct params *p = &choice->job->call->params;
    if (choice->end == WEFT_END_LENGTH)
        return p->sampling.max_tokens < p->usual_max_tokens ? "model_context_window_exceeded"
                                                            : "max_tokens";
    if (choice->n_calls > 0 && choice->n_whole_calls == choice->n_calls) return "tool_use";
    return choice->end == WEFT_END_STOP_STRING ? "stop_sequence" : "end_turn";
}

void wefti_api_messages_stop(const struct choice *choice, struct weft_writer *w) {
    const char *reason = choice ? stop_reason(choice) : NULL;
    weft_write_key(w, "stop_reason");
    if (reason)
        weft_write_str(w, reason);
    else
        weft_write_null(w);
    weft_write_key(w, "stop_sequence");
    if (reason && strcmp(reason, "stop_sequence") == 0) {
        const struct params *p = &choice->job->call->params;
        weft_write_text(w, p->stops[choice->stop_idx], p->stop_lens[choice->stop_idx]);
    } else {
        weft_write_null(w);
    }
}

/* Tokens read from the cache are none of the input's, as Anthropic counts. */
void wefti_api_messages_usage(const weft_api_call *call, uint64_t n_output, struct weft_writer *w) {
    uint32_t n_prompt = wefti_api_prompt_tokens(call), n_cached = wefti_api_cached_tokens(call);
    weft_write_key(w, "usage");
    weft_write_map(w);
    weft_write_key(w, "input_tokens");
    weft_write_uint(w, n_prompt > n_cached ? n_prompt - n_cached : 0);
    weft_write_key(w, "cache_creation_input_tokens");
    weft_write_uint(w, 0);
    weft_write_key(w, "cache_read_input_tokens");
    weft_write_uint(w, n_cached);
    weft_write_key(w, "output_tokens");
    weft_write_uint(w, n_output);
    weft_write_key(w, "output_tokens_details");
    weft_write_map(w);
    weft_write_key(w, "thinking_tokens");
    weft_write_uint(w, wefti_api_thought_tokens(call));
    weft_write_end(w);
    weft_write_end(w);
}

/* --------------------------------------------------------------------------------- the body --- */

static void open_body(weft_api_call *call, struct weft_writer *w) {
    weft_write_map(w);
    wefti_api_messages_head(call, w);
}

/* True: read to the end; each piece is given to `tell`. */
static bool read_pieces(const struct body_piece *at,
                        void (*tell)(const struct body_piece *at,
                                     const struct message_pieces *pieces,
                                     const struct message_piece *piece)) {
    struct message_pieces pieces;
    wefti_api_pieces_init(&pieces);
    bool is_done = wefti_api_message_read(at, &pieces);
    for (uint32_t i = 0; i < pieces.n; i++)
        tell(at, &pieces, &pieces.list[i]);
    if (pieces.failed || pieces.text.failed) at->w->out->failed = true;
    wefti_api_pieces_fini(&pieces);
    return is_done;
}

static void check_piece(const struct body_piece *at, const struct message_pieces *pieces,
                        const struct message_piece *piece) {
    if (wefti_api_messages_begins(at->choice, piece)) wefti_api_messages_close(at->choice);
    wefti_api_messages_note(at->choice, pieces, piece);
}

static bool check_part(const struct body_piece *at) {
    if (!at->call->params.chat.tools) return true;
    if (!read_pieces(at, check_piece)) return false;
    wefti_api_messages_close(at->choice);
    return true;
}

/* `n_whole` is of the pass before. */
static bool is_whole_call(const struct choice *choice) {
    return choice->view.blocks.n_calls <= choice->n_whole_calls;
}

static void close_block(const struct body_piece *at) {
    const struct block_view *blocks = &at->choice->view.blocks;
    uint32_t n_whole = at->choice->n_whole_calls;
    if (!blocks->is_open) return;
    if (blocks->kind != WEFT_MSG_CALL)
        weft_write_text_close(at->w);
    else if (is_whole_call(at->choice))
        weft_write_json_close(at->w);
    if (blocks->kind == WEFT_MSG_THOUGHT) {
        weft_write_key(at->w, "signature");
        weft_write_str(at->w, "");
    }
    weft_write_end(at->w);
    wefti_api_messages_close(at->choice);
    at->choice->n_whole_calls = n_whole;
}

static void open_block(const struct body_piece *at, const struct message_pieces *pieces,
                       const struct message_piece *piece) {
    static const char *const keys[] = {
        [WEFT_MSG_THOUGHT] = "thinking", [WEFT_MSG_CONTENT] = "text", [WEFT_MSG_CALL] = "input"};
    weft_write_map(at->w);
    wefti_api_messages_block(at->choice, pieces, piece, at->w);
    weft_write_key(at->w, keys[piece->kind]);
    if (piece->kind != WEFT_MSG_CALL) {
        weft_write_text_open(at->w);
    } else if (is_whole_call(at->choice)) {
        weft_write_json_open(at->w);
    } else {
        weft_write_map(at->w);
        weft_write_end(at->w);
    }
}

static void write_piece(const struct body_piece *at, const struct message_pieces *pieces,
                        const struct message_piece *piece) {
    struct choice *choice = at->choice;
    const char *text = wefti_api_piece_text(pieces, piece);
    bool begins = wefti_api_messages_begins(choice, piece);
    if (begins) close_block(at);
    wefti_api_messages_note(choice, pieces, piece);
    if (begins) open_block(at, pieces, piece);
    if (piece->len == 0 || piece->kind == WEFT_MSG_CALL) return;
    if (piece->kind != WEFT_MSG_ARGUMENTS)
        weft_write_text_more(at->w, text, piece->len);
    else if (is_whole_call(choice))
        weft_write_json_more(at->w, text, piece->len);
}

static bool content_part(const struct body_piece *at) {
    if (!read_pieces(at, write_piece)) return false;
    close_block(at);
    weft_write_end(at->w);
    return true;
}

static bool facts_part(const struct body_piece *at) {
    wefti_api_messages_stop(at->choice, at->w);
    wefti_api_messages_usage(at->call, wefti_api_output_tokens(at->call), at->w);
    return true;
}

static bool close_part(const struct body_piece *at) {
    weft_write_end(at->w);
    return true;
}

static const body_part choice_parts[] = {check_part, content_part, facts_part, NULL};
static const body_part end_parts[] = {close_part, NULL};

const struct weft_api_kind wefti_api_kind_messages = {
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .logprobs_field = "logprobs",
    .generates = true,
    .tells_messages = true,
    .parse = parse,
    .open_body = open_body,
    .choice_parts = choice_parts,
    .end_parts = end_parts,
    .framing = &wefti_api_messages_framing,
    .open_choice = wefti_api_messages_open_stream,
    .write_chunk = wefti_api_messages_chunk,
    .end_stream = wefti_api_messages_end_stream,
    .fail_stream = wefti_api_messages_fail_stream,
};

/* ----------------------------------------------------------------------------- count_tokens --- */

static void parse_count(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    (void)limits;
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_refuse_beams(r);
    wefti_api_params_read_anthropic(r, params);
}

static void open_count(weft_api_call *call, struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "input_tokens");
    weft_write_uint(w, call->params.prompts[0].n_ids);
}

static const body_part no_parts[] = {NULL};

const struct weft_api_kind wefti_api_kind_count_tokens = {
    .path = "/v1/messages/count_tokens",
    .id_prefix = "count_",
    .prompt_field = "messages",
    .prompt_tokens_max = COUNT_TOKENS_MAX,
    .parse = parse_count,
    .open_body = open_count,
    .choice_parts = no_parts,
    .end_parts = end_parts,
};
