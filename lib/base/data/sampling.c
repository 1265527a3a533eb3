#include "base/sampling.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"

void weft_sampling_init(struct weft_sampling *sampling) {
    memset(sampling, 0, sizeof *sampling);
#define SET(type, name, value) sampling->name = (WEFT_SAMPLING_##type)(value);
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

/* ----------------------------------------------------------------------------- their order --- */

static const char *const sampler_names[] = {
#define NAME(NAME, name) name,
    WEFT_SAMPLER_LIST(NAME)
#undef NAME
};

const char *weft_sampler_name(enum weft_sampler sampler) {
    WEFT_ASSERT(sampler < WEFT_SAMPLER_COUNT);
    return sampler_names[sampler];
}

enum weft_sampler weft_sampler_of_name(const char *name) {
    static const struct {
        const char *name;
        enum weft_sampler sampler;
    } others[] = {
        {"temp", WEFT_SAMPLER_TEMPERATURE}, {"typ_p", WEFT_SAMPLER_TYPICAL},
        {"typical", WEFT_SAMPLER_TYPICAL},  {"tail_free", WEFT_SAMPLER_TAIL_FREE},
        {"tfs", WEFT_SAMPLER_TAIL_FREE},
    };
    uint32_t sampler = 0;
    while (sampler < WEFT_SAMPLER_COUNT && strcmp(sampler_names[sampler], name) != 0)
        sampler++;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i].name, name) == 0) sampler = others[i].sampler;
    return (enum weft_sampler)sampler;
}

uint64_t weft_samplers_add(uint64_t samplers, enum weft_sampler sampler) {
    uint32_t shift = 0;
    WEFT_ASSERT(sampler < WEFT_SAMPLER_COUNT);
    if (samplers == WEFT_SAMPLERS_NONE) samplers = 0;
    while (samplers >> shift != 0)
        shift += 4;
    WEFT_ASSERT(shift < 64);
    return samplers | (uint64_t)(sampler + 1) << shift;
}

uint32_t weft_samplers_list(uint64_t samplers, enum weft_sampler out[WEFT_SAMPLER_COUNT]) {
    uint32_t n = 0;
    if (samplers == WEFT_SAMPLERS_NONE) return 0;
    for (uint32_t i = 0; samplers == WEFT_SAMPLERS_USUAL && i < WEFT_SAMPLER_COUNT; i++)
        out[n++] = (enum weft_sampler)i;
    for (; samplers != 0; samplers >>= 4) {
        WEFT_ASSERT(n < WEFT_SAMPLER_COUNT && (samplers & 15) - 1 < WEFT_SAMPLER_COUNT);
        out[n++] = (enum weft_sampler)((samplers & 15) - 1);
    }
    return n;
}

static weft_err check_samplers(uint64_t samplers, struct weft_errmsg *why) {
    uint32_t seen = 0;
    if (samplers == WEFT_SAMPLERS_NONE) return WEFT_OK;
    for (uint64_t left = samplers; left != 0; left >>= 4) {
        uint32_t number = (uint32_t)(left & 15);
        if (number == 0 || number > WEFT_SAMPLER_COUNT || seen >> number & 1)
            return weft_err_set(why, WEFT_E_INVAL, "samplers are in no order: %" PRIx64, samplers);
        seen |= 1u << number;
        if (number == WEFT_SAMPLER_ADAPTIVE_P + 1 && left >> 4 != 0)
            return weft_err_set(why, WEFT_E_INVAL,
                                "adaptive_p draws the token: no sampler comes after it");
    }
    return WEFT_OK;
}

bool weft_sampling_has_penalties(const struct weft_sampling *sampling) {
    return sampling->repeat_last_n != 0 &&
           (sampling->repetition_penalty != 1.0f || sampling->presence_penalty != 0.0f ||
            sampling->frequency_penalty != 0.0f);
}

bool weft_sampling_sees_too_little(const struct weft_sampling *sampling, uint32_t max_len) {
    return weft_sampling_has_penalties(sampling) && sampling->variant == WEFT_VARIANT_VLLM &&
           sampling->repeat_last_n > 0 && (uint32_t)sampling->repeat_last_n < max_len;
}

