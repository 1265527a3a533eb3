/* clients — a closed loop of streaming clients against an OpenAI-compatible server.
 *
 * Each client has one connection and one request at a time: POST /v1/completions with random token
 * ids, greedy, the end of the text ignored. When its stream has ended it takes the next request,
 * until none is left. One thread and one loop serve all of them, with next to no work per token:
 * the times have to be the server's.
 *
 * Tokens are counted by the server's `usage`, or else by events with text. Times between tokens are
 * times between events with text as this process reads them. */
#ifndef WEFT_CMD_WEFT_CLIENTS_H
#define WEFT_CMD_WEFT_CLIENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct weft_clients_options {
    const char *url;     /* http://HOST[:PORT], with or without a path to put before /v1 */
    const char *api_key; /* NULL: none */
    uint32_t n_clients, n_requests;
    uint32_t prompt_tokens, max_tokens;
    uint32_t n_vocab; /* prompts are made of ids below it */
    uint64_t seed;    /* of the prompts */
};

/* Milliseconds, in no order. */
struct weft_clients_times {
    double *values;
    size_t n, n_max;
};

struct weft_clients_result {
    struct weft_clients_times first;   /* from the request to its first token; one per request */
    struct weft_clients_times between; /* from a token to the next of the same request */
    struct weft_clients_times whole;   /* from the request to its end; one per request */
    uint32_t n_done, n_failed;
    struct weft_errmsg why; /* of the first failure */
    double seconds;         /* from the first request to the last end */
    uint64_t n_tokens, n_events;
    /* While every client was between its first and its last token: nothing but decoding. */
    double decoding_seconds;
    uint64_t n_decoding_events;
    double cpu_seconds; /* of this process, for all of this */
};

/* Runs them all. Requests that fail are counted; errors only mean that the load cannot run at all:
 * INVAL (the url), IO (its name is unknown), NOMEM. The result is the caller's, until
 * weft_clients_fini, also after an error. */
WEFT_MUST_CHECK weft_err weft_clients_run(const struct weft_clients_options *options,
                                          struct weft_clients_result *result_out,
                                          struct weft_errmsg *why);
void weft_clients_fini(struct weft_clients_result *result);

/* Sorts the times and returns the value that `share` (0..1) of them do not exceed; 0 if
 * there are none. */
double weft_clients_percentile(struct weft_clients_times *times, double share);

#endif
