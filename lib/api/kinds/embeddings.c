/* POST /v1/embeddings and "embed", /pooling, /classify: a result for each text. OpenAI's and vLLM's shapes. */
#include <string.h>

#include "call/call_internal.h"
#include "codec/base64.h"
#include "kinds/openai.h"
#include "kinds/pooled_body.h"
#include "params/params_internal.h"
#include "render/render.h"

/* ---------------------------------------------------------------------------------- parsing --- */

static void parse_embeddings(const struct reader *r, const struct weft_api_limits *limits,
                             struct params *params) {
    wefti_api_params_read_input(r, "input", limits, POOLED_VECTORS, params);
}

static void parse_pooling(const struct reader *r, const struct weft_api_limits *limits,
                          struct params *params) {
    wefti_api_params_read_input(r, "input", limits, POOLED_NOTHING, params);
}

static void parse_classify(const struct reader *r, const struct weft_api_limits *limits,
                           struct params *params) {
    wefti_api_params_read_input(r, "input", limits, POOLED_LABELS, params);
}

/* --------------------------------------------------------------------------------- the body --- */

void wefti_api_pooled_open(const weft_api_call *call, const char *object, const char *list,
                           struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, call->id);
    if (object) {
        weft_write_key(w, "object");
        weft_write_str(w, object);
        weft_write_key(w, "created");
        weft_write_int(w, call->created_s);
    }
    weft_write_key(w, "model");
    weft_write_str(w, call->model_name);
    if (!list) return;
    weft_write_key(w, list);
    weft_write_list(w);
}

bool wefti_api_pooled_end_part(const struct body_piece *at) {
    uint32_t n_prompt = wefti_api_prompt_tokens(at->call);
    weft_write_key(at->w, "usage");
    weft_write_map(at->w);
    weft_write_key(at->w, "prompt_tokens");
    weft_write_uint(at->w, n_prompt);
    weft_write_key(at->w, "total_tokens");
    weft_write_uint(at->w, n_prompt);
    weft_write_end(at->w);
    weft_write_end(at->w);
    return true;
}

static void open_list(weft_api_call *call, struct weft_writer *w) {
    wefti_api_pooled_open(call, "list", "data", w);
}

static void open_result(const struct body_piece *at, const char *object) {
    weft_write_map(at->w);
    if (object) {
        weft_write_key(at->w, "object");
        weft_write_str(at->w, object);
    }
    weft_write_key(at->w, "index");
    weft_write_uint(at->w, at->choice->index);
}

static bool open_embedding(const struct body_piece *at) {
    open_result(at, "embedding");
    return true;
}

static bool open_pooling(const struct body_piece *at) {
    open_result(at, "pooling");
    return true;
}

void wefti_api_pooled_value_item(const struct body_piece *at, uint32_t pos) {
    weft_write_float(at->w, at->choice->job->values[pos]);
}

/* Little-endian float32, a few at a time. */
static bool base64_part(const struct body_piece *at, const char *key) {
    enum { AT_A_TIME = 3 * 256 };
    const struct job *job = at->choice->job;
    size_t *pos = &at->call->render.pos;
    if (*pos == 0) {
        weft_write_key(at->w, key);
        weft_write_text_open(at->w);
    }
    while (*pos < job->n_values) {
        char text[AT_A_TIME * 16 / 3];
        uint8_t bytes[AT_A_TIME * 4];
        size_t n = 0;
        for (; n < sizeof bytes && *pos < job->n_values; n += 4, ++*pos) {
            uint32_t bits;
            memcpy(&bits, &job->values[*pos], sizeof bits);
            for (size_t i = 0; i < 4; i++)
                bytes[n + i] = (uint8_t)(bits >> 8 * i);
        }
        weft_write_text_more(at->w, text, weft_base64(bytes, n, text));
        if (at->w->out->len >= at->limit && *pos < job->n_values) return false;
    }
    weft_write_text_close(at->w);
    return true;
}

static bool values_part(const struct body_piece *at, const char *key) {
    if (at->call->params.pooled.is_base64) return base64_part(at, key);
    return wefti_api_render_list(at, key, at->choice->job->n_values, wefti_api_pooled_value_item);
}

static bool embedding_part(const struct body_piece *at) {
    return values_part(at, "embedding");
}

static bool data_part(const struct body_piece *at) {
    return values_part(at, "data");
}

static const body_part embedding_parts[] = {open_embedding, embedding_part,
                                            wefti_api_openai_close_part, NULL};
static const body_part pooling_parts[] = {open_pooling, data_part, wefti_api_openai_close_part,
                                          NULL};
static const body_part end_parts[] = {wefti_api_openai_close_part, wefti_api_pooled_end_part, NULL};

/* ---------------------------------------------------------------------------------- classes --- */

static bool open_class(const struct body_piece *at) {
    const struct job *job = at->choice->job;
    const struct weft_model_pooling *model = at->call->limits.purpose.model;
    uint32_t best = 0;
    for (uint32_t i = 1; i < job->n_values; i++)
        best = job->values[i] > job->values[best] ? i : best;
    open_result(at, NULL);
    weft_write_key(at->w, "label");
    if (best < model->n_labels)
        weft_write_str(at->w, model->labels[best]);
    else
        weft_write_null(at->w);
    return true;
}

static bool probs_part(const struct body_piece *at) {
    return values_part(at, "probs");
}

static bool close_class(const struct body_piece *at) {
    weft_write_key(at->w, "num_classes");
    weft_write_uint(at->w, at->choice->job->n_values);
    weft_write_end(at->w);
    return true;
}

static const body_part class_parts[] = {open_class, probs_part, close_class, NULL};

/* ------------------------------------------------------------------------------------------- */

const struct weft_api_kind wefti_api_kind_embeddings = {
    .path = "/v1/embeddings",
    .rpc_method = "embed",
    .id_prefix = "embd",
    .prompt_field = "input",
    .logprobs_field = "logprobs",
    .generates = true,
    .pools = true,
    .parse = parse_embeddings,
    .open_body = open_list,
    .choice_parts = embedding_parts,
    .end_parts = end_parts,
};

const struct weft_api_kind wefti_api_kind_pooling = {
    .path = "/pooling",
    .id_prefix = "pool",
    .prompt_field = "input",
    .logprobs_field = "logprobs",
    .generates = true,
    .pools = true,
    .parse = parse_pooling,
    .open_body = open_list,
    .choice_parts = pooling_parts,
    .end_parts = end_parts,
};

const struct weft_api_kind wefti_api_kind_classify = {
    .path = "/classify",
    .id_prefix = "classify",
    .prompt_field = "input",
    .logprobs_field = "logprobs",
    .generates = true,
    .pools = true,
    .parse = parse_classify,
    .open_body = open_list,
    .choice_parts = class_parts,
    .end_parts = end_parts,
};
