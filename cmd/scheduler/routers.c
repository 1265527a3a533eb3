/* The routers' side of the scheduler. A router's requests belong to its session: when that ends
 * they are dropped, and a router that is still alive submits them again. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actor_internal.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"

/* Messages of routers taken in before it is the worker's turn again. */
#define MESSAGES_PER_TURN 64

/* Ends a faulty router's session. It may come back a few times a second, so the log, which must
 * not fill the disk, tells of it rarely. */
static void start_over(struct wefti_actor *a, uint32_t peer, const char *because) {
    weft_log(weft_log_rarely(WEFT_LOG_ERROR, weft_now_ms(), &a->quiet_until_ms),
             "starting over with router %u: %s", peer, because);
    weft_link_reset(a->hub, peer);
}

/* -------------------------------------------------------------------------------- requests --- */

static void reject(struct wefti_actor *a, uint32_t peer, const struct weft_submit *submit,
                   enum weft_reject reason, uint32_t retry_after_ms, const char *text) {
    struct weft_msg msg = {.type = WEFT_MSG_REJECTED};
    msg.rejected = (struct weft_rejection){
        .request_id = submit->request_id,
        .attempt = submit->attempt,
        .reason = reason,
        .retry_after_ms = retry_after_ms,
        .text = text,
    };
    wefti_router_send(a, peer, &msg);
}

/* `waited_us`: since it arrived here. */
static void submit(struct wefti_actor *a, uint32_t peer, struct weft_submit *s,
                   uint64_t waited_us) {
    if (s->deadline_us)
        s->deadline_us = s->deadline_us > waited_us ? s->deadline_us - waited_us : 1;
    s->age_us += waited_us;
    struct weft_errmsg why = {""};
    uint32_t retry_after_ms = 0;
    if (weft_sched_adapters_salt(&a->adapters, s, &why)) {
        reject(a, peer, s, WEFT_REJECT_INVALID, 0, why.text);
        return;
    }
    enum weft_reject no =
        weft_sched_groups_submit(&a->replicas, weft_now_us(), peer, s, &retry_after_ms, &why);
    if (no != WEFT_REJECT_NONE) {
        reject(a, peer, s, no, retry_after_ms, why.text);
        return;
    }
    struct weft_msg msg = {.type = WEFT_MSG_ACCEPTED};
    msg.accepted = (struct weft_msg_accepted){.request_id = s->request_id, .attempt = s->attempt};
    wefti_router_send(a, peer, &msg);
}

static void cancel(struct wefti_actor *a, uint32_t peer, const struct weft_msg_cancel *m) {
    struct weft_sched_key key = {
        .router = peer, .attempt = m->attempt, .request_id = m->request_id};
    for (uint32_t i = 0; i < a->n_groups; i++) {
        weft_sched *sched = a->groups[i].replica->sched;
        if (sched) weft_sched_cancel(sched, weft_now_us(), &key, m->choice);
    }
}

static void reset_cache(struct wefti_actor *a, uint32_t peer) {
    weft_debug("router %u: cached prefixes are forgotten", peer); /* anybody may ask, and often */
    for (uint32_t i = 0; i < a->n_groups; i++) {
        weft_sched *sched = a->groups[i].replica->sched;
        if (sched) weft_sched_reset_cache(sched);
    }
}

static weft_err keep(struct wefti_actor *a, const struct weft_link_event *event,
                     uint64_t request_id, bool resume) {
    struct wefti_pending_item head = {.arrived_us = weft_now_us(),
                                      .request_id = request_id,
                                      .peer = event->peer,
                                      .resume = resume};
    return wefti_pending_add(&a->pending, &head, event->bytes, event->len, a->config.max_queue);
}

