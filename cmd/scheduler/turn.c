/* What the scheduler does once per turn of its loop, without waiting for anything.
 *
 * A turn takes in messages, ends requests over their deadline, tells the routers, and sends plans
 * while there are some to make. A result is answered with the next plan in the same turn, so that
 * the worker has one more plan while this process computes.
 */
#include <stdlib.h>
#include <time.h>

#include "actor_internal.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/rand.h"
#include "common/link_config.h"
#include "common/status.h"

/* A busy scheduler turns with each result as well; what ticks alone find out, such as a deadline of a
 * request that waits, may be as late. */
#define TICK_MS 100u
/* A turn takes milliseconds; a longer gap means that this process was stopped. */
#define PAUSED_MS 2000u

/* The first epoch, which grows from one start of a scheduler to the next on one host. */
static uint64_t first_epoch(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

weft_err wefti_actor_init(struct wefti_actor *a, struct weft_errmsg *why) {
    a->instance = weft_rand_seed();
    a->epoch = first_epoch();
    a->exit_status = -1;
    a->told_advancing = true;
    a->tick_ms = weft_now_ms();
    wefti_pending_init(&a->pending);
    weft_buf_init(&a->out, WEFT_MESSAGE_BYTES_MAX);
    a->events = calloc(WEFTI_EVENTS_MAX, sizeof a->events[0]);
    if (!a->events) return weft_err_set(why, WEFT_E_NOMEM, "no memory for events");
    weft_err err = weft_proto_decoder_new(&a->router_decoder);
    if (err) return weft_err_set(why, err, "no memory for decoders");
    struct weft_link_options options = weft_link_config(&a->config);
    err = weft_link_listen(WEFT_LINK_MANY_PEERS, a->config.scheduler_url, &options, &a->hub, why);
    if (err) return err;
    err = wefti_groups_init(a, a->config.worker_url, why);
    if (err) return err;
    err = weft_sched_adapters_init(&a->adapters, a->n_groups);
    return err ? weft_err_set(why, err, "no memory for adapters") : WEFT_OK;
}

void wefti_actor_fini(struct wefti_actor *a) {
    wefti_groups_fini(a);
    weft_sched_adapters_fini(&a->adapters);
    weft_link_free(a->hub);
    weft_proto_decoder_free(a->router_decoder);
    wefti_pending_fini(&a->pending);
    weft_buf_fini(&a->out);
    weft_expert_rows_fini(&a->experts);
    free(a->events);
}

static void tell_supervisor(struct wefti_actor *a, uint64_t now_ms) {
    if (now_ms - a->alive_at_ms < WEFT_STATUS_ALIVE_MS) return;
    a->alive_at_ms = now_ms;
    weft_status_write(a->config.status_fd, "alive", NULL);
}

/* Routers come first: a result is answered with a plan at once, which should include their
 * requests. */
bool wefti_actor_turn(struct wefti_actor *a, bool from_hub, const struct pollfd *group_fds) {
    bool more = from_hub && wefti_routers_drain(a);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        if (group_fds[i].revents) wefti_group_drain(a, &a->groups[i]);
    }
    wefti_adapters_turn(a);
    wefti_routers_gather(a, weft_now_ms());
    for (uint32_t i = 0; i < a->n_groups; i++) {
        struct wefti_group *group = &a->groups[i];
        if (!group->replica->sched) continue;
        weft_sched_tick(group->replica->sched, weft_now_us());
        wefti_routers_tell(a, group);
        wefti_group_plan(a, group);
        wefti_sessions_pump(a, group);
    }
    wefti_routers_flush(a, weft_now_us());
    uint64_t now_ms = weft_now_ms();
    bool paused = now_ms - a->tick_ms > PAUSED_MS;
    a->tick_ms = now_ms;
    weft_link_tick(a->hub, now_ms);
    for (uint32_t i = 0; i < a->n_groups; i++)
        wefti_group_tick(&a->groups[i], now_ms, paused);
    wefti_groups_move(a, weft_now_us());
    wefti_routers_snapshot(a, now_ms);
    tell_supervisor(a, now_ms);
    return more;
}

uint64_t wefti_actor_wait_us(const struct wefti_actor *a) {
    uint64_t since = weft_now_ms() - a->snapshot_at_ms;
    uint64_t left = since < WEFTI_SNAPSHOT_MS ? WEFTI_SNAPSHOT_MS - since : 0;
    uint64_t us = 1000 * (left < TICK_MS ? left : TICK_MS);
    if (a->held_until_us > 0) {
        uint64_t now_us = weft_now_us();
        uint64_t held_us = a->held_until_us > now_us ? a->held_until_us - now_us : 0;
        if (held_us < us) us = held_us;
    }
    return us;
}
