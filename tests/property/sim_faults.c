/* Whole clusters with faults, in one thread on a virtual clock: routers with their clients, schedulers,
 * workers, and the streams between them.
 *
 * What runs is real: the calls and the upstream of lib/api, the scheduler's actor, the sessions of
 * lib/link, the messages of proto/. In place of the kernel's streams is faults/wire.c, in place of
 * engines sim_worker.c, which holds each plan against its contract and computes tokens that anybody
 * can foretell. Worlds of random shape run one after the other until enough faults have happened.
 * A world has a time of faults and load, then one without either. Throughout:
 *   - every stream has exactly its undisturbed tokens, none twice and none missing, and ends, or it
 *     gets an error that what happened allows; the death of workers and schedulers is no such thing
 *     unless nobody serves for the grace;
 *   - nobody ends a session to which nothing had happened;
 *   - a group whose worker is gone is given nothing while another group's is there;
 *   - a worker gets plans of its own epoch only, and epochs grow;
 * and in the end, within a bounded time:
 *   - all requests have ended, and no scheduler has any left; all blocks are free;
 *   - each router says that all is well.
 * Two faults that replicas once had are found within a few worlds when they are put back into
 * lib/scheduler/groups.c: a request refused by a full queue that goes on to a group whose worker is gone;
 * and, with a dead worker beside a silent one, requests placed there, or sessions ended to have all
 * requests placed anew.
 *
 * Every sixteenth world is run twice and must go the same way. A run must have seen every kind of fault.
 *
 *   sim_faults [--seed N] [--faults N] [--worlds N] [--verbose]
 *
 * --seed replays the one world that a failure names. WEFT_SEED replays a run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/rand.h"
#include "property/faults/cluster.h"
#include "property/faults/wire.h"

#define FAULTS 25000u /* four runs of it in CI, each from a seed of its own */
#define FAULTS_SANITIZED 5000u
#define SETTLE_US 60000000u /* beside what there is to compute */
#define LOOK_US 100000u

struct shape shape;
struct router *routers[ROUTERS_MAX];
struct scheduler *schedulers[SCHEDULERS_MAX];
struct worker *workers[SCHEDULERS_MAX][GROUPS_MAX];

static struct {
    uint64_t quiet_at_us; /* from then on nothing happens */
    uint64_t pause_us;    /* between two faults, on average */
} plan;

/* ----------------------------------------------------------------------------------- faults --- */

static void start_router(void *router, uint64_t tag) {
    (void)tag;
    router_start(router);
}

static void start_scheduler(void *scheduler, uint64_t tag) {
    (void)tag;
    scheduler_start(scheduler);
}

static void start_worker(void *worker, uint64_t tag) {
    (void)tag;
    worker_start(worker);
}

/* Mostly it is back at once, sometimes nobody would wait for it. */
static uint64_t away_us(void) {
    uint32_t dice = sim_dice(100);
    if (dice < 65) return sim_between(5000, 300000);
    return dice < 88 ? sim_between(300000, 5000000) : sim_between(8000000, 25000000);
}

/* Some never come back. The first worker of each scheduler always does, and so does the first
 * scheduler, so that there is somebody for everything. */
#define FOR_GOOD_US 1000000000u

static bool is_for_good(uint32_t idx) {
    return idx > 0 && sim_chance(300);
}

static void crash(struct sim_proc *proc, enum sim_fault fault, uint64_t us) {
    sim_count(fault);
    sim_say("%s %u dies, and is back after %.3f s", proc->kind, proc->idx, (double)us / 1e6);
}

static void crash_one(enum sim_fault fault) {
    uint32_t i = sim_dice(fault == SIM_ROUTER_CRASH ? shape.n_routers : shape.n_schedulers);
    uint32_t k = sim_dice(shape.n_groups);
    uint32_t idx = fault == SIM_ROUTER_CRASH ? 0 : fault == SIM_SCHEDULER_CRASH ? i : k;
    uint64_t us = is_for_good(idx) ? 2 * FOR_GOOD_US : away_us();
    if (fault == SIM_ROUTER_CRASH && router_proc(routers[i])->is_alive) {
        crash(router_proc(routers[i]), fault, us / 10);
        router_kill(routers[i]);
        sim_at(sim_now_us() + us / 10, start_router, routers[i], 0);
    } else if (fault == SIM_SCHEDULER_CRASH && scheduler_proc(schedulers[i])->is_alive) {
        crash(scheduler_proc(schedulers[i]), fault, us / 2);
        scheduler_kill(schedulers[i]);
        sim_at(sim_now_us() + us / 2, start_scheduler, schedulers[i], 0);
    } else if (fault == SIM_WORKER_CRASH && worker_proc(workers[i][k])->is_alive) {
        crash(worker_proc(workers[i][k]), fault, us);
        worker_kill(workers[i][k]);
        sim_at(sim_now_us() + us, start_worker, workers[i][k], 0);
    }
}

