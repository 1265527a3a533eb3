/* Several choices over one prompt, and the prompt's own log-probabilities. */
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

static struct bench *remake(void **state, const struct weft_sched_options *options) {
    bench_free(*state);
    *state = bench_new(options);
    return *state;
}

static void submit_choices(struct bench *bench, uint64_t id, uint32_t n_prompt, uint32_t max_tokens,
                           uint32_t n_choices) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, max_tokens);
    submit.n_choices = n_choices;
    bench_take(bench, &submit);
}

static void assert_all_have(const struct bench *bench, uint64_t id, uint32_t n_choices,
                            uint32_t n_tokens) {
    for (uint32_t i = 0; i < n_choices; i++) {
        assert_int_equal(bench->n_output[id][i], n_tokens);
        assert_int_equal(bench_end(bench, id, i), WEFT_END_LENGTH);
    }
}

/* ----------------------------------------------------------------------------------- forks --- */

static void choices_share_the_blocks_of_their_prompt(void **state) {
    struct bench *bench = *state;
    submit_choices(bench, 1, 15, 10, 3); /* tokens 0..13 shared: 3 blocks of 4, and 2 tokens */
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_starts, 1);
    assert_int_equal(plan->n_copies, 0);
    plan = bench_plan(bench); /* while the prompt is being computed */
    assert_int_equal(plan->n_starts, 2);
    assert_int_equal(plan->n_copies, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(plan->starts[i].choice, i + 1);
        assert_int_equal(plan->starts[i].n_cached, 14);
        assert_int_equal(plan->starts[i].n_tokens, 15);
    }
    assert_int_equal(bench_plan_tokens(plan), 3);
    assert_int_equal(bench_stats(bench).n_blocks_free, 64 - 4 - 2);
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 1, 3, 10);
    assert_int_equal(bench_stats(bench).n_prompt_tokens, 15);
}

static void a_prompt_that_fills_its_blocks_is_shared_without_copies(void **state) {
    struct bench *bench = *state;
    submit_choices(bench, 1, 13, 10, 3); /* 12 shared tokens are 3 blocks */
    bench_plan(bench);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_starts, 2);
    assert_int_equal(plan->n_copies, 0);
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 1, 3, 10);
}

static void siblings_wait_until_the_prompt_is_planned_and_let_others_pass(void **state) {
    struct bench *bench = *state;
    submit_choices(bench, 1, 60, 5, 2);
    bench_submit(bench, 2, 4, 5);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_starts, 2);
    assert_int_equal(plan->starts[1].n_prompt, 4);
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 1, 2, 5);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
}

static void choices_of_a_single_token_start_by_themselves(void **state) {
    struct bench *bench = *state;
    submit_choices(bench, 1, 1, 10, 4);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_starts, 4);
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 1, 4, 10);
}

static void more_choices_than_slots_take_turns(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 3;
    struct bench *bench = remake(state, &options);
    submit_choices(bench, 1, 10, 6, 20);
    bench_submit(bench, 2, 10, 6);
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 1, 20, 6);
    assert_int_equal(bench_n_tokens(bench, 2), 6);
}

static void choices_finish_although_they_do_not_fit_together(void **state) {
    struct weft_sched_options options = bench_options();
    options.n_blocks = 20;
    struct bench *bench = remake(state, &options);
    submit_choices(bench, 1, 10, 50, 5); /* the oldest request preempts its own */
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 1, 5, 50);
    assert_true(bench_stats(bench).n_preemptions > 0);
}

static void a_preempted_choice_shares_the_prompt_again(void **state) {
    struct weft_sched_options options = bench_options();
    options.n_blocks = 24;
    options.max_batched_tokens = 64;
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 40, 20);      /* as it grows, a choice of the other one must go, */
    submit_choices(bench, 2, 13, 40, 2); /* and comes back when it is done */
    while (bench_stats(bench).n_preemptions == 0)
        bench_step(bench);
    const struct weft_step_plan *plan = bench_step(bench);
    while (plan->n_starts == 0)
        plan = bench_step(bench);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
    assert_true(plan->starts[0].n_tokens > 13);
    assert_int_equal(plan->starts[0].n_cached, 12);
    bench_run_until_idle(bench, true);
    assert_all_have(bench, 2, 2, 40);
}

static void a_choice_whose_siblings_are_gone_computes_the_prompt_itself(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    submit_choices(bench, 1, 10, 3, 2);
    bench_run_until_idle(bench, false);
    assert_all_have(bench, 1, 2, 3);
    assert_int_equal(bench_stats(bench).n_prompt_tokens, 10);
    assert_int_equal(bench_stats(bench).n_recomputed_tokens, 10);
}

