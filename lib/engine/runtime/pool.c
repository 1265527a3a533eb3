/* The compute threads. A run calls one function on every thread; inside, phases are separated by a
 * barrier, and a phase's tiles are handed out by one counter that the barrier sets back to zero.
 * Chance decides who computes which tile; results never depend on it.
 *
 * Waiting spins for a bounded number of pauses and then sleeps on a futex: on few cores the router
 * and the scheduler share them with us, and the thread we wait for may be the one they displaced.
 */
#include "runtime/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "base/thread.h"

enum {
    SPINS = 2000,             /* pauses of 40 to 140 cycles: 30 to 100 us at 3 GHz */
    SPINS_OVERSUBSCRIBED = 1, /* more threads than CPUs: the awaited one wants this very CPU */
};

/* A number that grows, and the threads that sleep until it does. The opener writes `seq` and then
 * reads `n_sleepers`; a sleeper writes `n_sleepers` and then reads `seq`: with sequentially
 * consistent order at least one of them sees the other. */
struct gate {
    _Alignas(64) _Atomic uint32_t seq;
    _Atomic uint32_t n_sleepers;
};

struct thread {
    _Alignas(64) _Atomic uint64_t progress; /* written by this thread alone */
    struct wefti_pool *pool;
    pthread_t handle;
    uint32_t idx;
};

struct wefti_pool {
    uint32_t n_threads, n_started, spins;
    bool pin;
    wefti_pool_fn *fn; /* written before `job` opens, read after it; NULL ends the threads */
    void *ctx;
    bool caller_known; /* thread 0, once it has been pinned */
    pthread_t caller;
    cpu_set_t caller_cpus;
    struct gate job, phase;
    _Alignas(64) _Atomic uint32_t n_arrived;
    _Alignas(64) _Atomic uint32_t next;
    struct thread threads[];
};

static uint32_t allowed_cpus[WEFT_CPUS_MAX];
static uint32_t n_allowed_cpus;
static pthread_once_t allowed_once = PTHREAD_ONCE_INIT;

/* Asked once per process: a later caller may be a thread that a pool has pinned. */
static void read_allowed_cpus(void) {
    n_allowed_cpus = weft_cpu_allowed(allowed_cpus);
}

uint32_t wefti_pool_n_cpus(void) {
    (void)pthread_once(&allowed_once, read_allowed_cpus);
    return n_allowed_cpus;
}

uint32_t wefti_pool_n_usable_cpus(uint32_t n_sharers) {
    WEFT_ASSERT(n_sharers > 0);
    uint32_t quota = weft_cpu_quota(), n_cpus = weft_min_u32(wefti_pool_n_cpus(), WEFT_THREADS_MAX);
    return quota > 0 ? weft_min_u32(n_cpus, weft_max_u32(quota / n_sharers, 1)) : n_cpus;
}

static void gate_open(struct gate *gate) {
    (void)atomic_fetch_add(&gate->seq, 1);
    if (atomic_load(&gate->n_sleepers) == 0) return;
    (void)syscall(SYS_futex, &gate->seq, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void gate_wait(struct gate *gate, uint32_t old, uint32_t spins) {
    for (uint32_t i = 0; i < spins; i++) {
        if (atomic_load_explicit(&gate->seq, memory_order_acquire) != old) return;
        weft_cpu_pause();
    }
    (void)atomic_fetch_add(&gate->n_sleepers, 1);
    while (atomic_load(&gate->seq) == old) {
        (void)syscall(SYS_futex, &gate->seq, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    }
    (void)atomic_fetch_sub(&gate->n_sleepers, 1);
}

static void pin_to_allowed(uint32_t thread_idx, bool alone) {
    (void)wefti_pool_n_cpus();
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < n_allowed_cpus; i++) {
        if (!alone || i == thread_idx) CPU_SET(allowed_cpus[i], &set);
    }
    (void)sched_setaffinity(0, sizeof set, &set); /* a refusal costs speed only */
}

static void *thread_main(void *arg) {
    struct thread *thread = arg;
    struct wefti_pool *pool = thread->pool;
    pin_to_allowed(thread->idx, pool->pin);
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&pool->job, seen, pool->spins);
        if (!pool->fn) return NULL;
        pool->fn(pool->ctx, thread->idx);
        wefti_pool_barrier(pool);
    }
}

static weft_err start_threads(struct wefti_pool *pool, struct weft_errmsg *why) {
    sigset_t all, old; /* signals belong to the control thread */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failure = 0;
    for (uint32_t i = 1; i < pool->n_threads && !failure; i++) {
        failure = weft_thread_start(&pool->threads[i].handle, thread_main, &pool->threads[i]);
        if (failure) break;
        (void)pthread_setname_np(pool->threads[i].handle, "weft-compute");
        pool->n_started = i + 1;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failure) return WEFT_OK;
    return weft_err_errno(why, failure, "cannot start %u compute threads", pool->n_threads);
}

