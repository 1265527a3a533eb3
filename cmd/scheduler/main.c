/* weft-scheduler — takes requests from routers and plans the worker's steps.
 *
 * One thread, one loop. A turn takes in messages, ends requests over their deadline, tells the
 * routers, and sends plans while there are some to make. A result is answered with the next plan in
 * the same turn, so that the worker has one more plan while this process computes.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actor_internal.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rand.h"
#include "common/actor.h"
#include "common/link_config.h"
#include "common/signals.h"
#include "common/status.h"

#define TICK_MS 50u
#define TICK_IDLE_MS 100u
/* A turn takes milliseconds; a longer gap means that this process was stopped. */
#define PAUSED_MS 2000u

/* The first epoch, which grows from one start of a scheduler to the next on one host. */
static uint64_t first_epoch(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static weft_err actor_init(struct wefti_actor *a, struct weft_errmsg *why) {
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
    return wefti_groups_init(a, a->config.worker_url, why);
}

/* Accepts an actor whose init failed anywhere. */
static void actor_fini(struct wefti_actor *a) {
    wefti_groups_fini(a);
    weft_link_free(a->hub);
    weft_proto_decoder_free(a->router_decoder);
    wefti_pending_fini(&a->pending);
    weft_buf_fini(&a->out);
    weft_expert_rows_fini(&a->experts);
    free(a->events);
}

static void take_signals(struct wefti_actor *a) {
    enum weft_signal signal;
    int value = 0;
    while ((signal = weft_signals_next(a->signal_fd, &value)) != WEFT_SIGNAL_NONE) {
        if (signal == WEFT_SIGNAL_EXIT) {
            a->exit_status = EXIT_SUCCESS;
        } else if (signal == WEFT_SIGNAL_RELOAD) {
            (void)weft_actor_reload(&a->config, value);
        } else if (signal == WEFT_SIGNAL_LOST) {
            a->n_worker_losses++; /* of one that had said hello, group.c counts it */
        } else if (!a->draining) {
            weft_info("draining: no new requests");
            a->draining = true;
            for (uint32_t i = 0; i < a->n_groups; i++) {
                weft_sched *sched = a->groups[i].replica->sched;
                if (sched) weft_sched_drain(sched);
            }
        }
    }
}

static void tell_supervisor(struct wefti_actor *a, uint64_t now_ms) {
    if (now_ms - a->alive_at_ms < WEFT_STATUS_ALIVE_MS) return;
    a->alive_at_ms = now_ms;
    weft_status_write(a->config.status_fd, "alive", NULL);
}

/* True: routers have more to say. They come first: a result is answered with a plan at once, which
 * should include their requests. */
static bool turn(struct wefti_actor *a, const struct pollfd *group_fds, bool from_hub) {
    bool more = from_hub && wefti_routers_drain(a);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        if (group_fds[i].revents) wefti_group_drain(a, &a->groups[i]);
    }
    wefti_routers_gather(a, weft_now_ms());
    for (uint32_t i = 0; i < a->n_groups; i++) {
        struct wefti_group *group = &a->groups[i];
        if (!group->replica->sched) continue;
        weft_sched_tick(group->replica->sched, weft_now_us());
        wefti_routers_tell(a, group);
        wefti_group_plan(a, group);
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

static struct timespec poll_time(const struct wefti_actor *a) {
    uint64_t tick_ms = TICK_IDLE_MS;
    for (uint32_t i = 0; i < a->n_groups; i++) {
        if (!weft_sched_group_idle(a->groups[i].replica)) tick_ms = TICK_MS;
    }
    uint64_t since = weft_now_ms() - a->snapshot_at_ms;
    uint64_t left = since < WEFTI_SNAPSHOT_MS ? WEFTI_SNAPSHOT_MS - since : 0;
    uint64_t us = 1000 * (left < tick_ms ? left : tick_ms);
    if (a->held_until_us > 0) {
        uint64_t now_us = weft_now_us();
        uint64_t held_us = a->held_until_us > now_us ? a->held_until_us - now_us : 0;
        if (held_us < us) us = held_us;
    }
    return (struct timespec){(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
}

static weft_err serve(struct wefti_actor *a, struct weft_errmsg *why) {
    bool more = false;
    while (a->exit_status < 0) {
        struct pollfd fds[2 + WEFT_WORKERS_MAX] = {
            {.fd = a->signal_fd, .events = POLLIN},
            {.fd = weft_link_fd(a->hub), .events = POLLIN},
        };
        for (uint32_t i = 0; i < a->n_groups; i++)
            fds[2 + i] = (struct pollfd){.fd = weft_link_fd(a->groups[i].link), .events = POLLIN};
        struct timespec time = more ? (struct timespec){0} : poll_time(a);
        int n = ppoll(fds, 2 + a->n_groups, &time, NULL);
        if (n < 0 && errno != EINTR) return weft_err_errno(why, errno, "poll failed");
        if (fds[0].revents) take_signals(a);
        more = turn(a, fds + 2, more || fds[1].revents);
    }
    return WEFT_OK;
}

int main(int argc, char **argv) {
    static struct wefti_actor actor; /* large, and zero */
    struct weft_errmsg why = {""};
    bool done = false;
    struct weft_config *config = &actor.config;
    actor.signal_fd = -1;
    weft_err err = weft_config_parse(WEFT_PROG_SCHEDULER, argc, argv, config, &done, &why);
    if (err) return weft_actor_bad_config("scheduler", config, why.text);
    if (done) return EXIT_SUCCESS;
    weft_actor_init("scheduler", config);
    if (!config->scheduler_url || !config->worker_url) {
        return weft_actor_fail(config, "--scheduler-url and --worker-url are both needed");
    }
    if (strpbrk(config->scheduler_url, ",\n")) {
        return weft_actor_fail(config, "--scheduler-url is one address, a scheduler's own");
    }
    err = weft_signals_init(config->status_fd >= 0, &actor.signal_fd, &why);
    if (!err) err = actor_init(&actor, &why);
    if (!err) {
        weft_status_write(config->status_fd, "ready", NULL);
        err = serve(&actor, &why);
    }
    if (err) actor.exit_status = weft_actor_fail(config, why.text);
    actor_fini(&actor);
    if (actor.signal_fd >= 0) (void)close(actor.signal_fd);
    if (actor.exit_status == EXIT_SUCCESS) weft_actor_stopped(config);
    return actor.exit_status;
}
