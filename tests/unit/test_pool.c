#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside/engine/runtime/pool.h"

enum { CELLS = 300, PHASES = 200 };

struct work {
    struct wefti_pool *pool;
    uint32_t cells[CELLS]; /* plain memory: the barrier orders it */
    _Atomic uint32_t n_calls;
    uint32_t n_wrong;
};

/* Each phase adds one to every cell, reading its neighbour from the phase before. */
static void count_phases(void *ctx, uint32_t thread_idx) {
    struct work *work = ctx;
    (void)atomic_fetch_add(&work->n_calls, 1);
    for (uint32_t phase = 0; phase < PHASES; phase++) {
        for (uint32_t i = wefti_pool_take(work->pool, thread_idx); i < CELLS;
             i = wefti_pool_take(work->pool, thread_idx)) {
            work->cells[i]++;
        }
        wefti_pool_barrier(work->pool);
        if (thread_idx == 0) {
            for (uint32_t i = 0; i < CELLS; i++) {
                work->n_wrong += work->cells[i] != phase + 1;
            }
        }
        wefti_pool_barrier(work->pool);
    }
}

static void run_phases(uint32_t n_threads) {
    struct work *work = calloc(1, sizeof *work);
    assert_non_null(work);
    assert_int_equal(wefti_pool_new(n_threads, &work->pool, NULL), WEFT_OK);
    assert_int_equal(wefti_pool_n_threads(work->pool), n_threads);
    for (uint32_t run = 1; run <= 3; run++) {
        memset(work->cells, 0, sizeof work->cells);
        wefti_pool_run(work->pool, count_phases, work);
        assert_int_equal(work->n_calls, run * n_threads);
        assert_int_equal(work->n_wrong, 0);
    }
    wefti_pool_free(work->pool);
    free(work);
}

static void every_tile_is_taken_once_per_phase(void **state) {
    (void)state;
    run_phases(1);
    run_phases(2);
    run_phases(3);
}

static void more_threads_than_cpus_still_get_through(void **state) {
    (void)state;
    run_phases(wefti_pool_n_cpus() + 5);
}

static void sleep_a_while(void *ctx, uint32_t thread_idx) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    if (thread_idx == 0) (void)nanosleep(&pause, NULL);
    wefti_pool_barrier(ctx);
    if (thread_idx == 1) (void)nanosleep(&pause, NULL);
    wefti_pool_barrier(ctx);
}

static void waiting_for_a_slow_thread_outlasts_the_spin(void **state) {
    (void)state;
    struct wefti_pool *pool = NULL;
    assert_int_equal(wefti_pool_new(2, &pool, NULL), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        wefti_pool_run(pool, sleep_a_while, pool);
    }
    wefti_pool_free(pool);
}

static void take_ten(void *ctx, uint32_t thread_idx) {
    while (wefti_pool_take(ctx, thread_idx) < 10) {
    }
}

static void progress_moves_with_every_tile(void **state) {
    (void)state;
    struct wefti_pool *pool = NULL;
    assert_int_equal(wefti_pool_new(2, &pool, NULL), WEFT_OK);
    uint64_t before = wefti_pool_progress_sum(pool);
    wefti_pool_run(pool, take_ten, pool);
    assert_int_equal(wefti_pool_progress_sum(pool) - before, 12);
    wefti_pool_free(pool);
}

static void do_nothing(void *ctx, uint32_t thread_idx) {
    (void)ctx;
    (void)thread_idx;
}

static void the_caller_gets_its_cpus_back(void **state) {
    (void)state;
    cpu_set_t before, after;
    struct wefti_pool *pool = NULL;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(wefti_pool_new(wefti_pool_n_cpus(), &pool, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        wefti_pool_run(pool, do_nothing, NULL);
        wefti_pool_unpin_caller(pool);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
    wefti_pool_run(pool, do_nothing, NULL);
    wefti_pool_free(pool);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_taken_once_per_phase),
        cmocka_unit_test(more_threads_than_cpus_still_get_through),
        cmocka_unit_test(waiting_for_a_slow_thread_outlasts_the_spin),
        cmocka_unit_test(progress_moves_with_every_tile),
        cmocka_unit_test(the_caller_gets_its_cpus_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
