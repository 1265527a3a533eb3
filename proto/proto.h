/* proto — the messages between router, scheduler and worker: structs, encoding, decoding.
 *
 * Model    A message is one MessagePack array [type, field, field, ...]; proto/schema.md lists the
 *          fields. Token ids and other numeric vectors travel as `bin`, little-endian. Floats come
 *          back bit for bit. The link numbers messages and keeps sessions (lib/link/link.h).
 * Input    Decoding trusts nothing: a bounded cursor (count <= bytes left, depth <= 16, lengths
 *          within base/limits.h), every enum and relation checked. WEFT_E_PROTO otherwise.
 * Versions WEFT_PROTO_VERSION is exchanged first; different ones do not talk. Within a version a
 *          decoder ignores fields that follow those it knows, so a message may grow at its end.
 * Memory   Encoding appends to a weft_buf. Decoding fills storage kept in the decoder and reused
 *          from message to message; what it returns is valid until the next decode, and may also
 *          point into the bytes decoded.
 * Threads  A decoder belongs to one thread; encoding is reentrant.
 */
#ifndef WEFT_PROTO_H
#define WEFT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/activity.h"
#include "base/buf.h"
#include "base/counters.h"
#include "base/err.h"
#include "base/request.h"
#include "base/session.h"
#include "base/step.h"

/* Raise it with any change that another release would misread or refuse: a field that decoders ask
 * for, one more value of an enum, another meaning, order, type or bound. Only optional fields at an
 * end are free (proto/schema.md).
 *   2: sampling parameters have 15 fields, of which masked_tokens is new; an end by ERROR
 *   3: a snapshot is of several workers: n_workers and n_workers_serving are new, worker_pid is
 *      gone, n_blocks is their sum
 *   4: WEFT_MSG_EXPERTS
 *   5: a snapshot's counters are one vector, which may grow
 *   6: sampling parameters have top_n_sigma
 *   7: a submit has priority, wished times, tenant, flow, weight and cache_salt; three more reasons
 *      to reject; WEFT_MSG_RESET_CACHE; blocks have a kind, a model a window and windowed blocks; spills
 *   8: a heartbeat has figures of each rank, a snapshot those of all
 *   9: sampling parameters have a grammar; an end because of it
 *   10: WEFT_MSG_GRAMMAR and WEFT_MSG_COMPILED
 *   11: a row of a result may be late, or have forced tokens
 *   12: sampling parameters have thinking_token_budget, allowed_tokens and bad_words; a grammar has marks, and may be
 *      any text
 *   13: sampling parameters have those of beam search
 *   14: a submit and a start have a pooling, an event and an out values; a model has n_hidden and n_labels
 *   15: sampling parameters have more samplers, their order and variant, and breakers of DRY; what
 *      Mirostat and adaptive-p remember goes with tokens
 *   16: a model has is_encoder
 *   17: rows may have guesses, results tell how many were made and came true
 *   18: a submit may want no guesses
 *   19: a submit has a session_id, a snapshot n_sessions and n_session_blocks
 *   20: the four messages about sessions and their files
 *   21: WEFT_MSG_ADD_LORA, WEFT_MSG_REMOVE_LORA and WEFT_MSG_LORA; a submit and a start have adapters
 *   22: a submit has shifts and n_keep, a start n_keep and n_dropped
 *   23: sampling parameters have penalty_alpha, a model has_contrast, a result contrast_us
 *   24: a model has is_recurrent
 *   25: a model has n_checkpoints, a plan states
 *   26: a snapshot has n_checkpoints_held
 *   27: a start has n_written */
#define WEFT_PROTO_VERSION 27

enum weft_proto_type {
    WEFT_MSG_ROUTER_HELLO, /* router -> scheduler, first in a session */
    WEFT_MSG_SUBMIT,
    WEFT_MSG_CANCEL,
    WEFT_MSG_SCHED_HELLO, /* scheduler -> router and -> worker, first in a session */
    WEFT_MSG_ACCEPTED,
    WEFT_MSG_REJECTED,
    WEFT_MSG_EVENTS,
    WEFT_MSG_SNAPSHOT,
    WEFT_MSG_WORKER_HELLO, /* worker -> scheduler, first in a session */
    WEFT_MSG_RESULT,
    WEFT_MSG_HEARTBEAT,
    WEFT_MSG_PLAN,
    WEFT_MSG_EXPERTS,      /* worker -> scheduler, scheduler -> router */
    WEFT_MSG_RESET_CACHE,  /* router -> scheduler: forget cached prefixes; no fields */
    WEFT_MSG_GRAMMAR,      /* scheduler -> worker */
    WEFT_MSG_COMPILED,     /* worker -> scheduler */
    WEFT_MSG_SESSION,      /* router -> scheduler */
    WEFT_MSG_SESSION_DONE, /* scheduler -> router */
    WEFT_MSG_KV_FILE,      /* scheduler -> worker */
    WEFT_MSG_KV_FILED,     /* worker -> scheduler */
    WEFT_MSG_ADD_LORA,     /* router -> scheduler, scheduler -> worker */
    WEFT_MSG_REMOVE_LORA,  /* the same */
    WEFT_MSG_LORA,         /* the answer: worker -> scheduler, scheduler -> router */
    WEFT_MSG_TYPE_COUNT,
};

