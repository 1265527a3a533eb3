#include "render/render.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/call.h"
#include "codec/json_out.h"
#include "codec/utf8.h"
#include "render/render_logprobs.h"
#include "render/render_tokens.h"

#define TEXT_BYTES_MAX (16u << 20) /* of one token, or of an echoed prompt */
#define ECHO_TOKENS_PER_CHUNK 32
#define ECHO_BYTES_PER_PIECE 16384

/* -------------------------------------------------------------------------------- positions --- */

uint32_t wefti_api_seq_echoed(const struct choice *choice) {
    const struct job *job = choice->job;
    return job->call->params.echo ? (uint32_t)job->prompt->n_ids : 0;
}

static uint32_t seq_len(const struct choice *choice) {
    return wefti_api_seq_echoed(choice) + choice->n_tokens;
}

uint32_t wefti_api_seq_token(const struct choice *choice, uint32_t pos) {
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    return pos < n_echoed ? choice->job->prompt->ids[pos] : choice->tokens[pos - n_echoed];
}

/* The token that ended a choice belongs to its output, but not to its text. */
static bool is_silent(const struct choice *choice, uint32_t pos) {
    if (choice->end != WEFT_END_STOP && choice->end != WEFT_END_STOP_TOKEN) return false;
    return pos + 1 == seq_len(choice) && !choice->job->call->params.include_stop;
}

/* ------------------------------------------------------------------------------------- text --- */

void wefti_api_view_fini(struct choice_view *view) {
    weft_stop_free(view->stop);
    view->stop = NULL;
}

static void view_begin(struct choice *choice) {
    struct choice_view *view = &choice->view;
    const weft_api_call *call = choice->job->call;
    const struct params *p = &call->params;
    const struct prompt *prompt = choice->job->prompt;
    wefti_api_view_fini(view);
    memset(view, 0, sizeof *view);
    view->is_begun = true;
    weft_detok_init(&view->detok, call->api->tok, p->skip_special);
    weft_detok_init(&view->offset_detok, call->api->tok, p->skip_special);
    /* Text that follows a prompt keeps its leading space. */
    if (!p->echo || prompt->echo) view->detok.at_start = false;
    if (!p->echo) view->offset_detok.at_start = false;
    if (!call->stop_set) return;
    weft_err err = weft_stop_new(call->stop_set, p->include_stop, &view->stop);
    /* Without memory for a matcher nothing may pass: better no text than too much of it. */
    view->is_stopped = err != WEFT_OK;
}

/* As in vLLM, nothing stops a choice within min_tokens; but what begins there may stop it later. */
bool wefti_api_stop_feed(struct weft_stop *stop, bool is_early, const struct weft_buf *piece,
                         struct weft_buf *out, size_t *which_out) {
    if (piece->len == 0) return false;
    if (!is_early) return weft_stop_push(stop, piece->data, piece->len, out, which_out);
    weft_stop_pass(stop, piece->data, piece->len, out);
    return false;
}

/* Appends what the token at `pos` adds to the text. */
static void push_text(struct choice *choice, uint32_t pos, struct weft_buf *text) {
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
        weft_detok_push(&view->detok, token, text);
        return;
    }
    struct weft_buf piece;
    weft_buf_init(&piece, TEXT_BYTES_MAX);
    weft_detok_push(&view->detok, token, &piece);
    size_t which;
    bool is_early = pos - n_echoed + 1 <= p->sampling.min_tokens;
    view->is_stopped = wefti_api_stop_feed(view->stop, is_early, &piece, text, &which);
    weft_buf_fini(&piece);
}

/* What was held back, once it is certain that nothing more comes. */
static void flush_text(struct choice *choice, struct weft_buf *text) {
    struct choice_view *view = &choice->view;
    if (!view->is_stopped) {
        if (view->stop) weft_stop_finish(view->stop, text);
        weft_detok_finish(&view->detok, text);
    }
    wefti_api_view_fini(view);
}

