#include "render/choice_text.h"

#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/call_internal.h"
#include "codec/json_out.h"
#include "codec/utf8.h"
#include "render/message.h"

#define TOKEN_BYTES_MAX (1u << 20)
#define TEXT_BYTES_MAX (16u << 20) /* bound of one token or an echoed prompt */

/* -------------------------------------------------------------------------------- positions --- */

uint32_t wefti_api_seq_echoed(const struct choice *choice) {
    const struct job *job = choice->job;
    return job->call->params.echo ? (uint32_t)job->prompt->n_ids : 0;
}

uint32_t wefti_api_seq_len(const struct choice *choice) {
    return wefti_api_seq_echoed(choice) + choice->n_tokens;
}

uint32_t wefti_api_seq_token(const struct choice *choice, uint32_t pos) {
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    WEFT_ASSERT(pos < n_echoed + choice->n_tokens);
    return pos < n_echoed ? choice->job->prompt->ids[pos] : choice->tokens[pos - n_echoed];
}

/* The token that ended a choice belongs to its output, but not to its text. */
static bool is_silent(const struct choice *choice, uint32_t pos) {
    if (choice->end != WEFT_END_STOP && choice->end != WEFT_END_STOP_TOKEN) return false;
    return pos + 1 == wefti_api_seq_len(choice) && !choice->job->call->params.include_stop;
}

/* ------------------------------------------------------------------------------------- text --- */

void wefti_api_view_fini(struct choice_view *view) {
    weft_stop_free(view->stop);
    weft_msg_parser_free(view->parser);
    view->stop = NULL;
    view->parser = NULL;
}

void wefti_api_text_begin(struct choice *choice) {
    struct choice_view *view = &choice->view;
    const weft_api_call *call = choice->job->call;
    const struct params *p = &call->params;
    const struct prompt *prompt = choice->job->prompt;
    WEFT_ASSERT(!view->is_closed || call->state == WEFT_API_CALL_DONE);
    wefti_api_view_fini(view);
    memset(view, 0, sizeof *view);
    view->is_begun = true;
    weft_detok_init(&view->detok, call->api->tok, p->skip_special);
    weft_detok_init(&view->offset_detok, call->api->tok, p->skip_special);
    /* Text that follows a prompt keeps its leading space. */
    if (!p->echo || prompt->echo) view->detok.at_start = false;
    if (!p->echo) view->offset_detok.at_start = false;
    if (call->kind->tells_messages) wefti_api_message_begin(choice);
    if (!call->stop_set) return;
    weft_err err = weft_stop_new(call->stop_set, p->include_stop, &view->stop);
    /* Without memory for a matcher nothing may pass: no text is better than too much. */
    view->is_stopped = view->is_stopped || err != WEFT_OK;
}

/* Special tokens are no text, but those that mark thoughts and calls are for the parser to see. */
static void decode(const struct choice *choice, struct weft_detok *detok, uint32_t token,
                   struct weft_buf *text) {
    const struct chat *chat = &choice->job->call->params.chat;
    bool skips = detok->skip_special;
    if (skips && chat->format && weft_tok_is_special(detok->tok, token)) {
        struct weft_str bytes;
        bytes.data = weft_tok_token_bytes(detok->tok, token, &bytes.len);
        detok->skip_special = !weft_msg_is_mark(chat->format, bytes);
    }
    weft_detok_push(detok, token, text);
    detok->skip_special = skips;
}

/* As in vLLM, nothing stops a choice within min_tokens; but what begins there may stop it later. */
static bool feed_stop(struct weft_stop *stop, bool is_early, const struct weft_buf *piece,
                      struct weft_buf *out, size_t *which_out) {
    if (piece->len == 0) return false;
    if (!is_early) return weft_stop_push(stop, piece->data, piece->len, out, which_out);
    weft_stop_pass(stop, piece->data, piece->len, out);
    return false;
}

void wefti_api_text_push(struct choice *choice, uint32_t pos, struct weft_buf *text) {
    struct choice_view *view = &choice->view;
    const struct params *p = &choice->job->call->params;
    const struct prompt *prompt = choice->job->prompt;
    uint32_t n_echoed = wefti_api_seq_echoed(choice), token = wefti_api_seq_token(choice, pos);
    if (pos < n_echoed) {
        if (!prompt->echo) weft_detok_push(&view->detok, token, text);
        return;
    }
    if (view->is_stopped || is_silent(choice, pos)) return;
    if (!view->stop) {
        decode(choice, &view->detok, token, text);
        return;
    }
    struct weft_buf piece;
    weft_buf_init(&piece, TEXT_BYTES_MAX);
    decode(choice, &view->detok, token, &piece);
    size_t which;
    bool is_early = pos - n_echoed + 1 <= p->sampling.min_tokens;
    view->is_stopped = feed_stop(view->stop, is_early, &piece, text, &which);
    weft_buf_fini(&piece);
}

