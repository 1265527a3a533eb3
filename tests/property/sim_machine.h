/* sim_machine — a scheduler and a worker that costs what a real machine does, on a virtual clock.
 *
 * The worker keeps of each slot only how many tokens it has and has computed: contents are
 * sim_worker's business. A plan is executed when it is made, for nothing but plans changes a
 * worker; its result comes when a real one would be done with it, one plan after the other. As in
 * service the scheduler is one plan ahead of the worker.
 *
 * Requests come from one list, and what became of them is written into it. Everything follows from
 * the list and the options: the same run gives the same figures. */
#ifndef WEFT_TESTS_SIM_MACHINE_H
#define WEFT_TESTS_SIM_MACHINE_H

#include "scheduler/scheduler.h"

/* A step takes as long as the weights take to be read, or its prompt tokens to be computed if that is
 * longer; on top come the rows of streams, the first of which is free where no prompt is computed,
 * and the positions that attention looks at. */
struct sim_cost {
    uint64_t base_us, prompt_token_us, stream_row_us, seen_ns;
};

extern const struct sim_cost sim_tinyllama; /* its shape in Q8_0 on two cores */

struct sim_request {
    uint64_t at_us;
    uint32_t n_prompt, n_output, n_choices;
    uint32_t text, n_shared; /* its first n_shared tokens are those of this text */
    uint64_t tenant, flow;
    uint32_t weight;
    uint64_t ttft_us; /* wished; 0: none */

    enum weft_reject reject; /* what became of it */
    uint32_t retry_after_ms;
    uint64_t first_us, end_us; /* moments; 0: it did not come to that */
    uint32_t n_tokens;         /* generated, of all choices */
    uint32_t n_ended;          /* choices */
    uint32_t n_failed;         /* of these, other than by their length */
};

struct sim_machine {
    weft_sched *sched;
    struct weft_sched_options options;
    struct sim_cost cost;
    uint64_t now_us, trace; /* a digest of all plans */
    struct sim_slot *slots;
    struct sim_step *steps;
    uint32_t n_out;
    uint64_t free_us; /* when the last plan that is out is done */
    uint32_t *prompt;
    struct sim_request *requests; /* the caller's */
    uint32_t n_requests, n_arrived;
    uint64_t n_results;
};

/* What such a machine would be started with; memory for every sequence. */
struct weft_sched_options sim_machine_options(void);

struct sim_machine *sim_machine_new(const struct weft_sched_options *options,
                                    const struct sim_cost *cost);
void sim_machine_free(struct sim_machine *machine);

/* In order of their moments. They stay the caller's, and there. */
void sim_machine_load(struct sim_machine *machine, struct sim_request *requests, uint32_t n);
/* To the next arrival or result. False: there is neither, nor will there be. */
bool sim_machine_step(struct sim_machine *machine);
void sim_machine_run(struct sim_machine *machine);
/* Whether a request like this one would be accepted now; it is withdrawn at once. */
bool sim_machine_probe(struct sim_machine *machine, const struct sim_request *like);

/* The rest of what the tests need: a Poisson process, a value of a distribution's percentile. */
uint64_t sim_gap_us(uint64_t *rand, double per_second);
double sim_percentile(double *values, uint32_t n, double percent); /* sorts them */
uint64_t sim_seed(uint64_t usual); /* WEFT_SEED, or else this one: figures are asserted */
bool sim_is_slow(void);            /* under sanitizers: do less */

#endif
