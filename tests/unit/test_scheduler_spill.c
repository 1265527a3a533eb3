/* Blocks of preempted sequences in the worker's file: when they go there, and when they come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/sched_bench.h"

enum { BLOCK = 4, N_SLOTS = 24 };

/* Two sequences that need 20 blocks together, of 12; computing a token takes a millisecond. */
static struct weft_sched_options spill_options(uint32_t n_slots) {
    struct weft_sched_options options = bench_options();
    options.n_blocks = 12;
    options.n_spill_blocks = n_slots;
    options.block_bytes = 1000;
    return options;
}

static struct bench *remake(void **state, const struct weft_sched_options *options,
                            uint32_t block_us) {
    if (*state) bench_free(*state);
    struct bench *bench = bench_new(options);
    *state = bench;
    sim_worker_costs(bench->worker, 1000, 1000);
    sim_worker_spill_cost(bench->worker, block_us);
    return bench;
}

static struct bench *spilling(void **state, uint32_t n_slots) {
    struct weft_sched_options options = spill_options(n_slots);
    return remake(state, &options, 10);
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

/* What steps cost is known once some have been done. */
static void warm_up(struct bench *bench) {
    for (uint32_t i = 0; i < 12; i++) {
        bench_submit(bench, 10 + i, 3 + 3 * i, 4);
        bench_run_until_idle(bench, i % 2 > 0);
    }
}

/* Requests 1 and 2, up to the plan that preempts the second. */
static const struct weft_step_plan *preempt(struct bench *bench) {
    bench_submit(bench, 1, 6, 30);
    bench_submit(bench, 2, 7, 30);
    const struct weft_step_plan *plan = NULL;
    while (bench_stats(bench).n_preemptions == 0) {
        plan = bench_plan(bench);
        assert_non_null(plan);
        if (bench_stats(bench).n_preemptions == 0) bench_run(bench);
    }
    return plan;
}

static void what_a_victim_had_comes_back_from_the_file(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    const struct weft_step_plan *plan = preempt(bench);
    uint32_t n = plan->n_spills;
    assert_in_range(n, 4, 8);
    assert_int_equal(bench_stats(bench).spill_bytes, n * 1000);
    uint32_t n_recomputed = (uint32_t)bench_stats(bench).n_recomputed_tokens;
    bench_run(bench);
    while (bench_stats(bench).n_restored_blocks == 0) {
        plan = bench_plan(bench);
        assert_non_null(plan);
        bench_run(bench);
    }
    assert_int_equal(plan->n_restores, n);
    assert_int_equal(plan->n_starts, 1);
    assert_in_range(plan->starts[0].n_cached, (n - 1) * BLOCK, n * BLOCK);
    assert_int_equal(plan->starts[0].n_cached, plan->starts[0].n_tokens - 1);
    assert_int_equal(bench_stats(bench).spill_bytes, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
    assert_int_equal(bench_stats(bench).n_recomputed_tokens, n_recomputed);
}

static void nothing_is_spilled_that_is_computed_sooner(void **state) {
    struct weft_sched_options options = spill_options(N_SLOTS);
    options.block_bytes = 1000000000; /* two seconds, by the first guess */
    struct bench *bench = remake(state, &options, 10);
    warm_up(bench);
    assert_int_equal(preempt(bench)->n_spills, 0);
    bench_run_until_idle(bench, true);
    assert_true(bench_stats(bench).n_recomputed_tokens > 0);
    assert_int_equal(bench_stats(bench).n_spilled_blocks, 0);
}

static void nothing_is_spilled_before_costs_are_known(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    sim_worker_costs(bench->worker, 0, 0);
    assert_int_equal(preempt(bench)->n_spills, 0);
    bench_run_until_idle(bench, true);
}

static void a_slow_file_is_noticed(void **state) {
    struct weft_sched_options options = spill_options(N_SLOTS);
    struct bench *bench = remake(state, &options, 1000000);
    warm_up(bench);
    assert_true(preempt(bench)->n_spills > 0);
    bench_run_until_idle(bench, false);
    uint64_t n_spilled = bench_stats(bench).n_spilled_blocks;
    bench_submit(bench, 3, 6, 30);
    bench_submit(bench, 4, 7, 30);
    bench_run_until_idle(bench, false);
    assert_true(bench_stats(bench).n_preemptions > 1);
    assert_int_equal(bench_stats(bench).n_spilled_blocks, n_spilled);
}

/* Requests 1 to 3 of so many prompt tokens. Returns the first one to be preempted. */
static uint64_t first_victim(struct bench *bench, const uint32_t n_prompts[3]) {
    warm_up(bench);
    for (uint64_t id = 1; id <= 3; id++)
        bench_submit(bench, id, n_prompts[id - 1], 40);
    while (bench_stats(bench).n_preemptions == 0) {
        assert_non_null(bench_plan(bench));
        bench_run(bench);
    }
    uint32_t n_waiting = 0;
    struct weft_activity_seq seqs[3];
    uint64_t victim = 0;
    assert_int_equal(weft_sched_list(bench->sched, bench->now_us, seqs, 3), 3);
    for (uint32_t i = 0; i < 3; i++) {
        if (seqs[i].phase != WEFT_ACTIVITY_WAITING) continue;
        victim = seqs[i].request_id;
        n_waiting++;
    }
    assert_int_equal(n_waiting, 1);
    return victim;
}

static void who_can_be_spilled_is_the_cheaper_victim(void **state) {
    const uint32_t n_prompts[] = {6, 9, 30};
    struct weft_sched_options options = spill_options(0);
    options.n_blocks = 20;
    struct bench *bench = remake(state, &options, 10);
    assert_int_equal(first_victim(bench, n_prompts), 3); /* cheaper by a little */
    options.n_spill_blocks = 8;                          /* it has more */
    bench = remake(state, &options, 10);
    assert_int_equal(first_victim(bench, n_prompts), 2);
    assert_true(bench_stats(bench).n_spilled_blocks > 0);
    options.block_bytes = 1000000000; /* two seconds, by the first guess */
    bench = remake(state, &options, 10);
    assert_int_equal(first_victim(bench, n_prompts), 3);
    assert_int_equal(bench_stats(bench).n_spilled_blocks, 0);
}

static void what_does_not_fit_the_file_is_not_spilled(void **state) {
    struct bench *bench = spilling(state, 3);
    warm_up(bench);
    assert_int_equal(preempt(bench)->n_spills, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
}

static void a_cancelled_sequence_leaves_the_file(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    assert_true(preempt(bench)->n_spills > 0);
    bench_cancel(bench, 2);
    assert_int_equal(bench_stats(bench).spill_bytes, 0);
    bench_run_until_idle(bench, true);
    weft_sched_check(bench->sched);
}

static void a_new_worker_has_an_empty_file(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    assert_true(preempt(bench)->n_spills > 0);
    bench_lose_worker(bench);
    assert_int_equal(bench_stats(bench).spill_bytes, 0);
    weft_sched_check(bench->sched);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 30);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
}

static void a_worker_without_a_file_is_told_of_no_spills(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    bench_lose_worker(bench);
    assert_int_equal(weft_sched_limit_spill(bench->sched, 0), 0);
    assert_int_equal(preempt(bench)->n_spills, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_spilled_blocks, 0);
}

static void submit_many(struct bench *bench) {
    for (uint64_t id = 1; id < 10; id++)
        bench_submit(bench, id, 6, 30);
}

/* Goes on until a plan that spills is out. False: there is nothing left to do. */
static bool plan_a_spill(struct bench *bench) {
    const struct weft_step_plan *plan = NULL;
    while ((plan = bench_plan(bench)) && plan->n_spills == 0)
        bench_run(bench);
    return plan != NULL;
}

static void workers_lost_one_after_the_other_over_the_file_end_its_use(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    submit_many(bench);
    assert_true(plan_a_spill(bench));
    bench_lose_worker(bench);
    assert_int_equal(weft_sched_limit_spill(bench->sched, N_SLOTS), N_SLOTS);
    assert_int_equal(bench_stats(bench).n_spill_files_lost, 0);
    assert_true(plan_a_spill(bench));
    bench_lose_worker(bench);
    assert_int_equal(weft_sched_limit_spill(bench->sched, N_SLOTS), 0);
    assert_int_equal(bench_stats(bench).n_spill_files_lost, 1);
    uint64_t n_preemptions = bench_stats(bench).n_preemptions;
    assert_false(plan_a_spill(bench));
    assert_true(bench_stats(bench).n_preemptions > n_preemptions);
    for (uint64_t id = 1; id < 10; id++)
        assert_int_equal(bench_n_tokens(bench, id), 30);
    bench_lose_worker(bench);
    assert_int_equal(weft_sched_limit_spill(bench->sched, N_SLOTS), 0);
    assert_int_equal(bench_stats(bench).n_spill_files_lost, 1);
}

static void losses_do_not_count_once_a_file_was_of_use(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    submit_many(bench);
    assert_true(plan_a_spill(bench));
    bench_lose_worker(bench);
    assert_true(plan_a_spill(bench));
    bench_run(bench);
    assert_true(plan_a_spill(bench));
    bench_lose_worker(bench);
    assert_int_equal(weft_sched_limit_spill(bench->sched, N_SLOTS), N_SLOTS);
    assert_int_equal(bench_stats(bench).n_spill_files_lost, 0);
}

static void losses_over_other_plans_do_not_count(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    for (uint64_t id = 1; id < 5; id++) {
        bench_submit(bench, id, 6, 2);
        assert_non_null(bench_plan(bench));
        bench_lose_worker(bench);
        assert_int_equal(weft_sched_limit_spill(bench->sched, N_SLOTS), N_SLOTS);
        bench_run_until_idle(bench, true);
    }
    assert_int_equal(bench_stats(bench).n_spill_files_lost, 0);
}

static void files_that_workers_give_up_are_counted(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    const uint32_t n_blocks[] = {N_SLOTS, 0, 0, N_SLOTS, 0}, n_lost[] = {0, 1, 1, 1, 2};
    for (uint32_t i = 0; i < 5; i++) {
        bench_lose_worker(bench);
        assert_int_equal(weft_sched_limit_spill(bench->sched, n_blocks[i]), n_blocks[i]);
        assert_int_equal(bench_stats(bench).n_spill_files_lost, n_lost[i]);
    }
}

/* An error ends the session, too, in the middle of a plan that moves blocks. */
static void files_that_give_errors_are_none_that_workers_hang_on(void **state) {
    struct bench *bench = spilling(state, N_SLOTS);
    warm_up(bench);
    submit_many(bench);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(weft_sched_limit_spill(bench->sched, N_SLOTS), N_SLOTS);
        assert_true(plan_a_spill(bench));
        bench_lose_worker(bench);
        assert_int_equal(weft_sched_limit_spill(bench->sched, 0), 0);
        assert_int_equal(bench_stats(bench).n_spill_files_lost, i);
        bench_lose_worker(bench); /* another one comes, with a file of its own */
    }
}

static void the_cache_is_asked_before_the_file(void **state) {
    struct weft_sched_options options = spill_options(N_SLOTS);
    options.prefix_cache = true;
    struct bench *bench = remake(state, &options, 10);
    warm_up(bench);
    static uint32_t prompt[7] = {9, 8, 7, 6, 5, 4, 3};
    bench_submit(bench, 1, 6, 30);
    struct weft_submit submit = bench_request(bench, 2, 7, 30);
    submit.prompt = prompt;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_true(stats.n_spilled_blocks > 0);
    assert_true(stats.n_restored_blocks > 0);
    assert_true(stats.n_restored_blocks < stats.n_spilled_blocks);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
}

static void windows_and_a_file_do_not_go_together(void **state) {
    (void)state;
    struct weft_sched_options options = spill_options(N_SLOTS);
    options.window = 8;
    options.n_window_blocks = 12;
    weft_sched *sched = NULL;
    struct weft_errmsg why = {""};
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
    assert_null(sched);
}

#define CASE(name) cmocka_unit_test_teardown(name, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(what_a_victim_had_comes_back_from_the_file),
        CASE(nothing_is_spilled_that_is_computed_sooner),
        CASE(nothing_is_spilled_before_costs_are_known),
        CASE(a_slow_file_is_noticed),
        CASE(who_can_be_spilled_is_the_cheaper_victim),
        CASE(what_does_not_fit_the_file_is_not_spilled),
        CASE(a_cancelled_sequence_leaves_the_file),
        CASE(a_new_worker_has_an_empty_file),
        CASE(a_worker_without_a_file_is_told_of_no_spills),
        CASE(workers_lost_one_after_the_other_over_the_file_end_its_use),
        CASE(losses_do_not_count_once_a_file_was_of_use),
        CASE(losses_over_other_plans_do_not_count),
        CASE(files_that_workers_give_up_are_counted),
        CASE(files_that_give_errors_are_none_that_workers_hang_on),
        CASE(the_cache_is_asked_before_the_file),
        cmocka_unit_test(windows_and_a_file_do_not_go_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
