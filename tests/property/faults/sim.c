#include "property/faults/sim.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"

/* ------------------------------------------------------------------------------------ state --- */

struct event {
    uint64_t at_us, order, tag;
    sim_action *action;
    void *context;
};

static struct {
    uint64_t seed, chance, now_us, n_ordered, trace;
    struct event *heap;
    size_t n, cap;
    bool is_verbose;
} sim;

static uint64_t n_faults[SIM_FAULT_COUNT];

/* ----------------------------------------------------------------------------------- chance --- */

uint32_t sim_dice(uint32_t n) {
    return weft_rand_below(&sim.chance, n);
}

uint64_t sim_between(uint64_t min, uint64_t max) {
    WEFT_ASSERT(min <= max && max - min < UINT32_MAX);
    return min + sim_dice((uint32_t)(max - min + 1));
}

bool sim_chance(uint32_t per_ten_thousand) {
    return sim_dice(10000) < per_ten_thousand;
}

/* ---------------------------------------------------------------------------- instead of libc --- */

int __wrap_clock_gettime(clockid_t id, struct timespec *out);
uint64_t __wrap_weft_rand_seed(void);
uint64_t __real_weft_rand_seed(void);
uint64_t __wrap_weft_mem_resident_bytes(void);

/* The wall clock began long before; epochs are made of it. */
#define WALL_S 1700000000

int __wrap_clock_gettime(clockid_t id, struct timespec *out) {
    out->tv_sec = (time_t)(sim.now_us / 1000000) + (id == CLOCK_REALTIME ? WALL_S : 0);
    out->tv_nsec = (long)(sim.now_us % 1000000 * 1000);
    return 0;
}

uint64_t __wrap_weft_rand_seed(void) {
    return sim.seed ? weft_rand_next(&sim.chance) : __real_weft_rand_seed();
}

uint64_t __wrap_weft_mem_resident_bytes(void) {
    return 1;
}

/* ------------------------------------------------------------------------------------ clock --- */

uint64_t sim_now_us(void) {
    return sim.now_us;
}

static bool is_before(const struct event *a, const struct event *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

void sim_at(uint64_t at_us, sim_action *action, void *context, uint64_t tag) {
    if (sim.n == sim.cap) {
        sim.cap = sim.cap ? 2 * sim.cap : 1024;
        sim.heap = realloc(sim.heap, sim.cap * sizeof *sim.heap);
        WEFT_ASSERT(sim.heap);
    }
    struct event event = {.at_us = at_us > sim.now_us ? at_us : sim.now_us,
                          .order = sim.n_ordered++,
                          .tag = tag,
                          .action = action,
                          .context = context};
    size_t i = sim.n++;
    for (; i > 0 && is_before(&event, &sim.heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim.heap[i] = sim.heap[(i - 1) / 2];
    sim.heap[i] = event;
}

static struct event take_first(void) {
    struct event first = sim.heap[0], last = sim.heap[--sim.n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < sim.n; i = child) {
        if (child + 1 < sim.n && is_before(&sim.heap[child + 1], &sim.heap[child])) child++;
        if (!is_before(&sim.heap[child], &last)) break;
        sim.heap[i] = sim.heap[child];
    }
    sim.heap[i] = last;
    return first;
}

void sim_run(uint64_t until_us) {
    while (sim.n > 0 && sim.heap[0].at_us <= until_us) {
        struct event event = take_first();
        sim.now_us = event.at_us;
        sim.trace ^= event.at_us + event.order;
        sim.trace = weft_rand_next(&sim.trace);
        event.action(event.context, event.tag);
    }
    sim.now_us = until_us;
}

/* -------------------------------------------------------------------------------- processes --- */

bool sim_is_stopped(const struct sim_proc *proc) {
    return sim.now_us < proc->stopped_until_us;
}

static void turn(void *context, uint64_t tag) {
    struct sim_proc *proc = context;
    (void)tag;
    if (!proc->is_alive || proc->turn_at_us != sim.now_us) return; /* an earlier one came between */
    proc->turn_at_us = UINT64_MAX;
    if (sim_is_stopped(proc))
        sim_wake(proc, proc->stopped_until_us);
    else
        proc->turn(proc);
}

void sim_wake(struct sim_proc *proc, uint64_t at_us) {
    if (at_us < sim.now_us) at_us = sim.now_us;
    if (!proc->is_alive || proc->turn_at_us <= at_us) return;
    proc->turn_at_us = at_us;
    sim_at(at_us, turn, proc, 0);
}

/* ------------------------------------------------------------------------------- one world --- */

static void on_abort(int signal) {
    char text[128];
    (void)signal;
    int n = snprintf(text, sizeof text, "sim_faults --seed %" PRIu64 " --verbose replays it\n",
                     sim.seed);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0) return;
}

void sim_begin(uint64_t seed, bool is_verbose) {
    (void)signal(SIGABRT, on_abort);
    sim.seed = seed;
    sim.chance = seed;
    sim.now_us = 1000000;
    sim.n = 0;
    sim.n_ordered = sim.trace = 0;
    sim.is_verbose = is_verbose;
}

uint64_t sim_end(void) {
    free(sim.heap);
    sim.heap = NULL;
    sim.n = sim.cap = 0;
    return sim.trace;
}

void sim_count(enum sim_fault fault) {
    n_faults[fault]++;
}

uint64_t sim_n_faults(enum sim_fault fault) {
    return n_faults[fault];
}

const char *sim_fault_text(enum sim_fault fault) {
    static const char *const texts[] = {
#define X(name, text) text,
        SIM_FAULTS(X)
#undef X
    };
    return texts[fault];
}

void sim_say(const char *format, ...) {
    va_list list;
    if (!sim.is_verbose) return;
    (void)fprintf(stderr, "%12.6f  ", (double)sim.now_us / 1e6);
    va_start(list, format);
    (void)vfprintf(stderr, format, list);
    va_end(list);
    (void)fputc('\n', stderr);
}

void sim_fail(const char *format, ...) {
    va_list list;
    (void)fprintf(stderr, "seed %" PRIu64 ", at %.6f s: ", sim.seed, (double)sim.now_us / 1e6);
    va_start(list, format);
    (void)vfprintf(stderr, format, list);
    va_end(list);
    (void)fputc('\n', stderr);
    abort();
}
