/* The supervisor's loop: one process without threads that starts router, scheduler and workers, and
 * keeps them running. It takes no part in serving. It watches whether the loops of router and
 * scheduler turn, as the scheduler watches the workers; a watchdog above hears from it as long as
 * they do (notify.h). lib/restart decides who is started again, and when.
 *
 * Signals: children ignore SIGTERM, SIGINT and SIGHUP, so a signal to the whole process group
 * reaches the supervisor alone in effect. To stop, it has the router drain; when that has ended it
 * stops the scheduler, and then the workers, which by then expect to be left: nobody misses
 * anybody (common/signals.h has the signals). Children die with it (PR_SET_PDEATHSIG). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "common/actor.h"
#include "common/signals.h"
#include "common/status.h"
#include "supervisor.h"

#define STOP_GRACE_MS 3000
/* The supervisor's loop turns at least so often. A turn that took this much longer means that it
 * was itself stopped, perhaps with all processes: the scheduler's silence then proves nothing. */
#define WATCH_MS 2000
#define PAUSED_MS 2000
#define BLIND_WAIT_US 20000

/* ----------------------------------------------------------------------------- start and end --- */

/* `who` is "" where the words speak for themselves. */
static void set_fatal(struct supervisor *sup, const char *who, const char *text) {
    if (sup->fatal[0]) return;
    (void)snprintf(sup->fatal, sizeof sup->fatal, "%s%s%s", who, *who ? " " : "", text);
    sup->exit_status = 1;
}

/* `end`, `text`: how its last life ended. */
static void give_up(struct supervisor *sup, const struct child *child, enum weft_restart_end end,
                    const char *text, const struct weft_restart_decision *decision) {
    char sentence[1024];
    const char *words = child->last_words;
    const char *needs = end == WEFT_RESTART_KILLED ? child->needs : "";
    const char *when = end == WEFT_RESTART_NOT_STARTED ? "" : " before it was ready";
    switch (decision->reason) {
    case WEFT_RESTART_LAST_END:
        set_fatal(sup, *words ? "" : child->title, *words ? words : text);
        return;
    case WEFT_RESTART_NEVER_READY:
        (void)snprintf(sentence, sizeof sentence, "%s%s, %u times in a row%s%s%s%s", text, when,
                       decision->n_in_row, *words ? ": " : "", words, *needs ? "; it needs " : "",
                       needs);
        break;
    case WEFT_RESTART_KILLED_OFF:
        (void)snprintf(sentence, sizeof sentence,
                       "was killed by the system, most likely out of memory%s%s (before it was "
                       "ready, %u times in a row)",
                       child->needs[0] ? ": needs " : "", child->needs, decision->n_in_row);
        break;
    case WEFT_RESTART_SHORT_LIVED:
        (void)snprintf(sentence, sizeof sentence,
                       "%s within a second of being ready, %u times in a row%s%s", text,
                       decision->n_in_row, *words ? ": " : "", words);
        break;
    }
    set_fatal(sup, child->title, sentence);
}

static void try_start(struct supervisor *sup, uint32_t idx);

/* Starts it again, now or later, or ends the server. */
static void go_on_after(struct supervisor *sup, uint32_t idx, enum weft_restart_end end,
                        const char *text) {
    const struct child *child = &sup->children[idx];
    uint64_t now = weft_now_ms();
    struct weft_restart_decision decision = weft_restart_ended(&sup->restart, idx, end, now);
    if (decision.action == WEFT_RESTART_GIVE_UP) {
        give_up(sup, child, end, text, &decision);
        return;
    }
    bool is_now = decision.start_at_ms <= now;
    char pid[24] = "";
    if (end != WEFT_RESTART_NOT_STARTED)
        (void)snprintf(pid, sizeof pid, " (pid %d)", (int)child->last_pid);
    weft_warn("%s%s %s%s%s; starting %s again%s", child->title, pid, text,
              child->last_words[0] ? ": " : "", child->last_words,
              wefti_is_rank(sup, idx) ? "its group" : "it", is_now ? "" : " in a moment");
    if (is_now && !wefti_is_rank(sup, idx)) try_start(sup, idx);
}

static void try_start(struct supervisor *sup, uint32_t idx) {
    struct weft_errmsg why = {""};
    if (wefti_child_start(sup, idx, &why) == WEFT_OK) {
        weft_restart_started(&sup->restart, idx);
        return;
    }
    sup->children[idx].last_words[0] = '\0'; /* they are of a life before */
    char text[sizeof why.text + 32];
    (void)snprintf(text, sizeof text, "did not start (%s)", why.text);
    go_on_after(sup, idx, WEFT_RESTART_NOT_STARTED, text); /* which is not at once */
}

