/* POST /v1/responses: OpenAI's Responses. The stream is in responses_stream.c. */
#include "kinds/responses.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "codec/digest.h"
#include "params/params_internal.h"
#include "render/logprobs.h"
#include "render/render.h"
#include "store/store.h"

#define FIELD_BYTES_PER_PIECE 16384

/* ------------------------------------------------------------------------------------ state --- */

struct response_state *wefti_api_response_state(weft_api_call *call) {
    if (!call->kind_state) call->kind_state = calloc(1, sizeof(struct response_state));
    return call->kind_state;
}

static void free_state(weft_api_call *call) {
    struct response_state *state = call->kind_state;
    for (uint32_t i = 0; state && i < N_READERS; i++)
        wefti_api_items_fini(&state->readers[i]);
    free(state);
    call->kind_state = NULL;
}

static void rewind_body(struct response_state *state) {
    wefti_api_items_fini(&state->readers[TELLS_BODY]);
    state->body_item = (struct item){0};
    state->n_body_items = state->n_body_told = 0;
}

/* ----------------------------------------------------------------------------------- keeping --- */

/* The response without the request's fields, which are large where the request was and end the body. */
static json_t *response_in(const weft_api_call *call, const struct weft_buf *body) {
    struct weft_buf text;
    size_t n_fields = call->params.n_answer_fields;
    if (n_fields) n_fields++; /* the comma */
    WEFT_ASSERT(body->len > n_fields);
    weft_buf_init(&text, body->max_bytes);
    weft_buf_add(&text, body->data, body->len - 1 - n_fields);
    weft_buf_add_char(&text, '}');
    json_t *response = text.failed ? NULL : json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
    weft_buf_fini(&text);
    return response;
}

/* The conversation with what came out of it. Its text may have megabytes, so it is not read once more: the event loop
 * waits for this. */
static void add_items(const weft_api_call *call, const struct weft_buf *body,
                      struct weft_buf *out) {
    const struct params *p = &call->params;
    json_t *response = response_in(call, body);
    const json_t *output = json_object_get(response, "output");
    char *text = json_is_array(output) ? json_dumps(output, JSON_COMPACT) : NULL;
    WEFT_ASSERT(p->n_kept_items > 2 && p->kept_items[p->n_kept_items - 1] == ']');
    weft_buf_add(out, p->kept_items, p->n_kept_items - 1);
    if (text && json_array_size(output) > 0) {
        weft_buf_add_char(out, ',');
        weft_buf_add(out, text + 1, strlen(text) - 2);
    }
    weft_buf_add_char(out, ']');
    if (!text) out->failed = true;
    free(text);
    json_decref(response);
}

static void keep_body(weft_api_call *call, const struct weft_buf *body) {
    struct weft_buf items;
    weft_buf_init(&items, body->max_bytes); /* the store takes no more */
    add_items(call, body, &items);
    const struct kept_response kept = {
        .tenant = call->asker.tenant,
        .id = {call->id, strlen(call->id)},
        .response = {body->data, body->len},
        .items = {items.data, items.len},
    };
    if (!items.failed)
        (void)wefti_api_store_put(call->api->store, &kept, call->choices[0].last_us / 1000);
    weft_buf_fini(&items);
}

/* The body is made for the store before its first byte is: a client that has it can go on with it. */
static void keep(weft_api_call *call, struct response_state *state) {
    struct render rendered = call->render;
    struct weft_buf body;
    if (!call->params.kept_items || !call->api->store || state->is_kept) return;
    state->is_kept = true;
    weft_buf_init(&body, (size_t)wefti_api_store_figures(call->api->store).bytes_max);
    wefti_api_render_rewind(call);
    enum weft_api_render status = weft_api_render_body(call, &body, SIZE_MAX / 2);
    if (status == WEFT_API_RENDER_DONE && !body.failed) keep_body(call, &body);
    weft_buf_fini(&body);
    call->render = rendered;
}

/* --------------------------------------------------------------------------------- the object --- */

static bool is_cut(const weft_api_call *call) {
    return call->choices[0].end == WEFT_END_LENGTH;
}