uint64_t wefti_api_seq_offset(struct choice *choice, uint32_t pos) {
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

static void add_text(struct weft_buf *out, const struct weft_buf *text) {
    weft_json_text(out, text->data ? text->data : "", text->len);
}

/* ----------------------------------------------------------------------------- common parts --- */

static void add_head(const weft_api_call *call, bool is_chunk, struct weft_buf *out) {
    const char *object = "text_completion";
    if (call->kind == CALL_CHAT) object = is_chunk ? "chat.completion.chunk" : "chat.completion";
    weft_buf_printf(out,
                    "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", call->id,
                    object, call->created_s);
    weft_json_str(out, call->model_name, strlen(call->model_name));
    weft_buf_add_str(out, ",\"system_fingerprint\":");
    weft_json_str(out, call->fingerprint, strlen(call->fingerprint));
    weft_buf_add_str(out, ",\"choices\":[");
}

/* The same, written once per call: a stream begins each of its chunks so. */
static void add_chunk_head(weft_api_call *call, struct weft_buf *out) {
    struct weft_buf *head = &call->chunk_head;
    if (head->len == 0) add_head(call, true, head);
    weft_buf_add(out, head->data, head->len);
    if (head->failed) out->failed = true;
}

static void add_usage(const weft_api_call *call, uint64_t n_output, struct weft_buf *out) {
    uint32_t n_prompt = weft_api_call_prompt_tokens(call);
    weft_buf_printf(out,
                    "\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%" PRIu64
                    ",\"completion_tokens\":%" PRIu64
                    ",\"prompt_tokens_details\":{\"cached_tokens\":%u}}",
                    n_prompt, n_prompt + n_output, n_output, weft_api_call_cached_tokens(call));
}

static void add_finish(const struct choice *choice, bool is_last, struct weft_buf *out) {
    enum weft_end end = is_last ? choice->end : WEFT_END_NONE;
    const struct params *p = &choice->job->call->params;
    if (end == WEFT_END_NONE) { /* nearly always */
        weft_buf_add_str(out, "\"finish_reason\":null,\"stop_reason\":null");
        return;
    }
    const char *reason = end == WEFT_END_LENGTH ? "\"length\"" : "\"stop\"";
    weft_buf_printf(out, "\"finish_reason\":%s,\"stop_reason\":", reason);
    if (end == WEFT_END_STOP_TOKEN)
        weft_buf_printf(out, "%u", choice->tokens[choice->n_tokens - 1]);
    else if (end == WEFT_END_STOP_STRING)
        weft_json_str(out, p->stops[choice->stop_idx], p->stop_lens[choice->stop_idx]);
    else
        weft_buf_add_str(out, "null");
}

/* ----------------------------------------------------------------------------------- bodies --- */

/* A body is a sequence of parts per choice. Each part is entered until it says that it is done, and
 * does at least one item each time, so that it knows by its position whether it was here before. */
enum part {
    PART_OPEN,
    PART_ECHO,
    PART_TEXT,
    PART_TOKENS,
    PART_VALUES,
    PART_TOP,
    PART_OFFSETS,
    PART_ITEMS,
    PART_FINISH,
    PART_PROMPT_LPS,
    PART_CLOSE,
    PART_CHOICES_END, /* from here on once, behind all choices */
    PART_CHAT_PROMPT_LPS,
    PART_TAIL,
    PART_END,
};

typedef void (*item_fn)(struct choice *choice, uint32_t pos, struct weft_buf *out);

static bool list_part(struct render *r, struct choice *choice, uint32_t n, const char *open,
                      item_fn item, const char *close, size_t limit, struct weft_buf *out) {
    if (r->pos == 0) weft_buf_add_str(out, open);
    while (r->pos < n) {
        if (r->pos > 0) weft_buf_add_char(out, ',');
        item(choice, (uint32_t)r->pos++, out);
        if (out->len >= limit && r->pos < n) return false;
    }
    weft_buf_add_str(out, close);
    return true;
}

/* Where the piece of an echoed text ends that begins at `from`: not within a character. */
static size_t echo_end(const struct prompt *prompt, size_t from) {
    size_t end = from + ECHO_BYTES_PER_PIECE;
    if (end > prompt->text_len) end = prompt->text_len;
    while (end < prompt->text_len && ((unsigned char)prompt->echo[end] & 0xC0) == 0x80)
        end++;
    return end;
}

static bool echo_part(struct render *r, const struct choice *choice, size_t limit,
                      struct weft_buf *out) {
    const struct prompt *prompt = choice->job->prompt;
    while (prompt->echo && r->pos < prompt->text_len) {
        size_t end = echo_end(prompt, r->pos);
        weft_json_text(out, prompt->echo + r->pos, end - r->pos);
        r->pos = end;
        if (out->len >= limit) return r->pos == prompt->text_len;
    }
    return true;
}

static bool text_part(struct render *r, struct choice *choice, size_t limit, struct weft_buf *out) {
    uint32_t n = seq_len(choice);
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    while (r->pos < n && out->len + text.len < limit)
        push_text(choice, (uint32_t)r->pos++, &text);
    bool is_done = r->pos == n;
    if (is_done) flush_text(choice, &text);
    add_text(out, &text);
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    return is_done;
}

static void open_choice(struct choice *choice, struct weft_buf *out) {
    view_begin(choice);
    weft_buf_printf(out, "%s{\"index\":%u,", choice->index ? "," : "", choice->index);
    weft_buf_add_str(out, choice->job->call->kind == CALL_CHAT
                              ? "\"message\":{\"role\":\"assistant\",\"content\":\""
                              : "\"text\":\"");
}

static void offset_item(struct choice *choice, uint32_t pos, struct weft_buf *out) {
    weft_buf_printf(out, "%" PRIu64, wefti_api_seq_offset(choice, pos));
}

static void add_tail(const weft_api_call *call, struct weft_buf *out) {
    weft_buf_add_char(out, ',');
    add_usage(call, weft_api_call_output_tokens(call), out);
    weft_buf_add_char(out, '}');
}

/* True when the part is done. */
static bool do_part(weft_api_call *call, struct choice *choice, size_t limit,
                    struct weft_buf *out) {
    struct render *r = &call->render;
    const struct params *p = &call->params;
    bool is_chat = call->kind == CALL_CHAT, has_lps = p->logprobs >= 0;
    bool has_legacy = has_lps && !is_chat;
    uint32_t n = seq_len(choice), n_prompt = (uint32_t)choice->job->prompt->n_ids;
    switch ((enum part)r->part) {
    case PART_OPEN:
        open_choice(choice, out);
        return true;
    case PART_ECHO:
        return !p->echo || echo_part(r, choice, limit, out);
    case PART_TEXT:
        if (!text_part(r, choice, limit, out)) return false;
        weft_buf_add_str(out, is_chat ? "\"},\"logprobs\":" : "\",\"logprobs\":");
        if (!has_lps) weft_buf_add_str(out, "null");
        return true;
    case PART_TOKENS:
        return !has_legacy ||
               list_part(r, choice, n, "{\"tokens\":[", wefti_api_lp_token_item, "],", limit, out);
    case PART_VALUES:
        return !has_legacy || list_part(r, choice, n, "\"token_logprobs\":[",
                                        wefti_api_lp_value_item, "],", limit, out);
    case PART_TOP:
        return !has_legacy || list_part(r, choice, n, "\"top_logprobs\":[", wefti_api_lp_top_item,
                                        "],", limit, out);
    case PART_OFFSETS:
        return !has_legacy ||
               list_part(r, choice, n, "\"text_offset\":[", offset_item, "]}", limit, out);
    case PART_ITEMS:
        return !has_lps || !is_chat ||
               list_part(r, choice, n, "{\"content\":[", wefti_api_lp_chat_item, "]}", limit, out);
    case PART_FINISH:
        weft_buf_add_char(out, ',');
        add_finish(choice, true, out);
        return true;
    case PART_PROMPT_LPS:
        return is_chat || p->prompt_logprobs < 0 ||
               list_part(r, choice, n_prompt, ",\"prompt_logprobs\":[", wefti_api_lp_prompt_item,
                         "]", limit, out);
    case PART_CLOSE:
        weft_buf_add_char(out, '}');
        return true;
    case PART_CHOICES_END:
        weft_buf_add_char(out, ']');
        return true;
    case PART_CHAT_PROMPT_LPS:
        return !is_chat || p->prompt_logprobs < 0 ||
               list_part(r, choice, n_prompt, ",\"prompt_logprobs\":[", wefti_api_lp_prompt_item,
                         "]", limit, out);
    case PART_TAIL:
        add_tail(call, out);
        return true;
    case PART_END:
        break;
    }
    return false;
}

enum weft_api_render weft_api_render_body(weft_api_call *call, struct weft_buf *out,
                                          size_t budget) {
    WEFT_ASSERT(call->state == WEFT_API_CALL_DONE);
    struct render *r = &call->render;
    size_t limit = out->len + budget;
    if (call->kind == CALL_TOKENIZE) return wefti_api_render_tokenize(call, out, limit);
    if (call->kind == CALL_DETOKENIZE) return wefti_api_render_detokenize(call, out, limit);
    if (r->part == PART_OPEN && r->choice == 0) add_head(call, false, out);
    while (r->part != PART_END) {
        if (!do_part(call, &call->choices[r->choice], limit, out)) return WEFT_API_RENDER_MORE;
        r->pos = 0;
        r->part++;
        if (r->part == PART_CHOICES_END && r->choice + 1 < call->n_choices) {
            r->choice++;
            r->part = PART_OPEN;
        }
        if (out->len >= limit && r->part != PART_END && r->part != PART_OPEN)
            return WEFT_API_RENDER_MORE;
    }
    return WEFT_API_RENDER_DONE;
}

void weft_api_render_rewind(weft_api_call *call) {
    memset(&call->render, 0, sizeof call->render);
}

/* ---------------------------------------------------------------------------------- streams --- */

static void add_chunk_logprobs(struct choice *choice, uint32_t from, uint32_t to,
                               struct weft_buf *out) {
    const weft_api_call *call = choice->job->call;
    weft_buf_add_str(out, "\"logprobs\":");
    if (call->params.logprobs < 0 || from == to)
        weft_buf_add_str(out, "null");
    else if (call->kind == CALL_CHAT)
        wefti_api_lp_chat(choice, from, to, out);
    else
        wefti_api_lp_legacy(choice, from, to, out);
    weft_buf_add_char(out, ',');
}

static void add_rpc_chunk(struct choice *choice, uint32_t from, uint32_t to, bool is_last,
                          const struct weft_buf *text, struct weft_buf *out) {
    weft_buf_printf(out, "{\"index\":%u,\"text\":\"", choice->index);
    add_text(out, text);
    weft_buf_add_str(out, "\",\"token_ids\":[");
    for (uint32_t pos = from; pos < to; pos++)
        weft_buf_printf(out, pos > from ? ",%u" : "%u", wefti_api_seq_token(choice, pos));
    weft_buf_add_str(out, "],");
    add_chunk_logprobs(choice, from, to, out);
    add_finish(choice, is_last, out);
    weft_buf_add_char(out, '}');
}

static void end_chunk(const weft_api_call *call, struct weft_buf *out) {
    weft_buf_add_char(out, ']');
    if (call->params.continuous_usage) {
        weft_buf_add_char(out, ',');
        add_usage(call, call->render.n_streamed, out);
    } else if (call->params.include_usage) {
        weft_buf_add_str(out, ",\"usage\":null");
    }
    weft_buf_add_char(out, '}');
}

static void add_role_chunk(const struct choice *choice, struct weft_buf *out) {
    weft_api_call *call = choice->job->call;
    add_chunk_head(call, out);
    weft_buf_printf(out,
                    "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                    "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}",
                    choice->index);
    end_chunk(call, out);
}