/* ---------------------------------------------------------------------------------- hellos --- */

struct weft_msg_router_hello {
    uint32_t version;
    uint64_t instance; /* random, drawn at start: a restarted process has another one */
    uint32_t pid;
};

/* What a worker serves. */
struct weft_model_info {
    char model_name[128];
    char arch[32];
    char isa[32];
    char fingerprint[32]; /* equal fingerprints give equal tokens */
    uint32_t n_vocab, n_blocks, block_size;
    uint32_t max_model_len, max_seqs, max_batched_tokens, n_threads;
    uint64_t weight_bytes, kv_bytes;
    uint32_t long_prompt; /* prompts of more tokens share no keys and values with shorter ones; 0:
                             all share */
    uint32_t
        n_spill_blocks; /* that the worker's file takes; 0: it has none, or there is a window */
    uint32_t window, n_window_blocks; /* both 0: all blocks are WEFT_KV_FULL */
    uint32_t n_hidden, n_labels;      /* what it has to give to poolings (base/pooling.h) */
    bool
        is_encoder; /* each prompt is computed whole in one step, and has a pooling: max_model_len fits
                        max_batched_tokens, and there is no window */
    bool has_contrast; /* contrastive search is possible: not if */
    bool
        is_recurrent; /* layers carry a state from token to token: neither cached nor spilled blocks are of
                          use without it, so there are no spilled ones */
    uint32_t n_checkpoints; /* of such states; 0 without them */
};

struct weft_msg_worker_hello {
    uint32_t version;
    uint64_t instance;
    uint32_t pid;
    struct weft_model_info model;
};

struct weft_msg_sched_hello {
    uint32_t version;
    uint64_t instance;
    uint64_t epoch; /* for a worker: drop everything and expect plans of this epoch from step 0 */
    uint32_t pid;
};

/* --------------------------------------------------------------------- router -> scheduler --- */

struct weft_msg_cancel {
    uint64_t request_id;
    uint32_t attempt;
    uint32_t choice; /* UINT32_MAX: all */
};

/* --------------------------------------------------------------------- scheduler -> router --- */

struct weft_msg_accepted {
    uint64_t request_id;
    uint32_t attempt;
};

struct weft_msg_events { /* one message per router and step */
    uint32_t n;
    const struct weft_event *events;
};

#define WEFT_ITER_BUCKETS 17 /* upper bounds 1, 8, 16, 32, ... see docs/metrics.md; last: +Inf */

#define WEFT_PAGES_UNKNOWN UINT64_MAX

/* What a process holds of a model, and how long it has waited for the others that do. */
#define WEFT_RANK_FIGURES(X)                                                                       \
    X(weight_bytes)                                                                                \
    X(n_experts) /* of each layer that has experts */                                              \
    X(resident_bytes)                                                                              \
    X(remote_pages) /* on other NUMA nodes than its own, or WEFT_PAGES_UNKNOWN */                  \
    X(meeting_us)   /* since its start, in meetings with the others, its waits included */
#define WEFT_RANK_FIELD(name) uint64_t name;

#define WEFT_RANKS_MAX 8
struct weft_rank_figures {
    WEFT_RANK_FIGURES(WEFT_RANK_FIELD)
};

#define WEFT_RANKS_TOLD_MAX 64 /* of all groups: those beyond are not in snapshots */
struct weft_rank_told {
    uint64_t group, rank; /* below WEFT_WORKERS_MAX and WEFT_RANKS_MAX */
    struct weft_rank_figures figures;
};

/* Pushed to every router 4 times a second and at each change of `serving` or `advancing`: /health
 * and /metrics answer from it without asking anybody. Counters count since the scheduler's start.
 */
struct weft_msg_snapshot {
    bool serving;   /* a worker is connected and its model is loaded */
    bool advancing; /* some worker's heartbeats come, and wherever there is something to do, the
                       compute counter moved within two of them */
    bool draining;
    bool has_model;
    struct weft_model_info model;                   /* if has_model */
    uint32_t n_waiting, n_running;                  /* requests */
    uint32_t n_blocks, n_blocks_free;               /* free, or the prefix cache's alone */
    uint32_t n_blocks_cached;                       /* of the free ones: the prefix cache's */
    uint32_t n_window_blocks, n_window_blocks_free; /* likewise, of windowed layers */
    uint32_t max_queue;
    uint64_t spill_bytes;                  /* in the workers' files */
    uint32_t n_sessions, n_session_blocks; /* blocks that two hold are counted twice */
    uint32_t n_checkpoints_held;           /* states of recurrent layers */
    WEFT_COUNTER_LIST(WEFT_COUNTER_FIELD, WEFT_COUNTER_FIELD)
    uint64_t iter_tokens[WEFT_ITER_BUCKETS]; /* not cumulative */
    uint64_t sched_resident_bytes, worker_resident_bytes;
    uint32_t sched_pid;
    uint32_t n_workers; /* known to the scheduler; all counts above are their sums */
    uint32_t n_workers_serving;
    uint32_t n_ranks;
    struct weft_rank_told ranks[WEFT_RANKS_TOLD_MAX]; /* by heartbeats, in the order of groups */
    struct weft_activity activity; /* as of now: whoever missed earlier ones lacks nothing */
};

