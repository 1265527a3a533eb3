/* scheduler_internal — the state that the files of this folder share.
 *
 * A request lives in the index from its acceptance to the end of its last choice. Each choice is a
 * sequence in one of three states:
 *
 *     WAITING ──start──► RUNNING ──finish, cancel, deadline──► DONE
 *        ▲                  │
 *        └────preempt, shift┘   (WAITING → DONE by cancel, deadline, or a last result, too)
 *
 * RUNNING means: it holds a slot, a generation and blocks, and stands in `running`, sorted by age.
 * A request with a waiting sequence stands in the queue (queue.c), and by age in the heap `waiting`,
 * unless it could not start now whatever room there were: it is parked, as its waiting sequences
 * will share the prompt of a running sibling; it follows another request, which computes a prompt
 * that begins alike (follow.c); the worker compiles its grammar (grammar.c); or it is aside until
 * the next plan, as it has its share of places (admit.c).
 *
 * Age is (background or not, arrival, order of submission, choice); nothing ever changes it. Requests in the
 * background are younger than all others: so they come last wherever age decides (yield.c).
 *
 * A plan is made in this order (weft_sched_plan): what earlier plans computed is published
 * (prefix.c), windows move on (windows.c), whose wait is over comes back to the queue; then who sits
 * it out (suspects.c, ration.c), one-token rows, for which others may be preempted (plan.c,
 * spill.c), new starts (admit.c), guesses (guess.c), chunks from what is left (share.c).
 *
 * When may a block be given to somebody else? The worker executes plans in the order of their
 * steps, and a plan's releases before its rows. So a block dropped while plan k is being made, or
 * before, may be granted in plan k: whatever wrote to it belongs to an earlier plan, or to a row
 * of a released sequence. A sequence that finished by itself is dropped when the result of plan
 * n tells so. Plan n+1 may be out by then and name it, but that row is a no-op: the worker knew
 * first. Its blocks are granted in plan n+2 at the earliest, after everything that wrote to them.
 */
#ifndef WEFT_SCHEDULER_INTERNAL_H
#define WEFT_SCHEDULER_INTERNAL_H

#include <sys/queue.h>

#include "paged_kv/checkpoints.h"
#include "paged_kv/paged_kv.h"
#include "paged_kv/prefix_cache.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_cost.h"

#define NO_ROW UINT32_MAX
/* Preempted so often without progress, a sequence is no victim while there are others. */
#define WEFTI_SCHED_PREEMPTED_MAX 2

struct session; /* see session/sessions.c */
TAILQ_HEAD(session_list, session);
struct file_op; /* see session/files.c */
TAILQ_HEAD(file_ops, file_op);

/* ------------------------------------------------------------------------------------ heap --- */

struct heap_node {
    uint64_t key, minor, tie; /* compared in this order */
    uint32_t pos;             /* 1..n; 0: it is in no heap */
};

struct heap {
    struct heap_node **nodes;
    uint32_t n, cap;
};

WEFT_MUST_CHECK weft_err wefti_sched_heap_reserve(struct heap *heap, uint32_t n_nodes);
void wefti_sched_heap_fini(struct heap *heap);
void wefti_sched_heap_push(struct heap *heap, struct heap_node *node);   /* reserved before */
void wefti_sched_heap_remove(struct heap *heap, struct heap_node *node); /* no-op if absent */
void wefti_sched_heap_update(struct heap *heap,
                             struct heap_node *node);            /* likewise: keys changed */
struct heap_node *wefti_sched_heap_top(const struct heap *heap); /* NULL: empty */
bool wefti_sched_heap_before(const struct heap_node *a, const struct heap_node *b);
void wefti_sched_heap_check(const struct heap *heap);

/* The struct of `type` whose `member` a node is. */
#define WEFTI_SCHED_OWNER(node, type, member)                                                      \
    ((struct type *)(void *)((char *)(node)-offsetof(struct type, member)))

/* ------------------------------------------------------------------- requests and sequences --- */

enum seq_state { SEQ_WAITING, SEQ_RUNNING, SEQ_DONE };

/* The nodes of others with a sequence's tokens, where its own chain is closed: see prefix.c. */
struct beside {
    weft_kv_block node; /* the last one seen, if n > 0; it may be gone */
    uint64_t birth;     /* of that node: not if it was */
    uint32_t n;
    bool is_over;
};

/* What a preempted sequence has in the worker's file; see spill.c. */
struct spilled {
    uint64_t epoch;       /* of the worker that has the file */
    uint32_t n;           /* blocks; 0: nothing */
    uint32_t first_block; /* entry of the table that the first of them was */
    uint32_t n_tokens;    /* that it had computed, those before the first block included */
    uint32_t first_slot;  /* the others follow in `spill_next` */
};

/* A checkpoint that a plan has taken, of the sequence's first n_tokens; 0: none, or it hangs. See states.c. */
struct kept {
    uint32_t id, n_tokens;
};

/* How many guesses were judged lately, and how many came true; the latest count most. */
struct guess_rate {
    double n_hits, n_trials;
};

/* What is known of time beside the models of steps and of guesses; see guess.c. */
struct guess_time {
    uint64_t result_us; /* when the last result came; 0: no step was out then */
    double between_us;  /* of a step in which its worker does not compute, smoothed */
    int64_t trials_us;  /* that trials may take, or have taken too much */
    bool has_trial;     /* the plan that is being made has one */
};

struct seq {
    struct request *req;
    uint32_t choice;
    enum seq_state state;
    uint32_t *output; /* as the worker reported so far; grows on the way */
    uint32_t n_output, output_cap;
    double sampler_state; /* after the last of it, where the sampling has one */
    uint32_t n_dropped;   /* tokens behind the first n_keep that have no place any more: shift.c */
    bool owes_shift;      /* it has not started since it dropped some */
    uint32_t n_computed_max; /* most tokens it ever had in the cache: below it is recomputation */