/* The scheduler misses a worker that it knew; of others it would not hear. */
static void tell_loss(const struct supervisor *sup, uint32_t idx, enum weft_restart_end end) {
    const union sigval nothing = {.sival_int = 0};
    bool has_died = end == WEFT_RESTART_DIED || end == WEFT_RESTART_KILLED;
    if (idx < FIRST_WORKER || !has_died || sup->restart.children[idx].is_ready) return;
    if (sup->children[SCHEDULER].pid > 0)
        (void)sigqueue(sup->children[SCHEDULER].pid, WEFT_SIGNO_LOST, nothing);
}

static void child_ended(struct supervisor *sup, uint32_t idx, int status) {
    struct child *child = &sup->children[idx];
    if (child->status_fd >= 0) wefti_status_read(sup, idx); /* its last words may explain it */
    child->pid = 0;
    char text[160];
    enum weft_restart_end end = wefti_child_end(child, status);
    wefti_child_describe_end(status, end, text, sizeof text);
    bool is_leaving = sup->phase == PHASE_DRAIN || sup->was_replaced;
    if (sup->phase == PHASE_STOP || (is_leaving && idx == ROUTER)) {
        weft_debug("%s %s", child->title, text);
        return;
    }
    if (wefti_is_rank(sup, idx) && wefti_ranks_ended(sup, idx, status)) {
        weft_debug("%s %s: its group is over", child->title, text);
        weft_restart_let_go(&sup->restart, idx);
        return;
    }
    tell_loss(sup, idx, end);
    go_on_after(sup, idx, end, text);
}

static void reap(struct supervisor *sup) {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (uint32_t i = 0; i < sup->n_children; i++) {
            if (sup->children[i].pid == pid) {
                child_ended(sup, i, status);
                break;
            }
        }
    }
}

/* ----------------------------------------------------------------------------------- phases --- */

static void signal_child(struct supervisor *sup, uint32_t idx, int sig) {
    struct child *child = &sup->children[idx];
    if (child->pid <= 0) return;
    if (sig == SIGKILL) child->is_killed = true;
    (void)kill(child->pid, sig);
}

static void signal_workers(struct supervisor *sup, int sig) {
    for (uint32_t i = FIRST_WORKER; i < sup->n_children; i++)
        signal_child(sup, i, sig);
}

static void begin_stop(struct supervisor *sup) {
    weft_notify_say(&sup->notify, "STOPPING=1\nSTATUS=stopping");
    sup->phase = PHASE_STOP;
    sup->phase_until_ms = weft_now_ms() + STOP_GRACE_MS;
    signal_workers(sup, WEFT_SIGNO_DRAIN);
    signal_child(sup, ROUTER, WEFT_SIGNO_EXIT);
    signal_child(sup, SCHEDULER, WEFT_SIGNO_EXIT);
}

static void say_stopping(const struct supervisor *sup) {
    char delay[64] = "no new requests";
    if (sup->config.drain_delay_ms > 0)
        (void)snprintf(delay, sizeof delay, "new requests are taken for another %g s",
                       sup->config.drain_delay_ms / 1000.0);
    weft_say(WEFT_LOG_INFO,
             "stopping: %s, running ones have up to %g s; a second Ctrl-C or SIGTERM ends it at "
             "once",
             delay, sup->config.drain_timeout_ms / 1000.0);
}

/* Nobody waits for the lines of a batch that are under way: they are computed again another time. */
static void begin_drain(struct supervisor *sup) {
    if (!sup->offline.is_on) say_stopping(sup);
    weft_notify_say(&sup->notify, "STOPPING=1\nSTATUS=draining");
    sup->phase = PHASE_DRAIN;
    /* The router keeps the limit itself; after a second more it counts as stuck. */
    sup->phase_until_ms =
        weft_now_ms() + sup->config.drain_delay_ms + sup->config.drain_timeout_ms + 1000;
    signal_child(sup, ROUTER, WEFT_SIGNO_DRAIN);
}

/* Another server accepts; the router has begun to leave by itself. */
static void begin_leave(struct supervisor *sup) {
    weft_say(WEFT_LOG_INFO,
             "replaced: another server has the ports, running requests have up to "
             "%g s to end here",
             sup->config.drain_timeout_ms / 1000.0);
    weft_notify_say(&sup->notify, "STOPPING=1\nSTATUS=replaced: the last requests are finished");
    sup->phase = PHASE_DRAIN;
    sup->phase_until_ms = weft_now_ms() + sup->config.drain_timeout_ms + 1000;
}

