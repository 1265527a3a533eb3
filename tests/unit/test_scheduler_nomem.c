/* Memory: each allocation is refused in turn, and planning asks for none. The linker turns calls of
 * the allocator into the __wrap functions here; with jemalloc underneath, its own count for this
 * thread covers allocations of libraries, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#ifndef WEFT_SANITIZED
#include <jemalloc/jemalloc.h>
#endif

#include "unit/sched_bench.h"

#define NEVER UINT32_MAX
static uint32_t n_left = NEVER; /* allocations to go until one is refused */
static uint64_t n_allocations;

static bool refuse(void) {
    n_allocations++;
    if (n_left == NEVER) return false;
    if (n_left == 0) return true; /* and all after it: memory that ran out stays so */
    n_left--;
    return false;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_malloc(size_t n) {
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size) {
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *block, size_t n) {
    return refuse() ? NULL : __real_realloc(block, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n) {
    return refuse() ? NULL : __real_aligned_alloc(align, n);
}

static void a_scheduler_is_made_whole_or_not_at_all(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    for (uint32_t granted = 0;; granted++) {
        struct weft_errmsg why = {""};
        weft_sched *sched;
        n_left = granted;
        weft_err err = weft_sched_new(&options, &sched, &why);
        n_left = NEVER;
        if (!err) {
            weft_sched_free(sched);
            assert_true(granted > 10);
            return;
        }
        assert_int_equal(err, WEFT_E_NOMEM);
        assert_null(sched);
        assert_int_not_equal(why.text[0], 0);
    }
}

static void a_request_without_memory_is_refused_and_leaves_no_trace(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    struct bench *bench = bench_new(&options);
    uint32_t output[2] = {1, 2};
    struct weft_submit_choice choices[2] = {{.output = output, .n_output = 2},
                                            {.output = output, .n_output = 1}};
    struct weft_submit submit = bench_request(bench, 1, 10, 5);
    submit.n_choices = 2;
    submit.choices = choices;
    enum weft_reject reject = WEFT_REJECT_NO_MEMORY;
    uint32_t granted = 0;
    for (; reject; granted++) {
        n_left = granted;
        reject = bench_try(bench, &submit);
        n_left = NEVER;
        assert_true(!reject || reject == WEFT_REJECT_NO_MEMORY);
        weft_sched_check(bench->sched);
        assert_int_equal(weft_sched_idle(bench->sched), reject != 0);
    }
    assert_true(granted > 3);
    bench_free(bench);
}

static void a_result_without_memory_can_be_given_again(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    struct bench *bench = bench_new(&options);
    bench_submit(bench, 1, 4, 5);
    bench_submit(bench, 2, 4, 5);
    bench_plan(bench);
    struct weft_step_result *result = sim_worker_run(bench->worker);
    weft_err err = WEFT_E_NOMEM;
    uint32_t granted = 0;
    for (; err; granted++) {
        n_left = granted;
        err = weft_sched_result(bench->sched, bench->now_us, result, NULL);
        n_left = NEVER;
        assert_true(!err || err == WEFT_E_NOMEM);
        weft_sched_check(bench->sched);
    }
    assert_true(granted > 2);
    bench_collect(bench);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
    bench_free(bench);
}

/* Bytes this thread ever took from the heap; 0 where the allocator does not count them. */
static uint64_t allocated_bytes(void) {
#ifdef WEFT_SANITIZED
    return 0;
#else
    uint64_t bytes = 0;
    size_t len = sizeof bytes;
    assert_int_equal(mallctl("thread.allocated", &bytes, &len, NULL, 0), 0);
    assert_true(bytes > 0);
    return bytes;
#endif
}

static void planning_takes_nothing_from_the_heap(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.n_blocks = 24; /* with starts, forks, preemptions and restarts */
    struct bench *bench = bench_new(&options);
    for (uint64_t id = 1; id <= 12; id++) {
        struct weft_submit submit = bench_request(bench, id, 6, 40);
        submit.n_choices = 1 + (uint32_t)(id % 3);
        bench_take(bench, &submit);
    }
    while (!weft_sched_idle(bench->sched)) {
        const struct weft_step_plan *plan;
        uint64_t n_before = n_allocations, bytes_before = allocated_bytes();
        bool made = weft_sched_plan(bench->sched, bench->now_us, &plan);
        assert_int_equal(n_allocations, n_before);
        assert_int_equal(allocated_bytes(), bytes_before);
        if (made) sim_worker_send(bench->worker, plan);
        if (!made || sim_worker_n_queued(bench->worker) == 2) bench_run(bench);
    }
    assert_true(bench_stats(bench).n_preemptions > 0);
    bench_free(bench);
}

/* Once its tables have grown, a whole turn takes only room for outputs: that doubles, so a stream
 * of many tokens asks for it a few times. */
static void a_step_takes_nothing_but_room_for_outputs(void **state) {
    (void)state;
    enum { REQUESTS = 8, TOKENS = 96 };
    struct weft_sched_options options = bench_options();
    options.n_blocks = 256;
    struct bench *bench = bench_new(&options);
    for (uint64_t id = 1; id <= REQUESTS; id++)
        bench_submit(bench, id, 6, TOKENS);
    uint64_t n_taken = 0, n_tokens = 0;
    while (!weft_sched_idle(bench->sched)) {
        const struct weft_step_plan *plan;
        while (weft_sched_plan(bench->sched, bench->now_us, &plan))
            sim_worker_send(bench->worker, plan);
        struct weft_step_result *result = sim_worker_run(bench->worker);
        uint64_t n_before = n_allocations;
        weft_sched_tick(bench->sched, bench->now_us);
        assert_int_equal(weft_sched_result(bench->sched, bench->now_us, result, NULL), WEFT_OK);
        n_taken += n_allocations - n_before;
        size_t n_events;
        (void)weft_sched_events(bench->sched, &n_events);
        weft_sched_events_clear(bench->sched);
        n_tokens += n_events;
    }
    assert_true(n_tokens >= REQUESTS * TOKENS);
    assert_in_range(n_taken, 1, REQUESTS * 7 + 4); /* 96 by doubling, and the list of events */
    bench_free(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scheduler_is_made_whole_or_not_at_all),
        cmocka_unit_test(a_request_without_memory_is_refused_and_leaves_no_trace),
        cmocka_unit_test(a_result_without_memory_can_be_given_again),
        cmocka_unit_test(planning_takes_nothing_from_the_heap),
        cmocka_unit_test(a_step_takes_nothing_but_room_for_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
