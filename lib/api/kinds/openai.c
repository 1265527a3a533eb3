#include "kinds/openai.h"

#include <string.h>

#include "base/check.h"
#include "render/choice_text.h"

void wefti_api_openai_open(const weft_api_call *call, const char *object, struct weft_writer *w) {
    char fingerprint[WEFT_API_FINGERPRINT_BYTES];
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, call->id);
    weft_write_key(w, "object");
    weft_write_str(w, object);
    weft_write_key(w, "created");
    weft_write_int(w, call->created_s);
    weft_write_key(w, "model");
    weft_write_str(w, call->model_name);
    weft_write_key(w, "system_fingerprint");
    weft_write_str(w, wefti_api_call_fingerprint(call, fingerprint));
    weft_write_key(w, "choices");
    weft_write_list(w);
}

/* Written once per call: every chunk of a stream begins with it. */
void wefti_api_openai_open_chunk(weft_api_call *call, const char *object, struct weft_writer *w) {
    struct weft_buf *head = &call->chunk_head, *out = w->out;
    WEFT_ASSERT(w->format == WEFT_WRITE_JSON && w->depth == 0);
    if (head->len == 0) {
        weft_writer_init(&call->chunk_writer, WEFT_WRITE_JSON, head);
        wefti_api_openai_open(call, object, &call->chunk_writer);
    }
    *w = call->chunk_writer;
    w->out = out;
    weft_buf_add(out, head->data, head->len);
    if (head->failed) out->failed = true;
}

void wefti_api_openai_usage(const weft_api_call *call, uint64_t n_output, struct weft_writer *w) {
    uint32_t n_prompt = wefti_api_prompt_tokens(call);
    weft_write_key(w, "usage");
    weft_write_map(w);
    weft_write_key(w, "prompt_tokens");
    weft_write_uint(w, n_prompt);
    weft_write_key(w, "total_tokens");
    weft_write_uint(w, n_prompt + n_output);
    weft_write_key(w, "completion_tokens");
    weft_write_uint(w, n_output);
    weft_write_key(w, "prompt_tokens_details");
    weft_write_map(w);
    weft_write_key(w, "cached_tokens");
    weft_write_uint(w, wefti_api_cached_tokens(call));
    weft_write_end(w);
    if (call->kind->tells_messages) {
        weft_write_key(w, "completion_tokens_details");
        weft_write_map(w);
        weft_write_key(w, "reasoning_tokens");
        weft_write_uint(w, wefti_api_thought_tokens(call));
        weft_write_end(w);
    }
    weft_write_end(w);
}

void wefti_api_openai_close_chunk(const weft_api_call *call, struct weft_writer *w) {
    weft_write_end(w);
    wefti_api_openai_end_chunk(call, w);
}

void wefti_api_openai_end_chunk(const weft_api_call *call, struct weft_writer *w) {
    if (call->params.continuous_usage) {
        wefti_api_openai_usage(call, call->render.n_streamed, w);
    } else if (call->params.include_usage) {
        weft_write_key(w, "usage");
        weft_write_null(w);
    }
    weft_write_end(w);
}

/* Calls that a stop string has cut are none to be made. */
static const char *finish_reason(const struct choice *choice) {
    if (choice->end == WEFT_END_LENGTH) return "length";
    return choice->n_calls > 0 && !choice->is_call_cut ? "tool_calls" : "stop";
}

void wefti_api_openai_finish(const struct choice *choice, bool is_last, struct weft_writer *w) {
    enum weft_end end = is_last ? choice->end : WEFT_END_NONE;
    WEFT_ASSERT(!is_last || end != WEFT_END_NONE);
    const struct params *p = &choice->job->call->params;
    weft_write_key(w, "finish_reason");
    if (end == WEFT_END_NONE)
        weft_write_null(w);
    else
        weft_write_str(w, finish_reason(choice));
    weft_write_key(w, "stop_reason");
    if (end == WEFT_END_STOP_TOKEN)
        weft_write_uint(w, choice->tokens[choice->n_tokens - 1]);
    else if (end == WEFT_END_STOP_STRING)
        weft_write_text(w, p->stops[choice->stop_idx], p->stop_lens[choice->stop_idx]);
    else
        weft_write_null(w);
}

void wefti_api_openai_end_stream(weft_api_call *call, const char *object, struct weft_buf *out) {
    if (call->params.include_usage) {
        struct weft_writer w;
        weft_writer_init(&w, WEFT_WRITE_JSON, out);
        weft_buf_add_str(out, "data: ");
        wefti_api_openai_open_chunk(call, object, &w);
        weft_write_end(&w);
        wefti_api_openai_usage(call, wefti_api_output_tokens(call), &w);
        weft_write_end(&w);
        weft_buf_add_str(out, "\n\n");
    }
    weft_buf_add_str(out, "data: [DONE]\n\n");
}

/* ------------------------------------------------------------------------------------ parts --- */

bool wefti_api_openai_finish_part(const struct body_piece *at) {
    wefti_api_openai_finish(at->choice, true, at->w);
    return true;
}

bool wefti_api_openai_close_part(const struct body_piece *at) {
    weft_write_end(at->w);
    return true;
}

bool wefti_api_openai_usage_part(const struct body_piece *at) {
    wefti_api_openai_usage(at->call, wefti_api_output_tokens(at->call), at->w);
    weft_write_end(at->w);
    return true;
}
