/* scheduler — decides what runs next: admission, step planning, preemption. A pure state machine.
 *
 * Model    Requests wait in a bounded queue: whose turn it is follows from what tenants and their
 *          users were served, and then from a policy (queue/). Each has 1..n sequences (choices)
 *          over one prompt. A running sequence holds a slot of the worker and blocks of the pool;
 *          what others have computed of its tokens it shares (plan/prefix.c). Every step it gets
 *          one decode token, and the rest of the step, as much as fits into its time by estimate
 *          (cost/), goes to chunks of prompts (plan/share.c). When no block is left, the running
 *          sequence whose loss costs least gives up its blocks, perhaps to a file of the worker's
 *          (plan/spill.c), and waits with its tokens at the front of its class; the oldest request
 *          is spared while others run, so every sequence progresses. Log-probabilities are rationed
 *          by bytes (plan/ration.c), so that a step's result fits a message whatever clients ask
 *          for. A sequence over which worker after worker is lost is computed alone, and in the
 *          end given up (plan/suspects.c). Plan n+1 may be made while step n runs (at most
 *          WEFT_SCHED_PLANS_MAX are out). docs/scheduling.md has all of it.
 *          Sequences may guess ahead (plan/guess.c): what came true comes with one result.
 * Pure     No clock, socket, thread or randomness: time and messages are arguments. The same calls
 *          give the same plans. Nothing here knows nng or libuv.
 * Threads  One owner.
 * Memory   Tables are sized at creation; a request brings one allocation for its tokens, and what
 *          it generates grows as results arrive. Planning takes nothing from the heap.
 * Source   Orca (OSDI 2022); Sarathi-Serve (OSDI 2024); Kwon et al. (SOSP 2023), section 4.5; Sheng
 *          et al. (OSDI 2024).
 */
#ifndef WEFT_SCHEDULER_H
#define WEFT_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/activity.h"
#include "base/counters.h"
#include "base/err.h"
#include "base/request.h"
#include "base/step.h"

#define WEFT_SCHED_PLANS_MAX 2

typedef struct weft_sched weft_sched;

#define WEFT_SCHED_SPEC_AUTO UINT32_MAX

/* Whose turn it is next among those that wait. */
enum weft_sched_policy {
    WEFT_SCHED_FCFS,     /* who came first */
    WEFT_SCHED_PRIORITY, /* the lowest priority, then who came first */
    WEFT_SCHED_EDF,      /* the earliest deadline */
    WEFT_SCHED_POLICY_COUNT,
};

struct weft_sched_options {
    uint32_t n_blocks, block_size;    /* of the worker */
    uint32_t window, n_window_blocks; /* of its windowed layers; 0: it has none */
    uint32_t
        n_spill_blocks;   /* that fit the worker's file; 0: it has none. Not with windowed layers */
    uint64_t block_bytes; /* of a block in that file */
    uint32_t max_seqs;    /* slots of the worker; the running set is at most
                                      min(max_seqs, max_batched_tokens) */
    uint32_t max_batched_tokens;
    uint32_t max_model_len;
    uint32_t n_vocab;
    struct weft_pooling_shape shape; /* of the values that the model has for poolings */
    bool has_contrast;               /* contrastive search is possible, */
    uint64_t contrast_bytes;         /* and its requests may keep so much; 0: the ceiling,
                                        WEFT_CONTRAST_BYTES_MAX */
    uint32_t max_queue;              /* requests that wait for a place in the running set, beside as
                                    many as it has places free; WEFT_QUEUE_MAX at most */
    uint32_t itl_target_us;          /* prompts do not make a step of streams longer, by estimate;
                                    0: no such bound; or WEFT_SCHED_ITL_AUTO (step_cost.h) */
    uint32_t step_logprob_bytes;     /* of log-probabilities a step may yield; at least those of one
                                    token with the whole vocabulary. 0: the ceiling,
                                    WEFT_STEP_LOGPROB_BYTES_MAX */
    /* 0: prompts are computed in chunks, as there is room. Else each is computed whole in one step, which takes
     * others beside it up to so many tokens; max_batched_tokens is max_model_len or more, all requests have a
     * pooling, and there is neither prefix cache nor spilling: encoders. */
    uint32_t whole_tokens;
    /* Layers carry a state: who starts with cached tokens needs that of just these, which siblings and beams copy
     * from each other while it is there, and others from checkpoints, and none drops any. There are no
     * window, spilling, guesses and contrastive search, and no prefix cache without checkpoints. */
    bool is_recurrent;
    uint32_t n_checkpoints;     /* of the worker; */
    uint32_t checkpoint_tokens; /* one is taken where it spares somebody so many, at least 1 */
    bool prefix_cache;          /* requests share what was computed for others */
    uint64_t cache_seed;        /* of its hashes: drawn by the caller, so that nobody can make them
                            collide */
    uint32_t long_prompt; /* prompts of more tokens have keys and values of their own; 0: none do */
    enum weft_sched_policy policy;
    uint64_t max_queued_tokens;  /* of prompts that wait; 0: no bound */
    uint64_t queue_timeout_us;   /* to wait for a place at most; 0: no bound */
    uint64_t run_timeout_us;     /* from the first place on; 0: no bound */
    uint32_t n_spec_tokens;      /* that the worker may guess for each sequence and step: at most
                               WEFT_SPEC_TOKENS_MAX; 0: none, or WEFT_SCHED_SPEC_AUTO: as many as
                               pay by what was measured */
    uint64_t session_ttl_us;     /* sessions are kept so long after their last use; 0: none are */
    uint32_t max_sessions;       /* at most WEFT_SESSIONS_MAX, */
    uint32_t max_session_blocks; /* and blocks of all of them together */
    bool evict_last; /* for tests, to compare with: the victim is who was admitted last, whatever it
                        costs to compute again, and whoever fits is admitted */
};