    /* While RUNNING. */
    uint32_t slot, gen;
    uint32_t n_planned;  /* tokens in the cache once all plans that are out have run */
    uint32_t n_written;  /* tokens that had their keys and values there when it started */
    bool is_held;        /* all of them, and its last row was late: the next one computes nothing */
    uint32_t n_granted;  /* blocks of the table that the worker knows of */
    uint32_t chunk;      /* tokens in the plan that is being made, */
    uint32_t n_spec;     /* and guesses */
    uint32_t n_spec_out; /* guesses that rows which are out may make: n_planned grows by those that
                            come true */
    bool put_off;        /* it gets no row in that plan */
    uint64_t ration;     /* bytes of log-probabilities kept for it in that plan */
    uint64_t turn;       /* its last one, or its start: see ration.c */
    uint64_t start_step;
    bool has_next;           /* what continues a beam is known, and awaited of other beams, */
    bool restarts;           /* or it starts anew in the next plan, with its tokens, */
    uint32_t restart_source; /* of which this choice has all but the last: see beams.c */
    bool is_released;        /* the worker has nothing in its slot, or will have by then */
    struct weft_kv_table table;
    struct weft_kv_chain chain; /* the table's blocks that the prefix cache has */
    struct beside beside;
    struct weft_kv_window_table windowed; /* see windows.c */
    struct kept kept;
    uint32_t state_from;       /* tokens of the last state that it began with, or that was kept */
    uint32_t wanted_at;        /* so many tokens others have, too: their state is wanted */
    uint32_t n_window_granted; /* entries that the worker knows of, or went without */

    struct guess_rate guess_rate;    /* see guess.c */
    uint32_t n_unguessed, try_after; /* steps without a guess; how many until one is tried */

    uint32_t n_preempted; /* for want of blocks, since it last got something new done */
    struct spilled spilled;

    /* Workers lost over it since it last got something new done; see suspects.c. */
    uint32_t n_losses;
    uint64_t lost_epoch; /* the last one counted */

    /* Rows of plans that are out; they survive a preemption. */
    uint32_t n_rows_out;
    uint32_t n_samples_out;             /* how many of them end with a new token */
    uint32_t row[WEFT_SCHED_PLANS_MAX]; /* its row in each plan, or NO_ROW */
};

LIST_HEAD(request_list, request);

/* Whom a request follows, and how long. */
struct following {
    LIST_ENTRY(request) link; /* in `followers` */
    uint32_t slot, gen;       /* the leader's */
    uint32_t n_shared;        /* tokens: once so many are planned, the wait is over */
    uint64_t until_tokens;    /* or once the plans had so many tokens in all */
};

/* Whoever is served: a tenant, or (with a parent) one of its flows; see queue.c. */
struct payer {
    LIST_ENTRY(payer) link; /* in a bucket */
    TAILQ_ENTRY(payer) idle_link;
    struct payer *parent;
    uint64_t id;
    uint64_t left_us;      /* if idle: since when */
    struct heap_node node; /* among those with somebody waiting; its key: what it was served */
    uint64_t remainder;    /* of the last charge, below one unit of the key */
    uint64_t turn;         /* the key of the child that was in the heap last */
    struct heap children;  /* a tenant's flows, a flow's requests, those that wait */
    uint32_t weight, active_weight;
    uint32_t n_requests; /* all of them, those that run included */
    uint32_t n_flows_running;
    uint32_t n_flows;         /* that are known, */
    uint32_t n_active;        /* and that have requests */
    uint32_t n_running;       /* sequences */
    uint32_t n_queued;        /* requests with nothing running, */
    uint64_t n_queued_tokens; /* and the tokens of their prompts; not those in the background */
    uint64_t n_owed;          /* tokens of prompts that are charged and not planned yet */
    bool is_idle;             /* in `idle_payers`: it has no requests */
    bool is_background;       /* all that it has is */
};

LIST_HEAD(payer_list, payer);
TAILQ_HEAD(payer_queue, payer);
#define PAYER_BUCKETS 4096u

struct request {
    struct weft_sched_key key;
    LIST_ENTRY(request) link; /* in a bucket of the index, or in `borrowed` */
    uint64_t arrival_us;
    uint64_t order;       /* of submission, breaks ties of age */
    uint64_t deadline_us; /* of the client; UINT64_MAX: none */
    uint64_t first_plan_us;
    uint64_t last_start_plan; /* number of the plan whose starts borrow from this request */
    uint64_t tenant, flow;    /* of whoever pays, */
    uint32_t weight;          /* with the tenant's share */
    struct payer *payer;      /* the flow */
    int32_t priority;
    bool is_background;
    uint64_t ttft_us, tpot_us; /* wished times; 0: none */
    uint64_t contrast_bytes;   /* of hidden states that it may come to keep */
    struct heap_node by_turn, by_age, by_deadline;
    uint32_t n_prompt, n_choices;
    uint32_t n_live, n_running, n_waiting; /* sequences; live = running + waiting */
    uint32_t n_prompt_logprobs_done;       /* prompt positions [0, done) need no more */
    uint32_t n_prompt_computed;            /* prompt tokens computed at least once */
    uint32_t n_prompt_cached;              /* found in the prefix cache when it first started */
    uint32_t n_owed;                       /* prompt tokens that are charged and not planned yet */
    bool no_guesses;
    bool shifts;                /* it drops tokens where it would end at the model's length, */
    uint32_t n_keep;            /* behind these */
    struct weft_str session_id; /* empty: it has none */
    struct weft_kv_space salt;  /* of whoever wants its cache apart; zeroes: of nobody */
    bool parked;
    bool is_resumed;    /* it ran in another life of this server */
    bool was_preempted; /* since it last started: it is at the front of its class */
    bool is_late;       /* its deadline for a first token passed while it waited */
    bool is_aside;      /* it has its share of places while others wait: see admit.c */
    LIST_ENTRY(request) aside_link;
    bool follows; /* it waits for another's prompt: see follow.c */
    struct following following;
    bool awaits_grammar; /* that the worker compiles: see grammar.c */
    TAILQ_ENTRY(request) awaiting_link;
    uint64_t announced_us; /* UINT64_MAX: not yet */
    uint64_t grammar_id;
    uint64_t compiled_epoch; /* whose worker has it; UINT64_MAX: none */
    struct weft_sampling sampling;
    uint32_t n_adapters;
    struct weft_step_adapter adapters[WEFT_SEQ_ADAPTERS_MAX];
    struct beams *beams; /* NULL: its sequences are no beams; see beams.c */
    struct weft_pooling pooling;
    const uint32_t *prompt;
    struct seq seqs[]; /* [n_choices], then the prompt, stop tokens and biases */
};

