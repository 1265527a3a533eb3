/* Requests over which workers are lost, and those that happen to run beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/sched_bench.h"

static int make_bench(void **state) {
    struct weft_sched_options options = bench_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

/* A plan goes out, and the worker dies of it. */
static void lose_a_plan(struct bench *bench) {
    assert_non_null(bench_plan(bench));
    bench_lose_worker(bench);
    bench_collect(bench);
}

static void a_request_that_kills_every_worker_is_ended(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 5);
    for (uint32_t i = 1; i < WEFT_SEQ_LOSSES_MAX; i++)
        lose_a_plan(bench);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_NONE);
    lose_a_plan(bench);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_ERROR);
    assert_int_equal(bench_stats(bench).n_given_up, 1);
    assert_int_equal(bench_stats(bench).n_solitary_steps,
                     WEFT_SEQ_LOSSES_MAX - WEFT_SUSPECT_LOSSES);
    assert_true(weft_sched_idle(bench->sched));
    bench_submit(bench, 2, 10, 5); /* life goes on */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
}

static void all_its_choices_are_ended(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 10, 5);
    submit.n_choices = 3;
    bench_take(bench, &submit);
    for (uint32_t i = 0; i < WEFT_SEQ_LOSSES_MAX; i++)
        lose_a_plan(bench);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bench_end(bench, 1, i), WEFT_END_ERROR);
    assert_int_equal(bench_stats(bench).n_given_up, 1);
    assert_true(weft_sched_idle(bench->sched));
}

/* Request 3 of five kills; the worker dies of every plan that has a row of it. */
static void those_beside_it_are_spared(void **state) {
    struct bench *bench = *state;
    uint32_t n_losses = 0;
    for (uint64_t id = 1; id <= 5; id++)
        bench_submit(bench, id, 3, 20);
    while (!weft_sched_idle(bench->sched)) {
        while (sim_worker_n_queued(bench->worker) < 2 && bench_plan(bench)) {
        }
        if (sim_worker_reaches(bench->worker, 3) == 0) {
            bench_run(bench);
            continue;
        }
        if (n_losses++ >= WEFT_SUSPECT_LOSSES) { /* by now it is out by itself */
            assert_int_equal(sim_worker_n_queued(bench->worker), 1);
            assert_int_equal(sim_worker_last(bench->worker)->n_rows, 1);
        }
        bench_lose_worker(bench);
        bench_collect(bench);
    }
    assert_int_equal(n_losses, WEFT_SEQ_LOSSES_MAX);
    for (uint64_t id = 1; id <= 5; id++) {
        enum weft_end end = id == 3 ? WEFT_END_ERROR : WEFT_END_LENGTH;
        assert_int_equal(bench_end(bench, id, 0), end);
        assert_int_equal(bench_n_tokens(bench, id), id == 3 ? 0 : 20);
    }
}

static void a_suspect_is_alone_until_it_gets_something_new_done(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 5); /* chunks of 16 */
    (void)bench_step(bench);
    for (uint32_t i = 0; i < WEFT_SUSPECT_LOSSES; i++)
        lose_a_plan(bench);
    bench_submit(bench, 2, 3, 5);
    const struct weft_step_plan *plan = bench_plan(bench); /* the work done before */
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->n_rows, 1);
    assert_null(bench_plan(bench)); /* and nothing after it */
    bench_run(bench);
    plan = bench_plan(bench); /* the first new chunk, still by itself */
    assert_int_equal(plan->n_starts, 0);
    assert_int_equal(plan->n_rows, 1);
    assert_null(bench_plan(bench));
    bench_run(bench);
    assert_int_equal(bench_plan(bench)->n_rows, 2); /* cleared */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
}

static void what_is_done_between_losses_sets_the_count_back(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 60);
    for (uint32_t i = 0; i < 50; i++) {
        for (uint32_t k = 1; k < WEFT_SEQ_LOSSES_MAX; k++)
            lose_a_plan(bench);
        while (bench->n_output[1][0] == i) /* one token, after all that is computed again */
            assert_non_null(bench_step(bench));
    }
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 60);
}

