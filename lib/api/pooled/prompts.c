/* Texts and pairs to ids. */
#include "pooled/pooled.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/minmax.h"
#include "call/prepare.h"
#include "kinds/kind.h"

/* What Qwen3-Reranker was trained to be asked, and to answer with yes or no. */
#define QUESTION_HEAD                                                                              \
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "    \
    "and "                                                                                         \
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"       \
    "<|im_start|>user\n<Instruct>: "
#define QUESTION_QUERY "\n<Query>: "
#define QUESTION_DOCUMENT "\n<Document>: "
#define QUESTION_TAIL "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
#define USUAL_INSTRUCTION                                                                          \
    "Given a web search query, retrieve relevant passages that answer the query"

static void out_of_memory(weft_api_call *call) {
    weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
}

/* By the model's files, the model's length in memory, and the request. */
static size_t longest(const weft_api_call *call) {
    const struct weft_model_pooling *model = call->limits.purpose.model;
    uint32_t n = call->limits.max_model_len, of_model = model ? model->n_tokens_max : 0;
    if (of_model > 0) n = weft_min_u32(n, of_model);
    int32_t wanted = call->params.truncate_to;
    return wanted > 0 ? weft_min_u32(n, (uint32_t)wanted) : n;
}

/* The caller's to free; NULL: no memory, which is the call's error. */
static char *join(weft_api_call *call, const struct weft_str *parts, size_t n, size_t *len_out) {
    size_t len = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    char *text = malloc(len + 1);
    if (!text) out_of_memory(call);
    for (size_t i = 0; i < n && text; i++) {
        if (parts[i].len > 0) memcpy(text + at, parts[i].data, parts[i].len);
        at += parts[i].len;
    }
    *len_out = len;
    return text;
}

/* Returns the number of tokens of type 0. */
static size_t encode_cut(weft_api_call *call, struct prompt *prompt,
                         const struct weft_tok_cut *input) {
    struct weft_errmsg why = {""};
    size_t n_first = 0;
    weft_err err =
        weft_tok_encode_cut(call->api->tok, input, &prompt->ids, &prompt->n_ids, &n_first, &why);
    if (err)
        weft_api_error_set(&call->error, err == WEFT_E_NOMEM ? 500 : 400, call->kind->prompt_field,
                           NULL, "%s", why.text[0] ? why.text : weft_err_text(err));
    return n_first;
}

static void encode_text(weft_api_call *call, struct prompt *prompt, size_t ids_max) {
    size_t len;
    const char *before = prompt->before ? prompt->before->text : "";
    const struct weft_str parts[] = {{before, strlen(before)}, {prompt->text, prompt->text_len}};
    char *text = join(call, parts, 2, &len);
    if (!text) return;
    uint32_t flags = WEFT_TOK_PARSE_SPECIAL | (call->params.add_special ? WEFT_TOK_ADD_SPECIAL : 0);
    const struct weft_tok_cut input = {.first = {text, len},
                                       .second = {prompt->second, prompt->second_len},
                                       .is_pair = prompt->second != NULL,
                                       .flags = flags,
                                       .ids_max = ids_max};
    size_t n_first = encode_cut(call, prompt, &input);
    if (prompt->second) prompt->n_first = (uint32_t)n_first;
    free(text);
}

/* Whole, however long: what it has too much of is not known yet. The size of bodies bounds it. */
static void encode_whole(weft_api_call *call, struct prompt *prompt, const struct weft_str *parts,
                         size_t n) {
    size_t len;
    char *text = join(call, parts, n, &len);
    if (!text) return;
    const struct weft_tok_cut input = {
        .first = {text, len}, .flags = WEFT_TOK_PARSE_SPECIAL, .ids_max = SIZE_MAX};
    (void)encode_cut(call, prompt, &input);
    free(text);
}

static void refuse_around(weft_api_call *call, size_t ids_max) {
    bool is_asked = call->params.pooled.instruction != NULL;
    weft_api_error_set(&call->error, 400, "query", "context_length_exceeded",
                       "the query%s alone %s longer than the %zu tokens that this model takes",
                       is_asked ? " and the instruction" : "", is_asked ? "are" : "is", ids_max);
}

/* What stands around the document is kept, and counted once: its last part begins with a special token,
 * so that no token reaches across. */
static void cut_document(weft_api_call *call, struct prompt *prompt, size_t ids_max,
                         size_t n_document_max) {
    struct prompt tail = {0};
    size_t n_over = prompt->n_ids - ids_max;
    wefti_api_encode(call, &tail, (struct weft_str){QUESTION_TAIL, strlen(QUESTION_TAIL)},
                     WEFT_TOK_PARSE_SPECIAL);
    if (!call->error.status && n_over > n_document_max) refuse_around(call, ids_max);
    if (!call->error.status) {
        WEFT_ASSERT(tail.n_ids + n_over <= prompt->n_ids);
        uint32_t *end = prompt->ids + (prompt->n_ids - tail.n_ids);
        memmove(end - n_over, end, tail.n_ids * sizeof *end);
        prompt->n_ids = ids_max;
    }
    free(tail.ids);
}

static void encode_question(weft_api_call *call, struct prompt *prompt, size_t ids_max) {
    const struct pooled *pooled = &call->params.pooled;
    struct weft_str instruction = {USUAL_INSTRUCTION, strlen(USUAL_INSTRUCTION)};
    if (pooled->instruction)
        instruction = (struct weft_str){pooled->instruction, pooled->instruction_len};
    struct weft_str parts[] = {
        {QUESTION_HEAD, strlen(QUESTION_HEAD)},         instruction,
        {QUESTION_QUERY, strlen(QUESTION_QUERY)},       {prompt->text, prompt->text_len},
        {QUESTION_DOCUMENT, strlen(QUESTION_DOCUMENT)}, {prompt->second, prompt->second_len},
        {QUESTION_TAIL, strlen(QUESTION_TAIL)},
    };
    size_t n = sizeof parts / sizeof parts[0];
    struct prompt around = {0};
    encode_whole(call, prompt, parts, n);
    if (call->error.status || prompt->n_ids <= ids_max) return;
    parts[n - 2].len = 0;
    encode_whole(call, &around, parts, n);
    if (!call->error.status)
        cut_document(call, prompt, ids_max,
                     prompt->n_ids > around.n_ids ? prompt->n_ids - around.n_ids : 0);
    free(around.ids);
}

void wefti_api_encode_pooled(weft_api_call *call) {
    struct params *p = &call->params;
    size_t ids_max = longest(call);
    for (uint32_t i = 0; i < p->n_prompts && !call->error.status && ids_max > 0; i++) {
        struct prompt *prompt = &p->prompts[i];
        if (!prompt->text)
            prompt->n_ids = prompt->n_ids < ids_max ? prompt->n_ids : ids_max;
        else if (p->pooled.judges)
            encode_question(call, prompt, ids_max);
        else
            encode_text(call, prompt, ids_max);
    }
}
