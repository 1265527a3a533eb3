/* traffic/tally — what came of a load test's requests.
 *
 * Whoever runs the requests says what happened, and when, in seconds from the beginning of the run;
 * the tally keeps it until it is reported. Where its memory ends it says so (no_memory), and what
 * it shows is void. */
#ifndef WEFT_TRAFFIC_TALLY_H
#define WEFT_TRAFFIC_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "traffic/goal.h"
#include "traffic/times.h"

#define WEFT_TRAFFIC_STATUSES_MAX 32

enum weft_traffic_failure {
    WEFT_TRAFFIC_STATUS,  /* of HTTP, other than 200 */
    WEFT_TRAFFIC_CONNECT, /* no connection */
    WEFT_TRAFFIC_RESET,   /* the connection broke */
    WEFT_TRAFFIC_TIMEOUT, /* it took too long */
    WEFT_TRAFFIC_STREAM,  /* what came is no whole answer */
    WEFT_TRAFFIC_N_FAILURES,
};

/* Of the requests that were the same turn of their conversation. */
struct weft_traffic_turn {
    struct weft_traffic_times first;
    uint64_t n_prompt, n_cached;
};

struct weft_traffic_tally {
    const struct weft_traffic_goal *goal; /* borrowed */
    struct weft_traffic_times first;      /* to the first token; one per request that had one */
    struct weft_traffic_times between;    /* from a token to the next of the same request */
    struct weft_traffic_times whole;      /* to the end; of those that did not fail */
    struct weft_traffic_times late;       /* from a request's moment to when it was sent */
    struct weft_traffic_times failed;     /* to the failure */
    struct weft_traffic_times retry_after;
    struct weft_traffic_turn *turns; /* owned */
    uint32_t n_turns;

    uint32_t n_done, n_failed, n_good;
    uint64_t n_tokens, n_good_tokens, n_prompt, n_cached;
    bool has_cached; /* some answer said how much of its prompt was cached */
    struct {
        uint32_t status, n;
    } statuses[WEFT_TRAFFIC_STATUSES_MAX]; /* in order of appearance; others count as 0 */
    uint32_t n_statuses;
    uint32_t n_failures[WEFT_TRAFFIC_N_FAILURES];
    struct weft_errmsg why; /* of the first failure */
    bool no_memory;
};

/* A request that did not fail. */
struct weft_traffic_done {
    double begin_s;
    uint32_t turn;
    struct weft_traffic_outcome outcome;
    uint64_t n_prompt, n_cached; /* 0 where the server does not say */
    bool has_cached;
};

struct weft_traffic_failed {
    double begin_s, ms;
    enum weft_traffic_failure kind;
    uint32_t status;       /* of HTTP, where that is the kind */
    double retry_after_ms; /* below 0: not said */
    const char *why;
};

WEFT_MUST_CHECK weft_err weft_traffic_tally_init(struct weft_traffic_tally *tally, uint32_t n_turns,
                                                 const struct weft_traffic_goal *goal);
void weft_traffic_tally_fini(struct weft_traffic_tally *tally);

/* A request's first token, `ms` after it began; the time to its next one. */
void weft_traffic_tally_first(struct weft_traffic_tally *tally, double at_s, double ms);
void weft_traffic_tally_gap(struct weft_traffic_tally *tally, double at_s, double ms);
void weft_traffic_tally_late(struct weft_traffic_tally *tally, double at_s, double ms);
void weft_traffic_tally_done(struct weft_traffic_tally *tally,
                             const struct weft_traffic_done *done);
void weft_traffic_tally_failed(struct weft_traffic_tally *tally,
                               const struct weft_traffic_failed *failed);

/* "connect", "reset", "timeout", "stream"; NULL for those that have a status. */
const char *weft_traffic_failure_name(enum weft_traffic_failure kind);

#endif
