/* POST /tokenize: a text's ids. They may be a million, and their strings far longer than the text,
 * so the lists are written in pieces too. */
#include "api/api.h"
#include "base/utf8.h"
#include "call/call_internal.h"
#include "kinds/kind.h"
#include "params/params_internal.h"
#include "render/render.h"

/* The most tokens in one answer. A larger text takes several requests. */
#define TOKENS_MAX (1u << 20)

/* llama-server's form: {"content", "add_special", "parse_special", "with_pieces"}. */
static void parse_content(const struct reader *r, struct params *params) {
    bool parses_special = true;
    wefti_api_json_get_bool(r, "add_special", &params->add_special);
    wefti_api_json_get_bool(r, "parse_special", &parses_special);
    wefti_api_json_get_bool(r, "with_pieces", &params->with_pieces);
    params->special_is_text = !parses_special;
}

static void parse(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params) {
    wefti_api_params_refuse_unsupported(r);
    if (wefti_api_params_read_text(r, "content", params)) {
        parse_content(r, params);
        return;
    }
    if (wefti_api_json_get(r, "messages")) {
        wefti_api_params_read_messages(r, params);
        wefti_api_params_read_tools(r, params);
        wefti_api_params_read_template(r, params);
    } else {
        wefti_api_params_refuse_chat(r);
        params->add_special = true;
        wefti_api_params_read_prompts(r, "prompt", limits, params);
    }
    wefti_api_params_read_encoding(r, params);
    wefti_api_params_read_continuation(r, params);
    if (wefti_api_json_ok(r) && !params->chat.vars &&
        (params->n_prompts != 1 || !params->prompts[0].text))
        weft_api_error_set(r->error, 400, "prompt", NULL, "'prompt' must be a string");
}

static void open_body(weft_api_call *call, struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "count");
    weft_write_uint(w, call->params.prompts[0].n_ids);
    weft_write_key(w, "max_model_len");
    weft_write_uint(w, call->limits.max_model_len);
}

/* A text, or where its bytes are none the list of them, as llama-server has it. */
static void write_piece(const char *bytes, size_t len, struct weft_writer *w) {
    if (weft_utf8_valid(bytes, len)) {
        weft_write_text(w, bytes, len);
        return;
    }
    weft_write_list(w);
    for (size_t i = 0; i < len; i++)
        weft_write_uint(w, (unsigned char)bytes[i]);
    weft_write_end(w);
}

static void id_item(const struct body_piece *at, uint32_t pos) {
    size_t len;
    uint32_t id = at->call->params.prompts[0].ids[pos];
    if (!at->call->params.with_pieces) {
        weft_write_uint(at->w, id);
        return;
    }
    const char *bytes = weft_tok_token_bytes(at->call->api->tok, id, &len);
    weft_write_map(at->w);
    weft_write_key(at->w, "id");
    weft_write_uint(at->w, id);
    weft_write_key(at->w, "piece");
    write_piece(bytes, len, at->w);
    weft_write_end(at->w);
}

static void str_item(const struct body_piece *at, uint32_t pos) {
    size_t len;
    uint32_t id = at->call->params.prompts[0].ids[pos];
    const char *bytes = weft_tok_token_bytes(at->call->api->tok, id, &len);
    weft_write_text(at->w, bytes, len);
}

static bool ids_part(const struct body_piece *at) {
    return wefti_api_render_list(at, "tokens", (uint32_t)at->call->params.prompts[0].n_ids,
                                 id_item);
}

static bool strs_part(const struct body_piece *at) {
    uint32_t n = (uint32_t)at->call->params.prompts[0].n_ids;
    if (!at->call->params.return_token_strs) {
        weft_write_key(at->w, "token_strs");
        weft_write_null(at->w);
    } else if (!wefti_api_render_list(at, "token_strs", n, str_item)) {
        return false;
    }
    weft_write_end(at->w);
    return true;
}

static const body_part no_parts[] = {NULL};
static const body_part end_parts[] = {ids_part, strs_part, NULL};

const struct weft_api_kind wefti_api_kind_tokenize = {
    .path = "/tokenize",
    .rpc_method = "tokenize",
    .id_prefix = "tok",
    .prompt_field = "prompt",
    .prompt_tokens_max = TOKENS_MAX,
    .parse = parse,
    .open_body = open_body,
    .choice_parts = no_parts,
    .end_parts = end_parts,
};