static void a_part_of_a_prompt_counts_as_something_done(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 5);
    for (uint32_t n_steps = 1; n_steps <= 6; n_steps++) { /* each gets one chunk further */
        for (uint32_t k = 1; k < WEFT_SEQ_LOSSES_MAX; k++)
            lose_a_plan(bench);
        for (uint32_t k = 0; k < n_steps; k++)
            assert_non_null(bench_step(bench));
    }
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
}

static void computing_the_same_again_does_not(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 5);
    for (uint32_t i = 0; i < WEFT_SEQ_LOSSES_MAX; i++) { /* it dies of its third chunk */
        assert_int_equal(bench_end(bench, 1, 0), WEFT_END_NONE);
        bench_step(bench);
        bench_step(bench);
        lose_a_plan(bench);
    }
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_ERROR);
}

static void losses_while_nothing_of_it_is_out_do_not_count(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 5);
    bench_step(bench);
    for (uint32_t i = 0; i < 3 * WEFT_SEQ_LOSSES_MAX; i++)
        bench_lose_worker(bench);
    uint32_t n_filling = bench->options.max_seqs; /* for one of them no slot is left */
    for (uint64_t id = 2; id < 2 + n_filling; id++)
        bench_submit(bench, id, 10, 5);
    for (uint32_t i = 0; i < WEFT_SUSPECT_LOSSES; i++)
        lose_a_plan(bench);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id < 2 + n_filling; id++)
        assert_int_equal(bench_n_tokens(bench, id), 5);
}

static void two_plans_that_are_lost_together_are_one_loss(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 60, 5);
    for (uint32_t i = 0; i < WEFT_SUSPECT_LOSSES; i++) {
        assert_non_null(bench_plan(bench));
        assert_non_null(bench_plan(bench));
        bench_lose_worker(bench);
    }
    for (uint32_t i = WEFT_SUSPECT_LOSSES; i < WEFT_SEQ_LOSSES_MAX; i++) {
        assert_int_equal(bench_end(bench, 1, 0), WEFT_END_NONE);
        lose_a_plan(bench);
    }
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_ERROR);
}

static void a_suspect_waits_for_room_while_others_go_on(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 8; id++)
        bench_submit(bench, id, 2, 100); /* all slots */
    bench_submit(bench, 9, 2, 5);
    for (uint32_t i = 0; i < WEFT_SUSPECT_LOSSES; i++)
        lose_a_plan(bench);
    bench_cancel(bench, 1); /* 9 comes in beside seven suspects */
    bench_run_until_idle(bench, true);
    for (uint64_t id = 2; id <= 9; id++)
        assert_int_equal(bench_n_tokens(bench, id), id == 9 ? 5 : 100);
}

static void a_suspect_may_be_cancelled_or_run_out_of_time(void **state) {
    struct bench *bench = *state;
    struct weft_submit late = bench_request(bench, 1, 10, 5);
    late.deadline_us = 50000;
    bench_take(bench, &late);
    bench_submit(bench, 2, 10, 5);
    bench_submit(bench, 3, 10, 5);
    for (uint32_t i = 0; i < WEFT_SUSPECT_LOSSES; i++)
        lose_a_plan(bench);
    assert_int_equal(bench_plan(bench)->n_rows, 1);
    bench->now_us += 60000;
    weft_sched_tick(bench->sched, bench->now_us);
    bench_cancel(bench, 2);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_DEADLINE);
    assert_int_equal(bench_end(bench, 2, 0), WEFT_END_NONE);
    assert_int_equal(bench_n_tokens(bench, 3), 5);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_request_that_kills_every_worker_is_ended),
        CASE(all_its_choices_are_ended),
        CASE(those_beside_it_are_spared),
        CASE(a_suspect_is_alone_until_it_gets_something_new_done),
        CASE(what_is_done_between_losses_sets_the_count_back),
        CASE(a_part_of_a_prompt_counts_as_something_done),
        CASE(computing_the_same_again_does_not),
        CASE(losses_while_nothing_of_it_is_out_do_not_count),
        CASE(two_plans_that_are_lost_together_are_one_loss),
        CASE(a_suspect_waits_for_room_while_others_go_on),
        CASE(a_suspect_may_be_cancelled_or_run_out_of_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
