/* How --memory-limit is shared out: what is not the workers' to size. Each of them adds its own terms to these
 * and refuses where the sum is too much (engine/runtime/fit). */
#include <sys/resource.h>

#include "base/log.h"
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

/* Of all requests, where nobody said how much they may take. */
static struct weft_eng_limit_term requests_term(const struct weft_config *c, uint32_t n_copies) {
    struct weft_eng_limit_term term = {.name = WEFT_ENG_LIMIT_REQUESTS,
                                       .flag = "--request-memory",
                                       .n = n_copies,
                                       .least_bytes = c->request_memory};
    if (c->request_memory > 0) return term;
    term.part = REQUESTS_PART;
    term.least_bytes = REQUESTS_BYTES_MIN;
    if (c->given.max_body_bytes)
        term.least_bytes = weft_max_u64(term.least_bytes, BODY_PART * c->max_body_bytes);
    if (c->given.max_logprob_bytes)
        term.least_bytes = weft_max_u64(term.least_bytes, LOGPROB_PART * c->max_logprob_bytes);
    term.most_bytes = BODY_PART * c->max_body_bytes + LOGPROB_PART * c->max_logprob_bytes;
    return term;
}

/* Each is a descriptor of the router, which raises its own limit as far as it goes (router/accept.c). */
static uint64_t connections_of(const struct weft_config *c) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY)
        return c->max_connections;
    return weft_min_u64(c->max_connections, limit.rlim_max);
}

static struct weft_eng_limit_term connections_term(const struct weft_config *c) {
    struct weft_eng_limit_term term = {.name = "connections",
                                       .flag = "--max-connections",
                                       .n = 1,
                                       .least_bytes = connections_of(c) * CONNECTION_BYTES};
    if (c->given.max_connections) return term;
    term.part = CONNECTIONS_PART;
    term.most_bytes = term.least_bytes;
    term.least_bytes = weft_min_u64(term.most_bytes, CONNECTIONS_MIN * CONNECTION_BYTES);
    return term;
}

/* Bounds that somebody chose are kept, others follow from the limit. What was lowered is told in one line. */
static void set_bounds(struct weft_config *c, const struct weft_eng_limit_term *requests,
                       const struct weft_eng_limit_term *connections) {
    char text[3][WEFT_SIZE_TEXT_BYTES];
    const struct weft_config had = *c;
    c->request_memory = weft_eng_limit_term_bytes(requests, c->memory_limit);
    if (!c->given.max_body_bytes)
        c->max_body_bytes = weft_min_u64(c->max_body_bytes, c->request_memory / BODY_PART);
    if (!c->given.max_logprob_bytes)
        c->max_logprob_bytes = weft_min_u64(c->max_logprob_bytes, c->request_memory / LOGPROB_PART);
    uint64_t bytes = weft_eng_limit_term_bytes(connections, c->memory_limit);
    if (connections->part > 0 && bytes < connections->most_bytes)
        c->max_connections = (uint32_t)(bytes / CONNECTION_BYTES);
    if (c->max_body_bytes < had.max_body_bytes || c->max_logprob_bytes < had.max_logprob_bytes ||
        c->max_connections < had.max_connections)
        weft_info("within --memory-limit: --request-memory %s, --max-body %s, --max-logprob-bytes "
                  "%s, --max-connections %u",
                  weft_size_text(c->request_memory, text[0]),
                  weft_size_text(c->max_body_bytes, text[1]),
                  weft_size_text(c->max_logprob_bytes, text[2]), c->max_connections);
}

/* What is there once, whatever the flags say: heaps of all processes. */
static uint64_t processes_bytes(uint32_t n_workers) {
    return (n_workers + 2) * PROCESS_BYTES + SUPERVISOR_BYTES;
}

weft_err wefti_memory_share_out(struct supervisor *sup, struct weft_errmsg *why) {
    struct weft_config *c = &sup->config;
    if (c->request_memory > 0 && c->request_memory < REQUESTS_BYTES_LEAST)
        return weft_err_set(why, WEFT_E_INVAL, "--request-memory: must be at least 64KiB");
    if (c->memory_limit == 0) return WEFT_OK;
    uint32_t n = sup->n_workers;
    struct weft_eng_limit limit = {
        .bytes = c->memory_limit,
        .n_terms = 5,
        .terms = {
            {.name = "processes", .n = 1, .least_bytes = processes_bytes(n)},
            connections_term(c),
            {.name = "queue",
             .flag = "--max-queue",
             .n = 1,
             .least_bytes = c->max_queue * QUEUED_BYTES},
            {.name = "responses",
             .flag = "--responses-store",
             .n = 1,
             .least_bytes = c->responses_bytes},
            requests_term(c, REQUESTS_COPIES + REQUESTS_COPIES_OF_WORKER * n),
        }};
    set_bounds(c, &limit.terms[4], &limit.terms[1]);
    if (c->max_body_bytes > c->request_memory / 4)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--max-body is more than a quarter of --request-memory: such requests "
                            "might never be taken");
    c->memory_terms = weft_memory_terms_print(&limit, sup->memory_terms);
    return WEFT_OK;
}
