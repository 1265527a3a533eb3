/* Requests that go on beyond the model's length: "context_shift" and llama-server's "n_keep". */
#include "base/limits.h"
#include "base/minmax.h"
#include "kinds/kind.h"
#include "params/params_internal.h"

/* Without the first, the others are ignored, as they change nothing. */
void wefti_api_params_read_shift(const struct reader *r, const weft_api_kind *kind,
                                 struct params *params) {
    static const struct refused_field refused[] = {{"n_discard", IF_AT_MOST_ZERO}, {NULL, IF_NULL}};
    static const struct refused_field of_pools[] = {{"context_shift", IF_FALSE}, {NULL, IF_NULL}};
    int64_t n_keep = 0;
    if (kind->pools) {
        wefti_api_params_refuse(r, of_pools);
        return;
    }
    (void)wefti_api_json_get_bool(r, "context_shift", &params->shifts);
    if (!params->shifts) return;
    (void)wefti_api_json_get_int(r, "n_keep", -1, INT32_MAX, &n_keep);
    params->n_keep = (int32_t)n_keep;
    wefti_api_params_refuse(r, refused);
    if (params->sampling.beam_width > 0)
        weft_api_error_set(r->error, 400, "context_shift", NULL,
                           "'context_shift' is not available with 'use_beam_search'");
}

uint32_t wefti_api_params_longest(const struct params *params,
                                  const struct weft_api_limits *limits) {
    uint32_t len = limits->max_model_len;
    return params->shifts ? weft_max_u32(len, WEFT_SHIFTED_TOKENS_MAX) : len;
}

/* As in llama-server a BOS in front is kept in any case, and does not count. */
uint32_t wefti_api_params_n_keep(const struct params *params, const struct prompt *prompt,
                                 const weft_tokenizer *tok) {
    uint32_t bos, n_prompt = (uint32_t)prompt->n_ids;
    if (!params->shifts) return 0;
    if (params->n_keep < 0) return n_prompt;
    bool has_bos = n_prompt > 0 && weft_tok_bos(tok, &bos) && prompt->ids[0] == bos;
    return weft_min_u32((uint32_t)params->n_keep, WEFT_CONTEXT_MAX - 1) + has_bos;
}
