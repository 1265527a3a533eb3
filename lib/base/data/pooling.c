#include "base/pooling.h"

#include "base/limits.h"

uint32_t weft_pooling_n_values(const struct weft_pooling *pooling,
                               const struct weft_pooling_shape *shape) {
    switch (pooling->kind) {
    case WEFT_POOLING_LAST:
    case WEFT_POOLING_MEAN:
    case WEFT_POOLING_CLS:
        return shape->n_hidden;
    case WEFT_POOLING_TOKENS:
        return pooling->n_ids;
    case WEFT_POOLING_CLASSIFY:
        return shape->n_labels;
    case WEFT_POOLING_NONE:
    case WEFT_POOLING_COUNT:
        break;
    }
    return 0;
}

bool weft_pooling_reads_all(const struct weft_pooling *pooling) {
    return pooling->kind == WEFT_POOLING_MEAN || pooling->kind == WEFT_POOLING_CLS ||
           pooling->kind == WEFT_POOLING_CLASSIFY;
}

static weft_err check_ids(const struct weft_pooling *pooling, uint32_t n_vocab,
                          struct weft_errmsg *why) {
    bool wants_ids = pooling->kind == WEFT_POOLING_TOKENS;
    if (pooling->n_ids > WEFT_POOLING_IDS_MAX || (pooling->n_ids > 0) != wants_ids)
        return weft_err_set(why, WEFT_E_INVAL, "logits of %u tokens are wanted, at most %d can be",
                            pooling->n_ids, wants_ids ? WEFT_POOLING_IDS_MAX : 0);
    uint32_t limit = n_vocab > 0 ? n_vocab : WEFT_VOCAB_MAX;
    for (uint32_t i = 0; i < pooling->n_ids; i++) {
        if (pooling->ids[i] < limit) continue;
        return weft_err_set(why, WEFT_E_INVAL,
                            "the logit of token %u is wanted, the vocabulary has %u",
                            pooling->ids[i], limit);
    }
    return WEFT_OK;
}

weft_err weft_pooling_check(const struct weft_pooling *pooling,
                            const struct weft_sampling *sampling, uint32_t n_prompt,
                            uint32_t n_vocab, struct weft_errmsg *why) {
    if ((unsigned)pooling->kind >= WEFT_POOLING_COUNT)
        return weft_err_set(why, WEFT_E_INVAL, "there is no pooling %d", (int)pooling->kind);
    weft_err err = check_ids(pooling, n_vocab, why);
    if (err) return err;
    bool is_pooled = pooling->kind != WEFT_POOLING_NONE;
    if (is_pooled && (sampling->max_tokens > 0 || sampling->n_prompt_logprobs >= 0))
        return weft_err_set(why, WEFT_E_INVAL,
                            "with pooling there are no tokens and no log-probabilities");
    if (pooling->n_first > (n_prompt > 0 ? n_prompt : WEFT_CONTEXT_MAX) ||
        (pooling->n_first > 0 && !is_pooled))
        return weft_err_set(why, WEFT_E_INVAL, "the first text has %u of %u tokens",
                            pooling->n_first, n_prompt);
    return WEFT_OK;
}
