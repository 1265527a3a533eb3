#include "render/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/call_internal.h"
#include "codec/digest.h"
#include "render/choice_text.h"
#include "render/render.h"

#define TEXT_BYTES_MAX (64u << 20) /* no more than a choice's text */

/* ----------------------------------------------------------------------------------- pieces --- */

void wefti_api_pieces_init(struct message_pieces *pieces) {
    memset(pieces, 0, sizeof *pieces);
    weft_buf_init(&pieces->text, TEXT_BYTES_MAX);
}

void wefti_api_pieces_fini(struct message_pieces *pieces) {
    weft_buf_fini(&pieces->text);
    free(pieces->list);
    memset(pieces, 0, sizeof *pieces);
}

static bool is_more_of(const struct message_piece *last, const struct weft_msg_event *event) {
    return last->kind == event->kind && last->call == event->call && event->kind != WEFT_MSG_CALL;
}

static struct message_piece *add_piece(struct message_pieces *pieces) {
    if (pieces->n == pieces->cap) {
        uint32_t cap = pieces->cap ? 2 * pieces->cap : 4;
        struct message_piece *list = realloc(pieces->list, cap * sizeof *list);
        if (!list) return NULL;
        pieces->list = list;
        pieces->cap = cap;
    }
    return &pieces->list[pieces->n++];
}

struct telling {
    struct choice *choice;
    struct message_pieces *out;
};

static void check_arguments(struct choice_view *view, const struct weft_msg_event *event) {
    if (event->kind == WEFT_MSG_CALL) view->arguments = (struct weft_json_check){0};
    if (event->kind == WEFT_MSG_ARGUMENTS)
        weft_json_check_more(&view->arguments, event->text.data, event->text.len);
}

static void tell(void *context, const struct weft_msg_event *event) {
    const struct telling *telling = context;
    struct message_pieces *out = telling->out;
    struct message_piece *last = out->n ? &out->list[out->n - 1] : NULL;
    if (out->failed || out->text.failed) return; /* nothing goes on with what is lost */
    if (event->kind == WEFT_MSG_THOUGHT) {
        if (telling->choice->job->call->params.chat.hides_thoughts) return;
        telling->choice->has_thoughts = true;
    }
    check_arguments(&telling->choice->view, event);
    size_t at = out->text.len;
    weft_buf_add(&out->text, event->text.data, event->text.len);
    if (last && is_more_of(last, event)) {
        last->len += out->text.len - at;
        return;
    }
    weft_buf_add(&out->text, event->id.data, event->id.len);
    struct message_piece *piece = out->text.failed ? NULL : add_piece(out);
    if (!piece) {
        out->failed = true;
        return;
    }
    *piece = (struct message_piece){.kind = event->kind,
                                    .call = event->call,
                                    .at = at,
                                    .len = event->text.len,
                                    .id_at = at + event->text.len,
                                    .id_len = event->id.len};
}

/* ------------------------------------------------------------------------------------ reading --- */

weft_err wefti_api_parser_new(const struct params *params, weft_msg_parser **parser_out) {
    const struct chat *chat = &params->chat;
    struct weft_msg_setup setup = {
        .format = chat->format,
        .tools = chat->choice == TOOLS_NONE ? NULL : chat->tools,
        .prompt_end = {chat->prompt_end, chat->n_prompt_end},
        .calls_max = chat->is_single,
        .is_constrained = chat->is_constrained,
    };
    WEFT_ASSERT(setup.format);
    return weft_msg_parser_new(&setup, parser_out);
}

void wefti_api_message_begin(struct choice *choice) {
    struct choice_view *view = &choice->view;
    const struct params *p = &choice->job->call->params;
    WEFT_ASSERT(!view->parser);
    if (p->chat.format && wefti_api_parser_new(p, &view->parser)) view->is_stopped = true;
}

/* A token that is read while the model thinks, and after which it still does, is one of its thoughts. */
static void feed(struct choice *choice, struct weft_str text, struct message_pieces *out) {
    struct choice_view *view = &choice->view;
    struct telling telling = {choice, out};
    if (!view->parser) {
        struct weft_msg_event event = {.kind = WEFT_MSG_CONTENT, .text = text};
        if (text.len > 0) tell(&telling, &event);
        return;
    }
    if (weft_msg_push(view->parser, text, tell, &telling)) out->failed = true;
}

void wefti_api_message_push(struct choice *choice, uint32_t pos, struct message_pieces *out) {
    struct choice_view *view = &choice->view;
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    bool thinks = view->parser && weft_msg_is_thinking(view->parser);
    wefti_api_text_push(choice, pos, &text);
    feed(choice, (struct weft_str){text.data ? (const char *)text.data : "", text.len}, out);
    view->n_thoughts += thinks && weft_msg_is_thinking(view->parser);
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
}

