/* Models that read texts whole: each in one step, and as many beside it as fit. The simulated worker refuses parts
 * of texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "unit/sched_bench.h"

#define N_HIDDEN 24u

/* 16 tokens to a step, or one text of up to 128. */
static struct weft_sched_options whole_options(void) {
    struct weft_sched_options options = bench_options();
    options.shape = (struct weft_pooling_shape){.n_hidden = N_HIDDEN, .n_labels = 1};
    options.whole_tokens = options.max_batched_tokens;
    options.max_batched_tokens = options.max_model_len;
    options.prefix_cache = false;
    return options;
}

static int make_bench(void **state) {
    struct weft_sched_options options = whole_options();
    *state = bench_new(&options);
    return 0;
}

static int free_bench(void **state) {
    bench_free(*state);
    return 0;
}

static void take(struct bench *bench, uint64_t id, uint32_t n_prompt, enum weft_pooling_kind kind) {
    struct weft_submit submit = bench_request(bench, id, n_prompt, 0);
    submit.pooling.kind = kind;
    bench_take(bench, &submit);
}

static uint32_t n_values_of(const struct bench *bench, uint64_t id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < bench->n_events; i++)
        if (bench->events[i].request_id == id) n += bench->events[i].n_values;
    return n;
}

static void a_long_text_is_computed_in_one_step(void **state) {
    struct bench *bench = *state;
    take(bench, 1, 128, WEFT_POOLING_MEAN);
    take(bench, 2, 5, WEFT_POOLING_CLASSIFY);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(plan->n_rows, 1);
    assert_int_equal(plan->rows[0].n_tokens, 128);
    assert_int_equal(n_values_of(bench, 1), N_HIDDEN);
    plan = bench_step(bench);
    assert_int_equal(plan->n_rows, 1);
    assert_int_equal(plan->rows[0].n_tokens, 5);
    assert_int_equal(n_values_of(bench, 2), 1);
}

static void short_texts_fill_a_step(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 8; id++)
        take(bench, id, id == 1 ? 1 : 3, WEFT_POOLING_CLS);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_int_equal(bench_plan_tokens(plan), 16);
    assert_int_equal(plan->n_rows, 6);
    plan = bench_step(bench);
    assert_int_equal(bench_plan_tokens(plan), 6);
    bench_run_until_idle(bench, false);
}

/* 10 and 12 do not go together; 4 goes with 10, and then it is 12's turn. */
static void a_text_that_does_not_fit_lets_shorter_ones_by_and_is_next(void **state) {
    struct bench *bench = *state;
    take(bench, 1, 10, WEFT_POOLING_MEAN);
    take(bench, 2, 12, WEFT_POOLING_MEAN);
    take(bench, 3, 4, WEFT_POOLING_MEAN);
    take(bench, 4, 2, WEFT_POOLING_MEAN);
    take(bench, 5, 2, WEFT_POOLING_MEAN);
    assert_int_equal(bench_plan_tokens(bench_step(bench)), 16);
    assert_int_equal(n_values_of(bench, 1) + n_values_of(bench, 4), 2 * N_HIDDEN);
    assert_int_equal(n_values_of(bench, 2) + n_values_of(bench, 3), N_HIDDEN);
    bench_run_until_idle(bench, false);
    assert_int_equal(n_values_of(bench, 2) + n_values_of(bench, 3) + n_values_of(bench, 5),
                     3 * N_HIDDEN);
}

static void all_blocks_are_free_afterwards_and_none_is_published(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 20; id++)
        take(bench, id, 1 + (uint32_t)id * 37 % 128, WEFT_POOLING_LAST);
    bench_run_until_idle(bench, true);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(stats.n_blocks_free, stats.n_blocks);
    assert_int_equal(stats.n_blocks_published, 0);
    for (uint64_t id = 1; id <= 20; id++) {
        assert_int_equal(n_values_of(bench, id), N_HIDDEN);
        assert_int_equal(bench_end(bench, id, 0), WEFT_END_LENGTH);
    }
}

static void a_lost_worker_costs_the_texts_that_were_out(void **state) {
    struct bench *bench = *state;
    take(bench, 1, 100, WEFT_POOLING_MEAN);
    take(bench, 2, 6, WEFT_POOLING_MEAN);
    assert_non_null(bench_plan(bench));
    bench_lose_worker(bench);
    bench_run_until_idle(bench, true);
    assert_int_equal(n_values_of(bench, 1), N_HIDDEN);
    assert_int_equal(n_values_of(bench, 2), N_HIDDEN);
}

static void who_wants_tokens_is_refused(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 4, 3);
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
    submit = bench_request(bench, 1, 4, 0);
    submit.pooling.kind = WEFT_POOLING_TOKENS;
    submit.pooling.n_ids = 1;
    assert_int_equal(bench_try(bench, &submit), WEFT_REJECT_INVALID);
}

static void options_that_do_not_go_together_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct weft_sched_options options = whole_options();
        struct weft_errmsg why = {""};
        weft_sched *sched;
        if (i == 0) options.max_batched_tokens = options.max_model_len - 1;
        if (i == 1) options.prefix_cache = true;
        if (i == 2) options.n_spill_blocks = 8;
        assert_int_equal(weft_sched_new(&options, &sched, &why), WEFT_E_INVAL);
        assert_non_null(strstr(why.text, "whole"));
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        TEST(a_long_text_is_computed_in_one_step),
        TEST(short_texts_fill_a_step),
        TEST(a_text_that_does_not_fit_lets_shorter_ones_by_and_is_next),
        TEST(all_blocks_are_free_afterwards_and_none_is_published),
        TEST(a_lost_worker_costs_the_texts_that_were_out),
        TEST(who_wants_tokens_is_refused),
        cmocka_unit_test(options_that_do_not_go_together_are_refused),
    };
#undef TEST
    return cmocka_run_group_tests_name("scheduler_whole", tests, NULL, NULL);
}
