/* Planning: who runs when, in what chunks, on whose blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "scheduler/step_cost.h"
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

/* A case that wants other options replaces its bench. */
static struct bench *remake(void **state, const struct weft_sched_options *options) {
    bench_free(*state);
    *state = bench_new(options);
    return *state;
}

/* ---------------------------------------------------------------------------------- basics --- */

static void options_out_of_range_are_refused(void **state) {
    (void)state;
    struct weft_sched_options good = bench_options();
    for (uint32_t i = 0; i < 7; i++) {
        struct weft_sched_options bad = good;
        uint32_t *fields[] = {&bad.n_blocks,           &bad.block_size,    &bad.max_seqs,
                              &bad.max_batched_tokens, &bad.max_model_len, &bad.n_vocab,
                              &bad.max_queue};
        const uint32_t values[] = {0, UINT32_MAX};
        for (uint32_t v = 0; v < 2; v++) {
            weft_sched *sched;
            struct weft_errmsg why = {""};
            *fields[i] = values[v];
            assert_int_equal(weft_sched_new(&bad, &sched, &why), WEFT_E_INVAL);
            assert_null(sched);
            assert_int_not_equal(why.text[0], 0);
        }
    }
}

static void a_request_runs_to_its_length(void **state) {
    struct bench *bench = *state;
    assert_true(weft_sched_idle(bench->sched));
    assert_null(bench_plan(bench));
    bench_submit(bench, 1, 10, 20);
    assert_false(weft_sched_idle(bench->sched));
    bench_run_until_idle(bench, false);
    assert_int_equal(bench_n_tokens(bench, 1), 20);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(stats.n_prompt_tokens, 10);
    assert_int_equal(stats.n_output_tokens, 20);
    assert_int_equal(stats.n_recomputed_tokens, 0);
    assert_int_equal(stats.n_finished, 1);
}

static void a_stop_token_ends_the_stream(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 10, 20);
    uint64_t hash = sim_prompt_hash(bench->prompt, 10, 1);
    uint32_t stop = sim_token(hash, 0, 6, bench->options.n_vocab);
    submit.sampling.stop_tokens = &stop;
    submit.sampling.n_stop_tokens = 1;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 7);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_STOP);
}

static void a_stream_ends_at_the_models_length(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 100, 1000000);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 28);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
}

static void a_request_for_no_tokens_ends_behind_its_prompt(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 20, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_events, 1);
    assert_int_equal(bench_n_tokens(bench, 1), 0);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
}

static void the_time_in_the_queue_ends_with_the_first_plan(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 4, 1);
    bench->now_us += 1234;
    const struct weft_step_plan *plan;
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    sim_worker_send(bench->worker, plan);
    struct weft_errmsg why;
    struct weft_step_result *result = sim_worker_run(bench->worker);
    bench->now_us += 5000;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, result, &why), WEFT_OK);
    size_t n;
    const struct weft_sched_event *events = weft_sched_events(bench->sched, &n);
    assert_int_equal(n, 1);
    assert_int_equal(events[0].event.queued_us, 1234);
    weft_sched_events_clear(bench->sched);
}

/* --------------------------------------------------------------------------- step planning --- */

static void a_long_prompt_is_cut_into_chunks_of_the_token_budget(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 3);
    const uint32_t expected[] = {16, 16, 8, 1, 1};
    for (uint32_t i = 0; i < 5; i++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_int_equal(plan->n_rows, 1);
        assert_int_equal(plan->rows[0].n_tokens, expected[i]);
    }
    assert_int_equal(bench_n_tokens(bench, 1), 3);
    bench_run_until_idle(bench, false);
}

static void a_running_stream_gets_a_token_in_every_step_beside_a_long_prompt(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 4, 30);
    bench_step(bench);
    bench_submit(bench, 2, 100, 1);
    for (uint32_t n = 2; bench_n_tokens(bench, 2) == 0; n++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_int_equal(bench_n_tokens(bench, 1), n);
        assert_true(bench_plan_tokens(plan) <= 16);
    }
    assert_int_equal(bench_n_tokens(bench, 1), 8); /* 100 tokens at 15 a step */
    bench_run_until_idle(bench, false);
}

