/* Streams: chunks in the order in which choices had something new, each wrapped as its kind says
 * (kinds/kind.h). */
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/call_internal.h"
#include "call/logprob_store.h"
#include "kinds/openai.h"
#include "render/choice_text.h"
#include "render/message.h"
#include "render/render.h"
#include "render/token_ids.h"

#define TEXT_BYTES_MAX (16u << 20)
#define ECHO_TOKENS_PER_CHUNK 32

/* ----------------------------------------------------------------------------------- chunks --- */

void wefti_api_render_chunk_logprobs(const struct render_chunk *chunk, struct weft_writer *w) {
    const weft_api_call *call = chunk->choice->job->call;
    weft_write_key(w, "logprobs");
    if (call->params.logprobs < 0 || chunk->from == chunk->to)
        weft_write_null(w);
    else
        call->kind->write_chunk_logprobs(chunk, w);
}

/* [2, "token", [{...}]], for any kind. */
static void write_notification(const struct render_chunk *chunk, struct weft_writer *w) {
    const struct choice *choice = chunk->choice;
    weft_write_list(w);
    weft_write_uint(w, 2);
    weft_write_str(w, "token");
    weft_write_list(w);
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, choice->index);
    if (chunk->pieces) {
        if (!wefti_api_write_kind(chunk->pieces, WEFT_MSG_CONTENT, "text", w)) {
            weft_write_key(w, "text");
            weft_write_str(w, "");
        }
        (void)wefti_api_write_kind(chunk->pieces, WEFT_MSG_THOUGHT, "reasoning_content", w);
        (void)wefti_api_write_kind(chunk->pieces, WEFT_MSG_THOUGHT, "reasoning", w);
        (void)wefti_api_write_calls(choice, chunk->pieces, w);
    } else {
        weft_write_key(w, "text");
        weft_write_text(w, chunk->text, chunk->text_len);
    }
    weft_write_key(w, "token_ids");
    weft_write_list(w);
    for (uint32_t pos = chunk->from; pos < chunk->to; pos++)
        weft_write_uint(w, wefti_api_seq_token(choice, pos));
    weft_write_end(w);
    wefti_api_render_chunk_logprobs(chunk, w);
    wefti_api_openai_finish(choice, chunk->is_last, w);
    weft_write_key(w, "request_id");
    weft_write_str(w, choice->job->call->request_id);
    weft_write_end(w);
    weft_write_end(w);
    weft_write_end(w);
}

static void write_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    weft_api_call *call = chunk->choice->job->call;
    uint32_t n_echoed = wefti_api_seq_echoed(chunk->choice);
    if (chunk->to > n_echoed)
        call->render.n_streamed += chunk->to - (chunk->from > n_echoed ? chunk->from : n_echoed);
    if (call->is_rpc)
        write_notification(chunk, w);
    else
        call->kind->write_chunk(chunk, w);
    WEFT_ASSERT(w->depth == 0);
}

/* Where the chunk that begins at `from` ends; `from` itself when it has to wait. */
static uint32_t chunk_end(const struct choice *choice, uint32_t from) {
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    if (from >= n_echoed) return from < wefti_api_seq_len(choice) ? from + 1 : from;
    uint32_t to = from + ECHO_TOKENS_PER_CHUNK;
    if (to > n_echoed) to = n_echoed;
    /* No more of them come after a choice has ended. */
    bool needs_lps = choice->job->call->params.logprobs >= 0 && choice->end == WEFT_END_NONE;
    return needs_lps && to - 1 > choice->job->prompt_lps.n ? from : to;
}

/* A long echoed text goes ahead in chunks of its own, except the piece that goes with the tokens:
 * no chunk may be as large as a prompt. False: only that piece is left. */
static bool write_echo(struct choice *choice, struct weft_writer *w) {
    struct choice_view *view = &choice->view;
    const struct prompt *prompt = choice->job->prompt;
    if (!choice->job->call->params.echo || !prompt->echo || view->pos > 0) return false;
    size_t end = wefti_api_echo_end(choice, view->n_echoed);
    if (end == prompt->text_len) return false;
    struct render_chunk chunk = {
        .choice = choice, .text = prompt->echo + view->n_echoed, .text_len = end - view->n_echoed};
    write_chunk(&chunk, w);
    view->n_echoed = end;
    return true;
}

/* Entries of the prompt belong to every choice. */
static uint32_t least_rendered(const struct job *job) {
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < job->n_choices; i++) {
        if (job->choices[i].view.pos < least) least = job->choices[i].view.pos;
    }
    return least;
}

