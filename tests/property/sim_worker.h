/* sim_worker — a worker for tests: no model, but the whole contract of base/step.h.
 *
 * It keeps tokens, tables and generations as an engine would, and in place of keys and values it
 * writes into each block, for each token, a hash of the sequence's history up to there. A row first
 * reads its whole history back, of windowed blocks what its window sees: a block that was
 * overwritten, handed out twice, copied too early or never computed does not hold what it should.
 * A block that several sequences have is read by them, and written by none. Every breach of the contract
 * aborts.
 *
 * Tokens come from sim_token, a function of prompt, seed, choice and position, so that anybody can
 * tell a stream's tokens; pooled values come from sim_value. Of a request with a grammar several may
 * come at once, as if it forced them, or none yet, as if its masks were late. The likeliest tokens
 * of a sequence whose length_penalty is not 1, a beam, follow from its tokens; so its output may be any.
 * none yet, as if its masks were late. Rows that may guess do so at random, and so it is with what comes
 * true; guesses are written where they would be computed.
 *
 * Plans wait in a queue of two, copied as a message would be; sim_worker_run executes the oldest.
 */
#ifndef WEFT_TESTS_SIM_WORKER_H
#define WEFT_TESTS_SIM_WORKER_H

#include "base/step.h"
#include "scheduler/scheduler.h"

#define SIM_PLANS_MAX WEFT_SCHED_PLANS_MAX
#define SIM_TOP_MAX 32u /* best tokens that may be asked for */

struct sim_worker;

struct sim_worker *sim_worker_new(const struct weft_sched_options *options);
void sim_worker_free(struct sim_worker *worker);
void sim_worker_reset(struct sim_worker *worker, uint64_t epoch); /* a new process */

void sim_worker_send(struct sim_worker *worker, const struct weft_step_plan *plan);
uint32_t sim_worker_n_queued(const struct sim_worker *worker);
/* The copy of the plan sent last; its pointers' targets are the worker's. */
const struct weft_step_plan *sim_worker_last(const struct sim_worker *worker);
/* How many tokens the sequence with this seed has in the cache once the oldest plan has run: the
 * most of all its choices; 0 if the plan has no row of it. */
uint32_t sim_worker_reaches(const struct sim_worker *worker, uint64_t seed);

/* Valid until the next run or reset. */
struct weft_step_result *sim_worker_run(struct sim_worker *worker);

/* The next result's busy_us: a base, and an amount per token. */
void sim_worker_costs(struct sim_worker *worker, uint32_t step_us, uint32_t token_us);
void sim_worker_spill_cost(struct sim_worker *worker, uint32_t block_us); /* 0 at first */
uint32_t sim_worker_n_slots_used(const struct sim_worker *worker);
/* Windowed blocks that a sequence could see or write to while a row of it ran, at most so far. */
uint32_t sim_worker_n_window_held_max(const struct sim_worker *worker);

uint64_t sim_prompt_hash(const uint32_t *prompt, uint32_t n_prompt, uint64_t seed);
uint32_t sim_token(uint64_t prompt_hash, uint32_t choice, uint32_t output_idx, uint32_t n_vocab);
/* What a sampler with a state would remember after so many tokens of output. */
double sim_sampler_state(uint64_t prompt_hash, uint32_t choice, uint32_t n_output);
/* A hash of the tokens, of which the first n_prompt are a prompt; and what is likeliest after them. */
uint64_t sim_history(const struct weft_sched_options *options, const uint32_t *tokens,
                     uint32_t n_prompt, uint32_t n_tokens);
void sim_next(uint64_t history, uint32_t n_vocab, uint32_t n, uint32_t *ids, float *logprobs);
float sim_value(uint64_t prompt_hash, uint32_t i);
float sim_prompt_logprob(uint64_t prompt_hash, uint32_t pos);

#endif
