/* sched_bench — a scheduler and a simulated worker on a bench, for tests that go step by step.
 *
 * Streams are compared with sim_token as they arrive; a test looks at plans and at the log. */
#ifndef WEFT_TESTS_SCHED_BENCH_H
#define WEFT_TESTS_SCHED_BENCH_H

#include "property/sim_worker.h"
#include "scheduler/scheduler.h"

#define BENCH_EVENTS_MAX 8192u
#define BENCH_REQUESTS_MAX 64u
#define BENCH_PROMPT_MAX 1024u

struct bench_event { /* in order of arrival */
    uint64_t request_id;
    uint32_t choice, output_idx;
    bool sampled;
    uint32_t n_prompt_logprobs, n_prompt_cached, n_values;
    enum weft_end end;
};

struct bench {
    struct weft_sched_options options;
    weft_sched *sched;
    struct sim_worker *worker;
    uint64_t now_us, epoch;
    uint32_t router; /* that submits */
    struct bench_event events[BENCH_EVENTS_MAX];
    uint32_t n_events;
    uint32_t prompt[BENCH_PROMPT_MAX];
    const uint32_t *prompts[BENCH_REQUESTS_MAX]; /* by request id: the submitter's, and */
    uint32_t n_prompt[BENCH_REQUESTS_MAX];       /* how long they are */
    uint32_t n_output[BENCH_REQUESTS_MAX][WEFT_CHOICES_MAX];
    uint32_t n_logprobs_done[BENCH_REQUESTS_MAX];
};

/* 64 blocks of 4 tokens, 8 slots, 16 tokens per step, length 128, no bound in time. */
struct weft_sched_options bench_options(void);
struct bench *bench_new(const struct weft_sched_options *options);
void bench_free(struct bench *bench);

/* Request `id` (1..63) of router 0; prompts of one length are the same, unless the caller sets one of
 * its own. Seed: the id. */
struct weft_submit bench_request(struct bench *bench, uint64_t id, uint32_t n_prompt,
                                 uint32_t max_tokens);
enum weft_reject bench_try(struct bench *bench, const struct weft_submit *submit);
void bench_take(struct bench *bench, const struct weft_submit *submit); /* must be accepted */
void bench_submit(struct bench *bench, uint64_t id, uint32_t n_prompt, uint32_t max_tokens);
void bench_cancel(struct bench *bench, uint64_t id);

/* Makes a plan and hands it to the worker; NULL: there was none. */
const struct weft_step_plan *bench_plan(struct bench *bench);
void bench_run(struct bench *bench);                          /* the oldest plan, and its events */
const struct weft_step_plan *bench_step(struct bench *bench); /* both, in lockstep */
void bench_run_until_idle(struct bench *bench, bool two_plans); /* at most 20,000 steps */
void bench_collect(struct bench *bench);                        /* events without a result */
void bench_lose_worker(struct bench *bench);

/* Of the log. */
uint32_t bench_token(const struct bench *bench, uint64_t id, uint32_t idx); /* choice 0's */
uint32_t bench_n_tokens(const struct bench *bench, uint64_t id);
uint32_t bench_first_event(const struct bench *bench, uint64_t id); /* its place, or UINT32_MAX */
enum weft_end bench_end(const struct bench *bench, uint64_t id, uint32_t choice);
uint32_t bench_end_event(const struct bench *bench, uint64_t id);

struct weft_sched_stats bench_stats(const struct bench *bench);
uint32_t bench_plan_tokens(const struct weft_step_plan *plan);

#endif
