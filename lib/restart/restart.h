/* restart — when a supervisor starts a child again, how long it waits before that, and when it must
 * give up. No clock and no process here: events with their times come in, decisions go out.
 *
 * Model    Children 0..n-1; those from `first_replica` on are alike, and one that serves is enough.
 *          A life begins with started and ends with ended; in between a child may say that it is
 *          ready, and that it has worked (computed something).
 * Begin    Until each child has been ready once, no failed start is spared: a refusal or a hopeless
 *          child, even a replica, ends the server with its reason. So does one that the system
 *          kills WEFT_RESTART_KILLED_MAX times in a row before it is ready.
 * After    The settings have worked once, and streams are open: a failure may pass. A child that
 *          dies is started at once. After one that dies before it is ready, or cannot be started,
 *          the wait doubles each time; so it does after one that dies within WEFT_RESTART_SHORT_MS
 *          of being ready without having worked, from the fourth time in a row on.
 * End      A child is hopeless after so many bad lives in a row. A hopeless child that is needed
 *          ends the server; replicas do when all of them are hopeless and none is ready.
 * Groups   Replicas may be groups of so many children, one after the other, which live and die
 *          together: the caller ends the others, lets them go, and starts all anew.
 * Memory   The state is the caller's, plain and small. Errors: none. Threads: one.
 * Checked in tests/unit/test_restart.c. */
#ifndef WEFT_RESTART_H
#define WEFT_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/* Starts in a row that end before the child is ready. With the waits between them about 20 s:
 * longer than a passing shortage, shorter than a person's patience. */
#define WEFT_RESTART_FAILED_MAX 11
#define WEFT_RESTART_FAILED_MS_MIN 100
#define WEFT_RESTART_MS_MAX 5000

/* Lives in a row that were short and without work: more than the workers that a bad request kills
 * until it is found out. The first ones, after which it is computed alone, cost no wait. All
 * together last some 12 s. */
#define WEFT_RESTART_SHORT_MAX 20
#define WEFT_RESTART_SHORT_FREE WEFT_SUSPECT_LOSSES
#define WEFT_RESTART_SHORT_MS 1000
#define WEFT_RESTART_SHORT_WAIT_MS_MIN 50
#define WEFT_RESTART_SHORT_WAIT_MS_MAX 1000
_Static_assert(WEFT_RESTART_SHORT_MAX > WEFT_SEQ_LOSSES_MAX, "a request may kill so many workers");

#define WEFT_RESTART_CHILDREN_MAX (2 + WEFT_WORKERS_MAX) /* a router and a scheduler */

/* Of those, so many in a row that the system killed while nothing had ever served: out of memory,
 * the next one would be, too, and with a large model each takes seconds. */
#define WEFT_RESTART_KILLED_MAX 3

enum weft_restart_end {
    WEFT_RESTART_DIED,        /* in any other way */
    WEFT_RESTART_KILLED,      /* by SIGKILL, which the supervisor did not send */
    WEFT_RESTART_REFUSED,     /* it said why it cannot go on, and that retrying would not help */
    WEFT_RESTART_WRONG,       /* going on would be wrong at any time */
    WEFT_RESTART_NOT_STARTED, /* no process was made: no descriptor, no memory */
};

enum weft_restart_action {
    WEFT_RESTART_START,   /* at start_at_ms, which may be now */
    WEFT_RESTART_GIVE_UP, /* end the server */
};

enum weft_restart_reason {
    WEFT_RESTART_LAST_END, /* this end alone: what the child said, or how it ended */
    WEFT_RESTART_NEVER_READY,
    WEFT_RESTART_KILLED_OFF, /* the same, each time by the system */
    WEFT_RESTART_SHORT_LIVED,
};

struct weft_restart_decision {
    enum weft_restart_action action;
    uint64_t start_at_ms;            /* START */
    enum weft_restart_reason reason; /* GIVE_UP; but for the first, how many in a row: */
    uint32_t n_in_row;
};

struct weft_restart_child {
    bool runs, is_ready, has_worked; /* in this life */
    bool was_ready;                  /* in any */
    uint64_t ready_at_ms, start_at_ms;
    uint32_t n_failed, n_short; /* in a row */
    uint32_t n_killed;          /* the last ones of n_failed */
};

struct weft_restart {
    uint32_t n_children, first_replica;
    uint32_t n_in_group; /* of replicas: 1 if they stand alone */
    struct weft_restart_child children[WEFT_RESTART_CHILDREN_MAX];
};

/* All may start at once. 1 <= n_children <= WEFT_RESTART_CHILDREN_MAX; replicas are whole groups. */
void weft_restart_init(struct weft_restart *restart, uint32_t n_children, uint32_t first_replica,
                       uint32_t n_in_group);

/* The child is a process now. */
void weft_restart_started(struct weft_restart *restart, uint32_t child_idx);
/* The child says that it is ready; only the first time in a life counts. */
void weft_restart_ready(struct weft_restart *restart, uint32_t child_idx, uint64_t now_ms);
/* The child has computed something: an early end does not mean that it cannot work. */
void weft_restart_worked(struct weft_restart *restart, uint32_t child_idx);
/* The request that killed replicas was found and ended: their early ends do not count either. */
void weft_restart_explained(struct weft_restart *restart);

/* A life is over, or (NOT_STARTED) none began: decides what to do. */
struct weft_restart_decision weft_restart_ended(struct weft_restart *restart, uint32_t child_idx,
                                                enum weft_restart_end end, uint64_t now_ms);

/* A life is over because another one of its group is: it counts for nothing, and the next may start
 * at once. */
void weft_restart_let_go(struct weft_restart *restart, uint32_t child_idx);

/* Whether each child has been ready once. */
bool weft_restart_has_begun(const struct weft_restart *restart);

#endif
