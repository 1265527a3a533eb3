/* call — one client's request from its body to its last token.
 *
 * Model    A call holds jobs, one for each prompt; a job is what the scheduler knows (one Submit),
 *          with n choices. A choice keeps its output as token ids, and nothing else: text and JSON
 *          are made from them when the client's socket has room (render.h).
 *          body -> prepare (any thread) -> start -> Accepted by all -> tokens -> done.
 *          A call that starts while a worker or the scheduler is being replaced is parked before it
 *          has jobs; at most --max-queue prompts are.
 * Stops    Stop strings need text as soon as a token comes: such a choice runs a detokenizer and a
 *          matcher ahead of the one that renders, throwing its text away. The strings are compiled
 *          once, for all matchers of the call.
 * Memory   What a call holds of output is taken from the shared budget, store by store as they
 *          grow; a stream over HTTP lets go of log-probabilities once they have been rendered. A
 *          call for which there is no room ends with an error.
 * Owner    The connection owns the call. `wake` tells it that there is something to look at; it is
 *          called from within any function here and must only make a note.
 */
#ifndef WEFT_API_CALL_H
#define WEFT_API_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "api/error.h"
#include "api/upstream.h"
#include "base/buf.h"
#include "base/request.h"
#include "params/params.h"
#include "proto/proto.h"
#include "render/render.h"
#include "tokenizer/tokenizer.h"

struct weft_api_state;

/* Log-probabilities, entry after entry at a fixed stride: value, rank, count, ids[k], values[k].
 * Entries [first, n) are there; those before `first` were let go, and n counts them on. */
struct lp_store {
    uint32_t *words;         /* from entry `base` on */
    uint32_t base, first, n; /* base <= first <= n */
    uint32_t cap;            /* entries */
    uint32_t k;              /* alternatives kept of each */
};

struct choice {
    struct job *job;
    uint32_t idx;     /* within the job */
    uint32_t index;   /* within the response */
    uint32_t *tokens; /* output; at most max_tokens */
    uint32_t n_tokens, cap_tokens;
    struct lp_store lps;
    enum weft_end end;
    uint32_t stop_idx; /* WEFT_END_STOP_STRING: which */
    struct weft_stop *scan;
    struct weft_detok scan_detok;
    uint64_t first_us, last_us; /* when tokens came */
    struct choice_view view;
    struct choice *next_fresh; /* in the call's list of choices with something to render */
    bool is_fresh;
};

struct job {
    struct weft_api_upstream_job upstream; /* first: one address for both */
    weft_api_call *call;
    bool accepted; /* some attempt: from then on it is resumed, not asked for */
    const struct prompt *prompt;
    struct choice *choices;
    uint32_t n_choices, n_ended;
    struct lp_store prompt_lps; /* of positions 1, 2, ... */
    uint64_t seed;
    bool has_started; /* its first token came */
    uint32_t n_cached;
    uint64_t queued_us;
};

enum weft_api_call_state {
    WEFT_API_CALL_PREPARING, /* perhaps in another thread, which then owns params and error */
    WEFT_API_CALL_WAITING,   /* for the scheduler's word on every job */
    WEFT_API_CALL_RUNNING,
    WEFT_API_CALL_DONE,
    WEFT_API_CALL_FAILED, /* `error` says why */
};

struct weft_api_call {
    struct weft_api_state *api;
    void (*wake)(weft_api_call *call);
    void *owner;

    enum call_kind kind;
    enum weft_api_call_state state;
    TAILQ_ENTRY(weft_api_call) parked_link; /* in the upstream's queue, while is_parked */
    bool accepted;                          /* the scheduler took it */
    bool streams_for_rpc;                   /* stream chunks in MessagePack-RPC's shape */
    bool is_parked;                         /* WAITING for the scheduler itself, and without jobs */
    bool is_abandoned;                      /* nobody waits; freed as soon as no thread uses it */
    bool in_thread;                         /* prepared elsewhere, or waiting for that */
    /* Set with in_thread: takes the call back from those who wait. False: a thread has it. */
    bool (*unqueue)(weft_api_call *call);
    void *queued; /* unqueue's own */

    struct weft_buf body;
    bool is_msgpack;               /* the body is; else JSON */
    uint64_t held_bytes;           /* of the shared budget */
    struct weft_api_limits limits; /* as they were when it came */
    struct params params;
    struct weft_api_error error;

    const char *model_name;
    char fingerprint[32];
    char id[40];
    int64_t created_s;
    uint64_t arrived_us, deadline_us; /* 0: none */

    struct job *jobs;
    struct choice *choices;         /* of all jobs; job i has [i * n, (i + 1) * n) */
    struct weft_stop_set *stop_set; /* all matchers borrow it; NULL: no stop strings */
    uint32_t n_jobs, n_accepted, n_jobs_ended, n_choices;
    struct choice *fresh_first, *fresh_last;
    struct weft_buf chunk_head; /* how each chunk of its stream begins */
    struct render render;
    uint64_t output_bytes;  /* what choices, stop strings, ids and log-probabilities take */
    uint64_t free_bytes;    /* so many of them cost nothing of the budget; set before it starts */
    uint64_t logprob_bytes; /* of that, against --max-logprob-bytes */
    uint64_t prepaid_bytes; /* of output_bytes, for log-probabilities to come */
};

/* `body` is moved into the call, and with it what it costs of the shared budget. NULL: out of
 * memory (the body stays). */
weft_api_call *weft_api_call_new(struct weft_api_state *api, enum call_kind kind,
                                 struct weft_buf *body, void (*wake)(weft_api_call *call),
                                 void *owner, uint64_t now_us);

/* The client has waited longer than --request-timeout lets it. The scheduler keeps the same time
 * and is given a moment to say so itself; a call that is still being prepared it does not know. */
bool weft_api_call_is_late(const weft_api_call *call, uint64_t now_us);

/* Cancels what is under way and frees; at once, or when the thread that prepares it is done. */
void weft_api_call_drop(weft_api_call *call);

/* Parses and tokenizes: no part of the shared state is changed, so any thread may do it. */
void weft_api_call_prepare(weft_api_call *call);

/* Afterwards, in the loop's thread: submits, or ends the call; or parks it, if the scheduler or its
 * worker will be back in a moment. */
void weft_api_call_start(weft_api_call *call, uint64_t now_us);

/* Submits what was parked, if somebody serves again, or ends it, if it has waited for too long or
 * will not be served: once per turn of the loop, before weft_api_upstream_pump. */
void weft_api_calls_unpark(struct weft_api_state *api, uint64_t now_us);

/* Ends a call with an error; a stream that has begun gets it as its last event. Not while a thread
 * prepares it: whoever cannot wait for that answers its client and drops the call. */
void weft_api_call_fail(weft_api_call *call, int status, uint32_t retry_after, const char *code,
                        const char *message);

/* What it takes of the shared budgets, both together. */
uint64_t weft_api_call_held(const weft_api_call *call);

uint32_t weft_api_call_prompt_tokens(const weft_api_call *call);
uint64_t weft_api_call_output_tokens(const weft_api_call *call);
uint32_t weft_api_call_cached_tokens(const weft_api_call *call);

/* Entry `i`, or NULL when it is not there. */
const uint32_t *wefti_api_lp_entry(const struct lp_store *store, uint32_t i);

/* Positions [from, to) of a choice have been rendered: what will not be asked for again goes. */
void wefti_api_choice_rendered(struct choice *choice, uint32_t from, uint32_t to);

#endif
