/* Speculative decoding in the scheduler: who may guess how much, and what comes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/limits.h"
#include "unit/sched_bench.h"

static struct bench *guessing_bench(uint32_t n_spec_tokens) {
    struct weft_sched_options options = bench_options();
    options.n_spec_tokens = n_spec_tokens;
    options.max_batched_tokens = 64;
    return bench_new(&options);
}

static void streams_guess_and_prompts_do_not(void **state) {
    (void)state;
    struct bench *bench = guessing_bench(3);
    bench_submit(bench, 1, 6, 40);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_true(plan->n_rows == 1 && plan->rows[0].n_tokens == 6 && plan->rows[0].n_spec == 0);
    plan = bench_plan(bench); /* its first token is not known yet */
    assert_true(plan->n_rows == 1 && plan->rows[0].n_tokens == 1 && plan->rows[0].n_spec == 3);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 40);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_true(stats.n_drafts > 0 && stats.n_draft_accepted > 0);
    assert_true(stats.n_draft_accepted < stats.n_draft_tokens);
    assert_int_equal(stats.n_output_tokens, 40);
    assert_true(stats.n_steps < 42);
    bench_free(bench);
}

static void log_probabilities_are_not_guessed_for(void **state) {
    (void)state;
    struct bench *bench = guessing_bench(3);
    struct weft_submit submit = bench_request(bench, 1, 6, 20);
    submit.sampling.n_logprobs = 0;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_draft_tokens, 0);
    bench_free(bench);
}

static void who_wants_no_guesses_gets_none(void **state) {
    (void)state;
    struct bench *bench = guessing_bench(3);
    struct weft_submit submit = bench_request(bench, 1, 6, 20);
    submit.no_guesses = true;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_stats(bench).n_draft_tokens, 0);
    assert_int_equal(bench_n_tokens(bench, 1), 20);
    bench_free(bench);
}

/* Of a length that is at its end there is one token left, which needs no guess. */
static void guesses_stop_at_the_length(void **state) {
    (void)state;
    struct bench *bench = guessing_bench(WEFT_SPEC_TOKENS_MAX);
    bench_submit(bench, 1, 6, 3);
    (void)bench_plan(bench);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->rows[0].n_spec,
                     1); /* the second token, a guess, and that is the third */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 3);
    bench_free(bench);
}

/* What is left of the pool beside one block for each who runs. */
static void nobody_loses_blocks_to_guesses(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.n_spec_tokens = 8;
    options.max_batched_tokens = 64;
    options.n_blocks = 8;
    options.max_model_len = 32;
    struct bench *bench = bench_new(&options);
    bench_submit(bench, 1, 11, 5); /* 4 blocks in the end, each */
    bench_submit(bench, 2, 11, 5);
    bench_run_until_idle(bench, true);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(stats.n_preemptions, 0);
    assert_int_equal(bench_n_tokens(bench, 1) + bench_n_tokens(bench, 2), 10);
    bench_free(bench);
}

static void guesses_that_were_not_allowed_are_refused(void **state) {
    (void)state;
    struct bench *bench = guessing_bench(2);
    struct weft_errmsg why;
    bench_submit(bench, 1, 6, 40);
    (void)bench_step(bench);
    assert_non_null(bench_plan(bench));
    struct weft_step_result *result = sim_worker_run(bench->worker);
    struct weft_step_out out = result->outs[0];
    static const uint32_t tokens[] = {1, 2, 3};
    out.n_proposed = out.n_accepted = out.n_more = 3;
    out.more = tokens;
    result->outs = &out;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "3 of 3 guesses came true, of 2 allowed"));
    out.n_proposed = out.n_accepted = 1;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, result, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "nothing brings 3 tokens more"));
    bench_free(bench);
}

/* As many guesses per token of output as at these costs. */
static double guesses_per_token(uint32_t step_us, uint32_t token_us) {
    struct bench *bench = guessing_bench(WEFT_SCHED_SPEC_AUTO);
    sim_worker_costs(bench->worker, step_us, token_us);
    for (uint32_t id = 1; id <= 20; id++) {
        bench_submit(bench, id, 6, 60);
        bench_run_until_idle(bench, true);
    }
    struct weft_sched_stats stats = bench_stats(bench);
    bench_free(bench);
    return (double)stats.n_draft_tokens / (double)stats.n_output_tokens;
}

static void guesses_are_made_where_they_pay(void **state) {
    (void)state;
    double cheap = guesses_per_token(10000, 10), dear = guesses_per_token(100, 10000);
    assert_true(cheap > 0.5);
    assert_true(dear < 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_guess_and_prompts_do_not),
        cmocka_unit_test(log_probabilities_are_not_guessed_for),
        cmocka_unit_test(who_wants_no_guesses_gets_none),
        cmocka_unit_test(guesses_stop_at_the_length),
        cmocka_unit_test(nobody_loses_blocks_to_guesses),
        cmocka_unit_test(guesses_that_were_not_allowed_are_refused),
        cmocka_unit_test(guesses_are_made_where_they_pay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
