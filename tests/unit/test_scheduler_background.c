/* Requests in the background get what others leave, and give it back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "unit/sched_bench.h"

static enum weft_reject try_background(struct bench *bench, uint64_t id, uint32_t n_prompt,
                                       uint32_t max_tokens) {
    struct weft_submit s = bench_request(bench, id, n_prompt, max_tokens);
    s.priority = WEFT_PRIORITY_BACKGROUND;
    return bench_try(bench, &s);
}

static void submit_background(struct bench *bench, uint64_t id, uint32_t n_prompt,
                              uint32_t max_tokens) {
    assert_int_equal(try_background(bench, id, n_prompt, max_tokens), WEFT_REJECT_NONE);
}

static struct bench *bench_of(uint32_t max_seqs, uint32_t n_blocks) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = max_seqs;
    options.n_blocks = n_blocks;
    options.prefix_cache = false;
    return bench_new(&options);
}

static void alone_it_runs_like_any_other(void **state) {
    (void)state;
    struct bench *bench = bench_of(4, 64);
    submit_background(bench, 1, 20, 4);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 16);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 4);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 4);
    bench_free(bench);
}

static void others_overtake_it_under_every_policy(void **state) {
    (void)state;
    for (int policy = 0; policy < WEFT_SCHED_POLICY_COUNT; policy++) {
        struct weft_sched_options options = bench_options();
        options.max_seqs = 1;
        options.policy = (enum weft_sched_policy)policy;
        struct bench *bench = bench_new(&options);
        submit_background(bench, 1, 6, 8);
        submit_background(bench, 2, 7, 8);
        bench_step(bench);
        bench_submit(bench, 3, 8, 8);
        bench_submit(bench, 4, 9, 8);
        bench_run_until_idle(bench, true);
        assert_true(bench_end_event(bench, 3) < bench_end_event(bench, 4));
        assert_true(bench_end_event(bench, 4) < bench_end_event(bench, 1));
        assert_int_equal(bench_n_tokens(bench, 1), 8);
        assert_int_equal(bench_n_tokens(bench, 2), 8);
        bench_free(bench);
    }
}

static void it_gives_its_place_to_whoever_comes_in_the_very_next_plan(void **state) {
    (void)state;
    struct bench *bench = bench_of(2, 64);
    submit_background(bench, 1, 4, 20);
    submit_background(bench, 2, 4, 20);
    bench_step(bench);
    bench_step(bench);
    bench_submit(bench, 3, 5, 3);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->starts[0].n_prompt, 5);
    assert_int_equal(bench_stats(bench).n_preemptions, 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 20);
    assert_int_equal(bench_n_tokens(bench, 2), 20);
    bench_free(bench);
}

static void it_gives_its_blocks_to_whoever_comes_in_the_very_next_plan(void **state) {
    (void)state;
    struct bench *bench = bench_of(4, 10);
    submit_background(bench, 1, 16, 16);
    submit_background(bench, 2, 12, 8);
    for (int i = 0; i < 4; i++)
        bench_step(bench);
    bench_submit(bench, 3, 28, 3);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->starts[0].n_prompt, 28);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(bench_end(bench, id, 0), WEFT_END_LENGTH);
    bench_free(bench);
}

static uint32_t n_rows_of(const struct weft_step_plan *plan, uint32_t n_most) {
    assert_true(plan->n_rows >= 1 && plan->n_rows <= n_most);
    return plan->n_rows;
}

/* The simulated worker's steps take as long as they have tokens: a stream of one leaves an eighth of one. */
static void beside_a_stream_it_has_a_row_now_and_then(void **state) {
    (void)state;
    struct bench *bench = bench_of(4, 64);
    submit_background(bench, 1, 4, 60);
    for (int i = 0; i < 3; i++)
        bench_step(bench);
    bench_submit(bench, 2, 4, 120);
    uint32_t n_before = bench_n_tokens(bench, 1), n_rows = 0, n_plans = 0;
    while (bench_end(bench, 2, 0) == WEFT_END_NONE) {
        n_rows += n_rows_of(bench_step(bench), 2);
        n_plans++;
    }
    assert_true(n_plans <= 122); /* no step went without the stream */
    assert_true(bench_n_tokens(bench, 1) - n_before >= n_rows - n_plans);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 60);
    bench_free(bench);
}