static void one_choice_can_be_cancelled(void **state) {
    struct bench *bench = *state;
    submit_choices(bench, 1, 30, 10, 3);
    bench_step(bench);
    struct weft_sched_key key = {.request_id = 1};
    weft_sched_cancel(bench->sched, bench->now_us, &key, 0); /* the one that reads the prompt */
    weft_sched_cancel(bench->sched, bench->now_us, &key, 0);
    weft_sched_cancel(bench->sched, bench->now_us, &key, 9);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_output[1][0], 0);
    assert_int_equal(bench->n_output[1][1], 10);
    assert_int_equal(bench->n_output[1][2], 10);
    assert_int_equal(bench_stats(bench).n_cancelled, 0);
    assert_int_equal(bench_stats(bench).n_finished, 1);
}

static void finished_choices_are_not_resumed(void **state) {
    struct bench *bench = *state;
    uint32_t output[2];
    for (uint32_t i = 0; i < 2; i++)
        output[i] = sim_token(sim_prompt_hash(bench->prompt, 10, 1), 2, i, bench->options.n_vocab);
    const struct weft_submit_choice choices[3] = {
        {.finished = true}, {.n_output = 0}, {.output = output, .n_output = 2}};
    struct weft_submit submit = bench_request(bench, 1, 10, 6);
    submit.n_choices = 3;
    submit.choices = choices;
    submit.resume = true;
    bench->n_output[1][2] = 2;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_output[1][0], 0);
    assert_int_equal(bench->n_output[1][1], 6);
    assert_int_equal(bench->n_output[1][2], 6);
}

/* ---------------------------------------------------------------- prompt log-probabilities --- */

static struct weft_submit with_logprobs(struct bench *bench, uint32_t n_prompt, uint32_t max_tokens,
                                        uint32_t n_choices) {
    struct weft_submit submit = bench_request(bench, 1, n_prompt, max_tokens);
    submit.n_choices = n_choices;
    submit.sampling.n_prompt_logprobs = 2;
    return submit;
}

static void prompt_logprobs_come_chunk_by_chunk(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = with_logprobs(bench, 40, 3, 1);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->events[0].n_prompt_logprobs, 16); /* of positions 1..16 */
    assert_false(bench->events[0].sampled);
    assert_int_equal(bench->n_logprobs_done[1], 40);
    assert_int_equal(bench_n_tokens(bench, 1), 3);
}

static void prompt_logprobs_are_told_once_across_a_workers_death(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = with_logprobs(bench, 40, 3, 2);
    bench_take(bench, &submit);
    bench_step(bench);
    bench_step(bench);
    assert_int_equal(bench->n_logprobs_done[1], 33);
    bench_lose_worker(bench);
    bench_step(bench);
    bench_step(bench);
    assert_int_equal(bench->n_logprobs_done[1], 33);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[1], 40);
    assert_all_have(bench, 1, 2, 3);
}

static void prompt_logprobs_go_on_where_a_resumed_request_was(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = with_logprobs(bench, 40, 3, 1);
    submit.resume = true;
    submit.n_prompt_logprobs_done = bench->n_logprobs_done[1] = 20;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[1], 40);
}

static void prompt_logprobs_survive_the_cancelling_of_the_choice_that_computes_them(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = with_logprobs(bench, 15, 3, 2);
    bench_take(bench, &submit);
    bench_plan(bench);
    struct weft_sched_key key = {.request_id = submit.request_id};
    weft_sched_cancel(bench->sched, bench->now_us, &key, 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[1], 15);
    assert_int_equal(bench->n_output[1][1], 3);
}

static void a_request_for_no_tokens_ends_with_its_prompt(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = with_logprobs(bench, 128, 0, 2);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[1], 128);
    assert_all_have(bench, 1, 2, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(choices_share_the_blocks_of_their_prompt),
        CASE(a_prompt_that_fills_its_blocks_is_shared_without_copies),
        CASE(siblings_wait_until_the_prompt_is_planned_and_let_others_pass),
        CASE(choices_of_a_single_token_start_by_themselves),
        CASE(more_choices_than_slots_take_turns),
        CASE(choices_finish_although_they_do_not_fit_together),
        CASE(a_preempted_choice_shares_the_prompt_again),
        CASE(a_choice_whose_siblings_are_gone_computes_the_prompt_itself),
        CASE(one_choice_can_be_cancelled),
        CASE(finished_choices_are_not_resumed),
        CASE(prompt_logprobs_come_chunk_by_chunk),
        CASE(prompt_logprobs_are_told_once_across_a_workers_death),
        CASE(prompt_logprobs_go_on_where_a_resumed_request_was),
        CASE(prompt_logprobs_survive_the_cancelling_of_the_choice_that_computes_them),
        CASE(a_request_for_no_tokens_ends_with_its_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
