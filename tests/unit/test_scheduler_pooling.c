/* Requests for values in place of tokens: they come once, with the end, and never from a cache that
 * lacks a part of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "unit/sched_bench.h"

#define N_HIDDEN 24u

static struct weft_sched_options pooling_options(void) {
    struct weft_sched_options options = bench_options();
    options.shape.n_hidden = N_HIDDEN;
    options.prefix_cache = true;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = pooling_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

static struct weft_submit pooled(struct bench *bench, uint64_t id, uint32_t n_prompt,
                                 enum weft_pooling_kind kind) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, 0);
    submit.pooling.kind = kind;
    submit.pooling.n_ids = kind == WEFT_POOLING_TOKENS ? 2 : 0;
    return submit;
}

static uint32_t n_values_of(const struct bench *bench, uint64_t id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < bench->n_events; i++) {
        const struct bench_event *event = &bench->events[i];
        if (event->request_id != id) continue;
        assert_true(event->n_values == 0 || event->end == WEFT_END_LENGTH);
        n += event->n_values;
    }
    return n;
}

static void values_come_once_with_the_end(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = pooled(bench, 1, 40, WEFT_POOLING_LAST);
    bench_take(bench, &submit);
    submit = pooled(bench, 2, 3, WEFT_POOLING_MEAN);
    bench_take(bench, &submit);
    submit = pooled(bench, 3, 17, WEFT_POOLING_TOKENS);
    bench_take(bench, &submit);
    bench_submit(bench, 4, 5, 6);
    bench_run_until_idle(bench, true);
    assert_int_equal(n_values_of(bench, 1), N_HIDDEN);
    assert_int_equal(n_values_of(bench, 2), N_HIDDEN);
    assert_int_equal(n_values_of(bench, 3), 2);
    assert_int_equal(n_values_of(bench, 4), 0);
    assert_int_equal(bench_n_tokens(bench, 4), 6);
}

static void a_lost_worker_is_no_lost_value(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = pooled(bench, 1, 60, WEFT_POOLING_MEAN);
    bench_take(bench, &submit);
    bench_step(bench);
    bench_step(bench);
    bench_lose_worker(bench);
    bench_run_until_idle(bench, true);
    assert_int_equal(n_values_of(bench, 1), N_HIDDEN);
}

/* The simulated worker refuses what would come out of a cache. */
static void only_the_last_state_is_found_in_the_cache(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 4);
    bench_run_until_idle(bench, false);
    static const enum weft_pooling_kind kinds[] = {WEFT_POOLING_LAST, WEFT_POOLING_TOKENS,
                                                   WEFT_POOLING_MEAN, WEFT_POOLING_CLS};
    for (uint32_t i = 0; i < 4; i++) {
        struct weft_submit submit = pooled(bench, 2 + i, 40, kinds[i]);
        bench_take(bench, &submit);
        bench_run_until_idle(bench, false);
        uint32_t n_cached = bench->events[bench_end_event(bench, 2 + i)].n_prompt_cached;
        assert_int_equal(n_cached, i < 2 ? 39 : 0);
        assert_true(n_values_of(bench, 2 + i) > 0);
    }
}

static void many_short_texts_fill_a_step(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 8; id++) {
        struct weft_submit submit = pooled(bench, id, 2, WEFT_POOLING_MEAN);
        bench_take(bench, &submit);
    }
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_rows, 8);
    assert_int_equal(bench_plan_tokens(plan), bench->options.max_batched_tokens);
    bench_run_until_idle(bench, false);
}

/* Room for the values of three in a step: the simulated worker counts, too. */
static void values_are_rationed(void **state) {
    (void)state;
    struct weft_sched_options options = pooling_options();
    options.n_vocab = 5;
    options.step_logprob_bytes = 3 * N_HIDDEN * 4;
    struct bench *bench = bench_new(&options);
    for (uint64_t id = 1; id <= 8; id++) {
        struct weft_submit submit = pooled(bench, id, 2, WEFT_POOLING_LAST);
        bench_take(bench, &submit);
    }
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 8; id++)
        assert_int_equal(n_values_of(bench, id), N_HIDDEN);
    bench_free(bench);
}

static void what_the_model_lacks_is_refused(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = pooled(bench, 1, 4, WEFT_POOLING_CLASSIFY);
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = pooled(bench, 1, 4, WEFT_POOLING_LAST);
    submit.sampling.max_tokens = 1;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = pooled(bench, 1, 4, WEFT_POOLING_LAST);
    submit.n_choices = 2;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = pooled(bench, 1, 4, WEFT_POOLING_TOKENS);
    submit.pooling.ids[1] = bench->options.n_vocab;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
}

static void a_result_with_another_number_of_values_is_refused(void **state) {
    struct bench *bench = *state;
    struct weft_errmsg why = {""};
    struct weft_submit submit = pooled(bench, 1, 4, WEFT_POOLING_LAST);
    bench_take(bench, &submit);
    assert_non_null(bench_plan(bench));
    struct weft_step_result *truth = sim_worker_run(bench->worker), lie = *truth;
    struct weft_step_out out = truth->outs[0];
    assert_int_equal(truth->n_outs, 1);
    lie.outs = &out;
    out.n_values = N_HIDDEN - 1;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &lie, &why), WEFT_E_PROTO);
    assert_non_null(strstr(why.text, "yields 23 values, expected were 24"));
    out.n_values = 0;
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, &lie, &why), WEFT_E_PROTO);
    assert_int_equal(weft_sched_result(bench->sched, bench->now_us, truth, &why), WEFT_OK);
    bench_collect(bench);
    assert_int_equal(n_values_of(bench, 1), N_HIDDEN);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        TEST(values_come_once_with_the_end),
        TEST(a_lost_worker_is_no_lost_value),
        TEST(only_the_last_state_is_found_in_the_cache),
        TEST(many_short_texts_fill_a_step),
        cmocka_unit_test(values_are_rationed),
        TEST(what_the_model_lacks_is_refused),
        TEST(a_result_with_another_number_of_values_is_refused),
    };
#undef TEST
    return cmocka_run_group_tests_name("scheduler_pooling", tests, NULL, NULL);
}
