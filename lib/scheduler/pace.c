/* How many prompt tokens fit into a step, so that running streams do not stall.
 *
 * The model: a step takes base + n_prompt * prompt_token. The base is learned from steps without
 * prompt tokens, whatever their number of rows: reading the weights dominates there. The second
 * term is the cost of prompt tokens on top. As long as no base is known they are charged with
 * everything. Used as a limit it is a feedback loop: too small a chunk makes its tokens look dear,
 * and a larger chunk is cheaper per token, until target and measurement meet.
 *
 * Two bounds on trust. A chunk is at most twice the largest ever measured, since costs are not
 * linear and the first guess may be far off. And a chunk is never below PROMPT_TOKENS_MIN, however
 * slow the machine: prompts always advance.
 *
 * Integers only: the same results give the same plans on every machine. */
#include "scheduler_internal.h"

#define PROMPT_TOKENS_MIN 16u
#define PROMPT_TOKENS_FIRST 32u /* before anything is known: 64 ms at 2 ms a token */
#define SMOOTHING 2             /* a new sample weighs half: costs change with every arrival */

uint32_t wefti_sched_pace_prompt_tokens(const struct pace *pace, uint32_t target_us) {
    if (target_us == 0) return UINT32_MAX;
    if (pace->prompt_token_ns == 0) return PROMPT_TOKENS_FIRST;
    uint64_t left_ns = (uint64_t)target_us * 1000;
    left_ns = left_ns > pace->base_ns ? left_ns - pace->base_ns : 0;
    uint64_t n_tokens = left_ns / pace->prompt_token_ns;
    uint64_t n_proven = (uint64_t)pace->prompt_tokens_max * 2;
    if (n_tokens > n_proven) n_tokens = n_proven;
    if (n_tokens < PROMPT_TOKENS_MIN) n_tokens = PROMPT_TOKENS_MIN;
    return n_tokens < UINT32_MAX ? (uint32_t)n_tokens : UINT32_MAX;
}

static uint64_t smooth(uint64_t old, uint64_t sample) {
    if (old == 0) return sample;
    return sample > old ? old + (sample - old) / SMOOTHING : old - (old - sample) / SMOOTHING;
}

void wefti_sched_pace_learn(struct pace *pace, uint32_t n_decode, uint32_t n_prompt,
                            uint32_t busy_us) {
    uint64_t busy_ns = (uint64_t)busy_us * 1000;
    if (n_prompt == 0) {
        if (n_decode) pace->base_ns = smooth(pace->base_ns, busy_ns);
        return;
    }
    /* A step with prompt tokens faster than we thought the base alone is: the estimate is stale. */
    if (pace->base_ns > busy_ns) pace->base_ns = busy_ns;
    uint64_t token_ns = (busy_ns - pace->base_ns) / n_prompt;
    pace->prompt_token_ns = smooth(pace->prompt_token_ns, token_ns ? token_ns : 1);
    if (n_prompt > pace->prompt_tokens_max) pace->prompt_tokens_max = n_prompt;
}
