/* A scheduler's process: the real actor. After each turn it is looked at from inside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "inside/cmd_scheduler/actor_internal.h"
#include "property/faults/cluster.h"
#include "property/faults/wire.h"

struct scheduler {
    struct sim_proc proc;
    char url[64], worker_urls[256];
    struct wefti_actor *actor;
};

void scheduler_url(char out[64], uint32_t idx) {
    (void)snprintf(out, 64, "tcp://10.0.0.%u:7001", idx + 1);
}

void worker_url(char out[64], uint32_t scheduler, uint32_t group) {
    (void)snprintf(out, 64, "tcp://10.0.0.%u:%u", scheduler + 1, 7100 + group);
}

/* ------------------------------------------------------------------------------- looking in --- */

static uint32_t n_requests(const struct weft_sched_group *group) {
    struct weft_sched_stats stats;
    if (!group->sched) return 0;
    weft_sched_stats(group->sched, &stats);
    return stats.n_waiting + stats.n_running;
}

/* A group without a worker, beside one that has one. */
static bool is_left(const struct weft_sched_groups *groups, uint32_t i) {
    return !groups->groups[i].is_serving && weft_sched_groups_serve(groups);
}

struct before {
    bool is_left[GROUPS_MAX];
    uint32_t n[GROUPS_MAX];
};

static void note(const struct weft_sched_groups *groups, struct before *before) {
    for (uint32_t i = 0; i < groups->n; i++) {
        before->is_left[i] = is_left(groups, i);
        before->n[i] = n_requests(&groups->groups[i]);
    }
}

static void check_turn(const struct scheduler *s, const struct before *before) {
    const struct weft_sched_groups *groups = &s->actor->replicas;
    bool checks_all = sim_chance(100);
    for (uint32_t i = 0; i < groups->n; i++) {
        uint32_t n = n_requests(&groups->groups[i]);
        SIM_CHECK(!before->is_left[i] || !is_left(groups, i) || n <= before->n[i],
                  "scheduler %u gave a request to group %u, whose worker is gone, while another "
                  "group has one",
                  s->proc.idx, i);
        if (checks_all && groups->groups[i].sched) weft_sched_check(groups->groups[i].sched);
    }
    SIM_CHECK(s->actor->exit_status < 0, "scheduler %u wants to end", s->proc.idx);
}

void scheduler_check_idle(const struct scheduler *s) {
    const struct weft_sched_groups *groups = &s->actor->replicas;
    struct weft_sched_stats stats;
    for (uint32_t i = 0; i < groups->n; i++) {
        weft_sched *sched = groups->groups[i].sched;
        if (!sched) continue;
        weft_sched_check(sched);
        weft_sched_stats(sched, &stats);
        SIM_CHECK(weft_sched_idle(sched),
                  "scheduler %u, group %u: %u requests run and %u wait that nobody waits for, "
                  "%u plans are out",
                  s->proc.idx, i, stats.n_running, stats.n_waiting, stats.n_plans_out);
        SIM_CHECK(stats.n_blocks_free == stats.n_blocks,
                  "scheduler %u, group %u: %u of %u blocks are free", s->proc.idx, i,
                  stats.n_blocks_free, stats.n_blocks);
    }
    SIM_CHECK(TAILQ_EMPTY(&s->actor->pending.items), "scheduler %u keeps requests for later",
              s->proc.idx);
}

bool scheduler_serves(const struct scheduler *s) {
    return s->proc.is_alive && !sim_is_stopped(&s->proc) &&
           weft_sched_groups_serve(&s->actor->replicas);
}

/* ------------------------------------------------------------------------------- its process --- */

static void turn(struct sim_proc *proc) {
    struct scheduler *s = (struct scheduler *)proc;
    struct wefti_actor *a = s->actor;
    struct pollfd fds[GROUPS_MAX + 1];
    struct before before;
    wire_enter(proc);
    note(&a->replicas, &before);
    for (uint32_t i = 0; i < a->n_groups; i++)
        fds[i] = (struct pollfd){
            .fd = weft_link_fd(a->groups[i].link), .events = POLLIN, .revents = POLLIN};
    bool more = wefti_actor_turn(a, true, fds);
    check_turn(s, &before);
    fds[a->n_groups] = (struct pollfd){.fd = weft_link_fd(a->hub), .events = POLLIN};
    more = more || poll(fds, a->n_groups + 1, 0) > 0;
    sim_wake(proc, sim_now_us() + (more ? 1 : wefti_actor_wait_us(a)));
}

struct scheduler *scheduler_new(uint32_t idx) {
    struct scheduler *s = calloc(1, sizeof *s);
    WEFT_ASSERT(s);
    s->proc =
        (struct sim_proc){.kind = "scheduler", .idx = idx, .turn_at_us = UINT64_MAX, .turn = turn};
    scheduler_url(s->url, idx);
    for (uint32_t i = 0; i < shape.n_groups; i++) {
        char url[64];
        worker_url(url, idx, i);
        if (i > 0) strcat(s->worker_urls, ",");
        strcat(s->worker_urls, url);
    }
    return s;
}

void scheduler_start(struct scheduler *s) {
    struct weft_errmsg why = {""};
    if (s->proc.is_alive) return;
    sim_say("scheduler %u starts", s->proc.idx);
    s->proc.is_alive = true;
    s->proc.stopped_until_us = 0;
    s->proc.turn_at_us = UINT64_MAX;
    s->actor = calloc(1, sizeof *s->actor);
    WEFT_ASSERT(s->actor);
    s->actor->signal_fd = -1;
    struct weft_config *config = &s->actor->config;
    config->status_fd = -1;
    config->scheduler_url = s->url;
    config->worker_url = s->worker_urls;
    config->insecure_links = true;
    config->max_num_seqs = shape.worker.max_seqs;
    config->max_num_batched_tokens = shape.worker.max_batched_tokens;
    config->max_queue = shape.max_queue;
    config->itl_target_ms = WEFT_CONFIG_AUTO;
    config->scheduling_policy = "fcfs";
    wire_enter(&s->proc);
    weft_err err = wefti_actor_init(s->actor, &why);
    SIM_CHECK(!err, "%s", why.text);
    sim_wake(&s->proc, sim_now_us());
}

void scheduler_kill(struct scheduler *s) {
    if (!s->proc.is_alive) return;
    s->proc.is_alive = false;
    wire_kill(&s->proc);
    wefti_actor_fini(s->actor);
    free(s->actor);
    s->actor = NULL;
}

void scheduler_free(struct scheduler *s) {
    scheduler_kill(s);
    free(s);
}

struct sim_proc *scheduler_proc(struct scheduler *s) {
    return &s->proc;
}