/* ----------------------------------------------------------------------------------- index --- */

struct index {
    struct request_list *buckets;
    uint32_t n_buckets, n; /* a power of two; requests */
};

WEFT_MUST_CHECK weft_err wefti_sched_index_init(struct index *index);
void wefti_sched_index_fini(struct index *index); /* the requests are the caller's */
void wefti_sched_index_add(struct index *index, struct request *req);
void wefti_sched_index_remove(struct index *index, struct request *req);
struct request *wefti_sched_index_find(const struct index *index, uint32_t router,
                                       uint64_t request_id);

/* -------------------------------------------------------------------------------- forecast --- */

/* What was done in the time in which there was something to do; see forecast.c. */
#define RATE_SCALE 256u /* of the sums, so that halving them loses nothing */
struct rate {
    uint64_t n_tokens, n_requests, busy_us;
};

/* Time passed: before anything else changes. */
void wefti_sched_forecast_advance(weft_sched *sched, uint64_t now_us);
void wefti_sched_forecast_started(weft_sched *sched, const struct request *req); /* first */
void wefti_sched_forecast_prompted(weft_sched *sched, uint32_t n_tokens);
void wefti_sched_forecast_lost(weft_sched *sched); /* the worker; and there is another one: */
void wefti_sched_forecast_back(weft_sched *sched);
/* Until the queue has moved by so much, in us; 0: not known, UINT64_MAX: it does not move. */
uint64_t wefti_sched_forecast_tokens_us(const weft_sched *sched, uint64_t n_tokens);
uint64_t wefti_sched_forecast_requests_us(const weft_sched *sched, uint64_t n_requests);
/* To compute so many tokens of prompts; likewise. */
uint64_t wefti_sched_forecast_prompt_us(const weft_sched *sched, uint64_t n_tokens);
/* Until a request that comes now has its first token; likewise. */
uint64_t wefti_sched_forecast_first_token_us(const weft_sched *sched,
                                             const struct weft_submit *submit);

/* ----------------------------------------------------------------------------------- state --- */

struct row {
    struct seq *seq; /* NULL: it left since */
    uint32_t slot, gen;
    uint32_t first,
        n_tokens; /* computes tokens [first, first + n_tokens); 0: the row before was late */
    uint32_t n_spec;
    bool samples; /* reaches the last known token */
    bool ended;   /* seq left because the worker said so: this row is a no-op */
};

struct plan_out {
    uint64_t step;
    uint32_t n_rows, n_decode, n_prompt; /* rows; one-token rows; tokens of all other rows */
    uint32_t n_spec;                     /* guesses at most */
    uint32_t n_decode_tokens;            /* of rows that compute one output token alone */
    uint64_t logprob_bytes;
    uint32_t n_moved; /* blocks spilled and restored */
    bool has_trial;   /* a guess is tried */
    struct row *rows; /* [seqs_max] */
};

/* What those in the background may have of the plan that is being made; see yield.c. */
struct yielding {
    bool is_on;        /* others run: */
    bool may_start;    /* one more may be admitted */
    uint32_t bound_us; /* of the whole step; 0: not known */
};

struct weft_sched {
    struct weft_sched_options options;
    uint32_t running_max; /* min(max_seqs, max_batched_tokens) */
    uint32_t table_cap;   /* blocks of the longest sequence */
    uint32_t history_cap; /* tokens of the longest one, those that it dropped included */
    bool draining;

    void *pool_mem, *cache_mem;
    weft_kv_pool *pool;
    weft_kv_prefix_cache *cache;
    void *window_pool_mem, *windows_mem, *checkpoints_mem;
    weft_kv_pool *window_pool; /* NULL, and the next two, too: there are no windowed layers */
    weft_kv_windows *windows;
    weft_kv_checkpoints *checkpoints;   /* NULL: nothing is kept of states, if there are any */
    weft_kv_block *window_table_blocks; /* [max_seqs][table_cap] */
    weft_kv_block *found_blocks;        /* [table_cap] and */
    uint32_t *found_tokens;             /* [max_model_len] scratch of prefix.c */

    /* Requests. */
    struct index index;
    struct heap waiting; /* by age, all that are in the queue */
    struct heap deadlines;
    struct heap tenants;       /* the queue: see queue.c */
    struct payer_list *payers; /* [PAYER_BUCKETS] */
    struct payer_queue idle_payers;
    uint32_t n_idle_payers, n_tenants, n_tenants_running; /* tenants: all that are known, */
    uint32_t n_background_tenants;                        /* but for those in the background */
    uint32_t n_background, n_background_seqs; /* requests; sequences of theirs that run */
    uint32_t n_background_queued;             /* requests in the queue */
    uint64_t n_queued_tokens;                 /* of the prompts of requests with nothing running */
    uint64_t contrast_bytes;                  /* that all requests may come to keep */
    uint64_t turn[2];                         /* that of tenants in the background is the second */
    uint64_t active_weight; /* of all tenants with requests, not in the background */
    uint64_t now_us;        /* of the call under way */
    struct request_list asides;
    struct request_list borrowed;  /* ended, but the last plan borrows from them */
    struct request_list followers; /* see follow.c */
    uint32_t n_followers;
    TAILQ_HEAD(, request) awaiting; /* see grammar.c */
    uint32_t n_announced;           /* and not answered */
    uint64_t n_grammars;            /* announced, ever, */
    uint64_t n_grammars_before;     /* and in epochs before */
    uint64_t n_submitted;
    uint32_t n_requests_waiting, n_requests_running;
    uint32_t n_seqs_waiting;

    /* Slots. */
    uint32_t *slot_gen;          /* [max_seqs] the last generation of each */
    uint32_t *free_slots;        /* [max_seqs] a stack */
    weft_kv_block *table_blocks; /* [max_seqs][table_cap] */
    uint32_t n_free_slots;
    struct seq **running; /* [max_seqs] oldest first */
    struct seq **by_slot; /* [max_seqs] NULL: free */
    uint32_t n_running;
    struct weft_step_release *pending; /* [max_seqs] for the next plan */
    uint32_t n_pending;