void wefti_api_message_flush(struct choice *choice, struct message_pieces *out) {
    struct choice_view *view = &choice->view;
    struct telling telling = {choice, out};
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    wefti_api_text_flush(choice, &text);
    feed(choice, (struct weft_str){text.data ? (const char *)text.data : "", text.len}, out);
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    if (!view->parser) return;
    if (weft_msg_finish(view->parser, tell, &telling)) out->failed = true;
    choice->n_calls = weft_msg_calls(view->parser);
    choice->is_call_cut = choice->job->call->params.chat.is_constrained && choice->n_calls > 0 &&
                          !weft_json_check_is_whole(&view->arguments);
    choice->n_thoughts = view->n_thoughts;
}

/* ------------------------------------------------------------------------------------ deltas --- */

const char *wefti_api_piece_text(const struct message_pieces *pieces,
                                 const struct message_piece *piece) {
    return piece->len ? (const char *)pieces->text.data + piece->at : "";
}

bool wefti_api_write_kind(const struct message_pieces *pieces, enum weft_msg_kind kind,
                          const char *key, struct weft_writer *w) {
    bool is_open = false;
    for (uint32_t i = 0; i < pieces->n; i++) {
        const struct message_piece *piece = &pieces->list[i];
        if (piece->kind != kind) continue;
        if (!is_open) {
            weft_write_key(w, key);
            weft_write_text_open(w);
        }
        is_open = true;
        weft_write_text_more(w, wefti_api_piece_text(pieces, piece), piece->len);
    }
    if (is_open) weft_write_text_close(w);
    return is_open;
}

static void open_delta_call(const struct choice *choice, const struct message_pieces *pieces,
                            const struct message_piece *piece, struct weft_writer *w) {
    char storage[WEFTI_API_CALL_ID_BYTES];
    weft_write_map(w);
    weft_write_key(w, "index");
    weft_write_uint(w, piece->call);
    if (piece->kind == WEFT_MSG_CALL) {
        struct weft_str id = wefti_api_call_id(choice, pieces, piece, "call_", storage);
        weft_write_key(w, "id");
        weft_write_text(w, id.data, id.len);
        weft_write_key(w, "type");
        weft_write_str(w, "function");
    }
    weft_write_key(w, "function");
    weft_write_map(w);
    if (piece->kind == WEFT_MSG_CALL) {
        weft_write_key(w, "name");
        weft_write_text(w, wefti_api_piece_text(pieces, piece), piece->len);
    }
    weft_write_key(w, "arguments");
    weft_write_text_open(w);
}

static void close_delta_call(struct weft_writer *w) {
    weft_write_text_close(w);
    weft_write_end(w);
    weft_write_end(w);
}

bool wefti_api_write_calls(const struct choice *choice, const struct message_pieces *pieces,
                           struct weft_writer *w) {
    bool is_list = false, is_open = false;
    uint32_t call = 0;
    for (uint32_t i = 0; i < pieces->n; i++) {
        const struct message_piece *piece = &pieces->list[i];
        bool is_call = piece->kind == WEFT_MSG_CALL;
        if (!is_call && piece->kind != WEFT_MSG_ARGUMENTS) continue;
        if (!is_list) {
            weft_write_key(w, "tool_calls");
            weft_write_list(w);
        }
        is_list = true;
        if (is_open && (is_call || piece->call != call)) {
            close_delta_call(w);
            is_open = false;
        }
        if (!is_open) open_delta_call(choice, pieces, piece, w);
        is_open = true;
        call = piece->call;
        if (!is_call) weft_write_text_more(w, wefti_api_piece_text(pieces, piece), piece->len);
    }
    if (is_open) close_delta_call(w);
    if (is_list) weft_write_end(w);
    return is_list;
}

/* -------------------------------------------------------------------------------------- ids --- */

static uint64_t digest_of_prompt(struct job *job) {
    if (!job->prompt_digest)
        job->prompt_digest = weft_digest_u64("prompt", (const char *)job->prompt->ids,
                                             job->prompt->n_ids * sizeof *job->prompt->ids) |
                             1;
    return job->prompt_digest;
}

/* A conversation that is held again under the same seed has the same ids, as some templates show them; its turns
 * have different ones. */
struct weft_str wefti_api_call_id(const struct choice *choice, const struct message_pieces *pieces,
                                  const struct message_piece *piece, const char *prefix,
                                  char storage[WEFTI_API_CALL_ID_BYTES]) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    struct job *job = choice->job;
    WEFT_ASSERT(piece->kind == WEFT_MSG_CALL);
    if (piece->id_len > 0)
        return (struct weft_str){(const char *)pieces->text.data + piece->id_at, piece->id_len};
    const uint64_t of[] = {job->seed, digest_of_prompt(job), choice->idx, piece->call};
    struct weft_digest digest = weft_digest_of("tool call", (const char *)of, sizeof of);
    const weft_msg_format *format = job->call->params.chat.format;
    if (format && weft_msg_format_ids(format) == WEFT_MSG_IDS_NINE) {
        for (size_t i = 0; i < 9; i++, digest.lo /= 36)
            storage[i] = letters[digest.lo % 36];
        return (struct weft_str){storage, 9};
    }
    int n = snprintf(storage, WEFTI_API_CALL_ID_BYTES, "%s%016" PRIx64 "%08" PRIx64, prefix,
                     digest.hi, digest.lo & 0xFFFFFFFF);
    return (struct weft_str){storage, (size_t)n};
}