static void write_incomplete(const weft_api_call *call, bool is_complete, struct weft_writer *w) {
    weft_write_key(w, "incomplete_details");
    if (!is_complete || !is_cut(call)) {
        weft_write_null(w);
        return;
    }
    weft_write_map(w);
    weft_write_key(w, "reason");
    weft_write_str(w, "max_output_tokens");
    weft_write_end(w);
}

static void write_error(const weft_api_call *call, struct weft_writer *w) {
    const struct weft_api_error *error = &call->error;
    weft_write_key(w, "error");
    if (!error->status) {
        weft_write_null(w);
        return;
    }
    weft_write_map(w);
    weft_write_key(w, "code");
    weft_write_str(w, error->code ? error->code : weft_api_error_type(error->status));
    weft_write_key(w, "message");
    weft_write_str(w, error->message);
    weft_write_end(w);
}

void wefti_api_response_open(const weft_api_call *call, const char *status, struct weft_writer *w) {
    bool is_complete = !status;
    if (is_complete) status = is_cut(call) ? "incomplete" : "completed";
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, call->id);
    weft_write_key(w, "object");
    weft_write_str(w, "response");
    weft_write_key(w, "created_at");
    weft_write_int(w, call->created_s);
    weft_write_key(w, "status");
    weft_write_str(w, status);
    write_error(call, w);
    write_incomplete(call, is_complete, w);
    weft_write_key(w, "model");
    weft_write_str(w, call->model_name);
    weft_write_key(w, "output");
    weft_write_list(w);
}

static void write_details(const char *key, const char *of, uint64_t n, struct weft_writer *w) {
    weft_write_key(w, key);
    weft_write_map(w);
    weft_write_key(w, of);
    weft_write_uint(w, n);
    weft_write_end(w);
}

static void write_usage(const weft_api_call *call, bool has_usage, struct weft_writer *w) {
    uint64_t n_prompt = wefti_api_prompt_tokens(call), n_output = wefti_api_output_tokens(call);
    weft_write_key(w, "usage");
    if (!has_usage) {
        weft_write_null(w);
        return;
    }
    weft_write_map(w);
    weft_write_key(w, "input_tokens");
    weft_write_uint(w, n_prompt);
    write_details("input_tokens_details", "cached_tokens", wefti_api_cached_tokens(call), w);
    weft_write_key(w, "output_tokens");
    weft_write_uint(w, n_output);
    write_details("output_tokens_details", "reasoning_tokens", wefti_api_thought_tokens(call), w);
    weft_write_key(w, "total_tokens");
    weft_write_uint(w, n_prompt + n_output);
    weft_write_end(w);
}

/* As people write such numbers: 0.7 rather than the float's 0.699999988. */
static void write_setting(const char *key, float value, struct weft_writer *w) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.7g", (double)value);
    weft_write_key(w, key);
    weft_write_double(w, strtod(text, NULL));
}

void wefti_api_response_facts(const weft_api_call *call, bool has_usage, struct weft_writer *w) {
    const struct params *p = &call->params;
    write_usage(call, has_usage, w);
    write_setting("temperature", p->sampling.temperature, w);
    write_setting("top_p", p->sampling.top_p, w);
    weft_write_key(w, "max_output_tokens");
    if (p->has_max_tokens)
        weft_write_uint(w, p->sampling.max_tokens);
    else
        weft_write_null(w);
}

/* These members are text already: they go out as they are, and the map's end after them. */
bool wefti_api_response_fields_part(const struct body_piece *at) {
    struct render *r = &at->call->render;
    const struct params *p = &at->call->params;
    WEFT_ASSERT(at->w->format == WEFT_WRITE_JSON && r->pos <= p->n_answer_fields);
    while (r->pos < p->n_answer_fields) {
        size_t n = p->n_answer_fields - r->pos;
        if (n > FIELD_BYTES_PER_PIECE) n = FIELD_BYTES_PER_PIECE;
        if (r->pos == 0) weft_buf_add_char(at->w->out, ',');
        weft_buf_add(at->w->out, p->answer_fields + r->pos, n);
        r->pos += n;
        if (at->w->out->len >= at->limit && r->pos < p->n_answer_fields) return false;
    }
    weft_write_end(at->w);
    return true;
}

