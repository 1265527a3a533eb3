/* base/activity — what a look at the batch shows: the last steps, and the sequences in it.
 *
 * A scheduler tells it to routers four times a second, bounded; /stats shows it. Times are ages,
 * because the clocks of two hosts differ.
 */
#ifndef WEFT_BASE_ACTIVITY_H
#define WEFT_BASE_ACTIVITY_H

#include <stdint.h>

/* A picture of a minute ago helps nobody, and a snapshot must stay small: these take some 7 KiB of
 * it at most. What is left out is counted. */
#define WEFT_ACTIVITY_STEPS_MAX 64
#define WEFT_ACTIVITY_SEQS_MAX 128

struct weft_activity_step {
    uint64_t step;            /* its number, from 1, of all that this scheduler had done */
    uint64_t age_us;          /* since its result came */
    uint32_t busy_us;         /* the worker's time for it */
    uint32_t n_prompt_tokens; /* of prompts, and output that is computed again */
    uint32_t n_decode_tokens; /* of streams that got one more */
    uint32_t n_seqs;
    uint32_t group; /* of workers, from 0 */
};

enum weft_activity_phase {
    WEFT_ACTIVITY_WAITING, /* for a place, or for the worker */
    WEFT_ACTIVITY_PROMPT,
    WEFT_ACTIVITY_DECODE,
    WEFT_ACTIVITY_PHASE_COUNT
};

struct weft_activity_seq {
    uint64_t request_id; /* the router's */
    uint64_t age_us;     /* since the request came */
    uint32_t router;     /* the scheduler's index of it */
    uint32_t choice;
    enum weft_activity_phase phase;
    uint32_t n_prompt, n_prompt_done; /* tokens; done: in the KV cache */
    uint32_t n_output, max_tokens;
    uint32_t n_blocks;
    uint32_t group;
};

struct weft_activity {
    uint32_t n_steps, n_seqs;
    const struct weft_activity_step *steps; /* the newest last */
    const struct weft_activity_seq *seqs;   /* of each group the oldest first: those that run, then
                                               those that wait */
    uint32_t n_seqs_omitted;
    uint32_t router; /* the index of the one that is told */
};

#endif
