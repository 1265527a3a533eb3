/* How many answers a request wants, and how they are found: as samples, the best of more samples, or by
 * beam search. */
#include <math.h>

#include "params/params_internal.h"

/* `n` choices of each prompt, as the field `name` wants. */
static void check_choices(const struct reader *r, const char *name, uint32_t n,
                          const struct params *params) {
    if (wefti_api_json_ok(r) && (uint64_t)n * params->n_prompts > WEFT_API_CALL_CHOICES_MAX)
        weft_api_error_set(r->error, 400, name, NULL,
                           "%u prompts with '%s' = %u are more than %d choices in one request",
                           params->n_prompts, name, n, WEFT_API_CALL_CHOICES_MAX);
}

void wefti_api_params_read_choices(const struct reader *r, struct params *params) {
    int64_t n = 1;
    wefti_api_json_get_int(r, "n", 1, WEFT_CHOICES_MAX, &n);
    params->n = (uint32_t)n;
    check_choices(r, "n", params->n, params);
}

void wefti_api_params_read_best_of(const struct reader *r, struct params *params) {
    int64_t best_of = 0;
    wefti_api_json_get_int(r, "best_of", 0, WEFT_CHOICES_MAX, &best_of);
    if (best_of == 0 || best_of == params->n) return; /* 0: as if it were absent */
    if (best_of < params->n)
        weft_api_error_set(r->error, 400, "best_of", NULL,
                           "'best_of' must not be less than 'n' = %u, got %u", params->n,
                           (uint32_t)best_of);
    if (params->stream)
        weft_api_error_set(r->error, 400, "best_of", NULL,
                           "'best_of' above 'n' is not available with 'stream': true");
    params->n_run = (uint32_t)best_of;
    check_choices(r, "best_of", params->n_run, params);
    /* The ranking needs those of the tokens themselves. */
    if (params->sampling.n_logprobs < 0) params->sampling.n_logprobs = 0;
}

/* ----------------------------------------------------------------------------- beam search --- */

/* Its fields mean nothing without it. As elsewhere those that change nothing are taken. */
static void refuse_alone(const struct reader *r) {
    static const struct refused_field fields[] = {{"length_penalty", IF_ONE},
                                                  {"early_stopping", IF_FALSE},
                                                  {"num_beam_groups", IF_ONE},
                                                  {"diversity_penalty", IF_ZERO},
                                                  {NULL, IF_NULL}};
    for (const struct refused_field *field = fields; field->name; field++) {
        const json_t *value = wefti_api_json_get(r, field->name);
        if (value && !wefti_api_params_is_harmless(value, field->harmless))
            weft_api_error_set(r->error, 400, field->name, NULL,
                               "'%s' is of beam search: send 'use_beam_search': true with it",
                               field->name);
    }
}

void wefti_api_params_refuse_beams(const struct reader *r) {
    static const struct refused_field fields[] = {{"use_beam_search", IF_FALSE}, {NULL, IF_NULL}};
    wefti_api_params_refuse(r, fields);
    refuse_alone(r);
}

/* What a model's own settings say is passed over, as a search does not sample; what the request says is
 * refused if the search would not heed it. */
static void refuse_what_changes_logits(const struct reader *r, struct params *params) {
    struct weft_sampling *s = &params->sampling;
    static const char *const names[] = {
        "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
        "allowed_token_ids",  "bad_words",        "dry_multiplier",    "mirostat"};
    bool is_set[] = {s->repetition_penalty != 1.0f, s->presence_penalty != 0.0f,
                     s->frequency_penalty != 0.0f,  s->n_bias > 0,
                     s->n_allowed_tokens > 0,       params->bad_words_wanted != NULL,
                     s->dry_multiplier > 0.0f,      s->mirostat > 0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_set[i] && wefti_api_json_get(r, names[i]))
            weft_api_error_set(r->error, 400, names[i], NULL,
                               "'%s' is not available with 'use_beam_search': true", names[i]);
    }
    s->repetition_penalty = 1.0f;
    s->presence_penalty = s->frequency_penalty = 0.0f;
}

static void refuse_logprobs(const struct reader *r, const struct params *params) {
    bool of_output = params->logprobs >= 0;
    if (of_output || params->sampling.n_prompt_logprobs >= 0)
        weft_api_error_set(r->error, 400, of_output ? "logprobs" : "prompt_logprobs", NULL,
                           "log-probabilities are not available with 'use_beam_search': true");
}

/* true, false or "never", as transformers has it. */
static void read_early_stopping(const struct reader *r, struct weft_sampling *s) {
    const json_t *value = wefti_api_json_get(r, "early_stopping");
    s->early_stopping = WEFT_BEAM_STOP_NEVER;
    if (!value || wefti_api_json_is_text(value, "never")) return;
    if (!json_is_boolean(value))
        weft_api_error_set(r->error, 400, "early_stopping", NULL,
                           "'early_stopping' must be true, false or \"never\"");
    s->early_stopping = json_is_true(value) ? WEFT_BEAM_STOP_ENOUGH : WEFT_BEAM_STOP_UNLIKELY;
}

static void read_width(const struct reader *r, struct params *params) {
    struct weft_sampling *s = &params->sampling;
    int64_t width = 0, n_groups = 1;
    wefti_api_json_get_int(r, "best_of", 0, WEFT_BEAMS_MAX, &width);
    if (width == 0) width = params->n;
    if (width > WEFT_BEAMS_MAX)
        weft_api_error_set(r->error, 400, "n", NULL,
                           "'n' must be at most %d with 'use_beam_search': true, got %u",
                           WEFT_BEAMS_MAX, params->n);
    if (width < params->n)
        weft_api_error_set(r->error, 400, "best_of", NULL,
                           "'best_of' must not be less than 'n' = %u, got %u", params->n,
                           (uint32_t)width);
    wefti_api_json_get_int(r, "num_beam_groups", 1, WEFT_BEAMS_MAX, &n_groups);
    if (width % n_groups != 0)
        weft_api_error_set(r->error, 400, "num_beam_groups", NULL,
                           "%u beams cannot be divided into %u equal groups", (uint32_t)width,
                           (uint32_t)n_groups);
    s->beam_width = (uint32_t)width;
    s->beam_groups = (uint32_t)n_groups;
}

bool wefti_api_params_read_beams(const struct reader *r, struct params *params) {
    bool is_wanted = false;
    struct weft_sampling *s = &params->sampling;
    wefti_api_json_get_bool(r, "use_beam_search", &is_wanted);
    if (!is_wanted) {
        refuse_alone(r);
        return false;
    }
    read_width(r, params);
    wefti_api_json_get_float(r, "length_penalty", -(double)WEFT_LENGTH_PENALTY_MAX,
                             (double)WEFT_LENGTH_PENALTY_MAX, &s->length_penalty);
    wefti_api_json_get_float(r, "diversity_penalty", 0, 1e6, &s->diversity_penalty);
    read_early_stopping(r, s);
    refuse_what_changes_logits(r, params);
    refuse_logprobs(r, params);
    return true;
}
