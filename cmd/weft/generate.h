/* generate — drives an engine without a scheduler: a handful of sequences that start together and
 * all fit, as `weft run` and `weft bench` need it. */
#ifndef WEFT_CMD_WEFT_GENERATE_H
#define WEFT_CMD_WEFT_GENERATE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

struct weft_generate_times {
    uint64_t prompt_us, gen_us; /* computing, in steps of prompts and in those after them */
    uint32_t n_prompt, n_gen;   /* tokens computed in them */
};

struct weft_generate_request {
    const struct weft_sampling *sampling;
    const uint32_t *prompt; /* [n_prompt], at least one token */
    uint32_t n_prompt;
    /* Leading tokens that are in the KV cache already, at most n_prompt - 1: those with which the run
     * before began, of one sequence alone; or of any, after weft_eng_fill_cache. */
    uint32_t n_cached;
    uint32_t
        n_seqs; /* copies of the prompt: 1..max_seqs of the engine; i is the generator's choice i */
    /* Gets every sampled token; false ends the run. May be NULL. */
    bool (*on_token)(void *ctx, uint32_t seq_idx, const struct weft_step_out *out);
    void *ctx;
    const volatile sig_atomic_t *stop; /* not 0: the run ends before its next step. May be NULL. */
};

/* How many of the `n` leading tokens that the next run of one sequence has in common with those
 * before it are still in the cache, if none of them wrote a token from position `n_written` on: all,
 * or none where windows have moved on so far that their blocks hold later tokens, or layers are recurrent. */
uint32_t weft_generate_reusable(const weft_eng *eng, uint32_t n_written, uint32_t n);

/* Runs the request's sequences to their end. TOOBIG: they do not fit into the KV cache or the
 * model's length. */
WEFT_MUST_CHECK weft_err weft_generate(weft_eng *eng, const struct weft_generate_request *request,
                                       struct weft_generate_times *times_out,
                                       struct weft_errmsg *why);

#endif