static void a_late_requests_first_token_comes_while_an_earlier_one_decodes(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 8, 50);
    for (uint32_t i = 0; i < 10; i++)
        bench_step(bench);
    bench_submit(bench, 2, 8, 5);
    bench_run_until_idle(bench, true);
    assert_true(bench_first_event(bench, 1) < bench_first_event(bench, 2));
    assert_true(bench_end_event(bench, 2) < bench_end_event(bench, 1));
}

static void a_short_late_prompt_is_answered_while_a_long_one_is_read(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 120, 4);
    bench_submit(bench, 2, 110, 4);
    bench_step(bench);
    bench_submit(bench, 3, 8, 4);
    bench_run_until_idle(bench, true);
    assert_true(bench_end_event(bench, 3) < bench_first_event(bench, 1));
    assert_true(bench_end_event(bench, 3) < bench_first_event(bench, 2));
}

static void the_oldest_prompt_gets_half_and_what_others_leave(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 60, 1);
    bench_submit(bench, 2, 5, 1);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_rows, 2);
    assert_int_equal(plan->rows[0].n_tokens, 11);
    assert_int_equal(plan->rows[1].n_tokens, 5);
    bench_submit(bench, 3, 60, 1);
    plan = bench_step(bench);
    assert_int_equal(plan->rows[0].n_tokens, 8);
    assert_int_equal(plan->rows[1].n_tokens, 8);
    bench_run_until_idle(bench, false);
}

static void age_counts_and_not_the_order_of_submission(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 60, 1);
    struct weft_submit submit = bench_request(bench, 2, 60, 1);
    submit.resume = true;
    submit.age_us = 500;
    bench_take(bench, &submit);
    bench_step(bench);
    for (uint32_t i = 0; i < 3; i++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_int_equal(plan->rows[0].slot, 0); /* the older one started first, */
        assert_int_equal(plan->rows[0].n_tokens, 8);
    }
    bench_run_until_idle(bench, false);
    assert_true(bench_end_event(bench, 2) < bench_end_event(bench, 1)); /* and is done first */
}

static void a_token_budget_below_the_slots_bounds_the_running_set(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_batched_tokens = 3;
    struct bench *bench = remake(state, &options);
    for (uint64_t id = 1; id <= 8; id++)
        bench_submit(bench, id, 4, 6);
    for (uint32_t i = 0; i < 20; i++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_true(bench_plan_tokens(plan) <= 3);
        assert_true(bench_stats(bench).n_running_seqs <= 3);
    }
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 8; id++)
        assert_int_equal(bench_n_tokens(bench, id), 6);
}

static void chunks_adapt_to_the_target_time_of_a_step(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_batched_tokens = 512;
    options.max_model_len = 1000;
    options.n_blocks = 300;
    options.itl_target_us = 100000;
    struct bench *bench = remake(state, &options);
    sim_worker_costs(bench->worker, 10000, 1000); /* 90 tokens fit */
    bench_submit(bench, 1, 900, 1);
    uint32_t n_last = 0;
    for (uint32_t i = 0; i < 10; i++)
        n_last = bench_plan_tokens(bench_step(bench));
    assert_in_range(n_last, 75, 92);
    bench_run_until_idle(bench, false);

    sim_worker_costs(bench->worker, 200000, 100000); /* a machine far too slow still advances */
    bench_submit(bench, 2, 900, 1);
    for (uint32_t i = 0; i < 15; i++)
        n_last = bench_plan_tokens(bench_step(bench));
    assert_int_equal(n_last, 16);
    bench_run_until_idle(bench, false);
}

static void a_chunk_leaves_time_for_the_running_streams(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_batched_tokens = 512;
    options.max_model_len = 1000;
    options.n_blocks = 300;
    options.itl_target_us = 100000;
    struct bench *bench = remake(state, &options);
    sim_worker_costs(bench->worker, 60000, 1000); /* 60 ms for a step as such: 40 tokens fit */
    bench_submit(bench, 1, 4, 100);
    for (uint32_t i = 0; i < 10; i++)
        bench_step(bench);
    bench_submit(bench, 2, 900, 1);
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t n_tokens = bench_plan_tokens(bench_step(bench));
        assert_true(60 + n_tokens <= 105);
        if (i >= 8) assert_true(n_tokens >= 33);
    }
}