/* Tokens [from, to), with the text they released. */
static void add_chunk(struct choice *choice, uint32_t from, uint32_t to, bool is_last,
                      const struct weft_buf *text, struct weft_buf *out) {
    weft_api_call *call = choice->job->call;
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    if (to > n_echoed) call->render.n_streamed += to - (from > n_echoed ? from : n_echoed);
    if (call->streams_for_rpc) {
        add_rpc_chunk(choice, from, to, is_last, text, out);
        return;
    }
    add_chunk_head(call, out);
    weft_buf_add_str(out, "{\"index\":");
    weft_json_uint(out, choice->index);
    weft_buf_add_char(out, ',');
    if (call->kind != CALL_CHAT) {
        weft_buf_add_str(out, "\"text\":\"");
        add_text(out, text);
        weft_buf_add_str(out, "\",");
    } else if (text->len || !is_last) {
        weft_buf_add_str(out, "\"delta\":{\"content\":\"");
        add_text(out, text);
        weft_buf_add_str(out, "\"},");
    } else {
        weft_buf_add_str(out, "\"delta\":{},");
    }
    add_chunk_logprobs(choice, from, to, out);
    add_finish(choice, is_last, out);
    weft_buf_add_char(out, '}');
    end_chunk(call, out);
}

/* Where the chunk that begins at `from` ends; `from` itself when it has to wait. */
static uint32_t chunk_end(const struct choice *choice, uint32_t from) {
    uint32_t n_echoed = wefti_api_seq_echoed(choice);
    if (from >= n_echoed) return from < seq_len(choice) ? from + 1 : from;
    uint32_t to = from + ECHO_TOKENS_PER_CHUNK;
    if (to > n_echoed) to = n_echoed;
    /* Once a choice has ended no more of them will come. */
    bool needs_lps = choice->job->call->params.logprobs >= 0 && choice->end == WEFT_END_NONE;
    return needs_lps && to - 1 > choice->job->prompt_lps.n ? from : to;
}

