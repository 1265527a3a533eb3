/* How --memory-limit is shared out: what is not the workers' to size. Each of them adds its own terms to these
 * and refuses where the sum is too much (engine/runtime/fit). */
#include <stdio.h>
#include <sys/resource.h>

#include "base/minmax.h"
#include "base/parse.h"
#include "supervisor.h"

/* Bytes of a process that has nothing to do yet, measured (3 to 6 MiB) and rounded up: heaps do not
 * give back every page. */
#define SUPERVISOR_BYTES (4ull << 20)
#define PROCESS_BYTES (16ull << 20)
#define CONNECTION_BYTES 12288ull /* measured: 3 KiB idle, 7 with a stream; and a small head */
#define QUEUED_BYTES 4096ull      /* a request's places, which are not its tokens */

/* Parts of the limit, where nobody says more. */
#define REQUESTS_PART 64
#define CONNECTIONS_PART 64
#define REQUESTS_BYTES_MIN (1ull << 20)
#define REQUESTS_BYTES_LEAST                                                                       \
    (64ull << 10) /* that somebody may give: what depends on it has minima of its own */
#define CONNECTIONS_MIN 64u
/* What may be in memory as often as requests may take. Router: what is held, and twice what JSON takes that is read
 * (a long body's; and those of short ones and batches); the scheduler's copy; and messages under way. Worker:
 * grammars; and states of contrastive search. */
#define REQUESTS_COPIES 5u
#define REQUESTS_COPIES_OF_WORKER 2u
/* Of all requests, the largest one; its JSON is ten times as much while it is read, and may be as much as all. */
#define BODY_PART 12
#define LOGPROB_PART 4

/* Bounds that somebody chose are kept, others follow from the limit. */
static void set_bounds(struct weft_config *c) {
    uint64_t usual = BODY_PART * c->max_body_bytes + LOGPROB_PART * c->max_logprob_bytes;
    uint64_t least = REQUESTS_BYTES_MIN;
    if (c->given.max_body_bytes) least = weft_max_u64(least, BODY_PART * c->max_body_bytes);
    if (c->given.max_logprob_bytes)
        least = weft_max_u64(least, LOGPROB_PART * c->max_logprob_bytes);
    if (c->request_memory == 0)
        c->request_memory =
            weft_max_u64(weft_min_u64(c->memory_limit / REQUESTS_PART, usual), least);
    if (!c->given.max_body_bytes)
        c->max_body_bytes = weft_min_u64(c->max_body_bytes, c->request_memory / BODY_PART);
    if (!c->given.max_logprob_bytes)
        c->max_logprob_bytes = weft_min_u64(c->max_logprob_bytes, c->request_memory / LOGPROB_PART);
    if (!c->given.max_connections) {
        uint64_t n = c->memory_limit / CONNECTIONS_PART / CONNECTION_BYTES;
        n = weft_max_u64(n, CONNECTIONS_MIN);
        c->max_connections = (uint32_t)weft_min_u64(n, c->max_connections);
    }
}

/* Each is a descriptor of the router, which raises its own limit as far as it goes (router/accept.c). */
static uint64_t connections_of(const struct weft_config *c) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY)
        return c->max_connections;
    return weft_min_u64(c->max_connections, limit.rlim_max);
}

weft_err wefti_memory_share_out(struct supervisor *sup, struct weft_errmsg *why) {
    struct weft_config *c = &sup->config;
    if (c->request_memory > 0 && c->request_memory < REQUESTS_BYTES_LEAST)
        return weft_err_set(why, WEFT_E_INVAL, "--request-memory: must be at least 64KiB");
    if (c->memory_limit == 0) return WEFT_OK;
    set_bounds(c);
    if (c->max_body_bytes > c->request_memory / 4)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--max-body is more than a quarter of --request-memory: such requests "
                            "might never be taken");
    uint32_t n = sup->n_workers, n_copies = REQUESTS_COPIES + REQUESTS_COPIES_OF_WORKER * n;
    uint64_t router = PROCESS_BYTES + connections_of(c) * CONNECTION_BYTES + c->responses_bytes;
    uint64_t scheduler = PROCESS_BYTES + c->max_queue * QUEUED_BYTES;
    char text[5][WEFT_SIZE_TEXT_BYTES], workers[24] = "";
    if (n > 1) (void)snprintf(workers, sizeof workers, "s %u x", n);
    (void)snprintf(sup->memory_terms, sizeof sup->memory_terms,
                   "worker%s %s, router %s, scheduler %s, supervisor %s, requests %u x %s", workers,
                   weft_size_text(PROCESS_BYTES, text[0]), weft_size_text(router, text[1]),
                   weft_size_text(scheduler, text[2]), weft_size_text(SUPERVISOR_BYTES, text[3]),
                   n_copies, weft_size_text(c->request_memory, text[4]));
    c->memory_terms = sup->memory_terms;
    c->memory_beside =
        n * PROCESS_BYTES + router + scheduler + SUPERVISOR_BYTES + n_copies * c->request_memory;
    return WEFT_OK;
}
