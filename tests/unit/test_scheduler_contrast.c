/* Requests with contrastive search: all of their tokens are computed, nothing is guessed, and the hidden states
 * that they keep are bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "unit/sched_bench.h"

/* Of a state: 2 MiB and its length, so that 127 tokens are within the bound. */
#define N_HIDDEN (1u << 19)

static int make_bench(void **state) {
    struct weft_sched_options options = bench_options();
    options.shape.n_hidden = N_HIDDEN;
    options.has_contrast = true;
    options.prefix_cache = true;
    options.n_spec_tokens = 2;
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

static struct weft_submit search(struct bench *bench, uint64_t id, uint32_t n_prompt,
                                 uint32_t max_tokens) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, max_tokens);
    submit.sampling.penalty_alpha = 0.6f;
    submit.sampling.top_k = 4;
    return submit;
}

static void nothing_is_found_in_the_cache_and_nothing_guessed(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 8);
    bench_run_until_idle(bench, true);
    struct weft_submit submit = search(bench, 2, 40, 8);
    bench_take(bench, &submit);
    for (const struct weft_step_plan *plan = bench_step(bench); plan; plan = bench_step(bench)) {
        for (uint32_t i = 0; i < plan->n_starts; i++)
            assert_int_equal(plan->starts[i].n_cached, 0);
        for (uint32_t i = 0; i < plan->n_rows; i++)
            assert_int_equal(plan->rows[i].n_spec, 0);
    }
    assert_int_equal(bench->events[bench_end_event(bench, 2)].n_prompt_cached, 0);
    bench_submit(bench, 3, 40, 8); /* what it computed is as good as any other's */
    bench_run_until_idle(bench, true);
    assert_int_equal(bench->events[bench_end_event(bench, 3)].n_prompt_cached, 39);
}

static void what_could_never_be_kept_is_refused_for_good(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = search(bench, 1, 60, 68);
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_TOO_LONG);
    submit.sampling.penalty_alpha = 0;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_NONE);
    submit = search(bench, 2, 60, 67);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    submit = search(bench, 3, 60, UINT32_MAX); /* as long as the model is */
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_TOO_LONG);
}

static void what_is_kept_by_all_is_bounded(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = search(bench, 1, 20, 40);
    uint32_t retry_ms = 0;
    struct weft_errmsg why = {""};
    bench_take(bench, &submit);
    submit = search(bench, 2, 20, 40);
    bench_take(bench, &submit);
    submit = search(bench, 3, 4, 4);
    assert_int_equal(weft_sched_submit(bench->sched, bench->now_us, 0, &submit, &retry_ms, &why),
                     WEFT_REJECT_OVERLOADED);
    assert_true(retry_ms > 0);
    assert_non_null(strstr(why.text, "240 MiB of hidden states; with the 16"));
    submit.priority = WEFT_PRIORITY_BACKGROUND;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_OVERLOADED);
    bench_submit(bench, 4, 4, 4); /* others are not concerned */
    submit = search(bench, 5, 4, 4);
    submit.resume = true; /* it was let in before */
    bench_take(bench, &submit);
    bench_cancel(bench, 1);
    submit = search(bench, 6, 4, 4);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 7; id <= 30; id++) {
        submit = search(bench, id, 60, 40);
        bench_take(bench, &submit);
        bench_run_until_idle(bench, true);
    }
}

static void what_has_no_sense_beside_it_is_refused(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = search(bench, 1, 4, 4);
    submit.n_choices = 2;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = search(bench, 1, 4, 4);
    submit.shifts = true;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = search(bench, 1, 4, 4);
    submit.sampling.top_k = 1;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = search(bench, 1, 4, 0);
    submit.pooling.kind = WEFT_POOLING_LAST;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
}

static void a_divided_model_has_none(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.shape.n_hidden = 64;
    struct bench *bench = bench_new(&options);
    struct weft_submit submit = search(bench, 1, 4, 4);
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    bench_free(bench);
}

static void the_bound_may_be_lower_than_the_ceiling(void **state) {
    (void)state;
    struct weft_sched_options options = bench_options();
    options.shape.n_hidden = N_HIDDEN;
    options.has_contrast = true;
    options.contrast_bytes = 64 << 20;
    struct bench *bench = bench_new(&options);
    struct weft_submit submit = search(bench, 1, 20, 12);
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_TOO_LONG);
    submit = search(bench, 2, 20, 10);
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    bench_free(bench);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_found_in_the_cache_and_nothing_guessed),
        TEST(what_could_never_be_kept_is_refused_for_good),
        TEST(what_is_kept_by_all_is_bounded),
        TEST(what_has_no_sense_beside_it_is_refused),
        cmocka_unit_test(a_divided_model_has_none),
        cmocka_unit_test(the_bound_may_be_lower_than_the_ceiling),
    };
#undef TEST
    return cmocka_run_group_tests_name("scheduler_contrast", tests, NULL, NULL);
}