WEFT_MUST_CHECK weft_err weft_sched_new(const struct weft_sched_options *options,
                                        weft_sched **sched_out, struct weft_errmsg *why);
void weft_sched_free(weft_sched *sched); /* accepts NULL */

/* ----------------------------------------------------------------------------- requests in --- */

/* Who asked: events go back under the same key. */
struct weft_sched_key {
    uint32_t router;     /* the caller's index of the router */
    uint32_t attempt;    /* grows with every re-submission; events carry it */
    uint64_t request_id; /* unique per router */
};

/* Takes a request of a router (the caller's index of it) into the queue, or says why not, and in
 * how many ms to try again (0: never). Its choices may be NULL: none has output yet. All it points
 * to is copied. A key that is already there with a lower attempt is replaced; with the same or a
 * higher one it is INVALID. */
enum weft_reject weft_sched_submit(weft_sched *sched, uint64_t now_us, uint32_t router,
                                   const struct weft_submit *submit, uint32_t *retry_after_ms_out,
                                   struct weft_errmsg *why);

/* The request leaves the next plan; no further events. choice UINT32_MAX: all choices. Unknown keys
 * are ignored (it may have ended just now). */
void weft_sched_cancel(weft_sched *sched, uint64_t now_us, const struct weft_sched_key *key,
                       uint32_t choice);
void weft_sched_router_lost(weft_sched *sched, uint64_t now_us, uint32_t router);

/* Whether a request of this router's is here, whatever its attempt. */
bool weft_sched_has(const weft_sched *sched, uint32_t router, uint64_t request_id);

/* Whether a request has this adapter; and ends those that do, by WEFT_END_ERROR. */
bool weft_sched_uses_adapter(const weft_sched *sched, uint64_t id);
void weft_sched_end_adapter(weft_sched *sched, uint64_t now_us, uint64_t id);

/* No new requests (resumed ones are still taken). */
void weft_sched_drain(weft_sched *sched);

/* -------------------------------------------------------------------------------- stepping --- */

/* The prefix cache forgets everything, and sessions with it: what they hold nobody would find.
 * Requests that run keep what they share. */
void weft_sched_reset_cache(weft_sched *sched);

/* Makes the next plan. False: nothing to do now, or enough plans are out. *plan_out is the
 * scheduler's, valid until the next call of weft_sched_plan. */
bool weft_sched_plan(weft_sched *sched, uint64_t now_us, const struct weft_step_plan **plan_out);

/* A sequence whose output has a grammar starts once the worker of this epoch has compiled it, so
 * that no step waits for that. After each plan: the next grammar that the worker should hear of,
 * under a number that is never used twice. False: none, or enough are under way. *grammar_out is
 * the scheduler's, valid until the next call. */
bool weft_sched_next_grammar(weft_sched *sched, uint64_t now_us, uint64_t *id_out,
                             const struct weft_grammar **grammar_out);