static void a_prompt_has_the_step_for_itself(void **state) {
    (void)state;
    struct bench *bench = bench_of(4, 64);
    submit_background(bench, 1, 4, 60);
    for (int i = 0; i < 3; i++)
        bench_step(bench);
    bench_submit(bench, 2, 60, 4);
    bench_step(bench); /* in which it starts */
    for (int i = 0; i < 2; i++)
        assert_int_equal(n_rows_of(bench_step(bench), 1), 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 60);
    bench_free(bench);
}

static void it_takes_nobodys_place_in_the_queue(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.max_seqs = 2;
    options.max_queue = 1;
    options.queue_timeout_us = 1000;
    struct bench *bench = bench_new(&options);
    for (uint64_t id = 1; id <= 4; id++)
        submit_background(bench, id, 4, 4);
    assert_int_equal(try_background(bench, 5, 4, 4), WEFT_REJECT_QUEUE_FULL);
    assert_int_equal(bench_stats(bench).n_waiting, 0);
    for (uint64_t id = 6; id <= 8; id++)
        bench_submit(bench, id, 4, 4);
    struct weft_submit s = bench_request(bench, 9, 4, 4);
    assert_int_equal(bench_try(bench, &s), WEFT_REJECT_QUEUE_FULL);
    bench_step(bench);
    bench->now_us += 5000;
    weft_sched_tick(bench->sched, bench->now_us); /* --queue-timeout is for those who wait for it */
    bench_collect(bench);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 4; id++)
        assert_int_equal(bench_end(bench, id, 0), WEFT_END_LENGTH);
    bench_free(bench);
}

/* One line of a batch may have as many prompts as may wait and run at once, each of which is a request here. */
static void as_many_as_one_call_may_have_find_room(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.max_seqs = 2;
    options.max_queue = 30;
    struct bench *bench = bench_new(&options);
    for (uint64_t id = 1; id <= 32; id++)
        submit_background(bench, id, 4, 2);
    assert_int_equal(try_background(bench, 33, 4, 2), WEFT_REJECT_QUEUE_FULL);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 32; id++)
        assert_int_equal(bench_n_tokens(bench, id), 2);
    bench_free(bench);
}

/* A request with its share of places lets others by, but not those in the background: or two of them would wait for
 * each other. */
static void it_counts_for_nobody_who_shares_places(void **state) {
    (void)state;
    struct bench *bench = bench_of(3, 64);
    for (uint64_t id = 1; id <= 2; id++) {
        struct weft_submit s = bench_request(bench, id, 3 + (uint32_t)id, 40);
        s.n_choices = 3;
        bench_take(bench, &s);
    }
    submit_background(bench, 3, 4, 8);
    for (int i = 0; i < 6; i++)
        bench_step(bench);
    assert_int_equal(bench_stats(bench).n_running_seqs, 3);
    assert_int_equal(bench_n_tokens(bench, 3), 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 3), 8);
    bench_free(bench);
}

static void a_lost_worker_and_a_cancel_find_it_too(void **state) {
    (void)state;
    struct bench *bench = bench_of(4, 64);
    submit_background(bench, 1, 4, 20);
    submit_background(bench, 2, 4, 20);
    bench_submit(bench, 3, 4, 20);
    for (int i = 0; i < 5; i++)
        bench_step(bench);
    bench_lose_worker(bench);
    bench_cancel(bench, 2);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 20);
    assert_int_equal(bench_n_tokens(bench, 3), 20);
    bench_free(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_it_runs_like_any_other),
        cmocka_unit_test(others_overtake_it_under_every_policy),
        cmocka_unit_test(it_gives_its_place_to_whoever_comes_in_the_very_next_plan),
        cmocka_unit_test(it_gives_its_blocks_to_whoever_comes_in_the_very_next_plan),
        cmocka_unit_test(beside_a_stream_it_has_a_row_now_and_then),
        cmocka_unit_test(a_prompt_has_the_step_for_itself),
        cmocka_unit_test(it_takes_nobodys_place_in_the_queue),
        cmocka_unit_test(as_many_as_one_call_may_have_find_room),
        cmocka_unit_test(it_counts_for_nobody_who_shares_places),
        cmocka_unit_test(a_lost_worker_and_a_cancel_find_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
