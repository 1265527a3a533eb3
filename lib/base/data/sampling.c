#include "base/sampling.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"

void weft_sampling_init(struct weft_sampling *sampling) {
    memset(sampling, 0, sizeof *sampling);
#define SET(type, name, value) sampling->name = (value);
#define SET_KNOB(type, name, flag, value, ...) SET(type, name, value)
    WEFT_SAMPLING_LIST(SET_KNOB, SET)
#undef SET_KNOB
#undef SET
    weft_grammar_init(&sampling->grammar);
}

struct weft_sampling_range weft_sampling_api_range(const char *name) {
    static const struct {
        const char *name;
        struct weft_sampling_range range;
    } knobs[] = {
#define KNOB(type, name, flag, value, least, most, api_least, api_most, ...)                       \
    {#name, {api_least, api_most}},
#define PASS_OVER(...)
        WEFT_SAMPLING_LIST(KNOB, PASS_OVER)
#undef PASS_OVER
#undef KNOB
    };
    const size_t n = sizeof knobs / sizeof knobs[0];
    size_t i = 0;
    while (i < n && strcmp(knobs[i].name, name) != 0)
        i++;
    WEFT_ASSERT(i < n);
    return knobs[i].range;
}

static weft_err check_F32(float value, float least, float most, const char *name,
                          struct weft_errmsg *why) {
    if (isfinite(value) && value >= least && value <= most) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "%s must be between %g and %g, got %g", name,
                        (double)least, (double)most, (double)value);
}

static weft_err check_COUNT(int32_t n, const char *name, struct weft_errmsg *why) {
    if (n >= -1 && n <= (int32_t)WEFT_VOCAB_MAX) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "%s is %d, out of range", name, n);
}

/* Any U32 and any U64 will do. */
static weft_err check_numbers(const struct weft_sampling *s, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
#define KNOB_F32(name, least, most)                                                                \
    if (!err) err = check_F32(s->name, (float)(least), (float)(most), #name, why);
#define KNOB_U32(name, least, most)
#define KNOB(type, name, flag, value, least, most, ...) KNOB_##type(name, least, most)
#define OWN_COUNT(name)                                                                            \
    if (!err) err = check_COUNT(s->name, #name, why);
#define OWN_F32(name)                                                                              \
    if (!err) err = check_F32(s->name, -FLT_MAX, FLT_MAX, #name, why);
#define OWN_U32(name)
#define OWN_U64(name)
#define OWN(type, name, value) OWN_##type(name)
    WEFT_SAMPLING_LIST(KNOB, OWN)
#undef OWN
#undef OWN_U64
#undef OWN_U32
#undef OWN_F32
#undef OWN_COUNT
#undef KNOB
#undef KNOB_U32
#undef KNOB_F32
    return err;
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

static weft_err check_allowed(const struct weft_sampling *s, uint32_t n_vocab,
                              struct weft_errmsg *why) {
    if (s->n_allowed_tokens > WEFT_ALLOWED_TOKENS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u allowed tokens, at most %d are possible",
                            s->n_allowed_tokens, WEFT_ALLOWED_TOKENS_MAX);
    for (uint32_t i = 0; i < s->n_allowed_tokens; i++) {
        uint32_t token = s->allowed_tokens[i];
        if (n_vocab && token >= n_vocab)
            return weft_err_set(why, WEFT_E_INVAL,
                                "allowed token %u is outside the vocabulary of %u", token, n_vocab);
        if (i && token <= s->allowed_tokens[i - 1])
            return weft_err_set(why, WEFT_E_INVAL, "allowed token %u comes twice or out of order",
                                token);
    }
    return WEFT_OK;
}

static weft_err check_bad_words(const struct weft_sampling *s, uint32_t n_vocab,
                                struct weft_errmsg *why) {
    uint32_t n = s->n_bad_words;
    if (n > WEFT_BAD_WORDS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "bad words of %u numbers, at most %d are allowed", n,
                            WEFT_BAD_WORDS_MAX);
    for (uint32_t at = 0; at < n;) {
        uint32_t n_tokens = s->bad_words[at++];
        if (n_tokens == 0 || n_tokens > n - at)
            return weft_err_set(why, WEFT_E_INVAL, "a bad word of %u tokens, %u are left", n_tokens,
                                n - at);
        for (uint32_t end = at + n_tokens; at < end; at++) {
            if (n_vocab && s->bad_words[at] >= n_vocab)
                return weft_err_set(why, WEFT_E_INVAL,
                                    "a bad word's token %u is outside the vocabulary of %u",
                                    s->bad_words[at], n_vocab);
        }
    }
    return WEFT_OK;
}

/* What a beam search ranks are log-probabilities as the model has them. */
static bool changes_logits(const struct weft_sampling *s) {
    return s->grammar.kind != WEFT_GRAMMAR_NONE || s->n_bias > 0 || s->n_allowed_tokens > 0 ||
           s->n_bad_words > 0 || s->repetition_penalty != 1.0f || s->presence_penalty != 0.0f ||
           s->frequency_penalty != 0.0f;
}

static weft_err check_beams(const struct weft_sampling *s, struct weft_errmsg *why) {
    if (s->early_stopping >= WEFT_BEAM_STOP_COUNT)
        return weft_err_set(why, WEFT_E_INVAL, "early_stopping is %u, out of range",
                            s->early_stopping);
    if (s->beam_width == 0) return WEFT_OK;
    if (s->beam_width > WEFT_BEAMS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u beams, at most %d are possible", s->beam_width,
                            WEFT_BEAMS_MAX);
    if (s->beam_groups == 0 || s->beam_width % s->beam_groups != 0)
        return weft_err_set(why, WEFT_E_INVAL, "%u beams cannot be divided into %u equal groups",
                            s->beam_width, s->beam_groups);
    if (fabsf(s->length_penalty) > WEFT_LENGTH_PENALTY_MAX || s->diversity_penalty < 0.0f)
        return weft_err_set(why, WEFT_E_INVAL,
                            "a length_penalty of %g and a diversity_penalty of %g",
                            (double)s->length_penalty, (double)s->diversity_penalty);
    if (s->max_tokens == 0 || s->n_logprobs >= 0 || s->n_prompt_logprobs >= 0 || changes_logits(s))
        return weft_err_set(why, WEFT_E_INVAL,
                            "a beam search has at least one token, no penalties, no constraints "
                            "and no log-probabilities");
    return WEFT_OK;
}

weft_err weft_sampling_check(const struct weft_sampling *s, uint32_t n_vocab,
                             struct weft_errmsg *why) {
    weft_err err = check_numbers(s, why);
    if (err) return err;
    err = check_stop_tokens(s, n_vocab, why);
    if (!err) err = check_allowed(s, n_vocab, why);
    if (!err) err = check_bad_words(s, n_vocab, why);
    if (!err) err = weft_grammar_check(&s->grammar, why);
    if (!err) err = check_beams(s, why);
    if (err) return err;
    if (s->n_bias > WEFT_LOGIT_BIAS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u logit_bias entries, at most %d are allowed",
                            s->n_bias, WEFT_LOGIT_BIAS_MAX);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        if (!isfinite(s->bias[i].bias) || fabsf(s->bias[i].bias) > -WEFT_LOGIT_BIAS_NEVER)
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
