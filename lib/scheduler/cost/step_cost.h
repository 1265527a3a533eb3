/* step_cost — how long a step takes: a model fitted to the results as they come.
 *
 * Model    A step takes so long as such (weights are read however few rows there are), so long for
 *          each of its tokens, in four parts (the first ones cost less where memory is the bound, and
 *          more where each brings experts of its own), for each row that ends in logits, and for each
 *          position that attention looks at. Seven coefficients, none negative. What a step will
 *          take is their sum; all it needs is known when it is planned.
 * Fitting  A Kalman filter: see step_cost.c. One stall moves it by three deviations at most.
 * Pure     No clock: the same results give the same predictions. Doubles, but only sums, products,
 *          quotients and square roots in a fixed order, which IEEE 754 rounds alike everywhere.
 * Threads  One owner. Memory: the caller's; all zero is a model that knows nothing.
 */
#ifndef WEFT_SCHEDULER_STEP_COST_H
#define WEFT_SCHEDULER_STEP_COST_H

#include <stdint.h>

#define WEFT_SCHED_COST_TERMS 7

/* What a step computes. */
struct weft_sched_work {
    uint32_t n_tokens;
    uint32_t n_logits; /* positions whose logits are wanted */
    uint64_t n_seen;   /* positions that attention looks at, summed over the tokens */
};

struct weft_sched_cost {
    double coef[WEFT_SCHED_COST_TERMS]; /* us for each unit; see step_cost.c */
    double cov[WEFT_SCHED_COST_TERMS][WEFT_SCHED_COST_TERMS];
    double scale_us;    /* a usual step */
    double noise2;      /* variance of a step's relative deviation */
    double error;       /* smoothed relative error of predictions */
    double margin;      /* one step of twenty takes longer than so many times its prediction */
    double margin_rare; /* and one of a hundred longer than so many times */
    int32_t run; /* results in a row that were far above (below: negative) their predictions */
    uint32_t tokens_max; /* of all steps measured */
    uint64_t n_learned;
};

/* Adds a row of tokens [first, first + n_tokens). */
void weft_sched_work_add(struct weft_sched_work *work, uint32_t first, uint32_t n_tokens,
                         uint32_t n_logits);

/* In us; 0: nothing is known yet. */
uint32_t weft_sched_cost_predict(const struct weft_sched_cost *cost,
                                 const struct weft_sched_work *work);

/* Takes in what a step took. One without tokens teaches nothing. */
void weft_sched_cost_learn(struct weft_sched_cost *cost, const struct weft_sched_work *work,
                           uint32_t busy_us);

#define WEFT_SCHED_ITL_AUTO UINT32_MAX

/* How long a step of `decode` may become when n_prompts sequences want tokens of prompts computed
 * in it, in us; UINT32_MAX: as long as it likes. itl_target_us: what to keep a step of streams
 * within, 0 for no bound, or WEFT_SCHED_ITL_AUTO. docs/scheduling.md has the rules and why. */
uint32_t weft_sched_cost_bound(const struct weft_sched_cost *cost,
                               const struct weft_sched_work *decode, uint32_t n_prompts,
                               uint32_t itl_target_us);

/* How many prompt tokens, from position `first` on, fit beside `decode` into a step of bound_us:
 * more for a longer bound, at least a few, so that prompts always advance, and no more than make
 * the step twice the largest one measured. */
uint32_t weft_sched_cost_prompt_tokens(const struct weft_sched_cost *cost,
                                       const struct weft_sched_work *decode, uint32_t first,
                                       uint32_t bound_us);

#endif