/* Keeps a request until workers are there; it is answered then. */
static void keep_submit(struct wefti_actor *a, const struct weft_link_event *event,
                        const struct weft_submit *m) {
    if (a->draining && !m->resume) {
        reject(a, event->peer, m, WEFT_REJECT_DRAINING, 0, "the server is shutting down");
        return;
    }
    wefti_pending_drop(&a->pending, event->peer, m->request_id); /* an earlier attempt */
    weft_err err = keep(a, event, m->request_id, m->resume);
    if (err == WEFT_E_FULL) {
        reject(a, event->peer, m, WEFT_REJECT_QUEUE_FULL, 1000,
               "too many requests wait for the model to be loaded");
    } else if (err) {
        reject(a, event->peer, m, WEFT_REJECT_NO_MEMORY, 1000,
               "no memory to keep the request until the model is loaded");
    }
}

static void keep_cancel(struct wefti_actor *a, const struct weft_link_event *event,
                        const struct weft_msg_cancel *m) {
    if (m->choice == UINT32_MAX) {
        wefti_pending_drop(&a->pending, event->peer, m->request_id);
        return;
    }
    weft_err err = keep(a, event, m->request_id, false);
    if (err) weft_warn("router %u: a cancel is lost: %s", event->peer, weft_err_text(err));
}

static bool all_serve(const struct wefti_actor *a) {
    for (uint32_t i = 0; i < a->n_groups; i++) {
        if (!a->groups[i].replica->is_serving) return false;
    }
    return true;
}

void wefti_routers_gather(struct wefti_actor *a, uint64_t now_ms) {
    if (a->gathered || !a->has_model) return;
    if (!all_serve(a) && now_ms - a->has_model_at_ms < WEFTI_GATHER_MS) return;
    a->gathered = true;
    struct wefti_pending_item *item = NULL;
    while ((item = wefti_pending_pop(&a->pending))) {
        struct weft_msg msg;
        struct weft_errmsg why = {""};
        weft_err err = weft_proto_decode(a->router_decoder, item->bytes, item->len, &msg, &why);
        if (err) { /* it decoded before: memory is out */
            start_over(a, item->peer, why.text);
        } else if (msg.type == WEFT_MSG_SUBMIT) {
            submit(a, item->peer, &msg.submit, weft_now_us() - item->arrived_us);
        } else {
            cancel(a, item->peer, &msg.cancel);
        }
        free(item);
    }
}

/* -------------------------------------------------------------------------------- sessions --- */

static void add_ranks(const struct wefti_worker *worker, uint32_t group,
                      struct weft_msg_snapshot *snap) {
    for (uint32_t i = 0; i < worker->n_ranks; i++) {
        snap->worker_resident_bytes += worker->ranks[i].resident_bytes;
        if (snap->n_ranks == WEFT_RANKS_TOLD_MAX) continue;
        snap->ranks[snap->n_ranks++] =
            (struct weft_rank_told){.group = group, .rank = i, .figures = worker->ranks[i]};
    }
}

static void add_group(const struct wefti_group *g, struct weft_msg_snapshot *snap) {
    snap->n_workers_serving += g->replica->is_serving;
    if (!g->replica->sched) return;
    struct weft_sched_stats stats;
    weft_sched_stats(g->replica->sched, &stats);
    snap->n_waiting += stats.n_waiting;
    snap->n_running += stats.n_running;
    snap->n_blocks += stats.n_blocks;
    snap->n_blocks_free += stats.n_blocks_free;
    snap->n_blocks_cached += stats.n_blocks_idle;
    snap->n_window_blocks += stats.n_window_blocks;
    snap->n_window_blocks_free += stats.n_window_blocks_free;
    snap->spill_bytes += stats.spill_bytes;
    snap->n_sessions += stats.n_sessions;
    snap->n_session_blocks += stats.n_session_blocks;
    snap->n_checkpoints_held += stats.n_checkpoints_held;
#define ADD(name, ...) snap->name += stats.name;
#define PASS_OVER(...)
    WEFT_COUNTER_LIST(ADD, PASS_OVER)
#undef PASS_OVER
#undef ADD
}

/* What there is room for is divided evenly among the groups; one that needs less leaves the rest to
 * those after it. */