/* The longest step of 8 streams while a prompt of 900 tokens is computed beside them, in us. A step
 * takes 30 ms and 2 ms for each token, so 46 ms without it. */
static uint64_t longest_step_beside_streams(void **state, uint32_t itl_target_us) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 16;
    options.max_batched_tokens = 512;
    options.max_model_len = 1000;
    options.n_blocks = 4000; /* nobody is preempted */
    options.itl_target_us = itl_target_us;
    struct bench *bench = remake(state, &options);
    sim_worker_costs(bench->worker, 30000, 2000);
    for (uint64_t id = 1; id <= 8; id++)
        bench_submit(bench, id, 20, 900);
    for (uint32_t i = 0; i < 40; i++)
        bench_step(bench);
    bench_submit(bench, 9, 900, 1);
    uint64_t longest_us = 0;
    while (bench_end(bench, 9, 0) == WEFT_END_NONE) {
        uint64_t begin_us = bench->now_us;
        bench_step(bench);
        if (bench->now_us - begin_us > longest_us) longest_us = bench->now_us - begin_us;
    }
    for (uint64_t id = 1; id <= 8; id++)
        bench_cancel(bench, id);
    bench_run_until_idle(bench, false);
    return longest_us;
}

static void a_target_holds_for_steps_with_streams_and_a_prompt(void **state) {
    assert_in_range(longest_step_beside_streams(state, 60000), 54000, 66000);
    assert_in_range(longest_step_beside_streams(state, 80000), 70000, 88000);
    assert_in_range(longest_step_beside_streams(state, 10000), 48000, 54000); /* it must advance */
}

static void without_a_target_a_prompt_adds_less_than_half_of_a_step(void **state) {
    assert_in_range(longest_step_beside_streams(state, WEFT_SCHED_ITL_AUTO), 58000, 69000);
}

static void what_a_step_takes_is_predicted_and_counted(void **state) {
    struct bench *bench = *state;
    sim_worker_costs(bench->worker, 10000, 1000);
    bench_submit(bench, 1, 60, 40);
    bench_step(bench);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(stats.step_predicted_us, 0); /* nothing was known of the first one */
    assert_int_equal(stats.step_actual_us, 0);
    uint64_t begin_us = bench->now_us;
    bench_run_until_idle(bench, true);
    stats = bench_stats(bench);
    assert_int_equal(stats.step_actual_us, bench->now_us - begin_us);
    assert_in_range(stats.step_predicted_us, stats.step_actual_us * 9 / 10,
                    stats.step_actual_us * 11 / 10);
    assert_true(stats.step_error_us > 0 && stats.step_error_us < stats.step_actual_us / 10);
}

/* --------------------------------------------------------------------------------- overlap --- */

static void two_plans_may_be_out_and_no_third(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 8, 10);
    assert_non_null(bench_plan(bench));
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_non_null(plan);
    assert_int_equal(plan->n_starts, 0);
    assert_int_equal(plan->n_rows, 1);
    assert_int_equal(plan->rows[0].n_tokens, 1); /* of the token that is not there yet */
    assert_int_equal(bench_stats(bench).n_plans_out, 2);
    const struct weft_step_plan *third;
    assert_false(weft_sched_plan(bench->sched, bench->now_us, &third));
    assert_null(third);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 10);
}

static void nothing_is_planned_beyond_a_length_that_is_known(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 8, 2);
    assert_non_null(bench_plan(bench));
    assert_non_null(bench_plan(bench));
    bench_run(bench);
    assert_null(bench_plan(bench)); /* its second and last token is on its way */
    bench_run(bench);
    assert_int_equal(bench_n_tokens(bench, 1), 2);
    bench_run_until_idle(bench, true);
}

static void a_row_planned_before_the_end_was_known_is_a_no_op(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 8, 20);
    uint32_t stop = sim_token(sim_prompt_hash(bench->prompt, 8, 1), 0, 0, bench->options.n_vocab);
    submit.sampling.stop_tokens = &stop;
    submit.sampling.n_stop_tokens = 1;
    bench_take(bench, &submit);
    bench_plan(bench);
    bench_plan(bench);
    bench_run(bench);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_STOP);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64); /* at once */
    bench_submit(bench, 2, 8, 2);
    const struct weft_step_plan *plan = bench_plan(bench); /* its blocks are granted again, after
                                                              the release and the no-op */
    assert_int_equal(plan->n_releases, 1);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->starts[0].slot, plan->releases[0].slot);
    assert_true(plan->starts[0].gen > plan->releases[0].gen);
    bench_run(bench);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 1);
    assert_int_equal(bench_n_tokens(bench, 2), 2);
}

