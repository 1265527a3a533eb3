/* Log-probabilities and starts are rationed: a step's result and a plan fit a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "unit/sched_bench.h"

/* For a token with all of the vocabulary. The simulated worker asserts that no result has more
 * entries than the budget allows. */
#define N_VOCAB 32u
#define ENTRY_BYTES (12u + 8u * N_VOCAB)

static struct bench *bench_with_room_for(uint32_t n_entries) {
    struct weft_sched_options options = bench_options();
    options.n_vocab = N_VOCAB;
    options.max_batched_tokens = 64;
    options.step_logprob_bytes = n_entries * ENTRY_BYTES;
    return bench_new(&options);
}

static void submit(struct bench *bench, uint64_t id, uint32_t n_prompt, uint32_t max_tokens,
                   int32_t n_logprobs, int32_t n_prompt_logprobs) {
    struct weft_submit s = bench_request(bench, id, n_prompt, max_tokens);
    s.sampling.n_logprobs = n_logprobs;
    s.sampling.n_prompt_logprobs = n_prompt_logprobs;
    bench_take(bench, &s);
}

static void a_prompt_chunk_is_as_long_as_its_logprobs_may_be(void **state) {
    (void)state;
    struct bench *bench = bench_with_room_for(8);
    submit(bench, 1, 21, 1, -1, N_VOCAB);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 8);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 8);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 5); /* the last token brings none */
    assert_int_equal(bench->n_logprobs_done[1], 21);
    bench_run_until_idle(bench, false);
    assert_int_equal(bench_n_tokens(bench, 1), 1);
    bench_free(bench);
}

static void the_last_token_of_a_prompt_waits_if_its_own_logprobs_do_not_fit(void **state) {
    (void)state;
    struct bench *bench = bench_with_room_for(4);
    submit(bench, 1, 5, 3, N_VOCAB, N_VOCAB);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 4);
    assert_int_equal(bench_n_tokens(bench, 1), 0);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 1);
    assert_int_equal(bench_n_tokens(bench, 1), 1);
    bench_run_until_idle(bench, false);
    assert_int_equal(bench_n_tokens(bench, 1), 3);
    bench_free(bench);
}

static void positions_already_told_cost_nothing(void **state) {
    (void)state;
    struct bench *bench = bench_with_room_for(4);
    struct weft_submit s = bench_request(bench, 1, 40, 1);
    s.sampling.n_prompt_logprobs = N_VOCAB;
    s.n_prompt_logprobs_done = bench->n_logprobs_done[1] = 30;
    s.resume = true;
    bench_take(bench, &s);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 29 + 4); /* 30..33 come from 29..32 */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[1], 40);
    bench_free(bench);
}

static void streams_that_do_not_fit_together_take_turns(void **state) {
    (void)state;
    struct bench *bench = bench_with_room_for(2);
    for (uint64_t id = 1; id <= 5; id++)
        submit(bench, id, 1, 60, N_VOCAB, -1);
    submit(bench, 6, 1, 60, -1, -1); /* asks for none: it has a row in every step */
    (void)bench_step(bench);
    for (uint32_t n_steps = 1; n_steps <= 50; n_steps++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_int_equal(plan->n_rows, 3);
        uint32_t least = UINT32_MAX, most = 0;
        for (uint64_t id = 1; id <= 5; id++) {
            uint32_t n = bench->n_output[id][0];
            if (n < least) least = n;
            if (n > most) most = n;
        }
        assert_true(most - least <= 2); /* one turn, and the first token of those who had room */
        assert_int_equal(bench->n_output[6][0], n_steps + 1);
    }
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 6; id++)
        assert_int_equal(bench_n_tokens(bench, id), 60);
    bench_free(bench);
}

static void newcomers_do_not_overtake_those_who_wait(void **state) {
    (void)state;
    struct bench *bench = bench_with_room_for(1);
    submit(bench, 1, 1, 30, N_VOCAB, -1);
    submit(bench, 2, 1, 30, N_VOCAB, -1);
    for (uint64_t id = 3; id <= 42; id++) { /* each comes while the two go on */
        submit(bench, id, 1, 1, N_VOCAB, -1);
        bench_step(bench);
        bench_step(bench);
    }
    assert_true(bench->n_output[1][0] >= 20 && bench->n_output[2][0] >= 20);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 42; id++)
        assert_int_equal(bench_n_tokens(bench, id), id <= 2 ? 30 : 1);
    bench_free(bench);
}