    /* The plan being made, or made last. */
    uint64_t epoch, step;      /* of the next plan */
    uint64_t n_plans;          /* over all epochs */
    uint64_t n_planned_tokens; /* likewise */
    uint64_t n_turns;          /* see ration.c */
    struct weft_step_plan plan;
    struct weft_step_release *releases; /* these three: [max_seqs] */
    struct weft_step_start *starts;
    struct weft_step_row *rows;
    struct weft_step_spill *spills, *restores; /* [WEFT_STEP_SPILLS_MAX] each, if there is a file */
    struct weft_step_copy *copies;             /* these two: [WEFT_KV_KINDS * max_seqs] */
    struct weft_step_grant *grants;
    struct weft_step_state *states; /* [2 * max_seqs] */
    uint32_t *start_tokens;  /* [history_cap] prompt and output joined, of restarted sequences */
    uint32_t n_start_tokens; /* of these */
    uint32_t n_plan_tokens;  /* of all starts of the plan, those that borrow included */
    uint32_t n_plan_grammar_bytes;
    uint64_t logprob_room;   /* bytes of log-probabilities that nobody claims yet */
    struct seq **candidates; /* [max_seqs] scratch of share.c and ration.c */

    /* Slots of the worker's file; see spill.c. */
    uint32_t *spill_next;   /* [options.n_spill_blocks] of a free slot, or of a sequence's */
    uint32_t n_spill_slots; /* of this epoch's worker */
    uint32_t n_spill_free, first_spill_free;
    uint32_t n_spill_losses; /* workers lost over plans that moved blocks, since one was done */
    bool has_noted_loss;     /* the last loss is in n_spill_losses */
    bool had_spill_file;     /* the worker before had one */
    uint32_t n_spills;       /* for the next plan that goes out */
    uint64_t spill_ns;       /* to move a block in one direction, by what was measured */

    struct session_list sessions; /* the least recently used first */
    uint32_t n_sessions, n_session_blocks;
    struct file_ops file_ops; /* in the order in which they were asked for */
    struct file_op *told_op;  /* whose answer was given out; NULL: none */
    uint32_t n_file_ops;
    uint64_t n_files; /* that the worker was asked for, ever */

    struct plan_out out[WEFT_SCHED_PLANS_MAX]; /* a ring: step % WEFT_SCHED_PLANS_MAX */
    uint32_t n_out;

    struct weft_sched_event *events;
    size_t n_events, events_cap;

    struct weft_activity_step last_step;
    struct weft_sched_cost cost;
    struct weft_sched_cost draft_cost; /* of one guess of each of so many sequences */
    struct guess_rate guess_rate;      /* of all sequences */
    struct guess_time guess_time;
    struct rate admitted, prompted;
    struct rate admitted_before, prompted_before; /* the worker was lost, */
    bool is_rate_kept;                            /* as long as it is */
    uint32_t headroom; /* likewise: beside one block for each running sequence, in 256ths */
    bool has_prompts;  /* some ran when the last plan was made */
    struct yielding yielding;
    WEFT_COUNTER_LIST(WEFT_COUNTER_FIELD, WEFT_COUNTER_NO_FIELD)
};

static inline uint32_t wefti_sched_blocks_for(const weft_sched *sched, uint32_t n_tokens) {
    return (uint32_t)(((uint64_t)n_tokens + sched->options.block_size - 1) /
                      sched->options.block_size);
}

/* --------------------------------------------------------------------------------- request --- */

/* A copy of the submission in one allocation, outputs of resumed choices apart. NULL: no memory. */
struct request *wefti_sched_request_new(uint32_t router, const struct weft_submit *submit);
void wefti_sched_request_free(struct request *req); /* accepts NULL */

/* Room for so many more output tokens. WEFT_E_NOMEM: no change. */
WEFT_MUST_CHECK weft_err wefti_sched_seq_reserve_output(struct seq *seq, uint32_t n_more);

/* Tokens that are known and have a place in the cache, computed or not. */
static inline uint32_t wefti_sched_seq_known(const struct seq *seq) {
    return seq->req->n_prompt + seq->n_output - seq->n_dropped;
}

/* Tokens it has once all plans that are out have run. */
static inline uint32_t wefti_sched_seq_len(const struct seq *seq) {
    return wefti_sched_seq_known(seq) + seq->n_samples_out;
}

/* Tokens that could be planned now. */
static inline uint32_t wefti_sched_seq_left(const struct seq *seq) {
    return wefti_sched_seq_len(seq) - seq->n_planned + seq->is_held;
}

/* The facts that decide on log-probabilities, `n_tokens` after all that is planned. */
struct weft_step_seq wefti_sched_seq_view(const weft_sched *sched, const struct seq *seq,
                                          uint32_t n_tokens);

bool wefti_sched_seq_older(const struct seq *a, const struct seq *b);
/* The row that must be its last one is out, or a beam waits: planning more would be a no-op. */
bool wefti_sched_seq_complete(const weft_sched *sched, const struct seq *seq);
bool wefti_sched_prompt_logprobs_pending(const struct request *req);
/* Something is wanted of each of its tokens: none may come out of a cache. */
bool wefti_sched_computes_all(const struct request *req);

/* --------------------------------------------------------------------------------- running --- */

/* The states of a sequence and what they imply for slots, blocks, queues and counters. */
void wefti_sched_seq_release(weft_sched *sched, struct seq *seq); /* in the worker; once */
void wefti_sched_seq_start(weft_sched *sched, struct seq *seq);   /* its table is filled already */
void wefti_sched_seq_preempt(weft_sched *sched, struct seq *seq); /* RUNNING -> WAITING */
/* The worker ended it at the model's length: -> WAITING, with fewer tokens. */
void wefti_sched_seq_shift(weft_sched *sched, struct seq *seq);
/* -> DONE. ended: the worker said so. When it is the last one, the request is gone as well. */
void wefti_sched_seq_leave(weft_sched *sched, struct seq *seq, bool ended);
void wefti_sched_request_enqueue(weft_sched *sched, struct request *req,
                                 struct payer *flow); /* takes a new one in */
