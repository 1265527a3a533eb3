#include "crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"

/* Looks at the others before a thread yields its CPU: the end of a product is microseconds off,
 * unless another process has taken one of the CPUs. */
enum { LOOKS_MAX = 20000 };

struct member {
    pthread_t thread;
    uint32_t part, cpu;
};

static struct {
    uint32_t n_threads;
    struct member members[BENCH_THREADS_MAX];
    pthread_barrier_t start, end;
    bench_run run; /* NULL: the threads end */
    const void *job;
    uint32_t n_repeats;
    uint64_t took_ns; /* by the first member's clock: whoever waits for the end may wake up late */
    atomic_uint n_arrived; /* at the end of a product, since the start */
} crew;

static void meet(uint32_t n_wanted) {
    (void)atomic_fetch_add(&crew.n_arrived, 1);
    for (uint32_t looks = 0; atomic_load(&crew.n_arrived) < n_wanted; looks++) {
        if (looks > LOOKS_MAX) (void)sched_yield();
    }
}

static void *member_main(void *arg) {
    const struct member *me = arg;
    (void)weft_cpu_pin(me->cpu); /* a refusal costs speed only */
    for (;;) {
        (void)pthread_barrier_wait(&crew.start);
        if (!crew.run) return NULL;
        const uint64_t begin = weft_now_ns();
        for (uint32_t i = 0; i < crew.n_repeats; i++) {
            crew.run(crew.job, i, me->part, crew.n_threads);
            meet((i + 1) * crew.n_threads);
        }
        if (me->part == 0) crew.took_ns = weft_now_ns() - begin;
        (void)pthread_barrier_wait(&crew.end);
    }
}

void bench_crew_start(uint32_t n_threads) {
    uint32_t cpus[WEFT_CPUS_MAX], n_cpus = weft_cpu_allowed(cpus);
    WEFT_ASSERT(n_threads >= 1 && n_threads <= BENCH_THREADS_MAX);
    crew.n_threads = n_threads;
    WEFT_ASSERT(pthread_barrier_init(&crew.start, NULL, n_threads + 1) == 0);
    WEFT_ASSERT(pthread_barrier_init(&crew.end, NULL, n_threads + 1) == 0);
    for (uint32_t i = 0; i < n_threads; i++) {
        struct member *member = &crew.members[i];
        member->part = i;
        member->cpu = cpus[i % n_cpus];
        WEFT_ASSERT(pthread_create(&member->thread, NULL, member_main, member) == 0);
    }
}

void bench_crew_stop(void) {
    crew.run = NULL;
    (void)pthread_barrier_wait(&crew.start);
    for (uint32_t i = 0; i < crew.n_threads; i++)
        (void)pthread_join(crew.members[i].thread, NULL);
    (void)pthread_barrier_destroy(&crew.start);
    (void)pthread_barrier_destroy(&crew.end);
}

double bench_crew_measure(bench_run run, const void *job, uint32_t n_repeats) {
    WEFT_ASSERT(run && n_repeats > 0);
    crew.run = run;
    crew.job = job;
    crew.n_repeats = n_repeats;
    atomic_store(&crew.n_arrived, 0);
    (void)pthread_barrier_wait(&crew.start);
    (void)pthread_barrier_wait(&crew.end);
    return (double)crew.took_ns * 1e-9 / n_repeats;
}