/* Positions [from, to) have been rendered: drops entries that are not needed again. */
static void drop_rendered(struct choice *choice, uint32_t from, uint32_t to) {
    struct job *job = choice->job;
    weft_api_call *call = job->call;
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    WEFT_ASSERT(from <= to && choice->view.pos == to);
    if (!call->params.drops_sent_logprobs || from == to) return;
    if (to > n_echoed) wefti_api_lp_drop(&call->output, &choice->lps, to - n_echoed);
    if (from >= n_echoed) return;
    uint32_t least = least_rendered(job); /* entry e is of position e + 1 */
    if (least > 1) wefti_api_lp_drop(&call->output, &job->prompt_lps, least - 1);
}

/* The next chunk: all tokens since the one before, and what they tell. False: none. */
static bool write_message(struct choice *choice, struct weft_writer *w) {
    const weft_api_call *call = choice->job->call;
    struct choice_view *view = &choice->view;
    struct message_pieces pieces;
    bool is_out = false;
    wefti_api_pieces_init(&pieces);
    while (!is_out) {
        uint32_t from = view->pos, to = chunk_end(choice, from);
        bool is_last = choice->end != WEFT_END_NONE && to == wefti_api_seq_len(choice);
        if (from == to && !is_last) break;
        for (uint32_t pos = from; pos < to; pos++)
            wefti_api_message_push(choice, pos, &pieces);
        if (is_last) wefti_api_message_flush(choice, &pieces);
        view->pos = to;
        view->is_closed = is_last;
        is_out = pieces.n > 0 || call->params.logprobs >= 0 || is_last || call->is_rpc;
        struct render_chunk chunk = {.choice = choice,
                                     .from = view->n_told,
                                     .to = to,
                                     .is_last = is_last,
                                     .text = "",
                                     .pieces = &pieces};
        if (is_out) {
            write_chunk(&chunk, w);
            view->n_told = to;
        }
        drop_rendered(choice, from, to);
    }
    if (pieces.failed || pieces.text.failed) w->out->failed = true;
    wefti_api_pieces_fini(&pieces);
    return is_out;
}

/* A message that is repeated goes ahead of the answer. False: nothing is left of it. */
static bool write_echoed_message(struct choice *choice, struct weft_writer *w) {
    struct choice_view *view = &choice->view;
    const struct prompt *prompt = choice->job->prompt;
    if (!prompt->echo || view->n_echoed == prompt->text_len) return false;
    size_t end = wefti_api_echo_end(choice, view->n_echoed);
    struct message_piece piece = {.kind = WEFT_MSG_CONTENT, .len = end - view->n_echoed};
    struct message_pieces pieces = {.list = &piece, .n = 1};
    weft_buf_init(&pieces.text, piece.len);
    weft_buf_add(&pieces.text, prompt->echo + view->n_echoed, piece.len);
    struct render_chunk chunk = {.choice = choice, .text = "", .pieces = &pieces};
    if (pieces.text.failed)
        w->out->failed = true;
    else
        write_chunk(&chunk, w);
    weft_buf_fini(&pieces.text);
    view->n_echoed = end;
    return true;
}

/* The same for kinds that tell nothing but text. */
static bool write_tokens(struct choice *choice, struct weft_writer *w) {
    const weft_api_call *call = choice->job->call;
    const struct prompt *prompt = choice->job->prompt;
    struct choice_view *view = &choice->view;
    struct weft_buf text;
    bool is_out = false;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    while (!is_out) {
        uint32_t from = view->pos, to = chunk_end(choice, from);
        bool is_last = choice->end != WEFT_END_NONE && to == wefti_api_seq_len(choice);
        if (from == to && !is_last) break;
        if (from == 0 && call->params.echo && prompt->echo)
            weft_buf_add(&text, prompt->echo + view->n_echoed, prompt->text_len - view->n_echoed);
        for (uint32_t pos = from; pos < to; pos++)
            wefti_api_text_push(choice, pos, &text);
        if (is_last) wefti_api_text_flush(choice, &text);
        view->pos = to;
        view->is_closed = is_last;
        is_out = text.len || call->params.logprobs >= 0 || is_last || call->is_rpc;
        struct render_chunk chunk = {.choice = choice,
                                     .from = view->n_told,
                                     .to = to,
                                     .is_last = is_last,
                                     .text = text.data ? text.data : "",
                                     .text_len = text.len};
        if (is_out) {
            write_chunk(&chunk, w);
            view->n_told = to;
        }
        drop_rendered(choice, from, to);
    }
    if (text.failed) w->out->failed = true;
    weft_buf_fini(&text);
    return is_out;
}

/* The next chunk of one choice; false: it has none now. */
static bool write_choice(struct choice *choice, struct weft_writer *w) {
    const weft_api_call *call = choice->job->call;
    struct choice_view *view = &choice->view;
    if (view->is_closed) return false;
    if (!view->is_begun) wefti_api_text_begin(choice);
    if (call->kind->open_choice && !view->is_opened && !call->is_rpc) {
        view->is_opened = true;
        call->kind->open_choice(choice, w);
        return true;
    }
    if (call->kind->tells_messages)
        return write_echoed_message(choice, w) || write_message(choice, w);
    return write_echo(choice, w) || write_tokens(choice, w);
}

