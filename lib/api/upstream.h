/* upstream — the talk with the scheduler: submits jobs, hands out what comes back, and after every
 * break submits all open jobs again with their output so far.
 *
 * Order    A job is open from weft_api_upstream_submit to weft_api_upstream_close. Jobs to be sent
 *          wait in a queue; at most WEFT_API_UNANSWERED_MAX of them are under way without an
 *          answer, because a scheduler that comes back to ten thousand open streams must not get
 *          them all at once: the overflow would end the session and start the same flood again.
 * Stale    Every submission is a new attempt; messages about older ones are dropped here.
 */
#ifndef WEFT_API_UPSTREAM_H
#define WEFT_API_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "api/metrics.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/proto.h"

struct weft_api_state;
struct weft_api_upstream_job;

/* Why a job is not worth sending. Its owner closes it. */
enum weft_api_upstream_failure {
    WEFT_API_UPSTREAM_LATE,          /* is_late said so */
    WEFT_API_UPSTREAM_TOO_LARGE,     /* for a message */
    WEFT_API_UPSTREAM_MODEL_CHANGED, /* another model would go on with other tokens */
};

/* Jobs one router keeps open; a request that would exceed it is answered 429. */
#define WEFT_API_OPEN_JOBS_MAX 65536
#define WEFT_API_SCHEDULERS_MAX 16
#define WEFT_API_UNANSWERED_MAX 256
#define WEFT_API_UNANSWERED_BYTES_MAX (8u << 20)

/* What the upstream asks and tells a job's owner. Any of the last four may close the job. */
struct weft_api_upstream_job_ops {
    /* Fills in everything of a Submit but its id and attempt. `choices` has WEFT_CHOICES_MAX
     * places, for the message to point to. */
    void (*describe)(const struct weft_api_upstream_job *job, uint64_t now_us,
                     struct weft_submit_choice *choices, struct weft_submit *submit_out);
    bool (*is_late)(const struct weft_api_upstream_job *job,
                    uint64_t now_us); /* no use in sending it */
    const char *(*fingerprint)(
        const struct weft_api_upstream_job *job); /* of the model it began with */
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
    WEFT_API_UPSTREAM_SENT
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
};

TAILQ_HEAD(weft_api_upstream_jobs, weft_api_upstream_job);

/* How messages leave. Any function below may call both. */
struct weft_api_upstream_link {
    weft_err (*send)(void *context, const void *bytes, size_t len); /* bytes are borrowed */
    void (*reset)(void *context); /* the peer talks nonsense: begin a new session with it */
    void *context;
};

struct weft_api_upstream {
    struct weft_api_upstream_link link;
    uint32_t pid;
    weft_proto_decoder *decoder;
    struct weft_buf scratch;
    uint64_t instance;
    bool is_up;

    bool has_snapshot;
    struct weft_msg_snapshot snapshot; /* its activity is in the two below */
    struct weft_activity_step steps[WEFT_ACTIVITY_STEPS_MAX];
    struct weft_activity_seq seqs[WEFT_ACTIVITY_SEQS_MAX];
    uint64_t n_snapshots; /* ever */
    uint64_t snapshot_at_ms;
    uint64_t served_at_ms;   /* when the last snapshot that said "serving" came; 0: none has */
    uint64_t scheduler;      /* its instance */
    struct weft_api_metrics_source counted;
    uint64_t heard_at_ms;    /* of a session: its first tick, or its last message */
    uint64_t ticked_at_ms;   /* to tell a silence from a process that stood still */
    uint64_t quiet_until_ms; /* about a scheduler that sends nonsense */

    struct weft_api_upstream_job **slots; /* [n_slots]; a request id is generation << 32 | slot */
    uint32_t n_slots, n_open;
    uint32_t *free_slots;
    uint32_t n_free, next_gen;
    struct weft_api_upstream_jobs waiting; /* to be sent, oldest first */
    struct weft_api_upstream_jobs sent;
    uint32_t n_unanswered;
    uint64_t unanswered_bytes;
};

/* `pid` goes to the scheduler, for its log. */
WEFT_MUST_CHECK weft_err weft_api_upstream_init(struct weft_api_state *api,
                                                const struct weft_api_upstream_link *link,
                                                uint32_t pid, struct weft_errmsg *why);
void weft_api_upstream_fini(struct weft_api_state *api);

/* Opens a job; weft_api_upstream_pump sends it. FULL: WEFT_API_OPEN_JOBS_MAX are open. */
WEFT_MUST_CHECK weft_err weft_api_upstream_submit(struct weft_api_state *api,
                                                  struct weft_api_upstream_job *job);

/* Sends waiting jobs, once per turn of the loop. */
void weft_api_upstream_pump(struct weft_api_state *api, uint64_t now_us);

/* The public id of an open job of ours, or NULL; see weft_api_upstream_job_ops. */
const char *weft_api_upstream_public_id(const struct weft_api_upstream *upstream,
                                        uint64_t request_id, uint32_t *choice);

/* Tells the scheduler to forget one choice (UINT32_MAX: all). */
void weft_api_upstream_cancel(struct weft_api_state *api, struct weft_api_upstream_job *job,
                              uint32_t choice);

/* Closes an open job; cancels nothing. */
void weft_api_upstream_close(struct weft_api_state *api, struct weft_api_upstream_job *job);

/* Tells the scheduler to forget cached prefixes. STATE: none is linked. */
WEFT_MUST_CHECK weft_err weft_api_upstream_reset_cache(struct weft_api_state *api);

/* Starts over with a scheduler that has said nothing for WEFT_API_UPSTREAM_SILENT_MS: its host may
 * have gone without closing the stream. Call it every 50-250 ms; a silence in which nobody called
 * does not count. */
void weft_api_upstream_tick(struct weft_api_state *api, uint64_t now_us);
#define WEFT_API_UPSTREAM_SILENT_MS 10000u

/* Events of the link: a new session, its end, a message. */
void weft_api_upstream_linked(struct weft_api_state *api);
void weft_api_upstream_unlinked(struct weft_api_state *api);
void weft_api_upstream_message(struct weft_api_state *api, const void *bytes, size_t len,
                               uint64_t now_us);

#endif