/* It is compiled, or cannot be. Unknown numbers are ignored (its request may have ended just now). */
void weft_sched_compiled(weft_sched *sched, uint64_t now_us, uint64_t id);

struct weft_sched_event {
    uint32_t router;         /* whom to tell */
    struct weft_event event; /* log-probabilities point into the result that brought them */
};

/* Takes in the result of the oldest plan that is out. Events (weft_sched_events) point into
 * `result`. WEFT_E_PROTO: it does not match that plan (the worker is then as good as dead). */
WEFT_MUST_CHECK weft_err weft_sched_result(weft_sched *sched, uint64_t now_us,
                                           const struct weft_step_result *result,
                                           struct weft_errmsg *why);

/* Ends requests that are over their deadline. Call before planning, about every 100 ms
 * while not idle. */
void weft_sched_tick(weft_sched *sched, uint64_t now_us);

/* Events since the last call of weft_sched_events_clear, in order; a request's events are grouped
 * by step. Borrowed until the next call of any other function. */
const struct weft_sched_event *weft_sched_events(const weft_sched *sched, size_t *n_out);
void weft_sched_events_clear(weft_sched *sched);

/* The worker is gone, or a new one came: plans that are out are forgotten, all running sequences
 * wait again at the front of their class, with every token they had; the epoch grows. A request
 * that took part in too many such losses ends here (WEFT_END_ERROR). */
void weft_sched_new_epoch(weft_sched *sched, uint64_t now_us, uint64_t epoch);
/* Right after that: how many blocks the new worker's file takes, if other than n_spill_blocks. More
 * than these are of no use. Returns how many are used: none once workers were lost, one after the
 * other, while they wrote or read their files. */
uint32_t weft_sched_limit_spill(weft_sched *sched, uint32_t n_spill_blocks);

/* ----------------------------------------------------------------------------------- state --- */

struct weft_sched_stats {
    uint32_t n_waiting, n_running; /* requests; running: at least one sequence holds a slot */
    uint32_t n_running_seqs, n_waiting_seqs;
    uint32_t n_blocks, n_blocks_free;               /* free, or the prefix cache's alone */
    uint32_t n_blocks_published;                    /* in the prefix cache, used or not, */
    uint32_t n_blocks_idle;                         /* and those that it alone holds */
    uint32_t n_window_blocks, n_window_blocks_free; /* likewise, of windowed layers */
    uint32_t n_plans_out;
    uint64_t spill_bytes; /* in the worker's file */
    uint32_t n_sessions, n_session_blocks;
    uint32_t n_checkpoints, n_checkpoints_held; /* there are; of the prefix cache */
    WEFT_COUNTER_LIST(WEFT_COUNTER_FIELD, WEFT_COUNTER_NO_FIELD)
};

void weft_sched_stats(const weft_sched *sched, struct weft_sched_stats *stats_out);
bool weft_sched_idle(const weft_sched *sched); /* no request, no plan out */

/* Writes the first `n_max` (WEFT_ACTIVITY_SEQS_MAX at most) of all sequences: those that run, the
 * oldest first, then those that wait, likewise. Returns how many. Their group is 0. */
uint32_t weft_sched_list(const weft_sched *sched, uint64_t now_us,
                         struct weft_activity_seq *seqs_out, uint32_t n_max);

/* The step whose result was taken in last; its number, age and group are 0. */
void weft_sched_last_step(const weft_sched *sched, struct weft_activity_step *step_out);

/* The last steps of one scheduler or several together, numbered from 1; zeroes at first. */
struct weft_activity_ring {
    struct weft_activity_step steps[WEFT_ACTIVITY_STEPS_MAX];
    uint64_t at_us[WEFT_ACTIVITY_STEPS_MAX]; /* when their results came */
    uint64_t n;                              /* ever */
};

void weft_activity_ring_add(struct weft_activity_ring *ring, uint64_t now_us,
                            const struct weft_activity_step *step);
/* Writes them with their ages, the newest last. Returns how many. */
uint32_t weft_activity_ring_list(const struct weft_activity_ring *ring, uint64_t now_us,
                                 struct weft_activity_step steps_out[WEFT_ACTIVITY_STEPS_MAX]);

/* Walks everything and asserts invariants: blocks conserved, budgets held, queues consistent. */
void weft_sched_check(const weft_sched *sched);

#endif