static void fill_activity(struct wefti_actor *a, struct weft_activity *activity) {
    uint64_t now_us = weft_now_us();
    *activity = (struct weft_activity){.steps = a->told_steps, .seqs = a->told_seqs};
    activity->n_steps = weft_activity_ring_list(&a->last_steps, now_us, a->told_steps);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        const weft_sched *sched = a->groups[i].replica->sched;
        if (!sched) continue;
        struct weft_activity_seq *seqs = a->told_seqs + activity->n_seqs;
        uint32_t room = (WEFT_ACTIVITY_SEQS_MAX - activity->n_seqs) / (a->n_groups - i);
        uint32_t n = weft_sched_list(sched, now_us, seqs, room);
        for (uint32_t k = 0; k < n; k++)
            seqs[k].group = i;
        struct weft_sched_stats stats;
        weft_sched_stats(sched, &stats);
        activity->n_seqs += n;
        activity->n_seqs_omitted += stats.n_running_seqs + stats.n_waiting_seqs - n;
    }
}

static void fill_snapshot(struct wefti_actor *a, struct weft_msg_snapshot *snap) {
    *snap = (struct weft_msg_snapshot){
        .serving = a->told_serving,
        .advancing = a->told_advancing,
        .draining = a->told_draining,
        .has_model = a->has_model,
        .model = a->model,
        .max_queue = a->config.max_queue,
        .sched_resident_bytes = weft_mem_resident_bytes(),
        .sched_pid = (uint32_t)getpid(),
        .n_workers = a->n_groups,
    };
#define PASS_OVER(...)
#define COPY(name, ...) snap->name = a->name;
    WEFT_COUNTER_LIST(PASS_OVER, COPY)
#undef COPY
#undef PASS_OVER
    memcpy(snap->iter_tokens, a->iter_tokens, sizeof snap->iter_tokens);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        add_ranks(&a->groups[i].worker, i, snap);
        add_group(&a->groups[i], snap);
    }
    snap->n_rejected -= a->replicas.n_passed_on;
    fill_activity(a, &snap->activity);
}

static void send_experts(struct wefti_actor *a, uint32_t peer) {
    const struct weft_expert_rows *rows = &a->experts;
    if (rows->n_layers == 0) return;
    struct weft_msg msg = {.type = WEFT_MSG_EXPERTS};
    msg.experts = (struct weft_msg_experts){.n_layers = rows->n_layers,
                                            .n_experts = rows->n_experts,
                                            .layers = rows->layers,
                                            .rows = rows->sums};
    wefti_router_send(a, peer, &msg);
}

static void begin_session(struct wefti_actor *a, uint32_t peer) {
    wefti_router_release(a, peer);
    a->routers[peer] = (struct wefti_router){.is_linked = true};
    struct weft_msg hello = {.type = WEFT_MSG_SCHED_HELLO};
    hello.sched_hello = (struct weft_msg_sched_hello){
        .version = WEFT_PROTO_VERSION,
        .instance = a->instance,
        .epoch = a->epoch,
        .pid = (uint32_t)getpid(),
    };
    wefti_router_send(a, peer, &hello);
    struct weft_msg snapshot = {.type = WEFT_MSG_SNAPSHOT};
    fill_snapshot(a, &snapshot.snapshot);
    snapshot.snapshot.activity.router = peer;
    wefti_router_send(a, peer, &snapshot);
    send_experts(a, peer);
}

static void end_session(struct wefti_actor *a, uint32_t peer) {
    if (a->routers[peer].said_hello) weft_info("router %u is gone", peer);
    wefti_router_release(a, peer);
    weft_sched_adapters_unask(&a->adapters, peer, UINT64_MAX, weft_now_us());
    a->routers[peer] = (struct wefti_router){0};
    wefti_pending_drop_peer(&a->pending, peer);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        weft_sched *sched = a->groups[i].replica->sched;
        if (sched) weft_sched_router_lost(sched, weft_now_us(), peer);
    }
}