/* The next chunk of a stream; false: there is none now. */
static bool write_next(weft_api_call *call, enum weft_writer_format format, struct weft_buf *out) {
    struct choice *choice;
    while ((choice = STAILQ_FIRST(&call->unrendered))) {
        struct weft_writer w;
        weft_writer_init(&w, format, out);
        bool is_out = write_choice(choice, &w);
        bool is_closed = choice->view.is_closed;
        call->render.n_closed += is_out && is_closed;
        STAILQ_REMOVE_HEAD(&call->unrendered, unrendered);
        choice->is_unrendered = is_out && !is_closed; /* it may have more, after the others */
        if (choice->is_unrendered) STAILQ_INSERT_TAIL(&call->unrendered, choice, unrendered);
        if (is_out) return true;
    }
    return false;
}

/* ---------------------------------------------------------------------------------- streams --- */

const struct weft_api_framing wefti_api_framing_sse = {
    .type = "text/event-stream; charset=utf-8",
    .before = "data: ",
    .after = "\n\n",
    .keep_alive = ": keep-alive\n\n",
};

const struct weft_api_framing wefti_api_framing_lines = {
    .type = "application/x-ndjson",
    .before = "",
    .after = "\n",
};

const struct weft_api_framing wefti_api_framing_named = {
    .type = "text/event-stream; charset=utf-8",
    .before = "",
    .after = "",
    .keep_alive = ": keep-alive\n\n",
};

void wefti_api_event_open(struct weft_buf *out, const char *name) {
    weft_buf_add_str(out, "event: ");
    weft_buf_add_str(out, name);
    weft_buf_add_str(out, "\ndata: ");
}

void wefti_api_event_close(struct weft_buf *out) {
    weft_buf_add_str(out, "\n\n");
}

const char *weft_api_call_stream_type(const weft_api_call *call) {
    return call->kind->framing->type;
}

const char *weft_api_call_keep_alive(const weft_api_call *call) {
    return call->kind->framing->keep_alive;
}

bool weft_api_render_notification(weft_api_call *call, struct weft_buf *out) {
    WEFT_ASSERT(call->is_rpc);
    return write_next(call, WEFT_WRITE_MSGPACK, out);
}

bool weft_api_call_is_between_events(const weft_api_call *call) {
    WEFT_ASSERT(call->params.stream && !call->in_thread);
    return !call->render.is_open || call->render.is_finished;
}

/* True: it is complete. */
static bool write_stream_end(weft_api_call *call, struct weft_buf *out, size_t limit) {
    if (call->state == WEFT_API_CALL_DONE) {
        WEFT_ASSERT(call->render.n_closed == call->n_choices);
        return call->kind->end_stream(call, out, limit);
    }
    if (call->kind->fail_stream) {
        call->kind->fail_stream(call, out);
        return true;
    }
    weft_buf_add_str(out, call->kind->framing->before);
    weft_api_error_write(&call->error, call->request_id, call->kind->path, strlen(call->kind->path),
                         out);
    weft_buf_add_str(out, call->kind->framing->after);
    return true;
}

bool wefti_api_render_end_with_body(weft_api_call *call, struct weft_buf *out, size_t limit) {
    if (!call->render.is_open) weft_buf_add_str(out, call->kind->framing->before);
    size_t room = limit > out->len ? limit - out->len : 0;
    if (weft_api_render_body(call, out, room) != WEFT_API_RENDER_DONE) return false;
    weft_buf_add_str(out, call->kind->framing->after);
    return true;
}

enum weft_api_render weft_api_render_stream(weft_api_call *call, struct weft_buf *out,
                                            size_t budget) {
    size_t limit = out->len + budget;
    WEFT_ASSERT(!call->is_rpc);
    if (call->render.is_finished) return WEFT_API_RENDER_DONE;
    if (call->kind->stream) return call->kind->stream(call, out, limit);
    while (out->len < limit) {
        size_t start = out->len;
        struct choice *begun = wefti_api_ids_begun(call);
        if (begun) {
            if (!wefti_api_ids_write_first(begun, out, limit)) break;
            continue;
        }
        weft_buf_add_str(out, call->kind->framing->before);
        if (write_next(call, WEFT_WRITE_JSON, out)) {
            weft_buf_add_str(out, call->kind->framing->after);
            continue;
        }
        out->len = start;
        if (call->state != WEFT_API_CALL_DONE && call->state != WEFT_API_CALL_FAILED)
            return WEFT_API_RENDER_WAIT;
        if (!write_stream_end(call, out, limit)) break;
        call->render.is_finished = true;
        return WEFT_API_RENDER_DONE;
    }
    return WEFT_API_RENDER_MORE;
}
