/* Sequences that go on beyond the model's length: what they drop, what they keep, and who may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/limits.h"
#include "scheduler/sessions.h"
#include "unit/sched_bench.h"

enum { LEN = 128 };

static struct weft_submit shifting(struct bench *bench, uint64_t id, uint32_t n_prompt,
                                   uint32_t max_tokens, uint32_t n_keep) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, max_tokens);
    submit.shifts = true;
    submit.n_keep = n_keep;
    return submit;
}

static struct bench *caching_bench(void) {
    struct weft_sched_options options = bench_options();
    options.prefix_cache = true;
    options.cache_seed = 1;
    return bench_new(&options);
}

/* The start of a sequence that dropped some; the bench goes on until there is one. */
static struct weft_step_start next_shift(struct bench *bench) {
    for (uint32_t i = 0; i < 1000; i++) {
        const struct weft_step_plan *plan = bench_step(bench);
        assert_non_null(plan);
        for (uint32_t k = 0; k < plan->n_starts; k++) {
            if (plan->starts[k].n_dropped > 0) return plan->starts[k];
        }
    }
    fail_msg("nothing shifts");
    return (struct weft_step_start){0};
}

/* The worker of the bench sees to it that what is cached are the tokens that have a place. */
static void it_goes_on_and_drops_half(void **state) {
    (void)state;
    struct bench *bench = caching_bench();
    struct weft_submit submit = shifting(bench, 1, 20, 400, 10);
    bench_take(bench, &submit);
    for (uint32_t n_dropped = 59; n_dropped < 300; n_dropped += 59) { /* (128 - 10) / 2 */
        struct weft_step_start start = next_shift(bench);
        assert_int_equal(start.n_dropped, n_dropped);
        assert_int_equal(start.n_keep, 10);
        assert_int_equal(start.n_tokens - start.n_dropped, LEN - 59);
        /* What is kept was computed by itself: its blocks are found, and a part of the third. */
        assert_int_equal(start.n_cached, 10);
    }
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 400);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
    assert_int_equal(bench_stats(bench).n_context_shifts, 5);
    assert_int_equal(bench_stats(bench).n_preemptions, 0);
    bench_free(bench);
}

static void without_it_a_sequence_ends_there(void **state) {
    (void)state;
    struct bench *bench = caching_bench();
    bench_submit(bench, 1, 20, 400);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), LEN - 20);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
    assert_int_equal(bench_stats(bench).n_context_shifts, 0);
    bench_free(bench);
}

/* So much is left to move, as in llama-server; a prompt may be dropped but for its first tokens. */
static void most_of_the_length_can_be_kept_but_not_all(void **state) {
    (void)state;
    struct bench *bench = caching_bench();
    struct weft_submit submit = shifting(bench, 1, 127, 9, UINT32_MAX);
    bench_take(bench, &submit);
    struct weft_step_start start = next_shift(bench);
    assert_int_equal(start.n_keep, LEN - 4);
    assert_int_equal(start.n_dropped, 2);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 9);
    submit = shifting(bench, 2, 127, 300, 0);
    bench_take(bench, &submit);
    start = next_shift(bench);
    assert_int_equal(start.n_keep, 0);
    assert_int_equal(start.n_dropped, LEN / 2);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 2), 300);
    bench_free(bench);
}

/* How much it dropped follows from how much it has. */
static void a_lost_worker_and_a_lost_scheduler_change_nothing(void **state) {
    (void)state;
    struct bench *bench = caching_bench();
    struct weft_submit submit = shifting(bench, 1, 20, 400, 10);
    bench_take(bench, &submit);
    (void)next_shift(bench);
    for (uint32_t i = 0; i < 30; i++)
        (void)bench_step(bench);
    bench_lose_worker(bench);
    struct weft_step_start start = next_shift(bench);
    assert_int_equal(start.n_dropped, 59);
    assert_true(start.n_tokens - start.n_dropped > LEN - 59);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 400);

    static uint32_t output[250];
    for (uint32_t i = 0; i < 250; i++)
        output[i] = bench_token(bench, 1, i);
    const struct weft_submit_choice had = {.output = output, .n_output = 250};
    bench_lose_worker(bench);
    submit.attempt++;
    submit.resume = true;
    submit.choices = &had;
    bench->n_output[1][0] = 250;
    bench_take(bench, &submit);
    start = next_shift(bench);
    assert_int_equal(start.n_dropped, 3 * 59); /* 270 tokens, and 127 at most */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->n_output[1][0], 400);
    bench_free(bench);
}

static void choices_shift_each_by_itself(void **state) {
    (void)state;
    struct bench *bench = caching_bench();
    struct weft_submit submit = shifting(bench, 1, 50, 200, 4);
    submit.n_choices = 3;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bench->n_output[1][i], 200);
    assert_true(bench_stats(bench).n_context_shifts == 6);
    bench_free(bench);
}

/* A conversation goes on with all that was said, which no cache has any more. */
static void one_that_dropped_some_leaves_no_session(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.prefix_cache = true;
    options.session_ttl_us = 1000000000;
    options.max_sessions = 4;
    options.max_session_blocks = 32;
    struct bench *bench = bench_new(&options);
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_submit submit = shifting(bench, 1 + i, 20, i ? 20 : 200, 10);
        submit.session_id = (struct weft_str){"a", 1};
        bench_take(bench, &submit);
        bench_run_until_idle(bench, true);
        assert_int_equal(weft_sched_session_has(bench->sched, 0, submit.session_id), i);
    }
    bench_free(bench);
}

static void refuse(struct bench *bench, const struct weft_submit *submit) {
    assert_int_equal(bench_try(bench, submit), WEFT_REJECT_INVALID);
}

static void who_cannot_go_on_is_refused(void **state) {
    (void)state;
    struct bench *bench = caching_bench();
    struct weft_submit submit = shifting(bench, 1, 20, WEFT_SHIFTED_TOKENS_MAX - 19, 0);
    refuse(bench, &submit);
    submit = shifting(bench, 1, 20, 40, 0);
    submit.sampling.beam_width = 2;
    refuse(bench, &submit);
    submit = shifting(bench, 1, 20, 0, 0);
    submit.pooling.kind = WEFT_POOLING_LAST;
    refuse(bench, &submit);
    submit = shifting(bench, 1, LEN, 40, 0); /* a prompt is not cut */
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_TOO_LONG);
    bench_free(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_and_drops_half),
        cmocka_unit_test(without_it_a_sequence_ends_there),
        cmocka_unit_test(most_of_the_length_can_be_kept_but_not_all),
        cmocka_unit_test(a_lost_worker_and_a_lost_scheduler_change_nothing),
        cmocka_unit_test(choices_shift_each_by_itself),
        cmocka_unit_test(one_that_dropped_some_leaves_no_session),
        cmocka_unit_test(who_cannot_go_on_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