/* A long echoed text goes ahead in chunks of its own, but for the piece that goes with the tokens:
 * no chunk may be as large as a prompt. False: that is all that is left. */
static bool echo_chunk(struct choice *choice, struct weft_buf *text, struct weft_buf *out) {
    struct choice_view *view = &choice->view;
    const struct prompt *prompt = choice->job->prompt;
    if (!choice->job->call->params.echo || !prompt->echo || view->pos > 0) return false;
    size_t end = echo_end(prompt, view->n_echoed);
    if (end == prompt->text_len) return false;
    weft_buf_add(text, prompt->echo + view->n_echoed, end - view->n_echoed);
    add_chunk(choice, 0, 0, false, text, out);
    view->n_echoed = end;
    return true;
}

/* The next chunk of one choice; false: it has none now. */
static bool choice_chunk(struct choice *choice, struct weft_buf *out) {
    const weft_api_call *call = choice->job->call;
    struct choice_view *view = &choice->view;
    if (view->is_closed) return false;
    if (!view->is_begun) view_begin(choice);
    if (call->kind == CALL_CHAT && !view->has_role && !call->streams_for_rpc) {
        view->has_role = true;
        add_role_chunk(choice, out);
        return true;
    }
    struct weft_buf text;
    weft_buf_init(&text, TEXT_BYTES_MAX);
    bool is_out = echo_chunk(choice, &text, out);
    while (!is_out) {
        uint32_t from = view->pos, to = chunk_end(choice, from);
        bool is_last = choice->end != WEFT_END_NONE && to == seq_len(choice);
        if (from == to && !is_last) break;
        const struct prompt *prompt = choice->job->prompt;
        if (from == 0 && call->params.echo && prompt->echo)
            weft_buf_add(&text, prompt->echo + view->n_echoed, prompt->text_len - view->n_echoed);
        for (uint32_t pos = from; pos < to; pos++)
            push_text(choice, pos, &text);
        if (is_last) flush_text(choice, &text);
        view->pos = to;
        view->is_closed = is_last;
        is_out = text.len || call->params.logprobs >= 0 || is_last || call->streams_for_rpc;
        if (is_out) add_chunk(choice, from, to, is_last, &text, out);
        wefti_api_choice_rendered(choice, from, to);
    }
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    return is_out;
}

