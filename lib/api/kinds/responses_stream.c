/* The events of a response, in OpenAI's order: it begins; for each item that and its part begin, its text comes in
 * deltas, and then text, part and item are told whole; at the end the response is. */
#include <inttypes.h>

#include "api/api.h"
#include "base/check.h"
#include "kinds/responses.h"
#include "render/choice_text.h"
#include "render/logprobs.h"
#include "render/render.h"

struct stream {
    weft_api_call *call;
    struct choice *choice;
    struct response_state *state;
    struct weft_buf *out;
    size_t limit;
};

/* ----------------------------------------------------------------------------------- events --- */

/* Opens an event's object; one of an item says which. */
static void open_event(struct stream *s, const char *type, const struct item *item,
                       struct weft_writer *w) {
    char id[RESPONSE_ITEM_ID_BYTES];
    wefti_api_event_open(s->out, type);
    weft_writer_init(w, WEFT_WRITE_JSON, s->out);
    weft_write_map(w);
    weft_write_key(w, "type");
    weft_write_str(w, type);
    weft_write_key(w, "sequence_number");
    weft_write_uint(w, s->state->n_events++);
    if (!item) return;
    weft_write_key(w, "item_id");
    weft_write_str(w, wefti_api_response_item_id(s->call, item, id));
    weft_write_key(w, "output_index");
    weft_write_uint(w, item->index);
    if (item->kind == WEFT_MSG_CALL) return;
    weft_write_key(w, "content_index");
    weft_write_uint(w, 0);
}

static void close_event(struct stream *s, struct weft_writer *w) {
    weft_write_end(w);
    WEFT_ASSERT(w->depth == 0);
    wefti_api_event_close(s->out);
}

/* An event with the response as it is before there is anything in it. It has what the request said, which may be long:
 * false, to be gone on with. */
static bool write_hollow(struct stream *s, const char *type, const char *status) {
    struct render *r = &s->call->render;
    struct weft_writer *w = &r->writer;
    if (!r->is_open) {
        open_event(s, type, NULL, w);
        weft_write_key(w, "response");
        wefti_api_response_open(s->call, status, w);
        weft_write_end(w); /* no items */
        wefti_api_response_facts(s->call, false, w);
        r->is_open = true;
    }
    w->out = s->out;
    const struct body_piece at = {s->call, s->choice, w, s->limit};
    if (!wefti_api_response_fields_part(&at)) return false;
    close_event(s, w);
    r->is_open = false;
    r->pos = 0;
    return true;
}

/* -------------------------------------------------------------------------------- beginnings --- */

static void write_part(const struct item *item, struct weft_writer *w) {
    bool is_answer = item->kind == WEFT_MSG_CONTENT;
    weft_write_key(w, "part");
    weft_write_map(w);
    weft_write_key(w, "type");
    weft_write_str(w, is_answer ? "output_text" : "reasoning_text");
    weft_write_key(w, "text");
    weft_write_text_open(w);
}

static void close_part(const struct item *item, struct weft_writer *w) {
    static const char *const lists[] = {"annotations", "logprobs"};
    weft_write_text_close(w);
    for (size_t i = 0; i < 2 && item->kind == WEFT_MSG_CONTENT; i++) {
        weft_write_key(w, lists[i]);
        weft_write_list(w);
        weft_write_end(w);
    }
    weft_write_end(w);
}

static void write_key_list(const char *key, struct weft_writer *w) {
    weft_write_key(w, key);
    weft_write_list(w);
    weft_write_end(w);
}

