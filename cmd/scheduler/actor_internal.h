/* The scheduler actor: weft_sched (lib/scheduler) decides, this folder carries its messages.
 *
 * One thread owns everything here. Routers come in through the hub, each worker through a link of
 * its own; main.c turns the wheel: take in, tick, tell, plan.
 *
 * A group is a worker with all of the model, and what is planned for it: a weft_sched with queue,
 * blocks and epoch of its own. Groups are replicas of each other; which of them gets what is
 * decided in scheduler/groups.h.
 *
 *   group.c    one group: its worker's sessions and epochs, plans out, results in, is it alive
 *   routers.c  requests in, and to which group; answers, events and snapshots out
 *   pending.c  requests that came before any worker said what it serves
 */
#ifndef WEFT_SCHEDULER_ACTOR_INTERNAL_H
#define WEFT_SCHEDULER_ACTOR_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "common/config.h"
#include "link/link.h"
#include "proto/expert_rows.h"
#include "proto/proto.h"
#include "scheduler/groups.h"

#define WEFTI_SNAPSHOT_MS 250u
#define WEFTI_EXPERTS_TELL_MS 1000u
/* Requests that came before all groups had a worker wait so long for the others after the first:
 * spread over all, they are done sooner. */
#define WEFTI_GATHER_MS 500u

/* Events of one message. A step has one per row at most; should deadlines end more requests at
 * once, they go out in several messages. */
#define WEFTI_EVENTS_MAX WEFT_SEQS_MAX

/* A router hears of tokens at most so often, but of a request's end at once. With a small model and
 * one stream a step takes less, and what a message costs is most of what a token costs on its way
 * to the client. Events that are held go out with the next step's, or after so long. */
#define WEFTI_PACE_US 2000u
#define WEFTI_HELD_US_MAX 3000u

/* --------------------------------------------------------------------------------- pending --- */

/* Encoded Submits and Cancels in order of arrival. Bounded like the queue that they will enter, and
 * by bytes: four messages of the largest size. Resumed requests are known to the world already, so
 * only the bytes bound those. */
#define WEFTI_PENDING_BYTES_MAX (4ull * WEFT_MESSAGE_BYTES_MAX)

struct wefti_pending_item {
    TAILQ_ENTRY(wefti_pending_item) link;
    uint64_t arrived_us;
    uint64_t request_id;
    uint32_t peer;
    bool resume; /* a Submit that is resumed */
    size_t len;
    unsigned char bytes[];
};

struct wefti_pending {
    TAILQ_HEAD(, wefti_pending_item) items;
    uint32_t n_new; /* Submits that are not resumed, and Cancels */
    size_t n_bytes;
};

void wefti_pending_init(struct wefti_pending *pending);
void wefti_pending_fini(struct wefti_pending *pending);

/* Copies `head`, of which only arrival, request, peer and resume count, and the message. FULL:
 * `max_new` are there; TOOBIG: over the byte bound; NOMEM. */
WEFT_MUST_CHECK weft_err wefti_pending_add(struct wefti_pending *pending,
                                           const struct wefti_pending_item *head, const void *bytes,
                                           size_t len, uint32_t max_new);
/* Forgets a request of a peer; or everything of it. */
void wefti_pending_drop(struct wefti_pending *pending, uint32_t peer, uint64_t request_id);
void wefti_pending_drop_peer(struct wefti_pending *pending, uint32_t peer);
/* Takes out the oldest; the caller frees it. NULL: none. */
struct wefti_pending_item *wefti_pending_pop(struct wefti_pending *pending);

/* ----------------------------------------------------------------------------------- actor --- */

struct wefti_router {
    bool is_linked;
    bool said_hello;
    bool is_refused; /* another protocol version: not listened to until it comes anew */
    bool is_held;    /* events wait for those of the next step */
    uint64_t told_at_us;
};

struct wefti_worker {
    bool is_linked;
    bool is_refused; /* another protocol version: not listened to until it comes anew */
    uint32_t pid;
    uint64_t resident_bytes;
    uint64_t linked_at_ms;
};