/* Others lose patience with who is silent for ten seconds, and with a handshake after three. */
static void stop(struct sim_proc *proc, uint64_t us) {
    if (proc->stopped_until_us < sim_now_us() + us) proc->stopped_until_us = sim_now_us() + us;
}

static uint64_t stop_us(void) {
    uint32_t dice = sim_dice(100);
    if (dice < 50) return sim_between(5000, 600000);
    return dice < 85 ? sim_between(600000, 5000000) : sim_between(9000000, 20000000);
}

static void stop_one(enum sim_fault fault) {
    uint32_t i = sim_dice(fault == SIM_ROUTER_STOP ? shape.n_routers : shape.n_schedulers);
    uint32_t k = sim_dice(shape.n_groups), idx = fault == SIM_WORKER_STOP ? k : i;
    struct sim_proc *proc = scheduler_proc(schedulers[fault == SIM_ROUTER_STOP ? 0 : i]);
    if (fault == SIM_ROUTER_STOP) proc = router_proc(routers[i]);
    if (fault == SIM_WORKER_STOP) proc = worker_proc(workers[i][k]);
    bool is_last = fault != SIM_ROUTER_STOP && is_for_good(idx);
    uint64_t us = is_last ? FOR_GOOD_US : stop_us();
    if (!proc->is_alive || sim_is_stopped(proc)) return;
    sim_count(fault);
    sim_say("%s %u is stopped for %.3f s", proc->kind, proc->idx, (double)us / 1e6);
    stop(proc, us);
    wire_slow(proc);
    if (us > 2500000) wire_excuse(proc);
}

/* The whole machine stands still: to all of them it is as if the clock had jumped. Nobody may blame
 * anybody for that. */
static void jump(void) {
    uint64_t us = stop_us();
    sim_count(SIM_JUMP);
    wire_excuse_handshakes();
    sim_say("the clock jumps by %.3f s", (double)us / 1e6);
    for (uint32_t i = 0; i < shape.n_routers; i++)
        stop(router_proc(routers[i]), us);
    for (uint32_t i = 0; i < shape.n_schedulers; i++) {
        stop(scheduler_proc(schedulers[i]), us);
        for (uint32_t k = 0; k < shape.n_groups; k++)
            stop(worker_proc(workers[i][k]), us);
    }
}

static void slow_one(void) {
    struct worker *worker = workers[sim_dice(shape.n_schedulers)][sim_dice(shape.n_groups)];
    bool is_stuck = sim_chance(500);
    uint64_t us = is_stuck ? sim_between(9000000, 15000000) : sim_between(100000, 4000000);
    if (!worker_proc(worker)->is_alive) return;
    sim_count(SIM_SLOW);
    worker_slow(worker, us, !is_stuck);
}

static void cut_one(void) {
    if (wire_cut_one()) sim_count(SIM_CUT);
}

static void silence_one(void) {
    uint64_t us = sim_chance(8000) ? sim_between(10000, 2000000) : sim_between(2000000, 25000000);
    if (wire_silence_one(us)) sim_count(SIM_SILENCE);
}

static void strike(void *context, uint64_t tag) {
    uint32_t dice = sim_dice(100);
    (void)tag;
    if (sim_now_us() >= plan.quiet_at_us) return;
    if (dice < 3)
        crash_one(SIM_ROUTER_CRASH);
    else if (dice < 9)
        crash_one(SIM_SCHEDULER_CRASH);
    else if (dice < 27)
        crash_one(SIM_WORKER_CRASH);
    else if (dice < 31)
        stop_one(SIM_ROUTER_STOP);
    else if (dice < 37)
        stop_one(SIM_SCHEDULER_STOP);
    else if (dice < 55)
        stop_one(SIM_WORKER_STOP);
    else if (dice < 78)
        slow_one();
    else if (dice < 90)
        cut_one();
    else if (dice < 98)
        silence_one();
    else
        jump();
    sim_at(sim_now_us() + sim_between(1, 2 * plan.pause_us), strike, context, 0);
}