/* An item that has nothing yet. */
static void write_new_item(struct stream *s, const struct message_piece *piece,
                           struct weft_writer *w) {
    const struct item *item = &s->state->item;
    const struct item_reader *reader = &s->state->readers[READS_STREAM];
    char id[RESPONSE_ITEM_ID_BYTES], storage[WEFTI_API_CALL_ID_BYTES];
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, wefti_api_response_item_id(s->call, item, id));
    weft_write_key(w, "type");
    if (item->kind == WEFT_MSG_CALL) {
        struct weft_str name = wefti_api_items_text(reader, piece);
        struct weft_str call_id =
            wefti_api_call_id(s->choice, &reader->pieces, piece, "call_", storage);
        weft_write_str(w, "function_call");
        weft_write_key(w, "call_id");
        weft_write_text(w, call_id.data, call_id.len);
        weft_write_key(w, "name");
        weft_write_text(w, name.data, name.len);
        weft_write_key(w, "arguments");
        weft_write_str(w, "");
    } else if (item->kind == WEFT_MSG_THOUGHT) {
        weft_write_str(w, "reasoning");
        write_key_list("summary", w);
        write_key_list("content", w);
    } else {
        weft_write_str(w, "message");
        weft_write_key(w, "role");
        weft_write_str(w, "assistant");
        write_key_list("content", w);
    }
    weft_write_key(w, "status");
    weft_write_str(w, "in_progress");
    weft_write_end(w);
}

/* `piece` NULL: an answer of no text. */
static void begin_item(struct stream *s, const struct message_piece *piece) {
    static const struct message_piece nothing = {.kind = WEFT_MSG_CONTENT};
    struct response_state *state = s->state;
    struct weft_writer w;
    state->item = wefti_api_item_of(state->n_items++, piece ? piece : &nothing);
    open_event(s, "response.output_item.added", NULL, &w);
    weft_write_key(&w, "output_index");
    weft_write_uint(&w, state->item.index);
    weft_write_key(&w, "item");
    write_new_item(s, piece, &w);
    close_event(s, &w);
    if (state->item.kind == WEFT_MSG_CALL) {
        wefti_api_items_skip(&state->readers[READS_STREAM]);
        return;
    }
    open_event(s, "response.content_part.added", &state->item, &w);
    write_part(&state->item, &w);
    close_part(&state->item, &w);
    close_event(s, &w);
}

/* ----------------------------------------------------------------------------------- deltas --- */

/* The log-probabilities of the tokens that told it, which are dropped then. */
static void write_logprobs(struct stream *s, uint32_t from, struct weft_writer *w) {
    const struct body_piece at = {s->call, s->choice, w, SIZE_MAX};
    weft_write_key(w, "logprobs");
    weft_write_list(w);
    for (uint32_t pos = from; s->call->params.logprobs >= 0 && pos < s->state->n_told; pos++)
        wefti_api_lp_chat_item(&at, pos);
    weft_write_end(w);
}

