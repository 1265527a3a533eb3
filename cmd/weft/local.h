/* local — drives an engine without a scheduler: a handful of sequences that start together and all
 * fit. What `weft run` and `weft bench` need, and no more. */
#ifndef WEFT_CMD_WEFT_LOCAL_H
#define WEFT_CMD_WEFT_LOCAL_H

#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

struct weft_local_times {
    uint64_t prompt_us, gen_us; /* computing, in steps of prompts and in those after them */
    uint32_t n_prompt, n_gen;   /* tokens computed in them */
};

/* Runs `n_seqs` (1..max_seqs of the engine) copies of one prompt to their end. Choice i of the
 * generator is sequence i. `on_token` (may be NULL) gets every sampled token; false ends the run.
 * TOOBIG: they do not fit in the KV cache or the model's length. */
WEFT_MUST_CHECK weft_err weft_local_generate(
    weft_eng *eng, const struct weft_sampling *sampling, const uint32_t *prompt, uint32_t n_prompt,
    uint32_t n_seqs, bool (*on_token)(void *ctx, uint32_t seq_idx, const struct weft_step_out *out),
    void *ctx, struct weft_local_times *times_out, struct weft_errmsg *why);

#endif