bool weft_sampling_has_state(const struct weft_sampling *sampling) {
    return sampling->mirostat > 0 || sampling->adaptive_target >= 0.0f;
}

/* Basu et al. begin with twice the surprise wanted; adaptive-p as if its target had been met. */
double weft_sampling_first_state(const struct weft_sampling *sampling) {
    return sampling->mirostat > 0 ? 2.0 * (double)sampling->mirostat_tau
                                  : (double)sampling->adaptive_target;
}

/* ----------------------------------------------------------------------------------- checks --- */

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

static weft_err check_I32(int32_t n, double most, const char *name, struct weft_errmsg *why) {
    if (n >= -1 && n <= most) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "%s is %d, out of range", name, n);
}

/* Any U32 and any U64 will do. */
static weft_err check_numbers(const struct weft_sampling *s, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
#define KNOB_F32(name, least, most)                                                                \
    if (!err) err = check_F32(s->name, (float)(least), (float)(most), #name, why);
#define KNOB_I32(name, least, most)                                                                \
    if (!err) err = check_I32(s->name, most, #name, why);
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
#undef KNOB_I32
#undef KNOB_F32
    if (!err && s->variant >= WEFT_VARIANT_COUNT)
        err = weft_err_set(why, WEFT_E_INVAL, "variant %u of samplers is none", s->variant);
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

static weft_err check_breakers(const struct weft_sampling *s, uint32_t n_vocab,
                               struct weft_errmsg *why) {
    if (s->n_dry_breakers > WEFT_DRY_BREAKERS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%u breakers of DRY, at most %d are allowed",
                            s->n_dry_breakers, WEFT_DRY_BREAKERS_MAX);
    for (uint32_t i = 0; i < s->n_dry_breakers; i++) {
        if (n_vocab && s->dry_breakers[i] >= n_vocab)
            return weft_err_set(why, WEFT_E_INVAL,
                                "a breaker of DRY is token %u, outside the vocabulary of %u",
                                s->dry_breakers[i], n_vocab);
    }
    return WEFT_OK;
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

/* Its candidates are hidden states ahead of their tokens: what is known of a token when it is sampled comes
 * too late for them. */
static weft_err check_contrast(const struct weft_sampling *s, struct weft_errmsg *why) {
    if (!weft_sampling_is_contrastive(s)) return WEFT_OK;
    if (s->top_k < 2 || s->top_k > WEFT_CONTRAST_K_MAX)
        return weft_err_set(why, WEFT_E_INVAL,
                            "contrastive search (penalty_alpha) chooses among 2 to %d tokens, and "
                            "top_k is %u",
                            WEFT_CONTRAST_K_MAX, s->top_k);
    if (s->n_logprobs >= 0 || s->n_prompt_logprobs >= 0 || s->beam_width > 0 ||
        s->grammar.kind != WEFT_GRAMMAR_NONE || s->samplers != WEFT_SAMPLERS_USUAL ||
        weft_sampling_has_state(s))
        return weft_err_set(why, WEFT_E_INVAL,
                            "contrastive search (penalty_alpha) has no log-probabilities, beams, "
                            "grammar, order of samplers, Mirostat and adaptive-p");
    return WEFT_OK;
}

weft_err weft_sampling_check(const struct weft_sampling *s, uint32_t n_vocab,
                             struct weft_errmsg *why) {
    weft_err err = check_numbers(s, why);
    if (err) return err;
    err = check_samplers(s->samplers, why);
    if (!err) err = check_stop_tokens(s, n_vocab, why);
    if (!err) err = check_breakers(s, n_vocab, why);
    if (!err) err = check_allowed(s, n_vocab, why);
    if (!err) err = check_bad_words(s, n_vocab, why);
    if (!err) err = weft_grammar_check(&s->grammar, why);
    if (!err) err = check_beams(s, why);
    if (!err) err = check_contrast(s, why);
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
