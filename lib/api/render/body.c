/* Answers that are not streamed, rendered part by part (kinds/kind.h). */
#include "render/render.h"

#include "api/api.h"
#include "base/check.h"
#include "call/call_internal.h"
#include "render/choice_text.h"

#define TEXT_BYTES_MAX (16u << 20)
#define ECHO_BYTES_PER_PIECE 16384

/* ------------------------------------------------------------------------------------ parts --- */

bool wefti_api_render_list(const struct body_piece *at, const char *key, uint32_t n,
                           body_item item) {
    struct render *r = &at->call->render;
    WEFT_ASSERT(r->pos <= n);
    if (r->pos == 0) {
        weft_write_key(at->w, key);
        weft_write_list(at->w);
    }
    while (r->pos < n) {
        item(at, (uint32_t)r->pos++);
        if (at->w->out->len >= at->limit && r->pos < n) return false;
    }
    weft_write_end(at->w);
    return true;
}

size_t wefti_api_echo_end(const struct choice *choice, size_t from) {
    const struct prompt *prompt = choice->job->prompt;
    WEFT_ASSERT(from <= prompt->text_len);
    size_t end = from + ECHO_BYTES_PER_PIECE;
    if (end > prompt->text_len) end = prompt->text_len;
    while (end < prompt->text_len && ((unsigned char)prompt->echo[end] & 0xC0) == 0x80)
        end++;
    return end;
}

bool wefti_api_echo_part(const struct body_piece *at) {
    struct render *r = &at->call->render;
    const struct prompt *prompt = at->choice->job->prompt;
    if (!prompt->echo) return true;
    while (r->pos < prompt->text_len) {
        size_t end = wefti_api_echo_end(at->choice, r->pos);
        weft_write_text_more(at->w, prompt->echo + r->pos, end - r->pos);
        r->pos = end;
        if (at->w->out->len >= at->limit) return r->pos == prompt->text_len;
    }
    return true;
}

bool wefti_api_text_part(const struct body_piece *at) {
    struct render *r = &at->call->render;
    struct weft_buf text, *out = at->w->out;
    uint32_t n = wefti_api_seq_len(at->choice);
    weft_buf_init(&text, TEXT_BYTES_MAX);
    while (r->pos < n && out->len + text.len < at->limit)
        wefti_api_text_push(at->choice, (uint32_t)r->pos++, &text);
    bool is_done = r->pos == n;
    if (is_done) wefti_api_text_flush(at->choice, &text);
    weft_write_text_more(at->w, text.data ? text.data : "", text.len);
    if (is_done) weft_write_text_close(at->w);
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    return is_done;
}

void wefti_api_spell_begin(const struct body_piece *at) {
    weft_detok_init(&at->call->render.detok, at->call->api->tok, false);
    weft_write_text_open(at->w);
}

bool wefti_api_spell_part(const struct body_piece *at) {
    struct render *r = &at->call->render;
    const struct prompt *prompt = &at->call->params.prompts[0];
    struct weft_buf text, *out = at->w->out;
    WEFT_ASSERT(r->pos <= prompt->n_ids);
    weft_buf_init(&text, out->max_bytes);
    while (r->pos < prompt->n_ids && out->len + text.len < at->limit)
        weft_detok_push(&r->detok, prompt->ids[r->pos++], &text);
    bool is_done = r->pos == prompt->n_ids;
    if (is_done) weft_detok_finish(&r->detok, &text);
    weft_write_text_more(at->w, text.data ? text.data : "", text.len);
    if (is_done) weft_write_text_close(at->w);
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    return is_done;
}

/* --------------------------------------------------------------------------------- the body --- */

/* The part to be written next; NULL at the end. */
static body_part current_part(const weft_api_call *call) {
    const struct render *r = &call->render;
    if (r->choice < call->n_shown) return call->kind->choice_parts[r->part];
    return call->kind->end_parts[r->part];
}

static void next_part(weft_api_call *call) {
    struct render *r = &call->render;
    r->pos = 0;
    r->part++;
    if (r->choice == call->n_shown || current_part(call)) return;
    r->part = 0;
    r->choice++;
}

enum weft_api_render weft_api_render_body(weft_api_call *call, struct weft_buf *out,
                                          size_t budget) {
    struct render *r = &call->render;
    WEFT_ASSERT(call->state == WEFT_API_CALL_DONE);
    struct body_piece at = {.call = call, .w = &r->writer, .limit = out->len + budget};
    if (!r->is_open) {
        bool is_rpc = call->is_rpc;
        weft_writer_init(&r->writer, is_rpc ? WEFT_WRITE_MSGPACK : WEFT_WRITE_JSON, out);
        call->kind->open_body(call, &r->writer);
        r->is_open = true;
    }
    r->writer.out = out;
    for (body_part part; (part = current_part(call)); next_part(call)) {
        if (out->len >= at.limit) return WEFT_API_RENDER_MORE;
        if (call->n_shown > 0)
            at.choice = &call->choices[r->choice < call->n_shown ? r->choice : 0];
        if (!part(&at)) return WEFT_API_RENDER_MORE;
    }
    WEFT_ASSERT(r->writer.depth == 0);
    return WEFT_API_RENDER_DONE;
}

void wefti_api_render_rewind(weft_api_call *call) {
    call->render = (struct render){0};
}