static void a_prompt_gets_its_share_beside_streams_and_they_beside_it(void **state) {
    (void)state;
    struct bench *bench = bench_with_room_for(2);
    for (uint64_t id = 1; id <= 3; id++)
        submit(bench, id, 1, 60, N_VOCAB, -1);
    submit(bench, 4, 30, 1, -1, N_VOCAB);
    for (uint32_t n_steps = 0; n_steps < 40; n_steps++)
        assert_true(bench_step(bench)->n_rows >= 2);
    assert_true(bench->n_logprobs_done[4] >= 16); /* a place in half of the steps */
    for (uint64_t id = 1; id <= 3; id++)
        assert_true(bench->n_output[id][0] >= 16);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_logprobs_done[4], 30);
    bench_free(bench);
}

static void preemption_and_rationing_together_let_everybody_finish(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.n_vocab = N_VOCAB;
    options.n_blocks = 20;
    options.step_logprob_bytes = ENTRY_BYTES;
    struct bench *bench = bench_new(&options);
    for (uint64_t id = 1; id <= 8; id++)
        submit(bench, id, 4 + (uint32_t)id, 50, id % 3 ? (int32_t)N_VOCAB : -1,
               id % 2 ? (int32_t)N_VOCAB : -1);
    bench_run_until_idle(bench, true);
    assert_true(bench_stats(bench).n_preemptions > 0);
    for (uint64_t id = 1; id <= 8; id++)
        assert_int_equal(bench_n_tokens(bench, id), 50);
    bench_free(bench);
}

static void a_budget_holds_at_least_one_token_with_the_whole_vocabulary(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    weft_sched *sched;
    struct weft_errmsg why;
    options.step_logprob_bytes = 12 + 8 * options.n_vocab - 1;
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
    assert_null(sched);
    options.step_logprob_bytes = WEFT_STEP_LOGPROB_BYTES_MAX + 1;
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
    options.step_logprob_bytes = 12 + 8 * options.n_vocab;
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_OK);
    weft_sched_free(sched);
}

/* Five of the longest there may be: four are 64 MiB. */
static void a_plan_starts_no_more_tokens_than_fit_a_message(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.max_model_len = WEFT_CONTEXT_MAX;
    options.block_size = WEFT_BLOCK_SIZE_MAX;
    options.n_blocks = 5 * (WEFT_CONTEXT_MAX / WEFT_BLOCK_SIZE_MAX) + options.max_seqs;
    weft_sched *sched;
    struct weft_errmsg why;
    assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_OK);
    uint32_t n_prompt = WEFT_CONTEXT_MAX - 1, retry_ms;
    uint32_t *prompt = calloc(n_prompt, sizeof *prompt);
    assert_non_null(prompt);
    for (uint64_t id = 1; id <= 5; id++) {
        struct weft_submit s = {
            .request_id = id, .prompt = prompt, .n_prompt = n_prompt, .n_choices = 1};
        weft_sampling_init(&s.sampling);
        assert_int_equal(weft_sched_submit(sched, 1, 0, &s, &retry_ms, &why), WEFT_REJECT_NONE);
    }
    const struct weft_step_plan *plan;
    assert_true(weft_sched_plan(sched, 2, &plan));
    assert_int_equal(plan->n_starts, 4);
    assert_true(weft_sched_plan(sched, 2, &plan));
    assert_int_equal(plan->n_starts, 1);
    free(prompt);
    weft_sched_free(sched);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_chunk_is_as_long_as_its_logprobs_may_be),
        cmocka_unit_test(the_last_token_of_a_prompt_waits_if_its_own_logprobs_do_not_fit),
        cmocka_unit_test(positions_already_told_cost_nothing),
        cmocka_unit_test(streams_that_do_not_fit_together_take_turns),
        cmocka_unit_test(newcomers_do_not_overtake_those_who_wait),
        cmocka_unit_test(a_prompt_gets_its_share_beside_streams_and_they_beside_it),
        cmocka_unit_test(preemption_and_rationing_together_let_everybody_finish),
        cmocka_unit_test(a_budget_holds_at_least_one_token_with_the_whole_vocabulary),
        cmocka_unit_test(a_plan_starts_no_more_tokens_than_fit_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
