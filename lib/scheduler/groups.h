/* groups — which of several replicas gets a request, and whether they advance.
 *
 * Model    A group is a worker with all of the model, and its plans: a weft_sched of its own.
 *          Groups know nothing of each other; a request is in one of them. Its worker comes, sends
 *          heartbeats and results, and goes: the caller reports that, with the time.
 * Placing  A new request goes to the group with the best prospects: one whose worker advances
 *          before one whose worker is silent, among equals the one that has most of its prompt in the
 *          prefix cache, unless it is much busier, and then the one with the least to do. A
 *          group whose worker is gone gets nothing while another's is there, unless the request
 *          fits nowhere else.
 * Moving   By the same rule such a group keeps nothing either: once its worker has been gone for
 *          WEFT_SCHED_AWAY_MS, its requests move to groups whose worker is there, with all tokens
 *          they have. That is tried once in WEFT_SCHED_AWAY_MS at most, and disturbs nobody else.
 * Pure     No clock, socket or thread, like scheduler.h. All times are of one clock.
 */
#ifndef WEFT_SCHEDULER_GROUPS_H
#define WEFT_SCHEDULER_GROUPS_H

#include "base/limits.h"
#include "scheduler/scheduler.h"

/* Heartbeats come every 250 ms. Two that are missing, and a margin for a busy machine, make the
 * worker `not advancing`; after this long without progress it is to be killed. */
#define WEFT_SCHED_ADVANCING_MS 650u
#define WEFT_SCHED_STUCK_MS 10000u
/* Requests wait this long for a lost worker, which is usually back within milliseconds. */
#define WEFT_SCHED_AWAY_MS 10000u

struct weft_sched_group {
    weft_sched *sched; /* the caller's; NULL until its first worker came */
    bool is_serving;   /* its worker is there; then these hold: */
    bool is_busy;      /* by the last heartbeat */
    uint64_t progress;
    uint64_t progress_at_ms;  /* it moved, or had nothing to do */
    uint64_t heartbeat_at_ms; /* of the last one */
    uint64_t lost_at_ms;      /* the last worker left, or the group began */
    uint64_t moved_at_ms;     /* its requests were offered to others; 0: never since */
};

struct weft_sched_groups {
    uint32_t n;
    struct weft_sched_group groups[WEFT_WORKERS_MAX];
    uint64_t n_passed_on; /* refusals by a group after which another was asked */
};

/* ------------------------------------------------------------------------- what workers do --- */

void weft_sched_group_came(struct weft_sched_group *group, uint64_t now_ms);
void weft_sched_group_went(struct weft_sched_group *group, uint64_t now_ms);
void weft_sched_group_heartbeat(struct weft_sched_group *group, uint64_t now_ms, uint64_t progress,
                                bool is_busy);
void weft_sched_group_progress(struct weft_sched_group *group, uint64_t now_ms); /* a result came */
/* The caller itself stood still, so silence says nothing about the worker. */
void weft_sched_group_excuse(struct weft_sched_group *group, uint64_t now_ms);

bool weft_sched_group_idle(const struct weft_sched_group *group); /* nothing is asked of it */
/* Heartbeats come, and it moves or has nothing to do; without a worker: it has nothing to do. */
bool weft_sched_group_advances(const struct weft_sched_group *group, uint64_t now_ms);

/* The fault for which a worker is to be killed, for the log; NULL: none. */
const char *weft_sched_group_symptom(const struct weft_sched_group *group, uint64_t now_ms);

/* ------------------------------------------------------------------------- of all together --- */

/* Some worker is there; some group advances, and all that have work do. */
bool weft_sched_groups_serve(const struct weft_sched_groups *groups);
bool weft_sched_groups_advance(const struct weft_sched_groups *groups, uint64_t now_ms);

/* As weft_sched_submit, to the group with the best prospects that takes it. At least one group has
 * a scheduler. */
enum weft_reject weft_sched_groups_submit(struct weft_sched_groups *groups, uint64_t now_us,
                                          uint32_t router, const struct weft_submit *submit,
                                          uint32_t *retry_after_ms_out, struct weft_errmsg *why);

/* Moves requests that wait for workers that are away; see above. Returns how many moved. Ends the
 * life of the plans that were made last for these workers. */
uint32_t weft_sched_groups_move(struct weft_sched_groups *groups, uint64_t now_us);

#endif