weft_err wefti_pool_new(uint32_t n_threads, struct wefti_pool **pool_out, struct weft_errmsg *why) {
    WEFT_ASSERT(n_threads >= 1 && n_threads <= WEFT_THREADS_MAX);
    *pool_out = NULL;
    size_t bytes = sizeof(struct wefti_pool) + n_threads * sizeof(struct thread);
    struct wefti_pool *pool = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!pool) return weft_err_set(why, WEFT_E_NOMEM, "no memory for %u threads", n_threads);
    *pool = (struct wefti_pool){.n_threads = n_threads, .n_started = 1};
    uint32_t n_cpus = wefti_pool_n_cpus();
    /* A pool that is smaller than the machine is left to the kernel: another process with such a
     * pool would pick the same CPUs. */
    pool->pin = n_cpus > 1 && n_threads == n_cpus;
    pool->spins = n_threads <= n_cpus ? SPINS : SPINS_OVERSUBSCRIBED;
    for (uint32_t i = 0; i < n_threads; i++) {
        pool->threads[i] = (struct thread){.pool = pool, .idx = i};
    }
    weft_err err = start_threads(pool, why);
    if (err) {
        wefti_pool_free(pool);
        return err;
    }
    *pool_out = pool;
    return WEFT_OK;
}

void wefti_pool_free(struct wefti_pool *pool) {
    if (!pool) return;
    pool->fn = NULL;
    gate_open(&pool->job);
    for (uint32_t i = 1; i < pool->n_started; i++) {
        (void)pthread_join(pool->threads[i].handle, NULL);
    }
    wefti_pool_unpin_caller(pool);
    free(pool);
}

void wefti_pool_unpin_caller(struct wefti_pool *pool) {
    if (!pool->caller_known || !pthread_equal(pool->caller, pthread_self())) return;
    (void)sched_setaffinity(0, sizeof pool->caller_cpus, &pool->caller_cpus);
    pool->caller_known = false;
}

/* Thread 0 is whoever calls; it is pinned at its first call. */
static void pin_caller(struct wefti_pool *pool) {
    if (!pool->pin) return;
    if (pool->caller_known && pthread_equal(pool->caller, pthread_self())) return;
    pool->caller = pthread_self();
    pool->caller_known = sched_getaffinity(0, sizeof pool->caller_cpus, &pool->caller_cpus) == 0;
    if (pool->caller_known) pin_to_allowed(0, true);
}

void wefti_pool_run(struct wefti_pool *pool, wefti_pool_fn *fn, void *ctx) {
    WEFT_ASSERT(fn != NULL);
    pin_caller(pool);
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->fn = fn;
    pool->ctx = ctx;
    if (pool->n_threads > 1) gate_open(&pool->job);
    fn(ctx, 0);
    wefti_pool_barrier(pool);
}

void wefti_pool_barrier(struct wefti_pool *pool) {
    wefti_pool_barrier_with(pool, NULL, NULL);
}

void wefti_pool_barrier_with(struct wefti_pool *pool, void (*fn)(void *ctx), void *ctx) {
    uint32_t phase = atomic_load_explicit(&pool->phase.seq, memory_order_relaxed);
    uint32_t before = atomic_fetch_add_explicit(&pool->n_arrived, 1, memory_order_acq_rel);
    if (before + 1 < pool->n_threads) {
        gate_wait(&pool->phase, phase, pool->spins);
        return;
    }
    if (fn) fn(ctx);
    atomic_store_explicit(&pool->n_arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    gate_open(&pool->phase);
}

uint32_t wefti_pool_take(struct wefti_pool *pool, uint32_t thread_idx) {
    wefti_pool_progress(pool, thread_idx);
    return atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
}

void wefti_pool_progress(struct wefti_pool *pool, uint32_t thread_idx) {
    _Atomic uint64_t *mine = &pool->threads[thread_idx].progress;
    uint64_t value = atomic_load_explicit(mine, memory_order_relaxed);
    atomic_store_explicit(mine, value + 1, memory_order_relaxed);
}

uint64_t wefti_pool_progress_sum(const struct wefti_pool *pool) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < pool->n_threads; i++) {
        sum += atomic_load_explicit(&pool->threads[i].progress, memory_order_relaxed);
    }
    return sum;
}

uint32_t wefti_pool_n_threads(const struct wefti_pool *pool) {
    return pool->n_threads;
}