/* Children keep the level that they are told, those that start later as well. */
static void reload(struct supervisor *sup) {
    const char *level = weft_actor_reload(&sup->config, 0);
    if (!level) return;
    sup->config.log_level = level;
    const union sigval value = {.sival_int = (int)weft_actor_log_level(&sup->config)};
    for (uint32_t i = 0; i < sup->n_children; i++) {
        if (sup->children[i].pid > 0)
            (void)sigqueue(sup->children[i].pid, WEFT_SIGNO_RELOAD, value);
    }
}

/* The first wish changes nothing where the server ends already, for having been replaced. */
static void ask_to_end(struct supervisor *sup) {
    if (sup->phase == PHASE_RUN)
        begin_drain(sup);
    else if (sup->phase == PHASE_DRAIN && sup->was_asked)
        begin_stop(sup); /* asked twice: now */
    else if (sup->phase == PHASE_DRAIN)
        weft_say(WEFT_LOG_INFO, "stopping already: a second Ctrl-C or SIGTERM ends it at once");
    sup->was_asked = true;
}

static void take_signals(struct supervisor *sup) {
    struct signalfd_siginfo info;
    while (read(sup->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue; /* reap() looks anyway */
        if (info.ssi_signo == SIGHUP)
            reload(sup);
        else
            ask_to_end(sup);
    }
}

/* -------------------------------------------------------------------------------------- loop --- */

static bool stands_still(const struct supervisor *sup, uint32_t idx, uint64_t now) {
    const struct child *child = &sup->children[idx];
    return child->pid && sup->restart.children[idx].is_ready &&
           now - child->heard_at_ms >= WEFT_STATUS_SILENT_MS;
}

/* A scheduler that stands still keeps its links, so that routers would wait for it for ever.
 * Killed, it is replaced, and they resume their streams with the new one. A router that does keeps
 * its port and its connections, and answers nobody. (What their pipes hold has been read just
 * before, by wait_for_children().) */
static void watch(struct supervisor *sup, uint64_t now) {
    bool paused = now - sup->turn_ms > WATCH_MS + PAUSED_MS;
    sup->turn_ms = now;
    for (uint32_t i = SCHEDULER; i <= ROUTER; i++) {
        struct child *child = &sup->children[i];
        if (paused) child->heard_at_ms = now;
        if (child->is_killed || !stands_still(sup, i, now)) continue;
        weft_error("%s has stood still for %u s: killing it", child->title,
                   WEFT_STATUS_SILENT_MS / 1000u);
        signal_child(sup, i, SIGKILL);
    }
}

/* False: somebody stands still, and is not even gone for having been killed. */
static bool is_well(const struct supervisor *sup, uint64_t now) {
    return !stands_still(sup, SCHEDULER, now) && !stands_still(sup, ROUTER, now);
}

/* All workers but the first of a node wait until that one has packed their weights: started at once
 * they would only wait, too, but hold memory and CPUs. */
static bool may_start(const struct supervisor *sup, uint32_t idx) {
    const struct child *child = &sup->children[idx];
    if (idx < FIRST_WORKER || child->weights_fd < 0 || child->packer == idx) return true;
    return sup->restart.children[child->packer].was_ready;
}

/* Starts all ranks of a group that has none; returns how long to wait before looking again. */
static uint64_t advance_group(struct supervisor *sup, uint32_t group_idx, uint64_t now) {
    uint32_t first = FIRST_WORKER + group_idx * sup->n_ranks;
    struct weft_errmsg why = {""};
    bool is_down = false;
    uint64_t wait_ms = wefti_ranks_wait_ms(sup, group_idx, now, &is_down);
    if (!is_down || wait_ms > 0) return wait_ms;
    if (wefti_ranks_begin(sup, group_idx, &why)) {
        sup->children[first].last_words[0] = '\0'; /* they are of a life before */
        go_on_after(sup, first, WEFT_RESTART_NOT_STARTED, why.text);
        return 0;
    }
    for (uint32_t i = first; i < first + sup->n_ranks; i++) {
        try_start(sup, i);
        if (sup->children[i].pid) continue;
        wefti_ranks_not_started(sup, i);
        return 0;
    }
    return UINT64_MAX;
}

/* A server that takes the place of another must be sure to stay. So its router may do so when all
 * others have been ready: from then on no failure of theirs ends the server at once. */
static void let_take(struct supervisor *sup) {
    const union sigval nothing = {.sival_int = 0};
    pid_t router = sup->children[ROUTER].pid;
    if (!sup->config.replace || router <= 0 || sup->told_to_take == router) return;
    for (uint32_t i = 0; i < sup->n_children; i++) {
        if (i != ROUTER && !sup->restart.children[i].was_ready) return;
    }
    if (sigqueue(router, WEFT_SIGNO_TAKE, nothing) == 0) sup->told_to_take = router;
}

/* The batch of `weft run --batch`: shows answers, and ends when there are no more. */
static void look_after_batch(struct supervisor *sup) {
    struct weft_errmsg why = {""};
    if (!sup->offline.is_on) return;
    if (weft_offline_show(&sup->offline, sup->config.answers_fd, &why))
        set_fatal(sup, "", why.text);
    if (weft_offline_is_over(&sup->offline) && sup->phase != PHASE_STOP) begin_stop(sup);
}

/* Timers, phases, and who is to be started; returns how long poll may sleep. */
static int advance(struct supervisor *sup) {
    uint64_t now = weft_now_ms();
    look_after_batch(sup);
    if (sup->fatal[0] && sup->phase != PHASE_STOP) begin_stop(sup);
    if (sup->was_replaced && sup->phase == PHASE_RUN) begin_leave(sup);
    if (sup->phase == PHASE_DRAIN && (sup->children[ROUTER].pid == 0 || now >= sup->phase_until_ms))
        begin_stop(sup);
    if (sup->phase == PHASE_STOP) {
        if (sup->children[SCHEDULER].pid == 0) signal_workers(sup, WEFT_SIGNO_EXIT);
        if (now < sup->phase_until_ms) return 100;
        for (uint32_t i = 0; i < sup->n_children; i++)
            signal_child(sup, i, SIGKILL);
        return 100;
    }
    watch(sup, now);
    bool has_soon = sup->phase == PHASE_DRAIN || weft_offline_lags(&sup->offline);
    int wait_ms = has_soon ? 100 : WATCH_MS;
    for (uint32_t i = 0; sup->n_ranks > 1 && i < sup->n_workers / sup->n_ranks; i++) {
        uint64_t left = advance_group(sup, i, now);
        if (left < (uint64_t)wait_ms) wait_ms = (int)left;
    }
    for (uint32_t i = sup->n_children; i-- > 0;) { /* workers first: they take the longest */
        const struct child *child = &sup->children[i];
        const uint64_t *start_at_ms = &sup->restart.children[i].start_at_ms;
        if (wefti_is_rank(sup, i)) continue;
        if (child->pid || (sup->phase == PHASE_DRAIN && i == ROUTER)) continue;
        if (!may_start(sup, i)) continue; /* the one it waits for will say "ready" */
        if (now >= *start_at_ms) try_start(sup, i);
        if (child->pid) continue;
        int left = *start_at_ms > now ? (int)(*start_at_ms - now) + 1 : 0;
        if (left < wait_ms) wait_ms = left;
    }
    let_take(sup);
    return sup->fatal[0] ? 0 : wait_ms;
}

static bool all_ended(const struct supervisor *sup) {
    for (uint32_t i = 0; i < sup->n_children; i++) {
        if (sup->children[i].pid) return false;
    }
    return true;
}

/* Waits until a child has something to say, or has ended, or the time is over; takes in what they
 * say. A system that cannot even wait (it is out of memory) may recover: nothing below blocks. */
static void wait_for_children(struct supervisor *sup, int wait_ms) {
    struct pollfd fds[CHILDREN_MAX + 1] = {{.fd = sup->signal_fd, .events = POLLIN}};
    for (uint32_t i = 0; i < sup->n_children; i++)
        fds[i + 1] = (struct pollfd){.fd = sup->children[i].status_fd, .events = POLLIN};
    bool cannot_wait = poll(fds, sup->n_children + 1, wait_ms) < 0 && errno != EINTR;
    if (cannot_wait) (void)usleep(BLIND_WAIT_US);
    for (uint32_t i = 0; i < sup->n_children; i++) {
        if (fds[i + 1].fd >= 0 && (fds[i + 1].revents || cannot_wait)) wefti_status_read(sup, i);
    }
}

void wefti_supervise(struct supervisor *sup) {
    while (sup->phase != PHASE_STOP || !all_ended(sup)) {
        int wait_ms = advance(sup);
        uint64_t now = weft_now_ms();
        wait_ms = weft_notify_watchdog(&sup->notify, is_well(sup, now), now, wait_ms);
        wait_for_children(sup, wait_ms);
        take_signals(sup);
        reap(sup);
    }
}