void wefti_api_text_flush(struct choice *choice, struct weft_buf *text) {
    struct choice_view *view = &choice->view;
    if (!view->is_stopped) {
        if (view->stop) weft_stop_finish(view->stop, text);
        weft_detok_finish(&view->detok, text);
    }
    weft_stop_free(view->stop);
    view->stop = NULL;
}

uint64_t wefti_api_text_offset(struct choice *choice, uint32_t pos) {
    struct choice_view *view = &choice->view;
    uint64_t at = view->n_chars;
    if (is_silent(choice, pos)) return at;
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    weft_detok_push(&view->offset_detok, wefti_api_seq_token(choice, pos), &text);
    view->n_chars += weft_utf8_count(text.data ? text.data : "", text.len);
    weft_buf_fini(&text);
    return at;
}

/* ----------------------------------------------------------------------------------- scans --- */

/* A prompt echoed from its ids may end within a character, so its last bytes matter. */
struct weft_detok wefti_api_scan_detok(const struct job *job) {
    const weft_api_call *call = job->call;
    const struct prompt *prompt = job->prompt;
    const struct params *p = &call->params;
    const weft_tokenizer *tok = call->api->tok;
    struct weft_detok detok;
    struct weft_buf ignored;
    weft_detok_init(&detok, tok, p->skip_special);
    size_t from = prompt->n_ids, n_bytes = 0;
    bool is_continued = !p->echo || prompt->echo; /* text that keeps its leading space */
    while (!is_continued && from > 0 && n_bytes < sizeof detok.pending) {
        size_t len;
        bool is_special = weft_tok_is_special(tok, prompt->ids[--from]);
        (void)weft_tok_token_bytes(tok, prompt->ids[from], &len);
        if (!is_special || !p->skip_special) n_bytes += len;
    }
    if (is_continued || from > 0) detok.at_start = false;
    weft_buf_init(&ignored, TOKEN_BYTES_MAX);
    for (; from < prompt->n_ids; from++)
        weft_detok_push(&detok, prompt->ids[from], &ignored);
    weft_buf_fini(&ignored);
    return detok;
}

weft_err wefti_api_scan_begin(struct choice *choice, const struct weft_detok *detok) {
    const weft_api_call *call = choice->job->call;
    const struct chat *chat = &call->params.chat;
    WEFT_ASSERT(!choice->scan.stop && !choice->scan.parser);
    choice->scan.detok = *detok;
    /* A grammar that ends with the one call ends the output by itself. */
    bool may_end = chat->format && chat->is_single && chat->tools && chat->choice != TOOLS_NONE;
    if (may_end && !chat->is_constrained) {
        weft_err err = wefti_api_parser_new(&call->params, &choice->scan.parser);
        if (err) return err;
    }
    if (!call->stop_set) return WEFT_OK;
    return weft_stop_new(call->stop_set, call->params.include_stop, &choice->scan.stop);
}

void wefti_api_scan_fini(struct choice_scan *scan) {
    weft_stop_free(scan->stop);
    weft_msg_parser_free(scan->parser);
    scan->stop = NULL;
    scan->parser = NULL;
}

static void ignore(void *context, const struct weft_msg_event *event) {
    (void)context;
    (void)event;
}

/* Whether the one call has come, which the view will tell. Without memory for it the choice goes on. */
static bool completes_call(struct choice_scan *scan, const struct weft_buf *text) {
    if (!scan->parser || text->len == 0) return false;
    struct weft_str piece = {(const char *)text->data, text->len};
    if (weft_msg_push(scan->parser, piece, ignore, NULL)) return false;
    return weft_msg_is_over(scan->parser);
}

enum weft_end wefti_api_scan_push(struct choice *choice, uint32_t token) {
    struct choice_scan *scan = &choice->scan;
    const struct params *p = &choice->job->call->params;
    struct weft_buf text, passed;
    weft_buf_init(&text, TOKEN_BYTES_MAX);
    weft_buf_init(&passed, 2 * TOKEN_BYTES_MAX);
    decode(choice, &scan->detok, token, &text);
    size_t which = 0;
    bool is_early = choice->n_tokens <= p->sampling.min_tokens;
    bool hit = scan->stop && feed_stop(scan->stop, is_early, &text, &passed, &which);
    bool is_called = completes_call(scan, &text);
    choice->stop_idx = (uint32_t)which;
    weft_buf_fini(&text);
    weft_buf_fini(&passed);
    return hit ? WEFT_END_STOP_STRING : is_called ? WEFT_END_COMPLETE : WEFT_END_NONE;
}
