/* upstream — the talk with the schedulers, mostly one: submits jobs, hands out what comes back, and
 * after every break submits all open jobs again with their output so far.
 *
 * Order    A job is open from weft_api_upstream_submit to weft_api_upstream_close. Jobs to be sent
 *          wait in a queue; at most WEFT_API_UNANSWERED_MAX of them are under way without an
 *          answer, because a scheduler that comes back to ten thousand open streams must not get
 *          them all at once: the overflow would end the session and start the same flood again.
 * Stale    Every submission is a new attempt; messages about older ones are dropped here.
 * Several  Each job is at one scheduler. When that one is lost, silent, or serves nothing for
 *          WEFT_API_UPSTREAM_UNABLE_MS, its jobs go to others: those with output only where the
 *          fingerprint is the same. One that refuses for want of room is left for another, each of
 *          them asked once. Whoever finds nobody waits for --restart-grace, and fails. What is shown of
 *          the schedulers is their sum. With one scheduler nothing of this exists: jobs wait for it.
 */
#ifndef WEFT_API_UPSTREAM_H
#define WEFT_API_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "api/metrics.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/expert_rows.h"
#include "proto/proto.h"

struct weft_api_state;
struct weft_api_upstream_job;
struct wefti_api_cluster;

/* Why a job is not worth sending. Its owner closes it. */
enum weft_api_upstream_failure {
    WEFT_API_UPSTREAM_LATE,          /* is_late said so */
    WEFT_API_UPSTREAM_TOO_LARGE,     /* for a message */
    WEFT_API_UPSTREAM_MODEL_CHANGED, /* another model would go on with other tokens */
    WEFT_API_UPSTREAM_NOBODY,        /* no scheduler is there for it */
    WEFT_API_UPSTREAM_NO_EQUAL,      /* none that would go on with the same tokens */
};

/* Jobs one router keeps open; a request that would exceed it is answered 429. */
#define WEFT_API_OPEN_JOBS_MAX 65536
#define WEFT_API_SCHEDULERS_MAX 16
#define WEFT_API_UNANSWERED_MAX 256 /* of one scheduler */
#define WEFT_API_UNANSWERED_BYTES_MAX (8u << 20)

/* What the upstream asks and tells a job's owner. Any of the last four may close the job. is_bound,
 * placed and uses_adapter are for several schedulers. */
struct weft_api_upstream_job_ops {
    /* Fills in everything of a Submit but its id and attempt. `choices` has WEFT_CHOICES_MAX
     * places, for the message to point to. */
    void (*describe)(const struct weft_api_upstream_job *job, uint64_t now_us,
                     struct weft_submit_choice *choices, struct weft_submit *submit_out);
    bool (*is_late)(const struct weft_api_upstream_job *job,
                    uint64_t now_us); /* no use in sending it */
    const char *(*fingerprint)(
        const struct weft_api_upstream_job *job); /* of the model it began with */
    /* Its output so far, or what it shares an answer with, binds it to its fingerprint. */
    bool (*is_bound)(const struct weft_api_upstream_job *job);
    void (*placed)(struct weft_api_upstream_job *job, const char *fingerprint);
    bool (*uses_adapter)(const struct weft_api_upstream_job *job, uint64_t id);
    /* What the client knows it by; *choice is the job's, and becomes the answer's. */
    const char *(*public_id)(const struct weft_api_upstream_job *job, uint32_t *choice);
    void (*accepted)(struct weft_api_upstream_job *job);
    void (*rejected)(struct weft_api_upstream_job *job, const struct weft_rejection *msg);
    void (*event)(struct weft_api_upstream_job *job, const struct weft_event *event,
                  uint64_t now_us);
    void (*failed)(struct weft_api_upstream_job *job, enum weft_api_upstream_failure failure);
};

enum weft_api_upstream_place {
    WEFT_API_UPSTREAM_CLOSED,
    WEFT_API_UPSTREAM_WAITING,
    WEFT_API_UPSTREAM_SENT,
    WEFT_API_UPSTREAM_APART, /* for a moment, or for a scheduler to come back */
};

