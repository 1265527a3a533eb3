#include "render/token_ids.h"

#include "base/check.h"
#include "call/call_internal.h"
#include "render/choice_text.h"
#include "render/render.h"

/* ------------------------------------------------------------------------------------ parts --- */

static void prompt_item(const struct body_piece *at, uint32_t pos) {
    const weft_api_call *call = at->call;
    const struct prompt *prompt = at->choice ? at->choice->job->prompt : &call->params.prompts[0];
    weft_write_uint(at->w, prompt->ids[pos]);
}

bool wefti_api_ids_prompt_part(const struct body_piece *at) {
    const weft_api_call *call = at->call;
    if (!call->params.return_ids) return true;
    const struct prompt *prompt = at->choice ? at->choice->job->prompt : &call->params.prompts[0];
    return wefti_api_render_list(at, "prompt_token_ids", (uint32_t)prompt->n_ids, prompt_item);
}

static void output_item(const struct body_piece *at, uint32_t pos) {
    weft_write_uint(at->w, at->choice->tokens[pos]);
}

bool wefti_api_ids_output_part(const struct body_piece *at) {
    if (!at->call->params.return_ids) return true;
    return wefti_api_render_list(at, "token_ids", at->choice->n_tokens, output_item);
}

/* ---------------------------------------------------------------------------------- streams --- */

void wefti_api_ids_of_chunk(const struct render_chunk *chunk, struct weft_writer *w) {
    const struct choice *choice = chunk->choice;
    if (!choice->job->call->params.return_ids) return;
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    weft_write_key(w, "token_ids");
    weft_write_list(w);
    for (uint32_t pos = chunk->from > n_echoed ? chunk->from : n_echoed; pos < chunk->to; pos++)
        weft_write_uint(w, wefti_api_seq_token(choice, pos));
    weft_write_end(w);
}

struct choice *wefti_api_ids_begun(weft_api_call *call) {
    struct choice *choice = STAILQ_FIRST(&call->unrendered);
    if (!choice || call->is_rpc || !call->params.return_ids) return NULL;
    WEFT_ASSERT(call->kind->ids_parts);
    return choice->view.is_opened ? NULL : choice;
}

bool wefti_api_ids_write_first(struct choice *choice, struct weft_buf *out, size_t limit) {
    weft_api_call *call = choice->job->call;
    struct render *r = &call->render;
    const struct weft_api_framing *framing = call->kind->framing;
    if (!r->is_open) {
        weft_buf_add_str(out, framing->before);
        weft_writer_init(&r->writer, WEFT_WRITE_JSON, out);
        r->is_open = true;
    }
    r->writer.out = out;
    const struct body_piece at = {call, choice, &r->writer, limit};
    for (; call->kind->ids_parts[r->part]; r->part++, r->pos = 0) {
        if (!call->kind->ids_parts[r->part](&at)) return false;
    }
    WEFT_ASSERT(r->writer.depth == 0);
    weft_buf_add_str(out, framing->after);
    if (!choice->view.is_begun) wefti_api_text_begin(choice);
    choice->view.is_opened = true;
    r->is_open = false;
    r->part = 0;
    return true;
}