bool weft_api_render_chunk(weft_api_call *call, struct weft_buf *out) {
    while (call->fresh_first) {
        struct choice *choice = call->fresh_first;
        bool is_out = choice_chunk(choice, out);
        bool is_closed = choice->view.is_closed;
        call->render.n_closed += is_out && is_closed;
        call->fresh_first = choice->next_fresh;
        if (!call->fresh_first) call->fresh_last = NULL;
        choice->is_fresh = false;
        if (is_out && !is_closed) { /* perhaps it has more, but the others come first */
            choice->is_fresh = true;
            choice->next_fresh = NULL;
            if (call->fresh_last)
                call->fresh_last->next_fresh = choice;
            else
                call->fresh_first = choice;
            call->fresh_last = choice;
        }
        if (is_out) return true;
    }
    return false;
}

static void add_stream_end(weft_api_call *call, struct weft_buf *out) {
    if (call->state == WEFT_API_CALL_FAILED) {
        weft_buf_add_str(out, "data: ");
        weft_api_error_json(&call->error, out);
        weft_buf_add_str(out, "\n\n");
        return;
    }
    if (call->params.include_usage) {
        weft_buf_add_str(out, "data: ");
        add_chunk_head(call, out);
        weft_buf_add_str(out, "],");
        add_usage(call, weft_api_call_output_tokens(call), out);
        weft_buf_add_str(out, "}\n\n");
    }
    weft_buf_add_str(out, "data: [DONE]\n\n");
}

enum weft_api_render weft_api_render_stream(weft_api_call *call, struct weft_buf *out,
                                            size_t budget) {
    size_t limit = out->len + budget;
    if (call->render.is_finished) return WEFT_API_RENDER_DONE;
    while (out->len < limit) {
        size_t start = out->len;
        weft_buf_add_str(out, "data: ");
        if (weft_api_render_chunk(call, out)) {
            weft_buf_add_str(out, "\n\n");
            continue;
        }
        out->len = start;
        if (call->state != WEFT_API_CALL_DONE && call->state != WEFT_API_CALL_FAILED)
            return WEFT_API_RENDER_WAIT;
        WEFT_ASSERT(call->state == WEFT_API_CALL_FAILED ||
                    call->render.n_closed == call->n_choices);
        add_stream_end(call, out);
        call->render.is_finished = true;
        return WEFT_API_RENDER_DONE;
    }
    return WEFT_API_RENDER_MORE;
}
