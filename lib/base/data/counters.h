/* base/counters — what a scheduler counts from its start, and how /metrics shows it.
 *
 * The scheduler's stats, the snapshot that routers get, its form on the wire, what a router carries
 * over the restarts of schedulers, and the lines of /metrics all come from this list. So a new
 * counter is a line here, and the place that counts.
 */
#ifndef WEFT_BASE_COUNTERS_H
#define WEFT_BASE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

/* In the order in which they travel; new ones go to the end, where older readers pass them over.
 *
 * SCHED(name, metric, labels, scale, help): lib/scheduler counts it for one group of workers, and a
 * snapshot has the sum over all. ACTOR: cmd/scheduler counts it itself.
 * metric: its name without the prefix; counters of one metric differ in their labels, and share the
 * help of the first one. NULL: not shown by itself. scale: of the number shown. */
#define WEFT_COUNTER_LIST(SCHED, ACTOR)                                                            \
    SCHED(n_preemptions, "num_preemptions_total", "", 1,                                           \
          "Sequences put off for want of KV blocks.")                                              \
    SCHED(n_prompt_tokens, "computed_prompt_tokens_total", "", 1,                                  \
          "Prompt tokens computed, by any router's wish.") /* for the first time */                \
    SCHED(n_output_tokens, NULL, "", 1, NULL)              /* sampled */                           \
    SCHED(n_recomputed_tokens, "recomputed_tokens_total", "", 1,                                   \
          "Tokens computed again: after preemption or loss, and one per further choice of n.")     \
    SCHED(n_steps, "scheduler_steps_total", "", 1, "Steps done.")                                  \
    SCHED(n_accepted, "scheduler_requests_total", ",event=\"accepted\"", 1,                        \
          "Requests of all routers by what became of them.")                                       \
    SCHED(n_rejected, "scheduler_requests_total", ",event=\"rejected\"", 1, NULL)                  \
    SCHED(n_cancelled, "scheduler_requests_total", ",event=\"cancelled\"", 1, NULL)                \
    SCHED(n_timed_out, "scheduler_requests_total", ",event=\"timed_out\"", 1, NULL)                \
    SCHED(n_finished, NULL, "", 1, NULL)                                                           \
    SCHED(n_given_up, NULL, "", 1, NULL) /* WEFT_SEQ_LOSSES_MAX workers were lost over them */     \
    SCHED(n_moved, NULL, "", 1, NULL)    /* to another group, which has accepted them */           \
    ACTOR(worker_busy_us, "worker_busy_seconds_total", "", 1e-6, "Time the workers computed.")     \
    ACTOR(worker_idle_us, "worker_idle_seconds_total", "", 1e-6,                                   \
          "Time the workers waited for the next step's plan.")                                     \
    ACTOR(n_worker_losses, "worker_losses_total", "", 1, "Workers that died or stuck.")            \
    ACTOR(iter_tokens_sum, NULL, "", 1, NULL)   /* the histogram of tokens per step: */            \
    ACTOR(iter_tokens_count, NULL, "", 1, NULL) /* its sum and its count */                        \
    SCHED(n_solitary_steps, "scheduler_solitary_steps_total", "", 1,                               \
          "Steps that one request had to itself, because workers were lost over it.")              \
    SCHED(n_cache_hit_tokens, "prefix_cache_reused_tokens_total", "", 1,                           \
          "Tokens that starting sequences found in the prefix cache, preempted ones included.")    \
    SCHED(n_cache_resets, "prefix_cache_resets_total", "", 1,                                      \
          "Times the prefix cache began empty: with a new worker or scheduler, or as asked for.")  \
    SCHED(n_cache_evictions, "prefix_cache_evicted_blocks_total", "", 1,                           \
          "Blocks of the prefix cache given up for others.")                                       \
    SCHED(step_predicted_us, "step_predicted_seconds_total", "", 1e-6,                             \
          "Time that steps were expected to take.")                                                \
    SCHED(step_actual_us, "step_actual_seconds_total", "", 1e-6, "Time that these steps took.")    \
    SCHED(step_error_us, "step_prediction_error_seconds_total", "", 1e-6,                          \
          "How far the one was from the other, step by step.")                                     \
    SCHED(n_spilled_blocks, "kv_spilled_blocks_total", "", 1,                                      \
          "Blocks of preempted sequences written to the spill file.")                              \
    SCHED(n_restored_blocks, "kv_restored_blocks_total", "", 1,                                    \
          "Blocks of preempted sequences read back from there.")                                   \
    SCHED(n_spill_files_lost, "kv_spill_files_lost_total", "", 1,                                  \
          "Spill files given up: they could not be written or read, or workers hung on them.")     \
    SCHED(n_forced_tokens, "grammar_forced_tokens_total", "", 1,                                   \
          "Output tokens that came with the one before: nothing else fits their grammars there.")  \
    SCHED(n_late_masks, "grammar_late_masks_total", "", 1,                                         \
          "Steps that went on without a sequence, as its grammar's mask was not made in time.")    \
    SCHED(n_drafts, "spec_decode_num_drafts_total", "", 1,                                         \
          "Rows of sequences with guesses of what comes next.")                                    \
    SCHED(n_draft_tokens, "spec_decode_num_draft_tokens_total", "", 1, "Guesses computed.")        \
    SCHED(n_draft_accepted, "spec_decode_num_accepted_tokens_total", "", 1,                        \
          "Guesses that came true: tokens that took no step of their own.")                        \
    SCHED(n_sessions_kept, "sessions_kept_total", "", 1,                                           \
          "Times a request left what it had computed to its session.")                             \
    SCHED(n_sessions_evicted, "sessions_evicted_total", "", 1,                                     \
          "Sessions given up for others, or for requests that lacked blocks.")                     \
    SCHED(n_sessions_expired, "sessions_expired_total", "", 1,                                     \
          "Sessions that nobody used for --session-ttl.")                                          \
    SCHED(n_context_shifts, "context_shifts_total", "", 1,                                         \
          "Times a sequence dropped tokens at the model's length, and went on (context_shift).")   \
    SCHED(n_checkpoints_taken, "state_checkpoints_taken_total", "", 1,                             \
          "States of recurrent layers kept for the prefix cache.")                                 \
    SCHED(n_checkpoint_hits, "state_checkpoint_hits_total", "", 1,                                 \
          "Sequences that started with one of these.")                                             \
    SCHED(n_checkpoints_evicted, "state_checkpoints_evicted_total", "", 1,                         \
          "States given up for others; more go with their blocks.")

/* For lists of fields in a struct: both kinds, one, none. */
#define WEFT_COUNTER_FIELD(name, ...) uint64_t name;
#define WEFT_COUNTER_NO_FIELD(...)

struct weft_counters {
    WEFT_COUNTER_LIST(WEFT_COUNTER_FIELD, WEFT_COUNTER_FIELD)
};
#define WEFT_COUNTERS (sizeof(struct weft_counters) / sizeof(uint64_t)) /* how many there are */

#endif
