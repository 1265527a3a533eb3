/* What a look at the batch shows: the sequences, and the last steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

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

struct seen {
    uint32_t n;
    struct weft_activity_seq seqs[WEFT_ACTIVITY_SEQS_MAX];
};

static struct seen look(const struct bench *bench) {
    struct seen seen = {0};
    seen.n = weft_sched_list(bench->sched, bench->now_us, seen.seqs, WEFT_ACTIVITY_SEQS_MAX);
    return seen;
}

/* ------------------------------------------------------------------------------- sequences --- */

static void an_empty_scheduler_lists_nobody(void **state) {
    assert_int_equal(look(*state).n, 0);
}

static void a_prompt_is_seen_chunk_by_chunk_and_then_decodes(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 5);
    struct seen seen = look(bench);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.seqs[0].request_id, 1);
    assert_int_equal(seen.seqs[0].phase, WEFT_ACTIVITY_WAITING);
    assert_int_equal(seen.seqs[0].n_prompt, 40);
    assert_int_equal(seen.seqs[0].n_blocks, 0);
    const uint32_t done[] = {16, 32, 40, 40};
    for (uint32_t i = 0; i < 4; i++) {
        bench_step(bench);
        seen = look(bench);
        assert_int_equal(seen.seqs[0].n_prompt_done, done[i]);
        assert_int_equal(seen.seqs[0].phase, i < 2 ? WEFT_ACTIVITY_PROMPT : WEFT_ACTIVITY_DECODE);
        assert_int_equal(seen.seqs[0].n_output, i < 2 ? 0 : i - 1);
        assert_true(seen.seqs[0].n_blocks >= done[i] / 4);
    }
    assert_int_equal(seen.seqs[0].max_tokens, 5);
    bench_run_until_idle(bench, false);
    assert_int_equal(look(bench).n, 0);
}

static void tokens_of_a_plan_that_is_out_are_not_done(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 40, 5);
    assert_non_null(bench_plan(bench));
    assert_non_null(bench_plan(bench));
    struct seen seen = look(bench);
    assert_int_equal(seen.seqs[0].n_prompt_done, 0);
    assert_int_equal(seen.seqs[0].phase, WEFT_ACTIVITY_PROMPT);
    bench_run(bench);
    assert_int_equal(look(bench).seqs[0].n_prompt_done, 16);
    bench_run(bench);
    assert_int_equal(look(bench).seqs[0].n_prompt_done, 32);
}

static void those_that_run_come_before_those_that_wait_and_the_old_before_the_young(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 20; id++) {
        bench_submit(bench, id, 4, 30);
        bench->now_us += 1000;
        if (id == 8) bench_step(bench); /* there are eight slots */
    }
    bench_step(bench);
    struct seen seen = look(bench);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(seen.n, 20);
    assert_int_equal(stats.n_running_seqs, 8);
    for (uint32_t i = 0; i < 20; i++) {
        bool waits = seen.seqs[i].phase == WEFT_ACTIVITY_WAITING;
        assert_int_equal(waits, i >= 8);
        assert_int_equal(seen.seqs[i].request_id, i + 1);
        if (i > 0) assert_true(seen.seqs[i].age_us < seen.seqs[i - 1].age_us);
    }
    struct weft_activity_seq few[3];
    assert_int_equal(weft_sched_list(bench->sched, bench->now_us, few, 3), 3);
    assert_int_equal(few[2].request_id, 3);
    assert_int_equal(weft_sched_list(bench->sched, bench->now_us, few, 0), 0);
}

static void a_queue_longer_than_the_list_shows_its_head(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_queue = 1000;
    bench_free(*state);
    struct bench *bench = *state = bench_new(&options);
    for (uint64_t i = 0; i < 300; i++) { /* out of order: the older is submitted later */
        struct weft_submit submit = bench_request(bench, 1, 4, 30);
        submit.request_id = 1000 + i;
        submit.resume = true;
        submit.age_us = (i * 7919) % 300;
        uint32_t retry_ms;
        struct weft_errmsg why;
        assert_int_equal(
            weft_sched_submit(bench->sched, bench->now_us, 0, &submit, &retry_ms, &why),
            WEFT_REJECT_NONE); /* past the bench's log, which is small */
    }
    struct seen seen = look(bench);
    assert_int_equal(seen.n, WEFT_ACTIVITY_SEQS_MAX);
    for (uint32_t i = 0; i < seen.n; i++)
        assert_int_equal(seen.seqs[i].age_us, 299 - i);
    weft_sched_check(bench->sched);
}

