/* sim_beams — what a beam search over a sim_worker finds, told beforehand. */
#ifndef WEFT_TESTS_SIM_BEAMS_H
#define WEFT_TESTS_SIM_BEAMS_H

#include "property/sim_worker.h"

#define SIM_BEAMS_MAX 12u
#define SIM_BEAM_TOKENS_MAX 192u

struct sim_beam {
    uint32_t tokens[SIM_BEAM_TOKENS_MAX];
    uint32_t n;
    enum weft_end end;
};

/* The best `n`, the best first, of a prompt that leaves room for a token at least. */
void sim_beams_search(const struct weft_sched_options *options,
                      const struct weft_sampling *sampling, const uint32_t *prompt,
                      uint32_t n_prompt, uint32_t n, struct sim_beam *best_out);

#endif