struct wefti_group {
    char *url; /* where its worker comes */
    weft_link *link;
    struct wefti_worker worker;
    weft_proto_decoder *decoder;
    /* Within the actor's `replicas`. It is serving from the worker's hello on: it takes plans then.
     * Its scheduler is NULL until its first worker said hello; then `limits` hold. */
    struct weft_sched_group *replica;
    struct weft_sched_options limits;
    uint64_t epoch;
    bool had_work; /* after the last result: the worker's idling since then counts */
};

struct wefti_actor {
    struct weft_config config;
    uint64_t instance;
    uint64_t epoch; /* the last one; each that a group begins is a new one, over restarts too */
    bool draining;
    int exit_status;      /* >= 0: it is time to leave */
    uint64_t tick_ms;     /* when the wheel last turned */
    uint64_t alive_at_ms; /* the supervisor was told that it does */

    weft_link *hub; /* routers */
    struct wefti_router routers[WEFT_LINK_PEERS_MAX];
    uint32_t n_held;           /* routers whose events are held, */
    uint64_t held_until_us;    /* and until when; 0: none */
    uint64_t complained_at_ms; /* about a router that sends nonsense */
    weft_proto_decoder *router_decoder;
    struct wefti_pending pending;

    uint32_t n_groups;
    struct wefti_group groups[WEFT_WORKERS_MAX];
    struct weft_sched_groups replicas; /* the same groups, as far as decisions need them */
    bool has_model; /* a worker said hello; then `model` holds, of the shortest length of all */
    struct weft_model_info model;
    uint64_t has_model_at_ms;
    bool gathered; /* requests are not kept any more until a worker comes, but go to a group */

    struct weft_buf out;
    struct weft_event *events; /* [WEFTI_EVENTS_MAX] */

    /* Told by snapshots. */
    uint64_t snapshot_at_ms;
    bool told_serving, told_advancing, told_draining;
    WEFT_COUNTER_LIST(WEFT_COUNTER_NO_FIELD, WEFT_COUNTER_FIELD)
    uint64_t iter_tokens[WEFT_ITER_BUCKETS];

    /* Told after snapshots, which name the model. */
    struct weft_expert_rows experts;
    bool has_experts_news;
    uint64_t experts_at_ms;
};

/* ----------------------------------------------------------------------------------- group --- */

/* One group for each of the comma-separated addresses, listening. INVAL: none, or too many. */
WEFT_MUST_CHECK weft_err wefti_groups_init(struct wefti_actor *actor, const char *urls,
                                           struct weft_errmsg *why);
void wefti_groups_fini(struct wefti_actor *actor); /* accepts groups whose init failed anywhere */

/* Takes in what the worker sent; results become events and go out at once. */
void wefti_group_drain(struct wefti_actor *actor, struct wefti_group *group);
/* Sends plans while there are some to make. */
void wefti_group_plan(struct wefti_actor *actor, struct wefti_group *group);
/* Retries, and kills a worker that is stuck. `paused`: this process itself did not run for a while,
 * so that silence says nothing about the worker. */
void wefti_group_tick(struct wefti_group *group, uint64_t now_ms, bool paused);
/* Moves what waits for workers that are away to groups whose worker is there. */
void wefti_groups_move(struct wefti_actor *actor, uint64_t now_us);

/* --------------------------------------------------------------------------------- routers --- */

/* Takes in messages; true if there may be more: it stops now and then so that the worker never
 * waits for a flood of requests. */
bool wefti_routers_drain(struct wefti_actor *actor);
/* Lets the requests go that waited for the workers, once all are here or the time is over. */
void wefti_routers_gather(struct wefti_actor *actor, uint64_t now_ms);
/* Sends a group's events, one message per router. */
void wefti_routers_tell(struct wefti_actor *actor, struct wefti_group *group);
/* Sends what was held back, if its time has come. */
void wefti_routers_flush(struct wefti_actor *actor, uint64_t now_us);
/* Sends a snapshot to all if it is time or health changed. */
void wefti_routers_snapshot(struct wefti_actor *actor, uint64_t now_ms);

#endif