/* ------------------------------------------------------------------------------------ bodies --- */

bool wefti_api_message_read(const struct body_piece *at, struct message_pieces *pieces) {
    struct render *r = &at->call->render;
    uint32_t n = wefti_api_seq_len(at->choice);
    if (!r->is_reading) wefti_api_text_begin(at->choice);
    r->is_reading = true;
    while (r->pos < n && at->w->out->len + pieces->text.len < at->limit)
        wefti_api_message_push(at->choice, (uint32_t)r->pos++, pieces);
    if (r->pos < n) return false;
    wefti_api_message_flush(at->choice, pieces);
    r->is_reading = false;
    at->choice->is_read = true;
    return true;
}

static void note_failure(const struct body_piece *at, const struct message_pieces *pieces) {
    if (pieces->failed || pieces->text.failed) at->w->out->failed = true;
}

/* Known to have none of it, once all of it has been read. */
static bool has_none(const struct choice *choice, enum weft_msg_kind kind) {
    if (!choice->is_read) return false;
    return (kind == WEFT_MSG_THOUGHT && !choice->has_thoughts) ||
           (kind == WEFT_MSG_CALL && choice->n_calls == 0);
}

void wefti_api_open_text(const struct body_piece *at, const char *key) {
    weft_write_key(at->w, key);
    weft_write_text_open(at->w);
    at->call->render.is_text_open = true;
}

static void close_text(const struct body_piece *at, const char *key, bool is_optional) {
    struct render *r = &at->call->render;
    const struct choice *choice = at->choice;
    if (r->is_text_open) {
        weft_write_text_close(at->w);
    } else if (!is_optional) {
        weft_write_key(at->w, key);
        if (choice->n_calls > 0 || choice->has_thoughts)
            weft_write_null(at->w);
        else
            weft_write_str(at->w, "");
    }
    r->is_text_open = false;
}

bool wefti_api_kind_part(const struct body_piece *at, enum weft_msg_kind kind, const char *key,
                         bool is_optional) {
    struct message_pieces pieces;
    if (has_none(at->choice, kind)) {
        close_text(at, key, is_optional);
        return true;
    }
    wefti_api_pieces_init(&pieces);
    bool is_done = wefti_api_message_read(at, &pieces);
    for (uint32_t i = 0; i < pieces.n; i++) {
        const struct message_piece *piece = &pieces.list[i];
        if (piece->kind != kind || piece->len == 0) continue;
        if (!at->call->render.is_text_open) wefti_api_open_text(at, key);
        weft_write_text_more(at->w, (const char *)pieces.text.data + piece->at, piece->len);
    }
    note_failure(at, &pieces);
    wefti_api_pieces_fini(&pieces);
    if (is_done) close_text(at, key, is_optional);
    return is_done;
}

static void close_call(const struct body_piece *at, const struct call_writer *writer) {
    struct render *r = &at->call->render;
    if (!r->is_text_open) return;
    weft_write_text_close(at->w);
    writer->close(at->w);
    r->is_text_open = false;
}

static void open_call(const struct body_piece *at, const struct call_writer *writer,
                      const struct message_pieces *pieces, const struct message_piece *piece) {
    char storage[WEFTI_API_CALL_ID_BYTES];
    struct weft_str name = {(const char *)pieces->text.data + piece->at, piece->len};
    struct weft_str id = wefti_api_call_id(at->choice, pieces, piece, writer->id_prefix, storage);
    close_call(at, writer);
    writer->open(at->choice, piece->call, id, name, at->w);
    at->call->render.is_text_open = true;
}

bool wefti_api_calls_part(const struct body_piece *at, const struct call_writer *writer) {
    struct message_pieces pieces;
    if (has_none(at->choice, WEFT_MSG_CALL)) return true;
    wefti_api_pieces_init(&pieces);
    bool is_done = wefti_api_message_read(at, &pieces);
    for (uint32_t i = 0; i < pieces.n; i++) {
        const struct message_piece *piece = &pieces.list[i];
        if (piece->kind == WEFT_MSG_CALL)
            open_call(at, writer, &pieces, piece);
        else if (piece->kind == WEFT_MSG_ARGUMENTS)
            weft_write_text_more(at->w, (const char *)pieces.text.data + piece->at, piece->len);
    }
    note_failure(at, &pieces);
    wefti_api_pieces_fini(&pieces);
    if (is_done) close_call(at, writer);
    return is_done;
}
