/* adapters — which LoRA adapters the workers have, and who asked for them.
 *
 * Model    Routers ask for adapters; every worker is to load each. One that all workers there have is
 *          ready, and requests may name it. One that a worker cannot load is forgotten everywhere. A
 *          worker that comes anew loads all of them before it gets plans: what it continues may need
 *          them. So it is with one that a router knows already, if it asks once the worker is there:
 *          a scheduler that comes anew may hear of its workers first. An adapter that no router
 *          asks for any more is taken away when no request has it; if the last one is gone not
 *          before WEFT_SCHED_ADAPTER_GRACE_US: it may start anew, and ask again.
 * Prefixes Blocks of the cache belong to the adapters they were computed with: their digests and
 *          strengths go into the salt of requests.
 * Pure     No clock, socket or thread, like scheduler.h: what is to be sent is asked for.
 */
#ifndef WEFT_SCHEDULER_ADAPTERS_H
#define WEFT_SCHEDULER_ADAPTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/request.h"
#include "base/step.h"

#define WEFT_SCHED_ADAPTER_GRACE_US 5000000u
#define WEFT_SCHED_ROUTERS_MAX 256

enum weft_sched_adapter_state {
    WEFT_SCHED_ADAPTER_ABSENT, /* the worker was not told of it */
    WEFT_SCHED_ADAPTER_ASKED,
    WEFT_SCHED_ADAPTER_THERE,
};

struct weft_sched_adapter {
    uint64_t id;
    struct weft_digest digest; /* zeroes: not known yet */
    uint64_t bytes;
    char *path;          /* owned */
    uint32_t n_routers;  /* that ask for it, */
    uint64_t unasked_us; /* or since when none does, */
    bool may_return;     /* and the last one may start anew, and ask again */
    bool asks[WEFT_SCHED_ROUTERS_MAX], is_untold[WEFT_SCHED_ROUTERS_MAX];
    uint8_t groups[WEFT_WORKERS_MAX];  /* enum weft_sched_adapter_state */
    bool is_awaited[WEFT_WORKERS_MAX]; /* the worker gets no plans before it has it */
};

struct weft_sched_adapters {
    uint32_t n, n_groups;
    struct weft_sched_adapter *items; /* [WEFT_LORAS_MAX], by no order */
    bool is_serving[WEFT_WORKERS_MAX];
    uint32_t n_awaited[WEFT_WORKERS_MAX];
};

WEFT_MUST_CHECK weft_err weft_sched_adapters_init(struct weft_sched_adapters *adapters,
                                                  uint32_t n_groups);
void weft_sched_adapters_fini(struct weft_sched_adapters *adapters);

/* A router asks for one. INVAL: the path or the digest is another than before; FULL, NOMEM. */
WEFT_MUST_CHECK weft_err weft_sched_adapters_ask(struct weft_sched_adapters *adapters,
                                                 uint32_t router, uint64_t id,
                                                 const struct weft_digest *digest, const char *path,
                                                 struct weft_errmsg *why);
/* It does so no more; UINT64_MAX: it is gone. */
void weft_sched_adapters_unask(struct weft_sched_adapters *adapters, uint32_t router, uint64_t id,
                               uint64_t now_us);

/* A group's worker is there, or gone. */
void weft_sched_adapters_came(struct weft_sched_adapters *adapters, uint32_t group);
void weft_sched_adapters_went(struct weft_sched_adapters *adapters, uint32_t group);
/* Whether it has all that it must have before it gets plans. */
bool weft_sched_adapters_may_plan(const struct weft_sched_adapters *adapters, uint32_t group);

/* What the group's worker is to be told next; NULL: nothing. It counts as told. */
const struct weft_sched_adapter *weft_sched_adapters_next(struct weft_sched_adapters *adapters,
                                                          uint32_t group);
/* The worker has it. NULL: nobody waits for that any more; false in *fits_out: it is not what others
 * have, and is to be forgotten. */
struct weft_sched_adapter *weft_sched_adapters_loaded(struct weft_sched_adapters *adapters,
                                                      uint32_t group, uint64_t id,
                                                      const struct weft_digest *digest,
                                                      uint64_t bytes, bool *fits_out);

/* One that is ready and of which a router has not heard, which counts as told. NULL: none. */
const struct weft_sched_adapter *weft_sched_adapters_news(struct weft_sched_adapters *adapters,
                                                          uint32_t *router_out);

struct weft_sched_adapter *weft_sched_adapters_find(const struct weft_sched_adapters *adapters,
                                                    uint64_t id);
/* One for which nobody has asked for so long; NULL: none. `after` NULL: from the first on. */
struct weft_sched_adapter *weft_sched_adapters_unwanted(const struct weft_sched_adapters *adapters,
                                                        const struct weft_sched_adapter *after,
                                                        uint64_t now_us);
void weft_sched_adapters_forget(struct weft_sched_adapters *adapters,
                                struct weft_sched_adapter *adapter);

/* Puts a request's adapters into its salt. INVAL: one is not ready. */
WEFT_MUST_CHECK weft_err weft_sched_adapters_salt(const struct weft_sched_adapters *adapters,
                                                  struct weft_submit *submit,
                                                  struct weft_errmsg *why);

#endif
