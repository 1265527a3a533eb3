/* clients — a workload put to an OpenAI-compatible server by streaming clients.
 *
 * A client has one connection and one job at a time: a conversation of one or more turns, each a
 * streamed request. In a closed loop a job begins when a client is free; in an open one at its
 * moment, with as many clients as that takes, and where all are busy the job waits: its times count
 * from its moment all the same, so that a slow server cannot hide behind the requests that were
 * not sent. One thread and one loop serve all of them, with next to no work per token: the times
 * have to be the server's.
 *
 * Tokens are counted by the server's `usage`, or else by events with text. Times between tokens are
 * times between events with text as this process reads them. */
#ifndef WEFT_CMD_WEFT_CLIENTS_H
#define WEFT_CMD_WEFT_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "traffic/body.h"
#include "traffic/reply.h"
#include "traffic/tally.h"
#include "traffic/workload.h"

/* How far it has come. */
struct weft_clients_progress {
    double seconds;
    uint32_t n_running;
    uint64_t n_events;
    const struct weft_traffic_tally *tally;
};

struct weft_clients_options {
    const char *url;     /* see target.h */
    const char *api_key; /* NULL: none */
    const char *headers; /* "NAME: VALUE" lines for each request; NULL: none */
    uint32_t n_clients;  /* at most, and in a closed loop exactly */
    uint32_t timeout_ms; /* of a request; 0: none */
    const struct weft_traffic_workload *workload;
    const struct weft_traffic_body *body;
    enum weft_traffic_keep keep; /* of an answer, where a next turn needs it */
    /* Called some times a second; NULL: never. */
    void (*on_progress)(const struct weft_clients_progress *progress);
};

struct weft_clients_result {
    struct weft_traffic_tally tally;
    double seconds;    /* from the first request to the last end */
    uint64_t n_events; /* with text, of requests that did not fail */
    /* While every client was between its first and its last token: nothing but decoding. */
    double decoding_seconds;
    uint64_t n_decoding_events;
    double cpu_seconds;  /* of this process, for all of this */
    bool is_interrupted; /* by SIGINT or SIGTERM: what ran was left, and counts nowhere */
};

/* Runs them all. Requests that fail are counted; errors only mean that the load cannot run at all:
 * INVAL (the url), IO (its name is unknown), NOMEM. The result is the caller's, with its tally made
 * before. */
WEFT_MUST_CHECK weft_err weft_clients_run(const struct weft_clients_options *options,
                                          struct weft_clients_result *result,
                                          struct weft_errmsg *why);

#endif
