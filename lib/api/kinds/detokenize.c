/* POST /detokenize: the text of ids, under vLLM's name and under llama-server's. */
#include "kinds/kind.h"
#include "params/params_internal.h"
#include "render/render.h"

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    wefti_api_params_refuse_unsupported(r);
    wefti_api_params_refuse_chat(r);
    wefti_api_params_read_tokens(r, limits, params);
    wefti_api_params_read_encoding(r, params);
}

static void open_body(weft_api_call *call, struct weft_writer *w) {
    (void)call;
    weft_write_map(w);
    weft_write_key(w, "prompt");
}

static bool open_text_part(const struct body_piece *at) {
    wefti_api_spell_begin(at);
    return true;
}

static bool open_content_part(const struct body_piece *at) {
    weft_write_key(at->w, "content");
    return open_text_part(at);
}

static bool close_part(const struct body_piece *at) {
    weft_write_end(at->w);
    return true;
}

static const body_part no_parts[] = {NULL};
static const body_part end_parts[] = {
    open_text_part, wefti_api_spell_part, open_content_part, wefti_api_spell_part, close_part, NULL,
};

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
