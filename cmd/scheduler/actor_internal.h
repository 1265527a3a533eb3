/* The scheduler actor: weft_sched (lib/scheduler) decides, this folder carries its messages.
 *
 * One thread owns everything here. Routers come in through the hub, each worker through a link of
 * its own.
 *
 * A group is a worker with the whole model, and what is planned for it: a weft_sched with queue,
 * blocks and epoch of its own. Groups are replicas of each other; scheduler/groups.h decides which
 * of them gets a request.
 *
 *   main.c     the loop, and signals
 *   turn.c     what it does each time: take in, tick, tell, plan
 *   group.c    one group: its worker's sessions and epochs, plans out, results in, is it alive
 *   routers.c  requests in, and to which group; answers, events and snapshots out
 *   adapters.c adapters that routers ask for and workers load
 *   pending.c  requests that came before any worker said what it serves
 */
#ifndef WEFT_SCHEDULER_ACTOR_INTERNAL_H
#define WEFT_SCHEDULER_ACTOR_INTERNAL_H

#include <poll.h>
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
#include "scheduler/adapters.h"
#include "scheduler/groups.h"
#include "scheduler/sessions.h"

#define WEFTI_SNAPSHOT_MS 250u
#define WEFTI_EXPERTS_TELL_MS 1000u
/* After the first worker comes, early requests wait this long for the others: spread over all
 * groups they finish sooner. */
#define WEFTI_GATHER_MS 500u

/* Events of one message. A step has one per row at most; if deadlines end more requests at once,
 * they go out in several messages. */
#define WEFTI_EVENTS_MAX WEFT_SEQS_MAX

/* A router is told of tokens at most this often, but of a request's end at once. With a small model
 * and one stream a step takes less time, and messages are most of a token's cost on its way to the
 * client. Held events go out with the next step's, or after this time. */
#define WEFTI_PACE_US 2000u
#define WEFTI_HELD_US_MAX 3000u

/* --------------------------------------------------------------------------------- pending --- */

/* Encoded Submits and Cancels in order of arrival. Bounded like the queue that they will enter, and
 * by bytes: four messages of the largest size. Resumed requests were accepted before, so only the
 * byte bound holds for them. */
#define WEFTI_PENDING_BYTES_MAX (4ull * WEFT_MESSAGE_BYTES_MAX)

struct wefti_pending_item {
    TAILQ_ENTRY(wefti_pending_item) link;
    uint64_t arrived_us;
    uint64_t request_id;
    uint32_t peer;
    bool resume; /* a resumed Submit */
    size_t len;
    unsigned char bytes[];
};

struct wefti_pending {
    TAILQ_HEAD(, wefti_pending_item) items;
    uint32_t n_new; /* Submits not resumed, and Cancels */
    size_t n_bytes;
};

void wefti_pending_init(struct wefti_pending *pending);
void wefti_pending_fini(struct wefti_pending *pending);

/* Copies the message, and arrival, request, peer and resume of `head`. FULL: `max_new` are there;
 * TOOBIG: over the byte bound; NOMEM. */
WEFT_MUST_CHECK weft_err wefti_pending_add(struct wefti_pending *pending,
                                           const struct wefti_pending_item *head, const void *bytes,
                                           size_t len, uint32_t max_new);
/* Drops a request of a peer, or everything of the peer. */
void wefti_pending_drop(struct wefti_pending *pending, uint32_t peer, uint64_t request_id);
void wefti_pending_drop_peer(struct wefti_pending *pending, uint32_t peer);
/* Takes out the oldest; the caller frees it. NULL: none. */
struct wefti_pending_item *wefti_pending_pop(struct wefti_pending *pending);

/* ----------------------------------------------------------------------------------- actor --- */

struct wefti_router {
    bool is_linked;
    bool said_hello;
    bool is_refused; /* another protocol version: ignored until it connects anew */
    bool is_held;    /* events wait for those of the next step */
    uint64_t told_at_us;
};

struct wefti_worker {
    bool is_linked;
    bool is_refused; /* another protocol version: ignored until it connects anew */
    uint32_t pid;
    uint32_t n_ranks; /* by its last heartbeat; 0: none came */
    struct weft_rank_figures ranks[WEFT_RANKS_MAX];
    uint32_t awaited_rank, awaited_pid; /* likewise */
    uint64_t linked_at_ms;
};

struct wefti_group {
    char *url; /* where its worker connects */
    weft_link *link;
    struct wefti_worker worker;
    uint64_t quiet_until_ms; /* about workers that send nonsense */
    weft_proto_decoder *decoder;
    /* In the actor's `replicas`. It serves, and takes plans, from the worker's hello on. Its
     * scheduler is NULL until its first worker says hello; from then on `limits` hold. */
    struct weft_sched_group *replica;
    struct weft_sched_options limits;
    uint64_t epoch;
    bool had_work; /* after the last result: the worker's idle time since then counts */
};

struct wefti_actor {
    struct weft_config config;
    uint64_t instance;
    uint64_t epoch; /* the last one begun; never used twice, even over restarts */
    bool draining;
    int signal_fd;
    int exit_status;      /* >= 0: exit with it */
    uint64_t tick_ms;     /* when the loop last turned */
    uint64_t alive_at_ms; /* when the supervisor was last told so */

    weft_link *hub; /* routers */
    struct wefti_router routers[WEFT_LINK_PEERS_MAX];
    uint32_t n_held;         /* routers whose events are held, */
    uint64_t held_until_us;  /* and until when; 0: none */
    uint64_t quiet_until_ms; /* about routers that send nonsense */
    weft_proto_decoder *router_decoder;
    struct wefti_pending pending;