/* --------------------------------------------------------------------- worker -> scheduler --- */

struct weft_msg_heartbeat { /* every 250 ms */
    uint64_t progress;      /* bumped by compute threads per layer; of all ranks together */
    bool busy;              /* inside a step */
    uint32_t n_ranks;       /* processes that divide the model; 1: one has it all */
    struct weft_rank_figures ranks[WEFT_RANKS_MAX];
    /* The rank for which the others wait, and its process. 0: it is the first one, which says this,
     * or there is no telling. */
    uint32_t awaited_rank, awaited_pid;
};

/* ---------------------------------------------- worker -> scheduler, scheduler -> router --- */

/* Rows that experts computed. From a worker: since its last message of this kind, or its start;
 * from the scheduler: of all workers since the scheduler's start. A worker's first in a session
 * names every series, even if zero; then both send at most one a second, and only changes. */
struct weft_msg_experts {
    uint32_t n_layers, n_experts; /* layers that have experts; experts of each. Their product is
                                     from 1 to WEFT_EXPERT_SERIES_MAX */
    const uint32_t *layers;       /* [n_layers], ascending, below WEFT_LAYERS_MAX */
    const uint64_t *rows;         /* [n_layers][n_experts] */
};

/* --------------------------------------------------- scheduler -> worker, and its answer --- */

/* A grammar that a sequence to come will follow: the worker compiles it beside its steps. */
struct weft_msg_grammar {
    uint64_t epoch, id; /* the scheduler's, for the answer */
    struct weft_grammar grammar;
};

/* It has done so, or has failed to: the sequence may start, and hears which then. */
struct weft_msg_compiled {
    uint64_t epoch, id;
};

/* ----------------------------- adapters: router -> scheduler, scheduler -> worker, and back --- */

/* Every worker is to load it. Whoever says so for an adapter that is there is told at once. */
struct weft_msg_add_lora {
    uint64_t id;               /* by which submits and starts name it */
    struct weft_digest digest; /* it must have; zeroes: any */
    const char *path;          /* on the worker's host; terminated, not empty */
};

/* From a router: it asks for it no more. To a worker: no sequence does. */
struct weft_msg_remove_lora {
    uint64_t id;
};

/* It is loaded; or it cannot be, or is not any more, and is forgotten. */
struct weft_msg_lora {
    uint64_t id;
    bool is_there;
    struct weft_digest digest; /* if it is there */
    uint64_t bytes;            /* of memory, in each worker; likewise */
    const char *text;          /* why not; terminated */
};

/* ----------------------------------------------------------------------------- all of them --- */

struct weft_msg {
    enum weft_proto_type type;
    union {
        struct weft_msg_router_hello router_hello;
        struct weft_submit submit;
        struct weft_msg_cancel cancel;
        struct weft_msg_sched_hello sched_hello;
        struct weft_msg_accepted accepted;
        struct weft_rejection rejected;
        struct weft_msg_events events;
        struct weft_msg_snapshot snapshot;
        struct weft_msg_worker_hello worker_hello;
        struct weft_step_result result;
        struct weft_msg_heartbeat heartbeat;
        struct weft_step_plan plan;
        struct weft_msg_experts experts;
        struct weft_msg_grammar grammar;
        struct weft_msg_compiled compiled;
        struct weft_session_wish session;
        struct weft_session_answer session_done;
        struct weft_kv_file kv_file;
        struct weft_kv_filed kv_filed;
        struct weft_msg_add_lora add_lora;
        struct weft_msg_remove_lora remove_lora;
        struct weft_msg_lora lora;
    };
};

/* Appends the message to `out` (check out->failed: over its ceiling or no memory). */
void weft_proto_encode(const struct weft_msg *msg, struct weft_buf *out);

typedef struct weft_proto_decoder weft_proto_decoder;
WEFT_MUST_CHECK weft_err weft_proto_decoder_new(weft_proto_decoder **decoder_out);
void weft_proto_decoder_free(weft_proto_decoder *decoder); /* accepts NULL */

/* Decodes one whole message. PROTO: malformed, with what and where; TOOBIG: over a limit; NOMEM. */
WEFT_MUST_CHECK weft_err weft_proto_decode(weft_proto_decoder *decoder, const void *bytes,
                                           size_t len, struct weft_msg *msg_out,
                                           struct weft_errmsg *why);

/* "submit", "plan", ... for logs. */
const char *weft_proto_type_name(enum weft_proto_type type);

#endif