/* ---------------------------------------------------------------------------------- a world --- */

static void draw_shape(void) {
    memset(&shape, 0, sizeof shape);
    shape.n_routers = (uint32_t)sim_between(1, ROUTERS_MAX);
    shape.n_schedulers = sim_chance(5000) ? 1 : (uint32_t)sim_between(2, SCHEDULERS_MAX);
    shape.n_groups = sim_chance(4000) ? 1 : (uint32_t)sim_between(2, GROUPS_MAX);
    shape.is_tight = sim_chance(4000);
    shape.max_queue = shape.is_tight ? (uint32_t)sim_between(1, 8) : 1000;
    shape.step_us = (uint32_t)sim_between(5000, 60000);
    shape.token_us = 100;
    shape.think_us = sim_between(20000, 400000);
    shape.n_clients_max = (uint32_t)sim_between(4, 24);
    struct weft_sched_options *worker = &shape.worker;
    worker->block_size = 1u << sim_between(2, 4);
    worker->max_model_len = 256;
    worker->max_seqs = (uint32_t)sim_between(1, 8);
    worker->max_batched_tokens = (uint32_t)sim_between(16, 128);
    worker->n_blocks = worker->max_model_len / worker->block_size * (uint32_t)sim_between(1, 4);
    worker->n_vocab = N_VOCAB;
}

static void draw_plan(void) {
    bool is_calm = sim_chance(2000); /* what is rare has time to show */
    plan.pause_us = is_calm ? sim_between(2000000, 8000000) : sim_between(100000, 1500000);
    plan.quiet_at_us = sim_now_us() + sim_between(10000000, 60000000);
    uint32_t harm = is_calm ? 0 : (uint32_t)sim_between(0, 40);
    wire_set_odds(&(struct wire_odds){
        .drop = harm, .duplicate = harm, .reorder = harm, .delay = (uint32_t)sim_between(0, 800)});
}

static void begin_world(void) {
    for (uint32_t i = 0; i < shape.n_schedulers; i++) {
        schedulers[i] = scheduler_new(i);
        sim_at(sim_now_us() + sim_dice(300000), start_scheduler, schedulers[i], 0);
        for (uint32_t k = 0; k < shape.n_groups; k++) {
            workers[i][k] = worker_new(i, k);
            sim_at(sim_now_us() + sim_dice(1000000), start_worker, workers[i][k], 0);
        }
    }
    for (uint32_t i = 0; i < shape.n_routers; i++) {
        routers[i] = router_new(i);
        sim_at(sim_now_us() + sim_dice(300000), start_router, routers[i], 0);
    }
}

static bool all_are_idle(void) {
    for (uint32_t i = 0; i < shape.n_routers; i++) {
        if (!router_is_idle(routers[i])) return false;
    }
    return true;
}

static bool takes_turns(const struct sim_proc *proc) {
    return proc->is_alive && !sim_is_stopped(proc);
}

/* All that is left, one sequence after the other, and once more. */
static uint64_t work_us(void) {
    uint64_t n_steps = 0;
    for (uint32_t i = 0; i < shape.n_routers; i++)
        n_steps += router_n_steps(routers[i]);
    return 2 * n_steps * 2 * shape.step_us;
}

/* Whoever comes back is back after 25 s at the latest; then it is a matter of work. */
static void settle(void) {
    uint64_t until_us = plan.quiet_at_us + SETTLE_US + work_us();
    wire_set_odds(&(struct wire_odds){0});
    for (uint32_t i = 0; i < shape.n_routers; i++)
        router_close(routers[i]);
    sim_say("nothing happens from now on");
    while (sim_now_us() < until_us && !all_are_idle())
        sim_run(sim_now_us() + LOOK_US);
    SIM_CHECK(all_are_idle(), "requests are left %.0f s after the last fault",
              (double)(sim_now_us() - plan.quiet_at_us) / 1e6);
    if (sim_now_us() < plan.quiet_at_us + 40000000) sim_run(plan.quiet_at_us + 40000000);
    sim_run(sim_now_us() + 2000000);
    for (uint32_t i = 0; i < shape.n_routers; i++)
        router_check_well(routers[i]);
    for (uint32_t i = 0; i < shape.n_schedulers; i++) {
        if (takes_turns(scheduler_proc(schedulers[i]))) scheduler_check_idle(schedulers[i]);
    }
}