static void write_delta(struct stream *s, const struct message_piece *piece) {
    static const char *const types[] = {
        [WEFT_MSG_THOUGHT] = "response.reasoning_text.delta",
        [WEFT_MSG_CONTENT] = "response.output_text.delta",
        [WEFT_MSG_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    struct response_state *state = s->state;
    struct item_reader *reader = &state->readers[READS_STREAM];
    struct weft_str text = wefti_api_items_text(reader, piece);
    uint32_t from = state->n_told;
    struct weft_writer w;
    open_event(s, types[piece->kind], &state->item, &w);
    weft_write_key(&w, "delta");
    weft_write_text(&w, text.data, text.len);
    wefti_api_response_note_tokens(&state->item, wefti_api_items_pos(reader), &state->n_told);
    if (piece->kind == WEFT_MSG_CONTENT) write_logprobs(s, from, &w);
    close_event(s, &w);
    wefti_api_items_skip(reader);
    if (s->call->params.drops_sent_logprobs && s->call->params.logprobs >= 0)
        wefti_api_lp_drop(&s->call->output, &s->choice->lps, state->n_told);
}

/* ------------------------------------------------------------------------------------- ends --- */

/* Without memory the stream ends here, and lacks its last event. */
static bool has_failed(struct stream *s, const struct item_reader *reader) {
    if (!reader->pieces.failed && !reader->pieces.text.failed) return false;
    s->out->failed = true;
    s->state->stage = RESPONSE_OVER;
    return true;
}

/* Begins one of the events that tell an item again. */
static void open_again(struct stream *s, enum response_reader which,
                       const struct message_piece *piece) {
    static const char *const types[] = {
        [WEFT_MSG_THOUGHT] = "response.reasoning_text.done",
        [WEFT_MSG_CONTENT] = "response.output_text.done",
        [WEFT_MSG_CALL] = "response.function_call_arguments.done",
    };
    struct weft_writer *w = &s->call->render.writer;
    const struct item *item = &s->state->item;
    const struct item_reader *reader = &s->state->readers[which];
    const struct body_piece at = {s->call, s->choice, w, s->limit};
    if (which == TELLS_PART) {
        open_event(s, "response.content_part.done", item, w);
        write_part(item, w);
    } else if (which == TELLS_ITEM) {
        open_event(s, "response.output_item.done", NULL, w);
        weft_write_key(w, "output_index");
        weft_write_uint(w, item->index);
        weft_write_key(w, "item");
        wefti_api_response_open_item(&at, item, reader, piece);
    } else {
        open_event(s, types[item->kind], item, w);
        if (item->kind == WEFT_MSG_CALL) {
            struct weft_str name = wefti_api_items_text(reader, piece);
            weft_write_key(w, "name");
            weft_write_text(w, name.data, name.len);
        }
        weft_write_key(w, item->kind == WEFT_MSG_CALL ? "arguments" : "text");
        weft_write_text_open(w);
    }
}

/* What stands after the text. */
static void close_again(struct stream *s, enum response_reader which) {
    struct weft_writer *w = &s->call->render.writer;
    struct item item = s->state->item;
    const struct body_piece at = {s->call, s->choice, w, SIZE_MAX};
    if (which == TELLS_PART) {
        close_part(&item, w);
    } else {
        weft_write_text_close(w);
        item.is_told = true;
        if (which == TELLS_ITEM) (void)wefti_api_response_close_item(&at, &item);
        if (which == TELLS_TEXT && item.kind == WEFT_MSG_CONTENT) write_key_list("logprobs", w);
    }
    close_event(s, w);
}

/* False: to be gone on with. */
static bool tell_again(struct stream *s, enum response_reader which) {
    struct render *r = &s->call->render;
    struct item_reader *reader = &s->state->readers[which];
    const struct message_piece *piece = wefti_api_items_peek(reader, s->choice);
    if (has_failed(s, reader)) return false;
    if (!r->is_open) {
        open_again(s, which, piece);
        if (s->state->item.kind == WEFT_MSG_CALL) wefti_api_items_skip(reader);
        r->is_open = true;
    }
    r->writer.out = s->out;
    while ((piece = wefti_api_items_peek(reader, s->choice)) &&
           wefti_api_item_has(&s->state->item, piece)) {
        struct weft_str text = wefti_api_items_text(reader, piece);
        weft_write_text_more(&r->writer, text.data, text.len);
        wefti_api_items_skip(reader);
        if (s->out->len >= s->limit) return false;
    }
    close_again(s, which);
    r->is_open = false;
    return true;
}

/* The last event has all of the answer. */
static bool end(struct stream *s) {
    bool is_cut = s->choice->end == WEFT_END_LENGTH;
    const char *type = is_cut ? "response.incomplete" : "response.completed";
    WEFT_ASSERT(s->call->state == WEFT_API_CALL_DONE);
    if (!s->call->render.is_open) {
        wefti_api_event_open(s->out, type);
        weft_buf_printf(s->out,
                        "{\"type\":\"%s\",\"sequence_number\":%" PRIu32 ",\"response\":", type,
                        s->state->n_events++);
    }
    size_t room = s->limit > s->out->len ? s->limit - s->out->len : 0;
    if (weft_api_render_body(s->call, s->out, room) != WEFT_API_RENDER_DONE) return false;
    weft_buf_add_char(s->out, '}');
    wefti_api_event_close(s->out);
    return true;
}

/* ---------------------------------------------------------------------------------- the stream --- */

/* The next stage after some more of the output was read. False: there is none yet. */
static bool read_on(struct stream *s) {
    struct response_state *state = s->state;
    struct item_reader *reader = &state->readers[READS_STREAM];
    const struct message_piece *piece = wefti_api_items_peek(reader, s->choice);
    if (has_failed(s, reader)) return true;
    if (!piece && !reader->is_over) {
        if (s->call->state != WEFT_API_CALL_FAILED) return false;
        state->stage = RESPONSE_FAILING;
    } else if (piece && wefti_api_item_has(&state->item, piece)) {
        write_delta(s, piece);
    } else if (state->item.is_open) {
        state->item.is_cut = !piece && wefti_api_item_is_cut(&state->item, reader);
        state->stage = RESPONSE_CLOSING_TEXT;
    } else if (piece || state->n_items == 0) {
        begin_item(s, piece);
    } else {
        s->choice->n_thoughts = reader->choice.n_thoughts;
        s->choice->n_calls = reader->choice.n_calls;
        state->stage = RESPONSE_ENDING;
    }
    return true;
}

static enum response_stage after_text(const struct response_state *state) {
    return state->item.kind == WEFT_MSG_CALL ? RESPONSE_CLOSING_ITEM : RESPONSE_CLOSING_PART;
}

/* Writes some of the stream. False: `out` is full. */
static bool write_stage(struct stream *s) {
    struct response_state *state = s->state;
    switch (state->stage) {
    case RESPONSE_CREATED:
        if (!write_hollow(s, "response.created", "in_progress")) return false;
        state->stage = RESPONSE_IN_PROGRESS;
        return true;
    case RESPONSE_IN_PROGRESS:
        if (!write_hollow(s, "response.in_progress", "in_progress")) return false;
        state->stage = RESPONSE_READING;
        return true;
    case RESPONSE_CLOSING_TEXT:
        if (!tell_again(s, TELLS_TEXT)) return false;
        state->stage = after_text(state);
        return true;
    case RESPONSE_CLOSING_PART:
        if (!tell_again(s, TELLS_PART)) return false;
        state->stage = RESPONSE_CLOSING_ITEM;
        return true;
    case RESPONSE_CLOSING_ITEM:
        if (!tell_again(s, TELLS_ITEM)) return false;
        state->item.is_open = false;
        state->stage = RESPONSE_READING;
        return true;
    case RESPONSE_FAILING:
        if (!write_hollow(s, "response.failed", "failed")) return false;
        state->stage = RESPONSE_OVER;
        return true;
    case RESPONSE_ENDING:
        if (!end(s)) return false;
        state->stage = RESPONSE_OVER;
        return true;
    case RESPONSE_READING:
    case RESPONSE_OVER:
        break;
    }
    return true;
}

enum weft_api_render wefti_api_response_stream(weft_api_call *call, struct weft_buf *out,
                                               size_t limit) {
    struct stream s = {call, &call->choices[0], wefti_api_response_state(call), out, limit};
    if (!s.state) {
        out->failed = true;
        call->render.is_finished = true;
        return WEFT_API_RENDER_DONE;
    }
    while (s.state->stage != RESPONSE_OVER) {
        if (out->len >= limit) return WEFT_API_RENDER_MORE;
        if (s.state->stage == RESPONSE_READING) {
            if (!read_on(&s)) return WEFT_API_RENDER_WAIT;
        } else if (!write_stage(&s)) {
            return WEFT_API_RENDER_MORE;
        }
    }
    call->render.is_finished = true;
    return WEFT_API_RENDER_DONE;
}