    uint32_t n_groups;
    struct wefti_group groups[WEFT_WORKERS_MAX];
    struct weft_sched_groups replicas; /* the groups' part that decisions need */
    struct weft_sched_adapters adapters;
    bool has_model; /* a worker said hello; `model` then holds, with the shortest length of all */
    struct weft_model_info model;
    uint64_t has_model_at_ms;
    bool gathered; /* requests go to a group, and are not kept for a worker to come */

    struct weft_buf out;
    struct weft_event *events; /* [WEFTI_EVENTS_MAX] */

    /* Sent in snapshots. */
    uint64_t snapshot_at_ms;
    bool told_serving, told_advancing, told_draining;
    WEFT_COUNTER_LIST(WEFT_COUNTER_NO_FIELD, WEFT_COUNTER_FIELD)
    uint64_t iter_tokens[WEFT_ITER_BUCKETS];
    struct weft_activity_ring last_steps; /* of all groups */
    struct weft_activity_step told_steps[WEFT_ACTIVITY_STEPS_MAX];
    struct weft_activity_seq told_seqs[WEFT_ACTIVITY_SEQS_MAX];

    /* Sent after snapshots, which name the model. */
    struct weft_expert_rows experts;
    bool has_experts_news;
    uint64_t experts_at_ms;
};

/* ------------------------------------------------------------------------------------ turn --- */

/* `config` is set, all else zero. */
WEFT_MUST_CHECK weft_err wefti_actor_init(struct wefti_actor *actor, struct weft_errmsg *why);
void wefti_actor_fini(struct wefti_actor *actor); /* accepts an actor whose init failed anywhere */

/* Takes in what the routers sent, if something came, and what those workers sent whose descriptors
 * have events; then does all that it is time for. True: routers have more to say. */
bool wefti_actor_turn(struct wefti_actor *actor, bool from_hub, const struct pollfd *group_fds);

/* The next turn is due after this time, even if nothing comes. */
uint64_t wefti_actor_wait_us(const struct wefti_actor *actor);

/* ----------------------------------------------------------------------------------- group --- */

/* Makes a listening group for each of the comma-separated addresses. INVAL: none, or too many. */
WEFT_MUST_CHECK weft_err wefti_groups_init(struct wefti_actor *actor, const char *urls,
                                           struct weft_errmsg *why);
void wefti_groups_fini(struct wefti_actor *actor); /* accepts groups whose init failed anywhere */

/* False: the link ends the session, and the message is lost; a DOWN follows. */
bool wefti_group_send(struct wefti_actor *actor, struct wefti_group *group,
                      const struct weft_msg *msg);
/* Takes in what the worker sent; results become events and go out at once. */
void wefti_group_drain(struct wefti_actor *actor, struct wefti_group *group);
/* Sends plans while there are some to make. */
void wefti_group_plan(struct wefti_actor *actor, struct wefti_group *group);
/* Retries, and kills a stuck worker. `paused`: this process did not run for a while, so silence
 * says nothing about the worker. */
void wefti_group_tick(struct wefti_group *group, uint64_t now_ms, bool paused);
/* Moves requests that wait for absent workers to groups whose worker is there. */
void wefti_groups_move(struct wefti_actor *actor, uint64_t now_us);

/* -------------------------------------------------------------------------------- sessions --- */

/* Answers at once, or once a group has done what a router asks of sessions. */
void wefti_sessions_ask(struct wefti_actor *actor, uint32_t peer,
                        const struct weft_session_wish *wish);
/* Sends the worker what it is to do with files next, and routers what is done. */
void wefti_sessions_pump(struct wefti_actor *actor, struct wefti_group *group);

/* --------------------------------------------------------------------------------- routers --- */

/* Sends a message; events held for the router go out with it. */
void wefti_router_send(struct wefti_actor *actor, uint32_t peer, const struct weft_msg *msg);
/* Those that are held go out now. */
void wefti_router_release(struct wefti_actor *actor, uint32_t peer);

/* Takes in messages; true if there may be more: it stops after some, so that the worker never waits
 * for a flood of requests. */
bool wefti_routers_drain(struct wefti_actor *actor);
/* Releases requests that waited for workers, once all workers are here or the time is over. */
void wefti_routers_gather(struct wefti_actor *actor, uint64_t now_ms);
/* Sends a group's events, one message per router. */
void wefti_routers_tell(struct wefti_actor *actor, struct wefti_group *group);
/* Sends held events, if their time has come. */
void wefti_routers_flush(struct wefti_actor *actor, uint64_t now_us);
/* Sends a snapshot to all routers if it is time or health changed. */
void wefti_routers_snapshot(struct wefti_actor *actor, uint64_t now_ms);

/* -------------------------------------------------------------------------------- adapters --- */

_Static_assert(WEFT_LINK_PEERS_MAX <= WEFT_SCHED_ROUTERS_MAX, "each router may ask for adapters");

/* A router asks for one; a worker answers. */
void wefti_adapters_ask(struct wefti_actor *actor, uint32_t peer,
                        const struct weft_msg_add_lora *msg);
void wefti_adapters_answer(struct wefti_actor *actor, struct wefti_group *group,
                           const struct weft_msg_lora *msg);
/* Once a turn, before plans: what workers and routers are to hear. */
void wefti_adapters_turn(struct wefti_actor *actor);

#endif
