#include "property/sim_beams.h"

#include <string.h>

#include "base/check.h"
#include "base/minmax.h"
#include "inside/scheduler/beam/search.h"

static void step(const struct weft_sched_options *options, const uint32_t *prompt,
                 wefti_beam_search *search) {
    static uint32_t ids[SIM_BEAMS_MAX][SIM_TOP_MAX];
    static float logprobs[SIM_BEAMS_MAX][SIM_TOP_MAX];
    struct wefti_beam_next next[SIM_BEAMS_MAX];
    uint32_t tokens[2 * SIM_BEAM_TOKENS_MAX], n_prompt = search->options.n_prompt;
    uint32_t n = wefti_beam_n_wanted(search->options.sampling, options->n_vocab);
    WEFT_ASSERT(n <= SIM_TOP_MAX);
    memcpy(tokens, prompt, n_prompt * sizeof *tokens);
    for (uint32_t i = 0; i < wefti_beam_n_live(search); i++) {
        const struct wefti_beam *beam = wefti_beam_live(search, i);
        wefti_beam_tokens(search, beam, tokens + n_prompt);
        uint64_t history = sim_history(options, tokens, n_prompt, n_prompt + beam->n_tokens);
        sim_next(history, options->n_vocab, n, ids[i], logprobs[i]);
        next[i] = (struct wefti_beam_next){n, ids[i], logprobs[i]};
    }
    WEFT_ASSERT(!wefti_beam_reserve(search));
    wefti_beam_advance(search, next);
}

void sim_beams_search(const struct weft_sched_options *options,
                      const struct weft_sampling *sampling, const uint32_t *prompt,
                      uint32_t n_prompt, uint32_t n, struct sim_beam *best_out) {
    const struct wefti_beam_options wanted = {
        .sampling = sampling,
        .n_prompt = n_prompt,
        .max_tokens = weft_min_u32(sampling->max_tokens, options->max_model_len - n_prompt),
        .n_vocab = options->n_vocab,
    };
    const struct wefti_beam *best[SIM_BEAMS_MAX];
    wefti_beam_search *search = wefti_beam_new(&wanted);
    WEFT_ASSERT(search && sampling->beam_width <= SIM_BEAMS_MAX);
    while (!search->is_over)
        step(options, prompt, search);
    uint32_t n_best = wefti_beam_best(search, n, best);
    for (uint32_t i = 0; i < n; i++) {
        best_out[i] = (struct sim_beam){.end = WEFT_END_LENGTH};
        if (i >= n_best) continue;
        best_out[i].n = best[i]->n_tokens;
        wefti_beam_tokens(search, best[i], best_out[i].tokens);
        if (best[i]->is_stopped) best_out[i].end = WEFT_END_STOP;
    }
    wefti_beam_free(search);
}