void wefti_sched_request_dequeue(weft_sched *sched,
                                 struct request *req); /* the reverse: all of it waits */
/* It starts for the first time: from now on its run is bounded, not its wait. */
void wefti_sched_request_first_start(weft_sched *sched, struct request *req);
void wefti_sched_request_unpark(weft_sched *sched, struct request *req);
void wefti_sched_request_park(weft_sched *sched, struct request *req);
void wefti_sched_request_set_aside(weft_sched *sched, struct request *req);
void wefti_sched_request_free_borrowed(weft_sched *sched);

/* ----------------------------------------------------------------------------------- shift --- */

/* How many of the first tokens in the cache are the prompt's. */
uint32_t wefti_sched_seq_prompt(const struct seq *seq);
/* The token that has this place. */
uint32_t wefti_sched_seq_token(const struct seq *seq, uint32_t pos);
/* All tokens that have one. */
void wefti_sched_seq_copy_tokens(const struct seq *seq, uint32_t *out);
/* Whether one that has n_output tokens of output by then goes on at the model's length. */
bool wefti_sched_seq_outgrows(const struct seq *seq, uint32_t n_output);
/* It drops as many as one with its output has dropped by then; none that never came to that length. */
void wefti_sched_seq_drop_tokens(const weft_sched *sched, struct seq *seq);
/* A new request, which may have come far already. */
void wefti_sched_shift_begin(const weft_sched *sched, struct request *req);
WEFT_MUST_CHECK weft_err wefti_sched_shift_check(const weft_sched *sched,
                                                 const struct weft_submit *submit,
                                                 struct weft_errmsg *why);

/* ----------------------------------------------------------------------------------- queue --- */

struct request_payer {
    uint64_t tenant, flow;
    uint32_t weight;
    bool is_background;
};

/* The payer of a request to come, with room for it in all heaps. NULL: no memory. */
struct payer *wefti_sched_payer_reserve(weft_sched *sched, const struct request_payer *who);
/* A tenant that is known; NULL: it is not. */
const struct payer *wefti_sched_tenant_find(const weft_sched *sched, uint64_t tenant);
/* A tenant's part of a whole by its weight, at least 1; UINT64_MAX: no other one has requests. */
uint64_t wefti_sched_tenant_part(const weft_sched *sched, const struct weft_submit *submit,
                                 uint64_t whole);
/* Whether there are other users of its tenant, and this one has less than its part of the queue. */
bool wefti_sched_user_has_part(const weft_sched *sched, const struct weft_submit *submit);
void wefti_sched_payer_join(weft_sched *sched, struct request *req, struct payer *flow);
void wefti_sched_payer_leave(weft_sched *sched, struct request *req); /* it left the queue before */
void wefti_sched_payers_trim(weft_sched *sched, uint64_t now_us);     /* forgets those long gone */
/* One of its sequences more, or less, runs. */
void wefti_sched_payer_runs(weft_sched *sched, const struct request *req, bool more);
void wefti_sched_payers_fini(weft_sched *sched);

void wefti_sched_queue_push(weft_sched *sched, struct request *req);
void wefti_sched_queue_remove(weft_sched *sched, struct request *req); /* no-op if absent */
void wefti_sched_queue_rerank(weft_sched *sched, struct request *req);
struct request *wefti_sched_queue_top(const weft_sched *sched); /* NULL: empty */
void wefti_sched_queue_check(const weft_sched *sched);

/* When its first token is due: as wished, or by its deadline, or after WEFTI_SCHED_PATIENCE_US. */
#define WEFTI_SCHED_PATIENCE_US 60000000ull
uint64_t wefti_sched_due_us(const struct request *req);

/* What was done for it: tokens of its prompt, one token of its output. */
void wefti_sched_charge_prompt(weft_sched *sched, struct request *req, uint32_t n_tokens);
/* So many of these are planned. */
void wefti_sched_note_prompt(struct request *req, uint32_t n_tokens);
/* -1, 1: the tenant of one of them, or else its user, was served less; 0: it is the same user. */
int wefti_sched_served_less(const struct request *a, const struct request *b);
void wefti_sched_charge_output(weft_sched *sched, const struct request *req);

/* Of those who have nothing running, whose turn is first; NULL: there is none. */
struct request *wefti_sched_queue_newcomer(const weft_sched *sched);
/* How many places newcomers find although somebody could use them now. */
uint32_t wefti_sched_places_kept(const weft_sched *sched);
/* Whether it may have another place: see queue.c. */
bool wefti_sched_may_run_more(const weft_sched *sched, const struct request *req);

/* ---------------------------------------------------------------------------------- prefix --- */

/* Where a request's blocks are shared, and what a sequence has of tokens, which may lie in
 * `found_tokens`. */
struct weft_kv_space wefti_sched_space_of(const weft_sched *sched, const struct request *req);
const uint32_t *wefti_sched_tokens_of(const weft_sched *sched, const struct seq *seq);

/* Blocks that are in use apart from sequences. */
struct held {
    struct weft_kv_table table;
    struct weft_kv_chain chain;
    struct weft_kv_window_table windowed;
};

/* Makes empty tables, with room for them, hold what the cache has of the first tokens, in whole
 * blocks that could be used. */
void wefti_sched_prefix_hold(weft_sched *sched, const struct weft_kv_space *space,
                             const uint32_t *tokens, uint32_t n_tokens, struct held *held);
void wefti_sched_held_drop(weft_sched *sched, struct held *held);

/* How many tokens of a prompt to come are cached. */
uint32_t wefti_sched_prefix_peek(const weft_sched *sched, const struct weft_submit *submit);

/* What a waiting sequence need not compute. */
struct prefix {
    const struct seq *source; /* a sibling whose table it forks; NULL: the cache's blocks */
    uint32_t n_blocks;        /* whole ones that it shares */
    weft_kv_block partial;    /* a cached block to be copied, NONE: none */
    uint32_t n_cached;        /* tokens; with checkpoints fewer than the blocks hold */
    uint32_t window_first;    /* the windowed blocks from here on come with it */
    uint32_t n_restored;      /* blocks after the whole ones that are read back from the file */
};