/* ------------------------------------------------------------------------------ preemption --- */

/* Two sequences of at most 60 tokens, 15 blocks each, over 20 blocks. */
static struct bench *make_tight(void **state) {
    struct weft_sched_options options = bench_options();
    options.n_blocks = 20;
    return remake(state, &options);
}

static void when_blocks_run_out_everybody_finishes_with_the_same_tokens(void **state) {
    struct bench *bench = make_tight(state);
    for (uint64_t id = 1; id <= 6; id++)
        bench_submit(bench, id, 10, 50);
    bench_run_until_idle(bench, true);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_true(stats.n_preemptions > 0);
    assert_true(stats.n_recomputed_tokens > 0);
    assert_int_equal(stats.n_prompt_tokens, 60);
    assert_int_equal(stats.n_output_tokens, 300);
    for (uint64_t id = 1; id <= 6; id++) {
        assert_int_equal(bench_n_tokens(bench, id), 50);
        assert_int_equal(bench_end(bench, id, 0), WEFT_END_LENGTH);
    }
}

static void the_sequence_cheapest_to_recompute_is_preempted(void **state) {
    struct bench *bench = make_tight(state);
    bench_submit(bench, 1, 16, 40);
    bench_submit(bench, 2, 4, 40); /* the cheapest, though not the youngest */
    bench_submit(bench, 3, 28, 20);
    while (bench_stats(bench).n_preemptions == 0) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_non_null(plan);
    }
    uint32_t n_tokens = bench_n_tokens(bench, 2);
    for (uint32_t i = 0; i < 3; i++)
        bench_step(bench);
    assert_int_equal(bench_n_tokens(bench, 2), n_tokens); /* it waits */
    assert_int_equal(bench_stats(bench).n_running_seqs, 2);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 40);
}

static void the_oldest_request_is_never_preempted(void **state) {
    struct bench *bench = make_tight(state);
    bench_submit(bench, 1, 4, 70); /* always the shortest */
    bench_submit(bench, 2, 30, 40);
    uint32_t n_tokens = 0;
    while (bench_end(bench, 1, 0) == WEFT_END_NONE) {
        bench_step(bench);
        assert_true(bench_n_tokens(bench, 1) == ++n_tokens || n_tokens <= 3);
        n_tokens = bench_n_tokens(bench, 1);
    }
    assert_true(bench_stats(bench).n_preemptions > 0);
    bench_run_until_idle(bench, true);
}

static void a_preempted_sequence_waits_for_the_token_that_is_on_its_way(void **state) {
    struct bench *bench = make_tight(state);
    bench_submit(bench, 1, 30, 50);
    bench_submit(bench, 2, 22, 50);
    const struct weft_step_plan *plan = bench_plan(bench);
    while (bench_stats(bench).n_preemptions == 0) {
        if (sim_worker_n_queued(bench->worker) == 2) bench_run(bench);
        plan = bench_plan(bench);
        assert_non_null(plan);
    }
    assert_int_equal(plan->n_releases, 1); /* in plan order: after its last row */
    assert_int_equal(plan->n_rows, 1);
    assert_int_equal(sim_worker_n_queued(bench->worker), 2);
    uint32_t n_tokens = bench_n_tokens(bench, 2);
    bench_run(bench);
    assert_int_equal(bench_n_tokens(bench, 2), n_tokens + 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 50);
    assert_int_equal(bench_n_tokens(bench, 2), 50);
}

static void a_preempted_sequence_is_not_overtaken(void **state) {
    struct bench *bench = make_tight(state);
    bench_submit(bench, 1, 30, 40);
    bench_submit(bench, 2, 22, 40);
    while (bench_stats(bench).n_preemptions == 0)
        bench_step(bench);
    bench_submit(bench, 3, 1, 1); /* would fit at once */
    bench_run_until_idle(bench, true);
    uint32_t third = bench_first_event(bench, 3), n_before = 0;
    for (uint32_t i = 0; i < third; i++)
        n_before += bench->events[i].request_id == 2;
    assert_true(n_before > 10); /* the second went on before the third began */
}