/* ------------------------------------------------------------------------------------ items --- */

const char *wefti_api_response_item_id(const weft_api_call *call, const struct item *item,
                                       char storage[RESPONSE_ITEM_ID_BYTES]) {
    const char *prefix = item->kind == WEFT_MSG_THOUGHT   ? "rs"
                         : item->kind == WEFT_MSG_CONTENT ? "msg"
                                                          : "fc";
    char text[sizeof call->id + 16];
    int n = snprintf(text, sizeof text, "%s %" PRIu32, call->id, item->index);
    WEFT_ASSERT(n > 0 && (size_t)n < sizeof text);
    (void)snprintf(storage, RESPONSE_ITEM_ID_BYTES, "%s_%016" PRIx64, prefix,
                   weft_digest_u64("item of a response", text, (size_t)n));
    return storage;
}

static void open_part(const char *type, struct weft_writer *w) {
    weft_write_key(w, "content");
    weft_write_list(w);
    weft_write_map(w);
    weft_write_key(w, "type");
    weft_write_str(w, type);
    weft_write_key(w, "text");
    weft_write_text_open(w);
}

static void open_call(const struct body_piece *at, const struct item_reader *reader,
                      const struct message_piece *piece) {
    char storage[WEFTI_API_CALL_ID_BYTES];
    struct weft_str name = wefti_api_items_text(reader, piece);
    struct weft_str id = wefti_api_call_id(at->choice, &reader->pieces, piece, "call_", storage);
    weft_write_key(at->w, "call_id");
    weft_write_text(at->w, id.data, id.len);
    weft_write_key(at->w, "name");
    weft_write_text(at->w, name.data, name.len);
    weft_write_key(at->w, "arguments");
    weft_write_text_open(at->w);
}

void wefti_api_response_open_item(const struct body_piece *at, const struct item *item,
                                  const struct item_reader *reader,
                                  const struct message_piece *piece) {
    char id[RESPONSE_ITEM_ID_BYTES];
    struct weft_writer *w = at->w;
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, wefti_api_response_item_id(at->call, item, id));
    weft_write_key(w, "type");
    if (item->kind == WEFT_MSG_CALL) {
        weft_write_str(w, "function_call");
        open_call(at, reader, piece);
        return;
    }
    if (item->kind == WEFT_MSG_THOUGHT) {
        weft_write_str(w, "reasoning");
        weft_write_key(w, "summary");
        weft_write_list(w);
        weft_write_end(w);
    } else {
        weft_write_str(w, "message");
        weft_write_key(w, "role");
        weft_write_str(w, "assistant");
    }
    open_part(item->kind == WEFT_MSG_THOUGHT ? "reasoning_text" : "output_text", w);
}

/* Those of a stream went with its text. */
static bool write_logprobs(const struct body_piece *at, struct item *item) {
    bool has_some = at->call->params.logprobs >= 0 && !at->call->params.stream;
    if (item->is_told) {
        weft_write_key(at->w, "annotations");
        weft_write_list(at->w);
        weft_write_end(at->w);
        weft_write_key(at->w, "logprobs");
        weft_write_list(at->w);
    }
    item->is_told = false; /* so much is written */
    while (has_some && item->lp_from < item->lp_to) {
        wefti_api_lp_chat_item(at, item->lp_from++);
        if (at->w->out->len >= at->limit && item->lp_from < item->lp_to) return false;
    }
    weft_write_end(at->w);
    return true;
}

bool wefti_api_response_close_item(const struct body_piece *at, struct item *item) {
    struct weft_writer *w = at->w;
    if (item->kind == WEFT_MSG_CONTENT && !write_logprobs(at, item)) return false;
    if (item->kind != WEFT_MSG_CALL) {
        weft_write_end(w); /* the part, */
        weft_write_end(w); /* and the list of them */
    }
    weft_write_key(w, "status");
    weft_write_str(w, item->is_cut ? "incomplete" : "completed");
    weft_write_end(w);
    item->is_open = item->is_told = false;
    return true;
}

void wefti_api_response_note_tokens(struct item *item, uint32_t pos, uint32_t *n_told) {
    if (item->lp_from == item->lp_to) item->lp_from = *n_told;
    item->lp_to = pos;
    *n_told = pos;
}

