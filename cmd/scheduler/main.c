/* weft-scheduler — takes requests from routers and plans the worker's steps.
 *
 * One thread, one loop: it waits for messages, signals or the next tick; turn.c has what it does then.
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
#include "base/log.h"
#include "common/actor.h"
#include "common/signals.h"
#include "common/status.h"

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

static weft_err serve(struct wefti_actor *a, struct weft_errmsg *why) {
    bool more = false;
    while (a->exit_status < 0) {
        struct pollfd fds[2 + WEFT_WORKERS_MAX] = {
            {.fd = a->signal_fd, .events = POLLIN},
            {.fd = weft_link_fd(a->hub), .events = POLLIN},
        };
        for (uint32_t i = 0; i < a->n_groups; i++)
            fds[2 + i] = (struct pollfd){.fd = weft_link_fd(a->groups[i].link), .events = POLLIN};
        uint64_t wait_us = more ? 0 : wefti_actor_wait_us(a);
        struct timespec time = {(time_t)(wait_us / 1000000), (long)(wait_us % 1000000 * 1000)};
        int n = ppoll(fds, 2 + a->n_groups, &time, NULL);
        if (n < 0 && errno != EINTR) return weft_err_errno(why, errno, "poll failed");
        if (fds[0].revents) take_signals(a);
        more = wefti_actor_turn(a, more || fds[1].revents, fds + 2);
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
    if (!err) err = wefti_actor_init(&actor, &why);
    if (!err) {
        weft_status_write(config->status_fd, "ready", NULL);
        if (config->status_fd < 0)
            weft_info("waits for routers at %s, and for workers at %s", config->scheduler_url,
                      config->worker_url);
        err = serve(&actor, &why);
    }
    if (err) actor.exit_status = weft_actor_fail(config, why.text);
    wefti_actor_fini(&actor);
    if (actor.signal_fd >= 0) (void)close(actor.signal_fd);
    if (actor.exit_status == EXIT_SUCCESS) weft_actor_stopped(config);
    return actor.exit_status;
}
