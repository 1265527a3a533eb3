#include "render/render_tokens.h"

#include <inttypes.h>

#include "api/api.h"
#include "call/call.h"
#include "codec/json_out.h"

enum token_part { PART_HEAD, PART_IDS, PART_STRS, PART_DONE };

static void id_item(const weft_api_call *call, uint32_t id, struct weft_buf *out) {
    (void)call;
    weft_buf_printf(out, "%" PRIu32, id);
}

static void str_item(const weft_api_call *call, uint32_t id, struct weft_buf *out) {
    size_t len;
    const char *bytes = weft_tok_token_bytes(call->api->tok, id, &len);
    weft_json_str(out, bytes, len);
}

/* True when the list is complete. */
static bool add_items(weft_api_call *call,
                      void (*item)(const weft_api_call *call, uint32_t id, struct weft_buf *out),
                      struct weft_buf *out, size_t limit) {
    struct render *r = &call->render;
    const struct prompt *prompt = &call->params.prompts[0];
    for (; r->pos < prompt->n_ids && out->len < limit; r->pos++) {
        if (r->pos) weft_buf_add_char(out, ',');
        item(call, prompt->ids[r->pos], out);
    }
    return r->pos == prompt->n_ids;
}

static void next_part(struct render *r) {
    r->part++;
    r->pos = 0;
}

enum weft_api_render wefti_api_render_tokenize(weft_api_call *call, struct weft_buf *out,
                                               size_t limit) {
    struct render *r = &call->render;
    bool has_strs = call->params.return_token_strs;
    if (r->part == PART_HEAD) {
        weft_buf_printf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[",
                        call->params.prompts[0].n_ids, call->limits.max_model_len);
        next_part(r);
    }
    if (r->part == PART_IDS) {
        if (!add_items(call, id_item, out, limit)) return WEFT_API_RENDER_MORE;
        weft_buf_add_str(out, has_strs ? "],\"token_strs\":[" : "],\"token_strs\":null}");
        next_part(r);
        if (!has_strs) r->part = PART_DONE;
    }
    if (r->part == PART_STRS) {
        if (!add_items(call, str_item, out, limit)) return WEFT_API_RENDER_MORE;
        weft_buf_add_str(out, "]}");
        r->part = PART_DONE;
    }
    return WEFT_API_RENDER_DONE;
}

enum weft_api_render wefti_api_render_detokenize(weft_api_call *call, struct weft_buf *out,
                                                 size_t limit) {
    struct render *r = &call->render;
    const struct prompt *prompt = &call->params.prompts[0];
    if (r->part == PART_DONE) return WEFT_API_RENDER_DONE;
    if (r->part == PART_HEAD) {
        weft_detok_init(&r->detok, call->api->tok, false);
        weft_buf_add_str(out, "{\"prompt\":\"");
        next_part(r);
    }
    struct weft_buf text;
    weft_buf_init(&text, out->max_bytes);
    while (r->pos < prompt->n_ids && out->len + text.len < limit)
        weft_detok_push(&r->detok, prompt->ids[r->pos++], &text);
    bool is_done = r->pos == prompt->n_ids;
    if (is_done) weft_detok_finish(&r->detok, &text);
    weft_json_text(out, text.data ? text.data : "", text.len);
    if (is_done) {
        weft_buf_add_str(out, "\"}");
        r->part = PART_DONE;
    }
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    return is_done ? WEFT_API_RENDER_DONE : WEFT_API_RENDER_MORE;
}