/* Looks for the longest one. Its blocks are in found_blocks until the next call. */
void wefti_sched_prefix_find(const weft_sched *sched, const struct seq *seq,
                             struct prefix *prefix_out);
/* Whether there are blocks for the rest of n_tokens, and one more for each running sequence; gives up
 * the partial block if it would cost the room. */
bool wefti_sched_prefix_has_room(const weft_sched *sched, struct prefix *prefix, uint32_t n_tokens);
/* Tokens whose keys and values come with it. */
uint32_t wefti_sched_prefix_n_written(const weft_sched *sched, const struct prefix *prefix);
/* Fills the table of a sequence that starts, and adds what is to be copied to the plan. */
void wefti_sched_prefix_fill(weft_sched *sched, struct seq *seq, const struct prefix *prefix,
                             uint32_t n_tokens);
/* Publishes the full blocks that were computed, as far as their tokens are known: of a sequence, of
 * all that run. `n_computed`: tokens in the cache once all plans that are out have run. */
void wefti_sched_publish(weft_sched *sched, struct seq *seq, uint32_t n_computed);
void wefti_sched_publish_all(weft_sched *sched);
/* Whether a sibling that runs may yet share its prompt's blocks, or tells the prompt's log-probabilities. */
bool wefti_sched_prefix_awaited(const weft_sched *sched, const struct request *req);
/* Whether its prompt's blocks may be shared with siblings now. */
bool wefti_sched_seq_can_be_forked(const struct seq *seq);
/* Whether what one of them computes is of use to the other. */
bool wefti_sched_same_space(const weft_sched *sched, const struct request *a,
                            const struct request *b);

/* ---------------------------------------------------------------------------------- states --- */

/* How many of the first n_blocks that were found somebody can begin after. */
uint32_t wefti_sched_states_within(const weft_sched *sched, uint32_t n_blocks);
/* One starts with that, and has its blocks: the plan says where its state comes from. */
void wefti_sched_states_begin(weft_sched *sched, struct seq *seq, const struct prefix *prefix);
/* From another one, or its own slot. */
void wefti_sched_states_fork(weft_sched *sched, const struct seq *seq, const struct seq *source);
/* How many of n_tokens its chunk may have in addition, so that it ends where a state is wanted. */
uint32_t wefti_sched_states_chunk(const weft_sched *sched, const struct seq *seq,
                                  uint32_t n_tokens);
/* After how many tokens, of n_shared at most, somebody who begins alike could go on once the leader has
 * computed them; 0: none. It will keep its state there. */
uint32_t wefti_sched_states_awaited(const weft_sched *sched, struct seq *leader, uint32_t n_shared);
/* A row of it is planned, which computes so many: its state may be kept. */
void wefti_sched_states_keep(weft_sched *sched, struct seq *seq, uint32_t n_computed);
/* What was kept of it hangs on its node, if that is one and n_tokens are sure to be computed. */
void wefti_sched_states_hang(weft_sched *sched, struct seq *seq, uint32_t n_tokens);
void wefti_sched_states_drop(weft_sched *sched, struct seq *seq);    /* no-op: there is none */
WEFT_MUST_CHECK weft_err wefti_sched_states_init(weft_sched *sched); /* after the cache */
void wefti_sched_states_fini(weft_sched *sched);
/* n_of_files: checkpoints that files of sessions have. */
void wefti_sched_states_check(const weft_sched *sched, uint32_t n_of_files);

/* --------------------------------------------------------------------------------- windows --- */

/* At the start of a plan: everybody gives up what no later row sees. */
void wefti_sched_window_move_all(weft_sched *sched);
/* The blocks for its next n_tokens. WEFT_E_FULL. */
WEFT_MUST_CHECK weft_err wefti_sched_window_grow(weft_sched *sched, struct seq *seq,
                                                 uint32_t n_tokens);
/* The same as far as blocks can be had that nobody else needs next: for how many tokens. */
uint32_t wefti_sched_window_room(weft_sched *sched, struct seq *seq, uint32_t n_tokens);
/* Whether it still holds what a sibling that begins after the prompt sees. */
bool wefti_sched_window_can_fork(const weft_sched *sched, const struct seq *source);
/* Whether it still holds what a position after its first n_tokens sees. */
bool wefti_sched_window_holds(const weft_sched *sched, const struct seq *source, uint32_t n_tokens);
/* The worker hears of all its windowed blocks once more. */
void wefti_sched_window_grant_anew(weft_sched *sched, struct seq *seq);
/* Takes from a prefix what cannot be used, as windowed blocks are gone. */
void wefti_sched_window_limit(const weft_sched *sched, struct prefix *prefix);
/* What prefix_has_room and prefix_fill say of the other blocks. */
bool wefti_sched_window_has_room(const weft_sched *sched, struct prefix *prefix, uint32_t n_tokens);
/* Into an empty table, which is made here: the shared ones of a prefix. */
void wefti_sched_window_share(weft_sched *sched, const struct prefix *prefix,
                              weft_kv_block *storage, uint32_t cap,
                              struct weft_kv_window_table *table);
void wefti_sched_window_fill(weft_sched *sched, struct seq *seq, const struct prefix *prefix);
/* The windowed block of the same entry becomes the node's twin, if it is still there. */
void wefti_sched_window_keep(weft_sched *sched, const struct seq *seq, uint32_t idx,
                             weft_kv_block node);