static void a_newcomer_leaves_a_block_for_everybody_who_runs(void **state) {
    struct bench *bench = make_tight(state);
    bench_submit(bench, 1, 64, 8); /* 16 of 20 blocks, 18 in the end */
    for (uint32_t i = 0; i < 4; i++)
        bench_step(bench);
    bench_submit(bench, 2, 12, 4); /* 3 blocks: would fit, only to be preempted */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_preemptions, 0);
    assert_true(bench_end_event(bench, 1) < bench_first_event(bench, 2));
}

/* ---------------------------------------------------------------------------------- epochs --- */

static void after_a_workers_death_streams_go_on_with_the_very_tokens(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 10; id++)
        bench_submit(bench, id, 10, 30);
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t k = 0; k < 7; k++)
            bench_step(bench);
        bench_plan(bench);
        bench_plan(bench);
        bench_lose_worker(bench);
        assert_int_equal(bench_stats(bench).n_plans_out, 0);
        assert_int_equal(bench_stats(bench).n_running_seqs, 0);
        assert_int_equal(bench_stats(bench).n_blocks_free, 64);
    }
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 10; id++)
        assert_int_equal(bench_n_tokens(bench, id), 30);
}

static void a_new_epoch_begins_at_step_zero_with_nothing_to_release(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 30);
    bench_step(bench);
    bench_step(bench);
    bench_cancel(bench, 1);
    bench_submit(bench, 2, 10, 30);
    bench_lose_worker(bench);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->epoch, 2);
    assert_int_equal(plan->step, 0);
    assert_int_equal(plan->n_releases, 0);
    bench_run_until_idle(bench, true);
}

static void restarts_of_more_than_the_models_length_fit_one_plan(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 4; id++)
        bench_submit(bench, id, 40, 20);
    while (bench_n_tokens(bench, 4) < 5)
        bench_step(bench);
    bench_lose_worker(bench);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 4); /* of 180 tokens, where a sequence has 128 at most */
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 4; id++)
        assert_int_equal(bench_n_tokens(bench, id), 20);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(options_out_of_range_are_refused),
        CASE(a_request_runs_to_its_length),
        CASE(a_stop_token_ends_the_stream),
        CASE(a_stream_ends_at_the_models_length),
        CASE(a_request_for_no_tokens_ends_behind_its_prompt),
        CASE(the_time_in_the_queue_ends_with_the_first_plan),
        CASE(a_long_prompt_is_cut_into_chunks_of_the_token_budget),
        CASE(a_running_stream_gets_a_token_in_every_step_beside_a_long_prompt),
        CASE(a_late_requests_first_token_comes_while_an_earlier_one_decodes),
        CASE(a_short_late_prompt_is_answered_while_a_long_one_is_read),
        CASE(the_oldest_prompt_gets_half_and_what_others_leave),
        CASE(age_counts_and_not_the_order_of_submission),
        CASE(a_token_budget_below_the_slots_bounds_the_running_set),
        CASE(chunks_adapt_to_the_target_time_of_a_step),
        CASE(a_chunk_leaves_time_for_the_running_streams),
        CASE(a_target_holds_for_steps_with_streams_and_a_prompt),
        CASE(without_a_target_a_prompt_adds_less_than_half_of_a_step),
        CASE(what_a_step_takes_is_predicted_and_counted),
        CASE(two_plans_may_be_out_and_no_third),
        CASE(nothing_is_planned_beyond_a_length_that_is_known),
        CASE(a_row_planned_before_the_end_was_known_is_a_no_op),
        CASE(when_blocks_run_out_everybody_finishes_with_the_same_tokens),
        CASE(the_sequence_cheapest_to_recompute_is_preempted),
        CASE(the_oldest_request_is_never_preempted),
        CASE(a_preempted_sequence_waits_for_the_token_that_is_on_its_way),
        CASE(a_preempted_sequence_is_not_overtaken),
        CASE(a_newcomer_leaves_a_block_for_everybody_who_runs),
        CASE(after_a_workers_death_streams_go_on_with_the_very_tokens),
        CASE(a_new_epoch_begins_at_step_zero_with_nothing_to_release),
        CASE(restarts_of_more_than_the_models_length_fit_one_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