static void end_world(void) {
    for (uint32_t i = 0; i < shape.n_routers; i++)
        router_free(routers[i]);
    for (uint32_t i = 0; i < shape.n_schedulers; i++) {
        scheduler_free(schedulers[i]);
        for (uint32_t k = 0; k < shape.n_groups; k++)
            worker_free(workers[i][k]);
    }
}

/* Returns a number that is another one if anything went otherwise. */
static uint64_t run_world(uint64_t seed, bool is_verbose) {
    sim_begin(seed, is_verbose);
    wire_begin();
    draw_shape();
    draw_plan();
    sim_say("%u routers, %u schedulers of %u workers, a queue of %u", shape.n_routers,
            shape.n_schedulers, shape.n_groups, shape.max_queue);
    begin_world();
    sim_at(sim_now_us() + 2000000, strike, NULL, 0);
    sim_run(plan.quiet_at_us);
    settle();
    end_world();
    wire_end();
    return sim_end();
}

/* -------------------------------------------------------------------------------------- main --- */

static uint64_t n_faults_in_all(void) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++)
        n += sim_n_faults((enum sim_fault)i);
    return n;
}

static void print_totals(uint32_t n_worlds) {
    (void)printf("%u worlds, %" PRIu64 " faults:\n", n_worlds, n_faults_in_all());
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++)
        (void)printf("  %8" PRIu64 " %s\n", sim_n_faults((enum sim_fault)i),
                     sim_fault_text((enum sim_fault)i));
    (void)printf("%" PRIu64 " calls: %" PRIu64 " done, %" PRIu64 " failed as they may (%" PRIu64
                 " refused), %" PRIu64 " given up by clients; %" PRIu64 " tokens; %" PRIu64
                 " submitted again, %" PRIu64 " to another scheduler\n",
                 tally.n_calls, tally.n_done, tally.n_failed, tally.n_refused, tally.n_dropped,
                 tally.n_tokens, tally.n_resubmitted, tally.n_moved);
}

static void check_all_happened(void) {
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++)
        WEFT_ASSERT(sim_n_faults((enum sim_fault)i) > 0);
    WEFT_ASSERT(tally.n_done > 0 && tally.n_refused > 0 && tally.n_resubmitted > 0 &&
                tally.n_moved > 0);
}

static uint64_t number_after(int argc, char **argv, const char *flag, uint64_t otherwise) {
    uint64_t value = otherwise;
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], flag) == 0 && weft_parse_u64(argv[i + 1], UINT64_MAX, &value)) {
            (void)fprintf(stderr, "%s wants a number\n", flag);
            exit(2);
        }
    }
    return value;
}

int main(int argc, char **argv) {
    uint64_t seed = number_after(argc, argv, "--seed", 0);
    uint64_t n_faults =
        number_after(argc, argv, "--faults", getenv("WEFT_SANITIZED") ? FAULTS_SANITIZED : FAULTS);
    uint64_t n_worlds_max = number_after(argc, argv, "--worlds", UINT32_MAX);
    bool is_verbose = false;
    for (int i = 1; i < argc; i++)
        is_verbose = is_verbose || strcmp(argv[i], "--verbose") == 0;
    weft_log_init("sim", WEFT_LOG_DEBUG, false);
    if (!is_verbose) weft_log_set_level((enum weft_log_level)(WEFT_LOG_ERROR + 1));
    routers_begin();
    if (seed) {
        (void)run_world(seed, is_verbose);
        print_totals(1);
    } else {
        uint64_t chance = weft_rand_test_seed();
        uint32_t n = 0;
        (void)fflush(stdout); /* an abort must not swallow the seed */
        for (; n < n_worlds_max && n_faults_in_all() < n_faults; n++) {
            uint64_t world = weft_rand_next(&chance) | 1; /* 0 is none */
            uint64_t first = run_world(world, is_verbose);
            if (n % 16 == 0) WEFT_ASSERT(run_world(world, is_verbose) == first);
        }
        print_totals(n);
        if (n_faults >= FAULTS_SANITIZED && n_worlds_max == UINT32_MAX) check_all_happened();
    }
    routers_end();
    return EXIT_SUCCESS;
}
