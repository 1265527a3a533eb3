#include "base/sampling.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void weft_sampling_init(struct weft_sampling *sampling) {
    memset(sampling, 0, sizeof *sampling);
    sampling->top_p = 1.0f;
    sampling->repetition_penalty = 1.0f;
    sampling->max_tokens = 16;
    sampling->n_logprobs = -1;
    sampling->n_prompt_logprobs = -1;
}

static weft_err check_value(float value, float min, float max, const char *name,
                            struct weft_errmsg *why) {
    if (isfinite(value) && value >= min && value <= max) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "%s must be between %g and %g, got %g", name,
                        (double)min, (double)max, (double)value);
}

static weft_err check_numbers(const struct weft_sampling *s, struct weft_errmsg *why) {
    weft_err err = check_value(s->temperature, 0.0f, 1e6f, "temperature", why);
    if (!err) err = check_value(s->top_p, 1e-30f, 1.0f, "top_p", why);
    if (!err) err = check_value(s->min_p, 0.0f, 1.0f, "min_p", why);
    if (!err) err = check_value(s->repetition_penalty, 1e-6f, 1e6f, "repetition_penalty", why);
    if (!err) err = check_value(s->presence_penalty, -1e6f, 1e6f, "presence_penalty", why);
    if (!err) err = check_value(s->frequency_penalty, -1e6f, 1e6f, "frequency_penalty", why);
    return err;
}

static weft_err check_logprobs(int32_t n, const char *name, struct weft_errmsg *why) {
    if (n >= -1 && n <= (int32_t)WEFT_VOCAB_MAX) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "%s is %d, out of range", name, n);
}

static weft_err check_tokens(const uint32_t *tokens, uint32_t n, uint32_t n_vocab,
                             struct weft_errmsg *why) {
    for (uint32_t i = 0; i < n; i++) {
        if (n_vocab && tokens[i] >= n_vocab)
            return weft_err_set(why, WEFT_E_INVAL, "stop token %u is outside the vocabulary of %u",
                                tokens[i], n_vocab);
    }
    return WEFT_OK;
}

static weft_err check_stop_tokens(const struct weft_sampling *s, uint32_t n_vocab,
                                  struct weft_errmsg *why) {
    uint64_t n = (uint64_t)s->n_stop_tokens + s->n_masked_tokens;
    if (n > WEFT_STOP_TOKENS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%" PRIu64 " stop tokens, at most %d are allowed", n,
                            WEFT_STOP_TOKENS_MAX);
    weft_err err = check_tokens(s->stop_tokens, s->n_stop_tokens, n_vocab, why);
    if (!err) err = check_tokens(s->masked_tokens, s->n_masked_tokens, n_vocab, why);
    return err;
}

weft_err weft_sampling_check(const struct weft_sampling *s, uint32_t n_vocab,
                             struct weft_errmsg *why) {
    weft_err err = check_numbers(s, why);
    if (!err) err = check_logprobs(s->n_logprobs, "logprobs", why);
    if (!err) err = check_logprobs(s->n_prompt_logprobs, "prompt_logprobs", why);
    if (err) return err;
    err = check_stop_tokens(s, n_vocab, why);
    if (err) return err;
    if (s->n_bias > WEFT_LOGIT_BIAS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u logit_bias entries, at most %d are allowed",
                            s->n_bias, WEFT_LOGIT_BIAS_MAX);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        if (!isfinite(s->bias[i].bias) || fabsf(s->bias[i].bias) > 1e6f)
            return weft_err_set(why, WEFT_E_INVAL, "logit_bias of token %u is out of range",
                                s->bias[i].token);
        if (n_vocab && s->bias[i].token >= n_vocab)
            return weft_err_set(why, WEFT_E_INVAL,
                                "logit_bias names token %u, outside the vocabulary of %u",
                                s->bias[i].token, n_vocab);
        if (i && s->bias[i].token <= s->bias[i - 1].token)
            return weft_err_set(why, WEFT_E_INVAL,
                                "logit_bias names token %u twice or out of order",
                                s->bias[i].token);
    }
    return WEFT_OK;
}