/* One Submit, part of its owner's struct; all zero but `ops` at first. */
struct weft_api_upstream_job {
    TAILQ_ENTRY(weft_api_upstream_job) entry; /* in one of the lists of struct weft_api_upstream */
    const struct weft_api_upstream_job_ops *ops;
    enum weft_api_upstream_place place;
    uint64_t id;
    uint32_t attempt;
    bool answered; /* this attempt */
    uint32_t sent_bytes;
    uint32_t scheduler; /* that it was sent to last */
    /* With several schedulers: */
    uint32_t refused_by, n_refusals; /* since one took it: bits, and their number */
    uint32_t retry_ms;       /* of those that were for want of room, the soonest; 0: none was */
    uint64_t due_us;         /* APART: not before */
    uint64_t alone_since_ms; /* nobody could take it from then on; 0: that is not so */
};

TAILQ_HEAD(weft_api_upstream_jobs, weft_api_upstream_job);

/* A question about sessions; part of its owner's struct, all zero but `answered` at first. */
struct weft_api_session_ask {
    LIST_ENTRY(weft_api_session_ask) entry;
    bool is_open;
    uint64_t id;
    /* It is closed then. Where the scheduler was lost, with CLOSED. */
    void (*answered)(struct weft_api_session_ask *ask, const struct weft_session_answer *answer,
                     uint64_t now_us);
};

LIST_HEAD(weft_api_session_asks, weft_api_session_ask);

/* How messages leave. Any function below may call both. */
struct weft_api_upstream_link {
    weft_err (*send)(void *context, const void *bytes, size_t len); /* bytes are borrowed */
    void (*reset)(void *context); /* the peer talks nonsense: begin a new session with it */
    void *context;
    const char *name; /* its address; outlives the upstream */
};

/* One scheduler. */
struct weft_api_scheduler {
    struct weft_api_upstream_link link;
    bool is_up;
    bool is_stranger;  /* it serves another model than the others, and gets nothing */
    uint64_t instance; /* of its process */
    bool has_snapshot;
    struct weft_msg_snapshot snapshot; /* its activity is in the two below */
    struct weft_activity_step steps[WEFT_ACTIVITY_STEPS_MAX];
    struct weft_activity_seq seqs[WEFT_ACTIVITY_SEQS_MAX];
    uint64_t snapshot_at_ms;
    uint64_t served_at_ms;   /* when the last snapshot that said "serving" came; 0: none has */
    uint64_t heard_at_ms;    /* of a session: its first tick, or its last message */
    uint64_t able_at_ms;     /* of several: it was heard, and served, or its session began */
    uint64_t quiet_until_ms; /* about nonsense that it sends */
    struct weft_api_metrics_source counted;
    struct weft_expert_rows experts; /* of several: its own */
    struct weft_api_upstream_jobs sent;
    uint32_t n_unanswered;
    uint64_t unanswered_bytes;
};

struct weft_api_upstream {
    uint32_t pid;
    weft_proto_decoder *decoder;
    struct weft_buf scratch;
    uint64_t instance;
    struct weft_api_scheduler *schedulers; /* [n_schedulers] */
    uint32_t n_schedulers;
    struct wefti_api_cluster *cluster; /* NULL: there is one scheduler */

    /* What the schedulers are together; one alone is what it says. */
    bool is_up;
    bool has_snapshot;
    struct weft_msg_snapshot snapshot; /* its activity is in the two below */
    struct weft_activity_step steps[WEFT_ACTIVITY_STEPS_MAX];
    struct weft_activity_seq seqs[WEFT_ACTIVITY_SEQS_MAX];
    uint64_t n_snapshots; /* ever */
    uint64_t snapshot_at_ms;
    uint64_t served_at_ms; /* when the last snapshot that said "serving" came; 0: none has */
    uint64_t ticked_at_ms; /* to tell a silence from a process that stood still */