static void take_hello(struct wefti_router *router, uint32_t peer,
                       const struct weft_msg_router_hello *hello) {
    if (hello->version == WEFT_PROTO_VERSION) {
        router->said_hello = true;
        weft_info("router %u (pid %u) is here", peer, hello->pid);
        return;
    }
    router->is_refused = true; /* it would say the same again; one of the two gets replaced */
    weft_error("a router speaks protocol version %u, this scheduler %u: it is not listened to",
               hello->version, WEFT_PROTO_VERSION);
}

static weft_err take_message(struct wefti_actor *a, const struct weft_link_event *event,
                             struct weft_errmsg *why) {
    struct wefti_router *router = &a->routers[event->peer];
    struct weft_msg msg;
    weft_err err = weft_proto_decode(a->router_decoder, event->bytes, event->len, &msg, why);
    if (err) return err;
    if ((msg.type == WEFT_MSG_ROUTER_HELLO) == router->said_hello) {
        return weft_err_set(why, WEFT_E_PROTO, "a %s %s", weft_proto_type_name(msg.type),
                            router->said_hello ? "twice" : "before the hello");
    }
    switch (msg.type) {
    case WEFT_MSG_ROUTER_HELLO:
        take_hello(router, event->peer, &msg.router_hello);
        return WEFT_OK;
    case WEFT_MSG_SUBMIT:
        if (a->gathered) {
            submit(a, event->peer, &msg.submit, 0);
        } else {
            keep_submit(a, event, &msg.submit);
        }
        return WEFT_OK;
    case WEFT_MSG_CANCEL:
        if (a->gathered) {
            cancel(a, event->peer, &msg.cancel);
        } else {
            keep_cancel(a, event, &msg.cancel);
        }
        return WEFT_OK;
    case WEFT_MSG_SESSION:
        wefti_sessions_ask(a, event->peer, &msg.session);
        return WEFT_OK;
    case WEFT_MSG_RESET_CACHE:
        reset_cache(a, event->peer);
        return WEFT_OK;
    case WEFT_MSG_ADD_LORA:
        wefti_adapters_ask(a, event->peer, &msg.add_lora);
        return WEFT_OK;
    case WEFT_MSG_REMOVE_LORA:
        weft_sched_adapters_unask(&a->adapters, event->peer, msg.remove_lora.id, weft_now_us());
        return WEFT_OK;
    default:
        return weft_err_set(why, WEFT_E_PROTO, "a router sends no %s",
                            weft_proto_type_name(msg.type));
    }
}

bool wefti_routers_drain(struct wefti_actor *a) {
    struct weft_link_event event;
    for (uint32_t n = 0; n < MESSAGES_PER_TURN; n++) {
        if (!weft_link_next(a->hub, weft_now_ms(), &event)) return false;
        WEFT_ASSERT(event.peer < WEFT_LINK_PEERS_MAX);
        struct weft_errmsg why = {""};
        switch (event.kind) {
        case WEFT_LINK_UP:
            begin_session(a, event.peer);
            break;
        case WEFT_LINK_DOWN:
            end_session(a, event.peer);
            break;
        case WEFT_LINK_MESSAGE:
            if (!a->routers[event.peer].is_refused && take_message(a, &event, &why)) {
                start_over(a, event.peer, why.text);
            }
            break;
        }
    }
    return true;
}

/* --------------------------------------------------------------------------------- telling --- */

static void send_events(struct wefti_actor *a, uint32_t peer, uint32_t n) {
    struct weft_msg msg = {.type = WEFT_MSG_EVENTS};
    msg.events = (struct weft_msg_events){.n = n, .events = a->events};
    wefti_router_send(a, peer, &msg);
}

/* Sends the events for `peer`, from events[from] on: earlier ones are for others. */
static void tell_router(struct wefti_actor *a, uint32_t peer, const struct weft_sched_event *events,
                        size_t from, size_t n_events) {
    uint32_t n = 0;
    for (size_t i = from; i < n_events; i++) {
        if (events[i].router != peer) continue;
        a->events[n++] = events[i].event;
        if (n < WEFTI_EVENTS_MAX) continue;
        send_events(a, peer, n);
        n = 0;
    }
    if (n) send_events(a, peer, n);
}

