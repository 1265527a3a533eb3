/* Embeddings by the names of llama-server (/embedding, /embeddings) and ollama (/api/embed, /api/embeddings). */
#include "call/call_internal.h"
#include "kinds/openai.h"
#include "kinds/pooled_body.h"
#include "params/params_internal.h"
#include "render/render.h"

static bool vector_part(const struct body_piece *at, const char *key) {
    return wefti_api_render_list(at, key, at->choice->job->n_values, wefti_api_pooled_value_item);
}

/* A list within a list has no key. */
static bool nested_part(const struct body_piece *at) {
    size_t *pos = &at->call->render.pos;
    const struct job *job = at->choice->job;
    if (*pos == 0) weft_write_list(at->w);
    while (*pos < job->n_values) {
        wefti_api_pooled_value_item(at, (uint32_t)(*pos)++);
        if (at->w->out->len >= at->limit && *pos < job->n_values) return false;
    }
    weft_write_end(at->w);
    return true;
}

/* ------------------------------------------------------------------------------ llama-server --- */

/* "embd_normalize": 2 is length 1, -1 as they are; there are other norms. */
static void parse_llama(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    int64_t norm = 0;
    const char *name = wefti_api_json_get(r, "content") ? "content" : "input";
    wefti_api_params_read_input(r, name, limits, POOLED_VECTORS, params);
    if (!wefti_api_json_get_int(r, "embd_normalize", -1, INT32_MAX, &norm)) return;
    if (norm != -1 && norm != 2)
        weft_api_error_set(r->error, 400, "embd_normalize", "unsupported_parameter",
                           "'embd_normalize' must be 2, the Euclidean norm, or -1, none");
    params->pooled.normalises = norm == 2;
}

static void open_llama(weft_api_call *call, struct weft_writer *w) {
    (void)call;
    weft_write_list(w);
}

static bool open_llama_part(const struct body_piece *at) {
    weft_write_map(at->w);
    weft_write_key(at->w, "index");
    weft_write_uint(at->w, at->choice->index);
    weft_write_key(at->w, "embedding");
    weft_write_list(at->w); /* of as many as there are poolings: one */
    return true;
}

static const body_part llama_parts[] = {open_llama_part, nested_part, wefti_api_openai_close_part,
                                        wefti_api_openai_close_part, NULL};
static const body_part end_llama_parts[] = {wefti_api_openai_close_part, NULL};

/* ------------------------------------------------------------------------------------ ollama --- */

static void parse_ollama(const struct reader *r, const struct weft_api_limits *limits,
                         const char *name, struct params *params) {
    static const struct refused_field refused[] = {{"truncate", IF_TRUE}, {NULL, IF_NULL}};
    wefti_api_json_note(r, "keep_alive");
    wefti_api_json_note(r, "options");
    wefti_api_params_refuse(r, refused);
    wefti_api_params_read_input(r, name, limits, POOLED_VECTORS, params);
}

static void parse_embed(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    parse_ollama(r, limits, "input", params);
}

static void parse_old(const struct reader *r, const struct weft_api_limits *limits,
                      struct params *params) {
    parse_ollama(r, limits, "prompt", params);
    if (params->n_prompts > 1)
        weft_api_error_set(
            r->error, 400, "prompt", NULL,
            "'prompt' holds %u texts, this endpoint takes one: /api/embed takes more",
            params->n_prompts);
}

static void open_embed(weft_api_call *call, struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "model");
    weft_write_str(w, call->model_name);
    weft_write_key(w, "embeddings");
    weft_write_list(w);
}

static bool end_embed(const struct body_piece *at) {
    weft_write_end(at->w);
    weft_write_key(at->w, "prompt_eval_count");
    weft_write_uint(at->w, wefti_api_prompt_tokens(at->call));
    weft_write_end(at->w);
    return true;
}

static void open_old(weft_api_call *call, struct weft_writer *w) {
    (void)call;
    weft_write_map(w);
}

static bool old_part(const struct body_piece *at) {
    return vector_part(at, "embedding");
}

static const body_part embed_parts[] = {nested_part, NULL};
static const body_part end_embed_parts[] = {end_embed, NULL};
static const body_part old_parts[] = {old_part, NULL};
static const body_part end_old_parts[] = {wefti_api_openai_close_part, NULL};

/* ------------------------------------------------------------------------------------------- */

#define LLAMA_KIND(of_path)                                                                        \
    {                                                                                              \
        .path = (of_path), .id_prefix = "embd", .prompt_field = "content",                         \
        .logprobs_field = "logprobs", .generates = true, .pools = true, .parse = parse_llama,      \
        .open_body = open_llama, .choice_parts = llama_parts, .end_parts = end_llama_parts,        \
    }

const struct weft_api_kind wefti_api_kind_llama_embedding = LLAMA_KIND("/embedding");
const struct weft_api_kind wefti_api_kind_llama_embeddings = LLAMA_KIND("/embeddings");

const struct weft_api_kind wefti_api_kind_ollama_embed = {
    .path = "/api/embed",
    .id_prefix = "embd",
    .prompt_field = "input",
    .logprobs_field = "logprobs",
    .generates = true,
    .pools = true,
    .takes_tags = true,
    .parse = parse_embed,
    .open_body = open_embed,
    .choice_parts = embed_parts,
    .end_parts = end_embed_parts,
};

const struct weft_api_kind wefti_api_kind_ollama_embeddings = {
    .path = "/api/embeddings",
    .id_prefix = "embd",
    .prompt_field = "prompt",
    .logprobs_field = "logprobs",
    .generates = true,
    .pools = true,
    .takes_tags = true,
    .parse = parse_old,
    .open_body = open_old,
    .choice_parts = old_parts,
    .end_parts = end_old_parts,
};
