/* Streams of /v1/messages: Anthropic's events, each with its name. A token may be none, one or several of them. */
#include "kinds/messages.h"

#include <string.h>

#include "base/check.h"
#include "render/choice_text.h"

#define PING "event: ping\ndata: {\"type\": \"ping\"}\n\n"

const struct weft_api_framing wefti_api_messages_framing = {
    .type = "text/event-stream; charset=utf-8",
    .before = "",
    .after = "",
    .keep_alive = PING,
};

static void open_event(const char *name, struct weft_writer *w) {
    WEFT_ASSERT(w->depth == 0);
    wefti_api_event_open(w->out, name);
    weft_write_map(w);
    weft_write_key(w, "type");
    weft_write_str(w, name);
}

static void close_event(struct weft_writer *w) {
    weft_write_end(w);
    WEFT_ASSERT(w->depth == 0);
    wefti_api_event_close(w->out);
}

void wefti_api_messages_open_stream(struct choice *choice, struct weft_writer *w) {
    const weft_api_call *call = choice->job->call;
    open_event("message_start", w);
    weft_write_key(w, "message");
    weft_write_map(w);
    wefti_api_messages_head(call, w);
    weft_write_end(w);
    wefti_api_messages_stop(NULL, w);
    wefti_api_messages_usage(call, 0, w);
    weft_write_end(w);
    close_event(w);
    weft_buf_add_str(w->out, PING);
}

static void write_index(const struct choice *choice, struct weft_writer *w) {
    WEFT_ASSERT(choice->view.blocks.n > 0);
    weft_write_key(w, "index");
    weft_write_uint(w, choice->view.blocks.n - 1);
}

static void open_delta(const struct choice *choice, const char *type, const char *key,
                       struct weft_writer *w) {
    open_event("content_block_delta", w);
    write_index(choice, w);
    weft_write_key(w, "delta");
    weft_write_map(w);
    weft_write_key(w, "type");
    weft_write_str(w, type);
    weft_write_key(w, key);
}

static void close_delta(struct weft_writer *w) {
    weft_write_end(w);
    close_event(w);
}

static void start_block(const struct choice *choice, const struct message_pieces *pieces,
                        const struct message_piece *piece, struct weft_writer *w) {
    open_event("content_block_start", w);
    write_index(choice, w);
    weft_write_key(w, "content_block");
    weft_write_map(w);
    wefti_api_messages_block(choice, pieces, piece, w);
    if (piece->kind == WEFT_MSG_CALL) {
        weft_write_key(w, "input");
        weft_write_map(w);
        weft_write_end(w);
    } else {
        weft_write_key(w, piece->kind == WEFT_MSG_THOUGHT ? "thinking" : "text");
        weft_write_str(w, "");
    }
    if (piece->kind == WEFT_MSG_THOUGHT) {
        weft_write_key(w, "signature");
        weft_write_str(w, "");
    }
    weft_write_end(w);
    close_event(w);
}

static void stop_block(struct choice *choice, struct weft_writer *w) {
    const struct block_view *blocks = &choice->view.blocks;
    if (blocks->is_open) {
        if (blocks->kind == WEFT_MSG_THOUGHT) {
            open_delta(choice, "signature_delta", "signature", w);
            weft_write_str(w, "");
            close_delta(w);
        }
        open_event("content_block_stop", w);
        write_index(choice, w);
        close_event(w);
    }
    wefti_api_messages_close(choice);
}

static void write_delta(const struct choice *choice, const struct message_pieces *pieces,
                        const struct message_piece *piece, struct weft_writer *w) {
    if (piece->kind == WEFT_MSG_CALL || piece->len == 0) return;
    if (piece->kind == WEFT_MSG_THOUGHT)
        open_delta(choice, "thinking_delta", "thinking", w);
    else if (piece->kind == WEFT_MSG_CONTENT)
        open_delta(choice, "text_delta", "text", w);
    else
        open_delta(choice, "input_json_delta", "partial_json", w);
    weft_write_text(w, wefti_api_piece_text(pieces, piece), piece->len);
    close_delta(w);
}

void wefti_api_messages_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    struct choice *choice = chunk->choice;
    const struct message_pieces *pieces = chunk->pieces;
    WEFT_ASSERT(pieces);
    for (uint32_t i = 0; i < pieces->n; i++) {
        const struct message_piece *piece = &pieces->list[i];
        bool begins = wefti_api_messages_begins(choice, piece);
        if (begins) stop_block(choice, w);
        wefti_api_messages_note(choice, pieces, piece);
        if (begins) start_block(choice, pieces, piece, w);
        write_delta(choice, pieces, piece, w);
    }
    if (chunk->is_last) stop_block(choice, w);
}

bool wefti_api_messages_end_stream(weft_api_call *call, struct weft_buf *out, size_t limit) {
    struct weft_writer w;
    (void)limit; /* they are short */
    weft_writer_init(&w, WEFT_WRITE_JSON, out);
    open_event("message_delta", &w);
    weft_write_key(&w, "delta");
    weft_write_map(&w);
    wefti_api_messages_stop(&call->choices[0], &w);
    weft_write_end(&w);
    wefti_api_messages_usage(call, wefti_api_output_tokens(call), &w);
    close_event(&w);
    open_event("message_stop", &w);
    close_event(&w);
    return true;
}

void wefti_api_messages_fail_stream(const weft_api_call *call, struct weft_buf *out) {
    wefti_api_event_open(out, "error");
    weft_api_error_write(&call->error, call->request_id, call->kind->path, strlen(call->kind->path),
                         out);
    wefti_api_event_close(out);
}
