/* POST /score and /rerank by their several names: pairs of texts. vLLM's, Jina's and Cohere's shapes. */
#include "call/call_internal.h"
#include "kinds/openai.h"
#include "kinds/pooled_body.h"
#include "params/params_internal.h"
#include "render/render.h"

static bool no_part(const struct body_piece *at) {
    (void)at;
    return true;
}

/* Results stand in an order of their own, so the choices have none. */
static const body_part no_parts[] = {no_part, NULL};

static void write_score(const struct body_piece *at, const char *key, uint32_t pos) {
    weft_write_key(at->w, key);
    weft_write_double(at->w, at->call->ranked[pos].score);
}

static void write_index(const struct body_piece *at, uint32_t pos) {
    weft_write_map(at->w);
    weft_write_key(at->w, "index");
    weft_write_uint(at->w, at->call->ranked[pos].idx);
}

/* ------------------------------------------------------------------------------------ score --- */

static void open_scores(weft_api_call *call, struct weft_writer *w) {
    wefti_api_pooled_open(call, "list", NULL, w);
}

static void score_item(const struct body_piece *at, uint32_t pos) {
    write_index(at, pos);
    weft_write_key(at->w, "object");
    weft_write_str(at->w, "score");
    write_score(at, "score", pos);
    weft_write_end(at->w);
}

static bool scores_part(const struct body_piece *at) {
    return wefti_api_render_list(at, "data", at->call->params.pooled.n_shown, score_item);
}

static const body_part score_parts[] = {scores_part, wefti_api_pooled_end_part, NULL};

/* ----------------------------------------------------------------------------------- rerank --- */

static void open_results(weft_api_call *call, struct weft_writer *w) {
    wefti_api_pooled_open(call, NULL, NULL, w);
}

static void result_item(const struct body_piece *at, uint32_t pos) {
    const struct params *p = &at->call->params;
    uint32_t n_before = p->n_prompts - p->pooled.n_scores; /* queries */
    const struct prompt *prompt = &p->prompts[n_before + at->call->ranked[pos].idx];
    write_index(at, pos);
    if (prompt->document) {
        weft_write_key(at->w, "document");
        weft_write_map(at->w);
        weft_write_key(at->w, "text");
        weft_write_text(at->w, prompt->document, prompt->n_document);
        weft_write_end(at->w);
    }
    write_score(at, "relevance_score", pos);
    weft_write_end(at->w);
}

static bool results_part(const struct body_piece *at) {
    return wefti_api_render_list(at, "results", at->call->params.pooled.n_shown, result_item);
}

static const body_part rerank_parts[] = {results_part, wefti_api_pooled_end_part, NULL};

/* ------------------------------------------------------------------------------------------- */

#define SCORE_KIND(of_path)                                                                        \
    {                                                                                              \
        .path = (of_path), .id_prefix = "score", .prompt_field = "text_1",                         \
        .logprobs_field = "logprobs", .generates = true, .pools = true,                            \
        .parse = wefti_api_params_read_texts, .open_body = open_scores, .choice_parts = no_parts,  \
        .end_parts = score_parts,                                                                  \
    }
#define RERANK_KIND(of_path)                                                                       \
    {                                                                                              \
        .path = (of_path), .id_prefix = "rerank", .prompt_field = "documents",                     \
        .logprobs_field = "logprobs", .generates = true, .pools = true, .ranks = true,             \
        .parse = wefti_api_params_read_documents, .open_body = open_results,                       \
        .choice_parts = no_parts, .end_parts = rerank_parts,                                       \
    }

const struct weft_api_kind wefti_api_kind_score = SCORE_KIND("/score");
const struct weft_api_kind wefti_api_kind_score_v1 = SCORE_KIND("/v1/score");
const struct weft_api_kind wefti_api_kind_rerank = RERANK_KIND("/rerank");
const struct weft_api_kind wefti_api_kind_rerank_v1 = RERANK_KIND("/v1/rerank");
const struct weft_api_kind wefti_api_kind_rerank_v2 = RERANK_KIND("/v2/rerank");
