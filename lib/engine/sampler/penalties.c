/* Penalties on tokens that came before, and on those that go on with what came before. */
#include "sampler/penalties.h"

#include <math.h>

#include "base/minmax.h"

#define DRY_MOST 1e30 /* of a penalty: finite, so that two of them still rank */

bool wefti_dry_is_active(const struct weft_sampling *s) {
    return s->dry_multiplier > 0.0f && s->dry_base >= 1.0f && s->dry_penalty_last_n != 0;
}

/* The first of the last n tokens; n < 0: of all. */
static uint32_t begin_of_last(int32_t n, uint32_t n_known) {
    return n >= 0 && (uint32_t)n < n_known ? n_known - (uint32_t)n : 0;
}

static void penalise_repetition(const struct wefti_sampler_input *input, uint32_t begin,
                                float *logits, uint32_t *counts) {
    const uint32_t *tokens = input->tokens;
    float penalty = input->sampling->repetition_penalty;
    for (uint32_t i = begin; i < input->n_known; i++) {
        float *x = &logits[tokens[i]];
        if (counts[tokens[i]]++ > 0) continue;
        *x = *x > 0.0f ? *x / penalty : *x * penalty;
    }
    for (uint32_t i = begin; i < input->n_known; i++)
        counts[tokens[i]] = 0;
}

/* vLLM's look at all tokens for repetition, and at the output for the others, as OpenAI defines
 * them; llama.cpp's look at the same last tokens for all three. */
void wefti_penalties_apply(const struct wefti_sampler_input *input, float *logits,
                           uint32_t *counts) {
    const struct weft_sampling *s = input->sampling;
    const uint32_t *tokens = input->tokens;
    bool is_vllm = s->variant == WEFT_VARIANT_VLLM;
    uint32_t last = is_vllm ? 0 : begin_of_last(s->repeat_last_n, input->n_known);
    uint32_t begin = is_vllm ? input->n_prompt : last;
    if (s->repetition_penalty != 1.0f) penalise_repetition(input, last, logits, counts);
    if (s->frequency_penalty == 0.0f && s->presence_penalty == 0.0f) return;
    for (uint32_t i = begin; i < input->n_known; i++)
        counts[tokens[i]]++;
    for (uint32_t i = begin; i < input->n_known; i++) {
        uint32_t n = counts[tokens[i]];
        if (n == 0) continue; /* this token's first place did it */
        logits[tokens[i]] -= s->frequency_penalty * (float)n + s->presence_penalty;
        counts[tokens[i]] = 0;
    }
}

/* ------------------------------------------------------------------------------------- DRY --- */

static bool is_breaker(const struct weft_sampling *s, uint32_t token) {
    for (uint32_t i = 0; i < s->n_dry_breakers; i++) {
        if (s->dry_breakers[i] == token) return true;
    }
    return false;
}

/* The last n tokens, read from the last one backwards. */
struct backwards {
    const uint32_t *last;
    uint32_t n;
};

static uint32_t at(const struct backwards *h, uint32_t i) {
    return *(h->last - i);
}

/* How many tokens from i on, backwards, are equal to those from 0 on: the Z-function, in time linear
 * in n whatever repeats (Gusfield 1997, section 1.4). */
static void find_runs(const struct backwards *h, uint32_t *runs) {
    uint32_t left = 0, right = 0; /* the window [left, right) equals [0, right - left) */
    runs[0] = h->n;
    for (uint32_t i = 1; i < h->n; i++) {
        uint32_t n = i < right ? runs[i - left] : 0;
        if (i < right && n > right - i) n = right - i;
        while (i + n < h->n && at(h, n) == at(h, i + n))
            n++;
        runs[i] = n;
        if (i + n > right) left = i, right = i + n;
    }
}

static float dry_penalty(const struct weft_sampling *s, uint32_t run) {
    double grown = pow((double)s->dry_base, (double)(run - s->dry_allowed_length));
    return (float)fmin((double)s->dry_multiplier * grown, DRY_MOST);
}

void wefti_dry_apply(const struct wefti_sampler_input *input, float *logits, uint32_t *counts,
                     uint32_t *runs, uint32_t n_runs) {
    const struct weft_sampling *s = input->sampling;
    uint32_t n = input->n_known - begin_of_last(s->dry_penalty_last_n, input->n_known);
    n = weft_min_u32(n, n_runs);
    uint32_t most = 0; /* a repetition does not reach over the last breaker */
    if (n <= s->dry_allowed_length) return;
    const struct backwards h = {input->tokens + input->n_known - 1, n};
    while (most < n && !is_breaker(s, at(&h, most)))
        most++;
    if (most < s->dry_allowed_length) return;
    find_runs(&h, runs);
    for (uint32_t i = 1; i < n; i++) { /* what came behind place i is the token before it, here */
        uint32_t run = runs[i] < most ? runs[i] : most, *count = &counts[at(&h, i - 1)];
        if (run >= s->dry_allowed_length && *count <= run) *count = run + 1;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t token = at(&h, i - 1), *count = &counts[token];
        if (*count > 0 && !is_breaker(s, token)) logits[token] -= dry_penalty(s, *count - 1);
        *count = 0;
    }
}