void wefti_sched_window_release(weft_sched *sched, struct seq *seq);
WEFT_MUST_CHECK weft_err wefti_sched_window_check_options(const struct weft_sched_options *options,
                                                          struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err wefti_sched_window_init(weft_sched *sched); /* after the cache */
void wefti_sched_window_fini(weft_sched *sched);
/* n_held: entries of tables that no sequence has. */
void wefti_sched_window_check(const weft_sched *sched, uint64_t n_held);
/* Windowed blocks that are free, or the prefix cache's alone. */
uint32_t wefti_sched_window_n_there(const weft_sched *sched);

/* ----------------------------------------------------------------------------------- spill --- */

/* What it costs a victim to give up what it has for itself: to compute it again, or to write it to
 * the file and read it back, whichever is less. */
uint64_t wefti_sched_give_up_us(const weft_sched *sched, const struct seq *victim,
                                uint32_t n_shared_blocks, uint64_t recompute_us);
/* One that is about to be preempted: what it has for itself goes to the file, if that pays. */
void wefti_sched_spill(weft_sched *sched, struct seq *victim, uint32_t n_shared_blocks,
                       uint64_t recompute_us);
/* Lengthens a prefix by what the file has of a waiting sequence. */
void wefti_sched_spill_extend(const weft_sched *sched, const struct seq *seq,
                              struct prefix *prefix);
/* Whether the plan has room for so many more restores. */
bool wefti_sched_spill_fits(const weft_sched *sched, uint32_t n_restored);
/* Into the table of a sequence that starts. */
void wefti_sched_spill_restore(weft_sched *sched, const struct seq *seq,
                               const struct prefix *prefix);
void wefti_sched_spill_drop(weft_sched *sched, struct seq *seq); /* no-op: it has nothing there */
void wefti_sched_spill_note_loss(weft_sched *sched); /* before an epoch's plans are forgotten */
void wefti_sched_spill_reset(weft_sched *sched);     /* in a new epoch: the file is empty */
void wefti_sched_spill_learn(weft_sched *sched, uint32_t n_moved, uint32_t spill_us);
WEFT_MUST_CHECK weft_err wefti_sched_spill_init(weft_sched *sched);
void wefti_sched_spill_fini(weft_sched *sched);
void wefti_sched_spill_check(const weft_sched *sched);

/* -------------------------------------------------------------------------------- sessions --- */

/* What a sequence that has just given back its blocks leaves in the cache becomes its session, if its
 * request has one: `n_computed` tokens, as in wefti_sched_publish. */
void wefti_sched_session_keep(weft_sched *sched, const struct seq *seq, uint32_t n_computed);
void wefti_sched_session_touch(weft_sched *sched, uint64_t tenant, struct weft_str id);
/* Drops the one that was not used for longest, for somebody who lacks blocks. False: there is none. */
bool wefti_sched_sessions_give(weft_sched *sched);
void wefti_sched_sessions_expire(weft_sched *sched, uint64_t now_us);
void wefti_sched_sessions_drop(weft_sched *sched); /* all of them */
/* The entries of tables that sessions, or their files, have, for weft_sched_check; those of windowed
 * ones are added. */
uint64_t wefti_sched_sessions_check(const weft_sched *sched, uint64_t *n_windowed);
uint64_t wefti_sched_files_check(const weft_sched *sched, uint64_t *n_windowed);
uint32_t wefti_sched_files_n_states(const weft_sched *sched); /* checkpoints that they have */
/* A session's tokens and where they are cached. NULL: there is no such one. */
const uint32_t *wefti_sched_session_tokens(const weft_sched *sched, uint64_t tenant,
                                           struct weft_str id, uint32_t *n_tokens_out,
                                           struct weft_kv_space *space_out);
/* Makes one, in place of one of its name, of what the cache has of these tokens. Returns how many
 * blocks it has; 0: it has none, and is not there. */
uint32_t wefti_sched_session_make(weft_sched *sched, uint64_t tenant, struct weft_str id,
                                  const uint32_t *tokens, uint32_t n_blocks,
                                  const struct weft_kv_space *space);
bool wefti_sched_files_hold(const weft_sched *sched); /* some blocks, until the worker answers */
void wefti_sched_files_forget(weft_sched *sched);     /* before the cache is reset */
void wefti_sched_files_orphan(weft_sched *sched, uint32_t router);
void wefti_sched_files_lost(weft_sched *sched); /* before an epoch's end */
void wefti_sched_files_fini(weft_sched *sched);
/* Whether so many blocks, and those of the window after n_tokens, can be had without anybody's lack. */
bool wefti_sched_prefix_can_spare(const weft_sched *sched, uint32_t n_blocks);
bool wefti_sched_window_can_spare(const weft_sched *sched, uint32_t n_tokens);
/* Into an empty table: windowed blocks that a position after n_tokens sees. */
void wefti_sched_window_take(weft_sched *sched, uint32_t n_tokens,
                             struct weft_kv_window_table *table);

/* ---------------------------------------------------------------------------------- follow --- */

/* Whether a request that could start should rather wait for a running one that computes a prompt
 * which begins alike; it is taken out of the queue then. `n_cached`: what it would find now. */
bool wefti_sched_follow(weft_sched *sched, const struct seq *seq, uint32_t n_cached);
/* Puts those back whose wait is over. */
void wefti_sched_wake_followers(weft_sched *sched);
void wefti_sched_unfollow(weft_sched *sched, struct request *req); /* no-op: it does not */

/* --------------------------------------------------------------------------------- grammar --- */

/* Whether the worker of this epoch has not compiled its grammar. */
bool wefti_sched_lacks_grammar(const weft_sched *sched, const struct request *req);
void wefti_sched_await_grammar(weft_sched *sched, struct request *req);   /* out of the queue */
void wefti_sched_unawait_grammar(weft_sched *sched, struct request *req); /* no-op: it does not */
void wefti_sched_wake_awaiting(weft_sched *sched);    /* those that waited too long */
void wefti_sched_forget_announced(weft_sched *sched); /* in a new epoch: all are queued again */

/* ----------------------------------------------------------------------------------- beams --- */

struct beams;
/* How many sequences a request has: as many as choices, or as the search has beams. */
uint32_t wefti_sched_n_seqs(const struct weft_submit *submit);
/* Makes a beam search of a request that wants one, of whose choices the router hears of n_told.
 * WEFT_E_NOMEM. */
WEFT_MUST_CHECK weft_err wefti_sched_beams_init(const weft_sched *sched, struct request *req,
                                                uint32_t n_told);
void wefti_sched_beams_free(struct beams *beams); /* accepts NULL */
uint32_t wefti_sched_beams_max_tokens(const struct request *req);
/* Whether all its beams that run wait for one that does not: it then may have a place more than others
 * leave it, as those that it has are of no use before. */
bool wefti_sched_beams_stand(const struct request *req);
/* Room for what a beam's row brings; adds the events that may come of it. WEFT_E_NOMEM. */
WEFT_MUST_CHECK weft_err wefti_sched_beam_prepare(const weft_sched *sched, struct seq *seq,
                                                  uint32_t *n_events);
/* The row of a beam whose last token was computed. The request may be gone afterwards. */
void wefti_sched_beam_take(weft_sched *sched, struct seq *seq, const struct weft_step_out *out);
/* Once per plan, before rows: starts those anew that restart, or preempts them. With `alone` nobody
 * else. */
void wefti_sched_beams_restart(weft_sched *sched, const struct seq *alone);
/* Where nobody has anything to do: the youngest beam that waits for others gives up its place and
 * blocks, which these may lack. What continues it stays known. */
void wefti_sched_beams_yield(weft_sched *sched);
/* Tells the router of the end of each choice. False: no memory; nothing was done. */
bool wefti_sched_beams_end(weft_sched *sched, struct request *req, enum weft_end end);

/* ------------------------------------------------------------------------------------ guess --- */

/* Guesses for those who decode in the plan: `spare` at most, tokens that are nobody's. */
void wefti_sched_plan_guesses(weft_sched *sched, uint32_t spare);
/* Tokens that it may have in the cache once all plans that are out have run, if all their guesses come
 * true, and n_tokens more are computed. */
uint32_t wefti_sched_seq_reach(const weft_sched *sched, const struct seq *seq, uint32_t n_tokens);
/* What became of a row's guesses. */
void wefti_sched_note_guesses(weft_sched *sched, struct seq *seq, const struct weft_step_out *out);
/* When it came, and what it took; all of it is taken in. */
void wefti_sched_note_time(weft_sched *sched, const struct plan_out *plan,
                           const struct weft_step_result *result);

/* ------------------------------------------------------------------------------------ rest --- */

void wefti_sched_admit(weft_sched *sched);
/* Under EDF: sees whether a prompt can no longer be in time. */
bool wefti_sched_becomes_late(const weft_sched *sched, const struct request *req,
                              uint32_t n_tokens_left);
/* Who starts leaves blocks free. Somebody was preempted, somebody ended: see prefix.c. */
void wefti_sched_headroom_lacked(weft_sched *sched);
void wefti_sched_headroom_sufficed(weft_sched *sched);
void wefti_sched_wake_parked(weft_sched *sched);
void wefti_sched_share_out(weft_sched *sched);
/* So many tokens more than those of the streams, `decode`, fit the step's time, for n who want some; they
 * begin after n_before tokens. */
uint32_t wefti_sched_timely_tokens(const weft_sched *sched, const struct weft_sched_work *decode,
                                   uint32_t n, uint32_t n_before);

/* A heap of sequences in storage of the caller's, with the one that is `before` all
 * others on top. */
typedef bool wefti_sched_seq_before(const struct seq *a, const struct seq *b);
void wefti_sched_seq_heapify(struct seq **heap, uint32_t n, wefti_sched_seq_before *before);
struct seq *wefti_sched_seq_heap_pop(struct seq **heap, uint32_t *n,
                                     wefti_sched_seq_before *before);

/* Before any row is planned, but after wefti_sched_ration: what is left for those in the background. Some of those
 * that run sit the plan out. */
void wefti_sched_yield(weft_sched *sched);
/* One of them sits it out after all; what it would have had of log-probabilities is anybody's. */
void wefti_sched_put_off(weft_sched *sched, struct seq *seq);
/* Preempts one in the background for somebody who is not. False: none runs. */
bool wefti_sched_make_way(weft_sched *sched);

/* Before any row is planned: decides who sits this plan out. With `alone`, everybody else does. */
void wefti_sched_ration(weft_sched *sched, const struct seq *alone);

/* The sequence to compute alone now, running or next in line with room for it; NULL: none. */
struct seq *wefti_sched_find_suspect(weft_sched *sched);
bool wefti_sched_seq_is_suspect(const struct seq *seq);
/* Before an epoch's plans are forgotten: counts the loss, and ends requests that had too many. */
void wefti_sched_note_losses(weft_sched *sched);

/* The sequence that wefti_sched_admit would start next, if it is a suspect and has room. */
struct seq *wefti_sched_next_suspect(weft_sched *sched);
void wefti_sched_seq_plan_start(weft_sched *sched, struct seq *seq); /* that one */
/* Whether the plan has room for the start of one that has a slot, and adds it. */
bool wefti_sched_seq_start_fits(const weft_sched *sched, const struct seq *seq);
void wefti_sched_seq_add_start(weft_sched *sched, struct seq *seq, uint32_t n_cached,
                               uint32_t n_written);

WEFT_MUST_CHECK weft_err wefti_sched_events_reserve(weft_sched *sched, size_t n_more);
void wefti_sched_event_push(weft_sched *sched, const struct seq *seq,
                            const struct weft_step_out *out, enum weft_end end);

/* Bytes of hidden states that it may come to keep; 0: it has no contrastive search. */
uint64_t wefti_sched_contrast_bytes(const weft_sched *sched, const struct weft_sampling *sampling,
                                    uint32_t n_prompt);
/* Room in all tables for one more request of this payer. NULL: too many, or no memory. */
struct payer *wefti_sched_request_reserve(weft_sched *sched, const struct request_payer *who);
/* Whether lengths and blocks of another scheduler of the same model hold it. */
bool wefti_sched_request_fits(const weft_sched *sched, const struct request *req);
/* Hands over a request without anything running or out. False: it does not fit, or there is no
 * memory; nothing was done. */
bool wefti_sched_request_move(weft_sched *from, struct request *req, weft_sched *to,
                              uint64_t now_us);

/* Ends the whole request without an event. */
void wefti_sched_request_drop(weft_sched *sched, struct request *req);
/* Ends it with an event for each choice. False: no memory for these; nothing was done. */
bool wefti_sched_request_end(weft_sched *sched, struct request *req, enum weft_end end);

#endif