    struct weft_api_upstream_job **slots; /* [n_slots]; a request id is generation << 32 | slot */
    uint32_t n_slots, n_open;
    uint32_t *free_slots;
    uint32_t n_free, next_gen;
    struct weft_api_upstream_jobs waiting; /* to be sent, oldest first */
    struct weft_api_upstream_jobs apart;
    struct weft_api_session_asks asks; /* with the one scheduler */
    uint64_t n_asks;                   /* ever */
};

/* 1 to WEFT_API_SCHEDULERS_MAX links, whose names differ. `pid` goes to the schedulers, for their
 * logs. */
WEFT_MUST_CHECK weft_err weft_api_upstream_init(struct weft_api_state *api,
                                                const struct weft_api_upstream_link *links,
                                                uint32_t n, uint32_t pid, struct weft_errmsg *why);
void weft_api_upstream_fini(struct weft_api_state *api);

/* Opens a job; weft_api_upstream_pump sends it. FULL: WEFT_API_OPEN_JOBS_MAX are open. */
WEFT_MUST_CHECK weft_err weft_api_upstream_submit(struct weft_api_state *api,
                                                  struct weft_api_upstream_job *job);

/* Sends waiting jobs, once per turn of the loop. */
void weft_api_upstream_pump(struct weft_api_state *api, uint64_t now_us);

/* The public id of an open job of ours, or NULL; see weft_api_upstream_job_ops. */
const char *weft_api_upstream_public_id(const struct weft_api_upstream *upstream,
                                        uint64_t request_id, uint32_t *choice);

/* Tells its scheduler to forget one choice (UINT32_MAX: all). */
void weft_api_upstream_cancel(struct weft_api_state *api, struct weft_api_upstream_job *job,
                              uint32_t choice);

/* Closes an open job; cancels nothing. */
void weft_api_upstream_close(struct weft_api_state *api, struct weft_api_upstream_job *job);

/* Each of several schedulers, and their number; 0: there is one alone. */
uint32_t weft_api_upstream_list(const struct weft_api_upstream *upstream, uint64_t now_ms,
                                struct weft_api_metrics_scheduler out[WEFT_API_SCHEDULERS_MAX]);

/* Asks the scheduler about sessions; wish->id is filled in. UNSUPPORTED: there are several; STATE, IO:
 * none is linked. */
WEFT_MUST_CHECK weft_err weft_api_upstream_ask(struct weft_api_state *api,
                                               struct weft_api_session_ask *ask,
                                               const struct weft_session_wish *wish,
                                               struct weft_errmsg *why);
/* The answer is of no interest any more; no effect on one that is closed. */
void weft_api_upstream_forget(struct weft_api_session_ask *ask);

/* Tells the schedulers to forget cached prefixes. STATE: none is linked. */
WEFT_MUST_CHECK weft_err weft_api_upstream_reset_cache(struct weft_api_state *api);

/* Starts over with a scheduler that has said nothing for WEFT_API_UPSTREAM_SILENT_MS: its host may
 * have gone without closing the stream. Of several, moves the jobs of those that cannot serve, and
 * looks after those that wait. Call it every 50-250 ms; a time in which nobody called is neither a
 * silence nor a part of --restart-grace. */
void weft_api_upstream_tick(struct weft_api_state *api, uint64_t now_us);
#define WEFT_API_UPSTREAM_SILENT_MS 10000u
#define WEFT_API_UPSTREAM_UNABLE_MS 3000u

/* Events of a link, that of links[scheduler]: a new session, its end, a message. */
void weft_api_upstream_linked(struct weft_api_state *api, uint32_t scheduler);
void weft_api_upstream_unlinked(struct weft_api_state *api, uint32_t scheduler, uint64_t now_us);
void weft_api_upstream_message(struct weft_api_state *api, uint32_t scheduler, const void *bytes,
                               size_t len, uint64_t now_us);

/* A message that nobody waits for, if that one is linked. */
void wefti_api_upstream_tell(struct weft_api_upstream *upstream, uint32_t scheduler,
                             const struct weft_msg *msg);

#endif