/* A stream's first token or its end, which somebody waits for. */
static bool is_urgent(const struct weft_event *event) {
    bool is_first = event->sampled && event->output_idx == 0;
    return is_first || event->end != WEFT_END_NONE;
}

/* Whether a router may be told of these events later: it was told of others a moment ago, none is
 * urgent, and the result of a step under way will send them. */
static bool may_wait(const struct wefti_actor *a, const struct wefti_group *g, uint32_t peer,
                     const struct weft_sched_event *events, size_t n, uint64_t now_us) {
    struct weft_sched_stats stats;
    if (now_us - a->routers[peer].told_at_us >= WEFTI_PACE_US) return false;
    for (size_t i = 0; i < n; i++) {
        if (events[i].router == peer && is_urgent(&events[i].event)) return false;
    }
    weft_sched_stats(g->replica->sched, &stats);
    return stats.n_plans_out > 0;
}

static void hold_or_release(struct wefti_actor *a, uint32_t peer, bool hold, uint64_t now_us) {
    struct wefti_router *router = &a->routers[peer];
    if (!hold) {
        router->told_at_us = now_us;
        return;
    }
    if (!router->is_held) {
        weft_link_cork(a->hub, peer, true);
        a->n_held++;
    }
    router->is_held = true;
    uint64_t until_us = router->told_at_us + WEFTI_HELD_US_MAX;
    if (a->held_until_us == 0 || until_us < a->held_until_us) a->held_until_us = until_us;
}

void wefti_routers_flush(struct wefti_actor *a, uint64_t now_us) {
    if (a->n_held == 0 || now_us < a->held_until_us) return;
    for (uint32_t peer = 0; peer < WEFT_LINK_PEERS_MAX; peer++) {
        if (!a->routers[peer].is_held) continue;
        a->routers[peer].told_at_us = now_us;
        wefti_router_release(a, peer);
    }
}

void wefti_routers_tell(struct wefti_actor *a, struct wefti_group *g) {
    size_t n = 0;
    const struct weft_sched_event *events = weft_sched_events(g->replica->sched, &n);
    if (n == 0) return;
    bool is_told[WEFT_LINK_PEERS_MAX] = {false};
    uint64_t now_us = weft_now_us();
    for (size_t i = 0; i < n; i++) {
        uint32_t peer = events[i].router;
        WEFT_ASSERT(peer < WEFT_LINK_PEERS_MAX);
        if (is_told[peer]) continue;
        is_told[peer] = true;
        bool hold = may_wait(a, g, peer, events, n, now_us);
        hold_or_release(a, peer, hold, now_us);
        tell_router(a, peer, events, i, n);
        if (!hold) wefti_router_release(a, peer);
    }
    weft_sched_events_clear(g->replica->sched);
}

void wefti_routers_snapshot(struct wefti_actor *a, uint64_t now_ms) {
    bool serving = weft_sched_groups_serve(&a->replicas);
    bool advancing = weft_sched_groups_advance(&a->replicas, now_ms);
    bool is_news = serving != a->told_serving || advancing != a->told_advancing ||
                   a->draining != a->told_draining;
    if (!is_news && now_ms - a->snapshot_at_ms < WEFTI_SNAPSHOT_MS) return;
    a->snapshot_at_ms = now_ms;
    a->told_serving = serving;
    a->told_advancing = advancing;
    a->told_draining = a->draining;
    struct weft_msg msg = {.type = WEFT_MSG_SNAPSHOT};
    fill_snapshot(a, &msg.snapshot);
    bool tells_experts = a->has_experts_news && now_ms - a->experts_at_ms >= WEFTI_EXPERTS_TELL_MS;
    for (uint32_t peer = 0; peer < WEFT_LINK_PEERS_MAX; peer++) {
        if (!a->routers[peer].is_linked) continue;
        msg.snapshot.activity.router = peer;
        wefti_router_send(a, peer, &msg);
        if (tells_experts) send_experts(a, peer);
    }
    if (!tells_experts) return;
    a->has_experts_news = false;
    a->experts_at_ms = now_ms;
}
