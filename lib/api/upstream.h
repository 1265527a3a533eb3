/* upstream — what is said to the scheduler and by it: submits jobs, hands out what comes back, and after every
 * break submits all open jobs again with their output so far.
 *
 * Order    A job is open from wefti_up_submit to wefti_up_close. Jobs that have to be sent stand in
 *          a queue; at most WEFT_UNANSWERED_MAX of them are under way without an answer, because a
 *          scheduler that comes back to ten thousand open streams must not get them all at once:
 *          the overflow would end the session and start the same flood again.
 * Stale    Every submission is a new attempt; what speaks of another one is dropped here.
 */
#ifndef WEFT_API_UPSTREAM_H
#define WEFT_API_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/proto.h"

struct call;
struct core;
struct upstream_job;

/* Why a job was not, or is no longer, worth sending. Its owner closes it. */
enum upstream_failure {
    UPSTREAM_LATE,          /* is_late said so */
    UPSTREAM_TOO_LARGE,     /* for a message */
    UPSTREAM_MODEL_CHANGED, /* another model would go on with other tokens */
};

/* Jobs one router keeps open; a request that would exceed it is answered 429. */
#define WEFT_OPEN_JOBS_MAX 65536
#define WEFT_UNANSWERED_MAX 256
#define WEFT_UNANSWERED_BYTES_MAX (8u << 20)

/* What the upstream asks of a job's owner, and what it tells it. Any of the last four may close
 * the job. */
struct upstream_job_ops {
    /* Fills in everything of a Submit but its id and attempt. `choices` has WEFT_CHOICES_MAX
     * places, for the message to point to. */
    void (*describe)(const struct upstream_job *job, uint64_t now_us,
                     struct weft_submit_choice *choices, struct weft_submit *submit_out);
    bool (*is_late)(const struct upstream_job *job, uint64_t now_us); /* no use in sending it */
    const char *(*fingerprint)(const struct upstream_job *job); /* of the model it began with */
    void (*accepted)(struct upstream_job *job);
    void (*rejected)(struct upstream_job *job, const struct weft_rejection *msg);
    void (*event)(struct upstream_job *job, const struct weft_event *event, uint64_t now_us);
    void (*failed)(struct upstream_job *job, enum upstream_failure failure);
};

enum upstream_place { UPSTREAM_CLOSED, UPSTREAM_WAITING, UPSTREAM_SENT };

/* One Submit, a part of its owner's struct; all zero but for `ops` to begin with. */
struct upstream_job {
    TAILQ_ENTRY(upstream_job) entry; /* in one of the lists of struct upstream */
    const struct upstream_job_ops *ops;
    enum upstream_place place;
    uint64_t id;
    uint32_t attempt;
    bool answered; /* this attempt */
    uint32_t sent_bytes;
};

TAILQ_HEAD(upstream_jobs, upstream_job);

TAILQ_HEAD(call_queue, call); /* through call->parked_link */

/* How messages leave. Both may be called from within any function below. */
struct upstream_link {
    weft_err (*send)(void *context, const void *bytes, size_t len); /* bytes are borrowed */
    void (*reset)(void *context); /* the peer talks nonsense: begin a new session with it */
    void *context;
};

struct upstream {
    struct upstream_link link;
    uint32_t pid;
    weft_proto_decoder *decoder;
    struct weft_buf scratch;
    uint64_t instance;
    bool is_up;

    bool has_snapshot;
    struct weft_msg_snapshot snapshot;
    uint64_t snapshot_at_ms;
    uint64_t served_at_ms; /* the last snapshot that said "serving" came; 0: none has */
    uint64_t scheduler;    /* its instance */

    struct upstream_job **slots; /* [n_slots]; a request id is generation << 32 | slot */
    uint32_t n_slots, n_open;
    uint32_t *free_slots;
    uint32_t n_free, next_gen;
    struct upstream_jobs waiting; /* to be sent, oldest first */
    struct upstream_jobs sent;
    struct call_queue parked; /* calls that came while nobody served: no jobs yet */
    uint32_t n_parked_prompts;
    uint32_t n_unanswered;
    uint64_t unanswered_bytes;
};

/* `pid` is told to the scheduler, for its log. */
WEFT_MUST_CHECK weft_err wefti_up_init(struct core *core, const struct upstream_link *link,
                                       uint32_t pid, struct weft_errmsg *why);
void wefti_up_fini(struct core *core);

/* Opens a job; wefti_up_pump sends it. FULL: WEFT_OPEN_JOBS_MAX are open. */
WEFT_MUST_CHECK weft_err wefti_up_submit(struct core *core, struct upstream_job *job);

/* Sends what waits and may go: once per turn of the loop. */
void wefti_up_pump(struct core *core, uint64_t now_us);

/* The scheduler shall forget one choice (UINT32_MAX: all). */
void wefti_up_cancel(struct core *core, struct upstream_job *job, uint32_t choice);

/* Nothing more is expected of an open job; cancels nothing. */
void wefti_up_close(struct core *core, struct upstream_job *job);

/* What the link has: a new session, the end of one, a message of it. */
void wefti_up_linked(struct core *core);
void wefti_up_unlinked(struct core *core);
void wefti_up_message(struct core *core, const void *bytes, size_t len, uint64_t now_us);

#endif
