/* Workers that divide one model. One that dies takes the group's computation along: what the others
 * have of it cannot be finished, and nobody can take the place of a rank. So all end, and begin
 * anew together; their weights are kept (serve.c), so that this takes milliseconds. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/collective.h"
#include "common/signals.h"
#include "common/status.h"
#include "supervisor.h"

/* They notice by themselves, at most a quarter of a second later; one that is stopped does not. */
#define END_GRACE_MS 2000u

bool wefti_is_rank(const struct supervisor *sup, uint32_t child_idx) {
    return child_idx >= FIRST_WORKER && sup->n_ranks > 1;
}

static uint32_t group_of(const struct supervisor *sup, uint32_t child_idx) {
    return (child_idx - FIRST_WORKER) / sup->n_ranks;
}

static struct child *ranks_of(struct supervisor *sup, uint32_t group_idx) {
    return &sup->children[FIRST_WORKER + group_idx * sup->n_ranks];
}

static uint32_t count_running(struct supervisor *sup, uint32_t group_idx) {
    const struct child *ranks = ranks_of(sup, group_idx);
    uint32_t n = 0;
    for (uint32_t i = 0; i < sup->n_ranks; i++)
        n += ranks[i].pid > 0;
    return n;
}

void wefti_ranks_init(struct supervisor *sup) {
    for (uint32_t i = 0; i < WEFT_WORKERS_MAX; i++)
        sup->groups[i] = (struct group){.fd = -1};
}

static void close_memory(struct group *group) {
    if (group->fd >= 0) (void)close(group->fd);
    group->fd = -1;
}

void wefti_ranks_fini(struct supervisor *sup) {
    for (uint32_t i = 0; i < WEFT_WORKERS_MAX; i++)
        close_memory(&sup->groups[i]);
}

weft_err wefti_ranks_begin(struct supervisor *sup, uint32_t group_idx, struct weft_errmsg *why) {
    struct group *group = &sup->groups[group_idx];
    close_memory(group);
    *group = (struct group){.fd = -1};
    return weft_coll_create(sup->n_ranks, &group->fd, why);
}

/* ----------------------------------------------------------------------------------- an end --- */

static void end_others(struct supervisor *sup, uint32_t group_idx) {
    struct group *group = &sup->groups[group_idx];
    const struct child *ranks = ranks_of(sup, group_idx);
    if (group->is_ending) return;
    group->is_ending = true;
    group->kill_at_ms = weft_now_ms() + END_GRACE_MS;
    for (uint32_t i = 0; i < sup->n_ranks; i++) {
        if (ranks[i].pid > 0) (void)kill(ranks[i].pid, WEFT_SIGNO_EXIT);
    }
}

/* Which of several ended first nobody can tell; but one that says that its group is over had
 * another reason before it. */
bool wefti_ranks_ended(struct supervisor *sup, uint32_t child_idx, int status) {
    uint32_t group_idx = group_of(sup, child_idx);
    struct group *group = &sup->groups[group_idx];
    bool says_so = WIFEXITED(status) && WEXITSTATUS(status) == WEFT_EXIT_GROUP;
    bool follows = group->is_known || says_so || sup->children[child_idx].is_killed;
    bool is_last = count_running(sup, group_idx) == 0;
    end_others(sup, group_idx);
    if (follows && (group->is_known || !is_last)) return true;
    group->is_known = true;
    return false;
}

void wefti_ranks_not_started(struct supervisor *sup, uint32_t child_idx) {
    uint32_t group_idx = group_of(sup, child_idx);
    end_others(sup, group_idx);
    sup->groups[group_idx].is_known = true;
}

/* ---------------------------------------------------------------------------------- waiting --- */

static void kill_ranks(struct supervisor *sup, uint32_t group_idx) {
    struct child *ranks = ranks_of(sup, group_idx);
    for (uint32_t i = 0; i < sup->n_ranks; i++) {
        if (ranks[i].pid <= 0) continue;
        ranks[i].is_killed = true;
        (void)kill(ranks[i].pid, SIGKILL);
    }
}

uint64_t wefti_ranks_wait_ms(struct supervisor *sup, uint32_t group_idx, uint64_t now_ms,
                             bool *is_down_out) {
    struct group *group = &sup->groups[group_idx];
    const struct weft_restart_child *states =
        &sup->restart.children[FIRST_WORKER + group_idx * sup->n_ranks];
    uint64_t until_ms = 0;
    *is_down_out = count_running(sup, group_idx) == 0;
    if (!*is_down_out) {
        if (!group->is_ending) return UINT64_MAX;
        if (now_ms < group->kill_at_ms) return group->kill_at_ms - now_ms;
        kill_ranks(sup, group_idx);
        return END_GRACE_MS;
    }
    for (uint32_t i = 0; i < sup->n_ranks; i++) {
        if (states[i].start_at_ms > until_ms) until_ms = states[i].start_at_ms;
    }
    return until_ms > now_ms ? until_ms - now_ms : 0;
}