static void choices_that_wait_for_the_prompt_are_listed(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 40, 5);
    struct weft_submit_choice choices[3];
    memset(choices, 0, sizeof choices);
    submit.choices = choices;
    submit.n_choices = 3;
    bench_take(bench, &submit);
    bench_step(bench);
    struct seen seen = look(bench);
    struct weft_sched_stats stats = bench_stats(bench);
    assert_int_equal(seen.n, 3);
    assert_int_equal(stats.n_running_seqs + stats.n_waiting_seqs, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(seen.seqs[i].choice, i);
    assert_int_equal(seen.seqs[0].phase, WEFT_ACTIVITY_PROMPT);
    assert_int_equal(seen.seqs[2].phase, WEFT_ACTIVITY_WAITING);
    bench_run_until_idle(bench, false);
}

static void after_a_loss_all_wait_with_what_they_have(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 20, 30);
    for (uint32_t i = 0; i < 6; i++)
        bench_step(bench);
    assert_int_equal(look(bench).seqs[0].phase, WEFT_ACTIVITY_DECODE);
    uint32_t n_output = bench_n_tokens(bench, 1);
    bench_lose_worker(bench);
    struct seen seen = look(bench);
    assert_int_equal(seen.seqs[0].phase, WEFT_ACTIVITY_WAITING);
    assert_int_equal(seen.seqs[0].n_prompt_done, 0);
    assert_int_equal(seen.seqs[0].n_output, n_output);
    bench_step(bench);
    assert_int_equal(look(bench).seqs[0].phase, WEFT_ACTIVITY_PROMPT); /* computed again */
    while (look(bench).seqs[0].n_output == n_output)
        bench_step(bench);
    assert_int_equal(look(bench).seqs[0].phase, WEFT_ACTIVITY_DECODE);
    bench_run_until_idle(bench, true);
}

/* ----------------------------------------------------------------------------------- steps --- */

static struct weft_activity_step last_step(const struct bench *bench) {
    struct weft_activity_step step;
    weft_sched_last_step(bench->sched, &step);
    return step;
}

static void a_step_tells_prompt_tokens_from_decoded_ones(void **state) {
    struct bench *bench = *state;
    assert_int_equal(last_step(bench).n_seqs, 0);
    bench_submit(bench, 1, 17, 10); /* its last chunk has one token, and is no decode */
    bench_step(bench);
    assert_int_equal(last_step(bench).n_prompt_tokens, 16);
    assert_int_equal(last_step(bench).n_decode_tokens, 0);
    bench_step(bench);
    assert_int_equal(last_step(bench).n_prompt_tokens, 1);
    assert_int_equal(last_step(bench).n_decode_tokens, 0);
    bench_submit(bench, 2, 10, 10);
    bench_step(bench);
    struct weft_activity_step step = last_step(bench);
    assert_int_equal(step.n_prompt_tokens, 10);
    assert_int_equal(step.n_decode_tokens, 1);
    assert_int_equal(step.n_seqs, 2);
    assert_true(step.busy_us > 0);
    bench_step(bench);
    assert_int_equal(last_step(bench).n_decode_tokens, 2);
    bench_run_until_idle(bench, false);
}

static void the_ring_keeps_the_last_steps_in_order(void **state) {
    (void)state;
    static struct weft_activity_ring ring;
    struct weft_activity_step steps[WEFT_ACTIVITY_STEPS_MAX];
    assert_int_equal(weft_activity_ring_list(&ring, 5, steps), 0);
    for (uint32_t i = 1; i <= 100; i++) {
        const struct weft_activity_step step = {.n_seqs = i};
        weft_activity_ring_add(&ring, 10 * i, &step);
        uint32_t n = weft_activity_ring_list(&ring, 10 * i + 3, steps);
        assert_int_equal(n, i < WEFT_ACTIVITY_STEPS_MAX ? i : WEFT_ACTIVITY_STEPS_MAX);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t nth = i - n + 1 + k;
            assert_int_equal(steps[k].step, nth);
            assert_int_equal(steps[k].n_seqs, nth);
            assert_int_equal(steps[k].age_us, 10 * (i - nth) + 3);
        }
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_scheduler_lists_nobody),
        TEST(a_prompt_is_seen_chunk_by_chunk_and_then_decodes),
        TEST(tokens_of_a_plan_that_is_out_are_not_done),
        TEST(those_that_run_come_before_those_that_wait_and_the_old_before_the_young),
        TEST(a_queue_longer_than_the_list_shows_its_head),
        TEST(choices_that_wait_for_the_prompt_are_listed),
        TEST(after_a_loss_all_wait_with_what_they_have),
        TEST(a_step_tells_prompt_tokens_from_decoded_ones),
        TEST(the_ring_keeps_the_last_steps_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
