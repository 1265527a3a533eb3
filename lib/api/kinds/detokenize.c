/* POST /detokenize: the text of ids. */
#include "api/api.h"
#include "call/call_internal.h"
#include "kinds/kind.h"
#include "params/params_internal.h"

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_read_tokens(r, limits, params);
    wefti_api_params_read_encoding(r, params);
}

static void open_body(weft_api_call *call, struct weft_writer *w) {
    weft_detok_init(&call->render.detok, call->api->tok, false);
    weft_write_map(w);
    weft_write_key(w, "prompt");
    weft_write_text_open(w);
}

static bool text_part(const struct body_piece *at) {
    struct render *r = &at->call->render;
    const struct prompt *prompt = &at->call->params.prompts[0];
    struct weft_buf text, *out = at->w->out;
    weft_buf_init(&text, out->max_bytes);
    while (r->pos < prompt->n_ids && out->len + text.len < at->limit)
        weft_detok_push(&r->detok, prompt->ids[r->pos++], &text);
    bool is_done = r->pos == prompt->n_ids;
    if (is_done) weft_detok_finish(&r->detok, &text);
    weft_write_text_more(at->w, text.data ? text.data : "", text.len);
    if (text.failed) out->failed = true;
    weft_buf_fini(&text);
    if (!is_done) return false;
    weft_write_text_close(at->w);
    weft_write_end(at->w);
    return true;
}

static const body_part no_parts[] = {NULL};
static const body_part end_parts[] = {text_part, NULL};

const struct weft_api_kind wefti_api_kind_detokenize = {
    .path = "/detokenize",
    .rpc_method = "detokenize",
    .id_prefix = "detok",
    .prompt_field = "tokens",
    .parse = parse,
    .open_body = open_body,
    .choice_parts = no_parts,
    .end_parts = end_parts,
};
