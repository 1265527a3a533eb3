/* Prompts for models that fill in the middle: what comes before and after it, each behind its token. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/prepare.h"

/* Each of many prompts has a copy of the suffix; of all together so many ids. */
#define COPIES_IDS_MAX (1u << 20)

static uint32_t *put(uint32_t *at, const uint32_t *ids, size_t n) {
    if (n > 0) memcpy(at, ids, n * sizeof *at);
    return at + n;
}

/* BOS, where the prompt came as text, stays in front. False: no memory. */
static bool surround(const weft_api_call *call, const struct weft_tok_fim *fim,
                     const struct prompt *suffix, struct prompt *prompt) {
    uint32_t bos;
    size_t n_bos = prompt->text && call->params.add_special && prompt->n_ids > 0 &&
                   weft_tok_bos(call->api->tok, &bos) && prompt->ids[0] == bos;
    size_t n_all = prompt->n_ids + suffix->n_ids + (fim->has_middle ? 3 : 2);
    uint32_t *ids = malloc(n_all * sizeof *ids);
    if (!ids) return false;
    uint32_t *at = put(ids, prompt->ids, n_bos);
    for (int i = 0; i < 2; i++) {
        bool is_suffix =
            fim->has_middle == (i == 1); /* else the output follows the prompt itself */
        *at++ = is_suffix ? fim->suffix : fim->prefix;
        at = is_suffix ? put(at, suffix->ids, suffix->n_ids)
                       : put(at, prompt->ids + n_bos, prompt->n_ids - n_bos);
    }
    if (fim->has_middle) *at++ = fim->middle;
    WEFT_ASSERT(at == ids + n_all);
    free(prompt->ids);
    prompt->ids = ids;
    prompt->n_ids = n_all;
    return true;
}

void wefti_api_add_suffix(weft_api_call *call) {
    struct params *p = &call->params;
    struct weft_tok_fim fim;
    struct prompt suffix = {0};
    if (call->error.status) return;
    if (!weft_tok_fim(call->api->tok, &fim)) {
        weft_api_error_set(&call->error, 400, p->suffix_field, "unsupported_parameter",
                           "'%s' cannot be honoured: the model has no tokens for filling in the "
                           "middle of a text",
                           p->suffix_field);
        return;
    }
    wefti_api_encode(call, &suffix, (struct weft_str){p->suffix, p->suffix_len},
                     p->special_is_text ? 0 : WEFT_TOK_PARSE_SPECIAL);
    if (p->n_prompts > 1 && p->n_prompts * suffix.n_ids > COPIES_IDS_MAX)
        weft_api_error_set(&call->error, 400, p->suffix_field, NULL,
                           "'%s' of %zu tokens, once for each of %u prompts, is more than the %u "
                           "tokens that are allowed in one request",
                           p->suffix_field, suffix.n_ids, p->n_prompts, COPIES_IDS_MAX);
    for (uint32_t i = 0; i < p->n_prompts && !call->error.status; i++) {
        if (!surround(call, &fim, &suffix, &p->prompts[i]))
            weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
    }
    free(suffix.ids);
}