/* --------------------------------------------------------------------------------- the body --- */

/* Opens the item that begins with the piece; without one, an answer of no text. */
static void begin_item(const struct body_piece *at, struct response_state *state,
                       const struct message_piece *piece) {
    static const struct message_piece nothing = {.kind = WEFT_MSG_CONTENT};
    struct item_reader *reader = &state->readers[TELLS_BODY];
    state->body_item = wefti_api_item_of(state->n_body_items++, piece ? piece : &nothing);
    wefti_api_response_open_item(at, &state->body_item, reader, piece);
    if (piece && piece->kind == WEFT_MSG_CALL) wefti_api_items_skip(reader);
}

static void tell(const struct body_piece *at, struct response_state *state,
                 const struct message_piece *piece) {
    struct item_reader *reader = &state->readers[TELLS_BODY];
    struct weft_str text = wefti_api_items_text(reader, piece);
    weft_write_text_more(at->w, text.data, text.len);
    wefti_api_response_note_tokens(&state->body_item, wefti_api_items_pos(reader),
                                   &state->n_body_told);
    wefti_api_items_skip(reader);
}

static void end_text(const struct body_piece *at, struct item *item, bool is_cut) {
    weft_write_text_close(at->w);
    item->is_closing = item->is_told = true;
    item->is_cut = is_cut;
}

/* One step. False: there is nothing more to do. */
static bool step(const struct body_piece *at, struct response_state *state, bool *waits_out) {
    struct item_reader *reader = &state->readers[TELLS_BODY];
    struct item *item = &state->body_item;
    *waits_out = false;
    if (item->is_closing) {
        *waits_out = !wefti_api_response_close_item(at, item);
        item->is_closing = *waits_out;
        return true;
    }
    const struct message_piece *piece = wefti_api_items_peek(reader, at->choice);
    if (item->is_open && piece && wefti_api_item_has(item, piece))
        tell(at, state, piece);
    else if (item->is_open)
        end_text(at, item, !piece && wefti_api_item_is_cut(item, reader));
    else if (piece || state->n_body_items == 0)
        begin_item(at, state, piece);
    else
        return false;
    return true;
}

static bool items_part(const struct body_piece *at) {
    struct response_state *state = wefti_api_response_state(at->call);
    bool waits = false;
    while (state && step(at, state, &waits)) {
        if (waits || at->w->out->len >= at->limit) return false;
    }
    if (!state) {
        at->w->out->failed = true;
        return true;
    }
    const struct item_reader *reader = &state->readers[TELLS_BODY];
    if (reader->pieces.failed || reader->pieces.text.failed) at->w->out->failed = true;
    WEFT_ASSERT(reader->is_over);
    at->choice->n_thoughts = reader->choice.n_thoughts;
    at->choice->n_calls = reader->choice.n_calls;
    rewind_body(state);
    return true;
}

static bool facts_part(const struct body_piece *at) {
    weft_write_end(at->w); /* the items */
    wefti_api_response_facts(at->call, true, at->w);
    return true;
}

static void open_body(weft_api_call *call, struct weft_writer *w) {
    struct response_state *state = wefti_api_response_state(call);
    if (state) {
        keep(call, state);
        rewind_body(state);
    }
    wefti_api_response_open(call, NULL, w);
}

static const body_part choice_parts[] = {items_part, NULL};
static const body_part end_parts[] = {facts_part, wefti_api_response_fields_part, NULL};

const struct weft_api_kind wefti_api_kind_responses = {
    .path = "/v1/responses",
    .id_prefix = "resp_",
    .prompt_field = "input",
    .logprobs_field = "top_logprobs",
    .generates = true,
    .names_any_token = true,
    .tells_messages = true,
    .has_random_ids = true,
    .recalls = true,
    .framing = &wefti_api_framing_named,
    .parse = wefti_api_params_read_response,
    .open_body = open_body,
    .choice_parts = choice_parts,
    .end_parts = end_parts,
    .stream = wefti_api_response_stream,
    .n_views = N_READERS,
    .free_state = free_state,
};
