/* Admission, its order, and how requests leave before they are done. */
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

static struct bench *remake(void **state, const struct weft_sched_options *options) {
    bench_free(*state);
    *state = bench_new(options);
    return *state;
}

/* Refused for `reason` with a sentence that contains `words`, and nothing has changed. */
static uint32_t refuses(struct bench *bench, const struct weft_submit *submit,
                        enum weft_reject reason, const char *words) {
    struct weft_errmsg why = {""};
    uint32_t retry_after_ms = 77;
    struct weft_sched_stats before = bench_stats(bench), after;
    assert_int_equal(
        weft_sched_submit(bench->sched, bench->now_us, 0, submit, &retry_after_ms, &why), reason);
    if (!strstr(why.text, words)) fail_msg("%s", why.text);
    after = bench_stats(bench);
    assert_int_equal(after.n_rejected, before.n_rejected + 1);
    assert_int_equal(after.n_waiting, before.n_waiting);
    return retry_after_ms;
}

/* -------------------------------------------------------------------------------- refusals --- */

static void what_exceeds_the_models_length_is_too_long(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 128, 1);
    assert_int_equal(refuses(bench, &submit, WEFT_REJECT_TOO_LONG, "128 tokens"), 0);
    submit.n_prompt = 127;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 1);
}

static void what_exceeds_the_cache_is_too_long(void **state) {
    struct weft_sched_options options = bench_options();
    options.n_blocks = 10;
    struct bench *bench = remake(state, &options);
    struct weft_submit submit = bench_request(bench, 1, 20, 21);
    assert_int_equal(refuses(bench, &submit, WEFT_REJECT_TOO_LONG, "11 cache blocks"), 0);
    submit.sampling.max_tokens = 20;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 20);
}

static void malformed_requests_are_invalid(void **state) {
    struct bench *bench = *state;
    const enum weft_reject invalid = WEFT_REJECT_INVALID;
    const uint32_t bad_tokens[] = {5, 1000};
    const struct weft_submit good = bench_request(bench, 1, 10, 5);
    struct weft_submit bad = good;
    bad.n_prompt = 0;
    refuses(bench, &bad, invalid, "no tokens");
    bad = good;
    bad.prompt = bad_tokens;
    bad.n_prompt = 2;
    refuses(bench, &bad, invalid, "vocabulary of 1000");
    bad = good;
    bad.n_choices = 0;
    refuses(bench, &bad, invalid, "n must be between");
    bad.n_choices = WEFT_CHOICES_MAX + 1;
    refuses(bench, &bad, invalid, "n must be between");
    bad = good;
    bad.n_prompt_logprobs_done = 11;
    refuses(bench, &bad, invalid, "11 prompt log-probabilities");
    bad = good;
    bad.sampling.top_p = 2.0f;
    refuses(bench, &bad, invalid, "top_p");
}

static void malformed_resumptions_are_invalid(void **state) {
    struct bench *bench = *state;
    const enum weft_reject invalid = WEFT_REJECT_INVALID;
    uint32_t output[200] = {0};
    struct weft_submit_choice choice = {.output = output, .n_output = 5};
    struct weft_submit bad = bench_request(bench, 1, 10, 5);
    bad.choices = &choice;
    bad.resume = true;
    refuses(bench, &bad, invalid, "5 tokens of output already");
    bad.sampling.max_tokens = 1000;
    choice.n_output = 118;
    refuses(bench, &bad, invalid, "118 tokens of output already");
    choice.n_output = 5;
    output[4] = 1000;
    refuses(bench, &bad, invalid, "outside the vocabulary");
    choice.finished = true;
    refuses(bench, &bad, invalid, "finished");
}

static void a_full_queue_says_when_to_come_back(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_queue = 3;
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    for (uint64_t id = 1; id <= 4; id++) /* one of them for the place that is free */
        bench_submit(bench, id, 10, 5);
    struct weft_submit fifth = bench_request(bench, 5, 10, 5);
    assert_true(refuses(bench, &fifth, WEFT_REJECT_QUEUE_FULL, "4 requests") >= 1000);
    bench_step(bench);
    assert_true(refuses(bench, &fifth, WEFT_REJECT_QUEUE_FULL, "3 requests") >= 1000);
    fifth.resume = true; /* known before: never refused */
    bench_take(bench, &fifth);
    fifth.request_id = 6;
    fifth.resume = false;
    assert_true(refuses(bench, &fifth, WEFT_REJECT_QUEUE_FULL, "4 requests") >= 1000);
    bench_run_until_idle(bench, true);
    bench_take(bench, &fifth);
}

static void the_time_to_come_back_is_when_the_queue_has_room_at_its_pace(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_queue = 20;
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    bench->now_us += 3600000000u; /* a quiet hour before */
    sim_worker_costs(bench->worker, 8000000, 0);
    for (uint64_t id = 1; id <= 20; id++)
        bench_submit(bench, id, 4, 1); /* one step each */
    for (uint32_t i = 0; i < 19; i++)
        bench_step(bench);
    for (uint64_t id = 21; id <= 40; id++) /* nothing runs just now: one more than the queue */
        bench_submit(bench, id, 4, 1);
    struct weft_submit submit = bench_request(bench, 41, 4, 1);
    uint32_t retry_after_ms = refuses(bench, &submit, WEFT_REJECT_QUEUE_FULL, "21 requests");
    assert_in_range(retry_after_ms, 7500, 8500); /* one request of 8 s */
    bench_run_until_idle(bench, false);
}

static void what_would_come_too_late_is_refused_at_once(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    sim_worker_costs(bench->worker, 1000000, 0);
    for (uint64_t id = 1; id <= 8; id++)
        bench_submit(bench, id, 4, 1); /* a step of a second each */
    for (uint32_t i = 0; i < 4; i++)
        bench_step(bench);
    struct weft_submit submit =
        bench_request(bench, 9, 4, 1); /* four wait: it comes in five seconds */
    submit.ttft_us = 3000000;
    assert_in_range(refuses(bench, &submit, WEFT_REJECT_DEADLINE, "would come in"), 1000, 3500);
    submit.deadline_us = 2000000;
    assert_in_range(refuses(bench, &submit, WEFT_REJECT_DEADLINE, "due in 2000 ms"), 2000, 4500);
    submit.deadline_us = 0;
    submit.ttft_us = 8000000;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, false);
}

static void where_nothing_is_to_do_a_bad_time_refuses_nobody(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    for (uint64_t id = 1; id <= 4; id++)
        bench_submit(bench, id, 4, 1);
    bench_step(bench);
    bench_lose_worker(bench);
    bench->now_us += 600000000; /* ten minutes without one */
    bench_run_until_idle(bench, false);
    struct weft_submit submit = bench_request(bench, 5, 4, 1);
    submit.ttft_us = 1000000;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, false);
}

static void a_cold_start_refuses_nobody(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_batched_tokens = 8;
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 40, 4);
    assert_non_null(bench_plan(bench));
    bench->now_us += 60000000; /* the model is being read from a slow disk */
    struct weft_submit submit = bench_request(bench, 2, 4, 1);
    submit.ttft_us = 10000000;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, false);
}

static void prompts_that_wait_for_places_make_no_prompt_slow(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 2;
    struct bench *bench = remake(state, &options);
    sim_worker_costs(bench->worker, 1000000, 0);
    bench_submit(bench, 1, 4, 60);
    bench_submit(bench, 2, 4, 60);
    bench_submit(bench, 3, 4, 1);
    for (uint32_t i = 0; i < 40; i++)
        bench_step(bench);
    bench_cancel(bench, 2);
    bench_cancel(bench, 3);
    struct weft_submit submit =
        bench_request(bench, 4, 4, 1); /* a place is free, a step takes 1 s */
    submit.ttft_us = 5000000;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, false);
}

static void a_tenant_of_many_users_keeps_nobody_out(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_queue = 8;
    options.max_seqs = 1;
    options.max_queued_tokens = 200;
    struct bench *bench = remake(state, &options);
    struct weft_submit submit;
    uint64_t id = 1;
    for (; id <= 40; id++) { /* each for a new user */
        submit = bench_request(bench, id, 4, 1);
        submit.tenant = 1;
        submit.flow = id;
        if (bench_try(bench, &submit)) break;
    }
    assert_int_equal(id, 19); /* twice the queue, and the free place */
    submit = bench_request(bench, 50, 60, 1);
    submit.tenant = 2;
    bench_take(bench, &submit);
    submit = bench_request(bench, 51, 30, 1);
    submit.tenant = 2;
    bench_take(bench, &submit); /* below its half of the tokens */
    submit = bench_request(bench, 52, 60, 1);
    submit.tenant = 2;
    assert_true(refuses(bench, &submit, WEFT_REJECT_OVERLOADED, "limit of 200") >= 1000);
    submit = bench_request(bench, 53, 4, 1);
    submit.tenant = 1;
    submit.flow = 99;
    assert_true(refuses(bench, &submit, WEFT_REJECT_TENANT_FULL, "your share") >= 1000);
    bench_run_until_idle(bench, true);
}

static void too_many_tokens_do_not_wait(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    options.max_queued_tokens = 100;
    struct bench *bench = remake(state, &options);
    bench_submit(bench, 1, 40, 20);
    bench_step(bench);
    bench_submit(bench, 2, 60, 1);
    struct weft_submit submit = bench_request(bench, 3, 41, 1);
    assert_true(refuses(bench, &submit, WEFT_REJECT_OVERLOADED, "limit of 100") >= 1000);
    bench_submit(bench, 4, 40, 1);
    bench_run_until_idle(bench, false);
}

static void who_waits_or_runs_too_long_is_ended(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    options.queue_timeout_us = 5000000;
    options.run_timeout_us = 20000000;
    struct bench *bench = remake(state, &options);
    sim_worker_costs(bench->worker, 1000000, 0);
    bench_submit(bench, 1, 4, 100);
    bench_submit(bench, 2, 4, 1);
    for (uint32_t i = 0; i < 8; i++)
        bench_step(bench);
    weft_sched_tick(bench->sched, bench->now_us);
    bench_collect(bench);
    assert_int_equal(bench_end(bench, 2, 0), WEFT_END_DEADLINE);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_NONE);
    for (uint32_t i = 0; i < 14; i++) {
        bench_step(bench);
        weft_sched_tick(bench->sched, bench->now_us);
        bench_collect(bench);
    }
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_DEADLINE);
    assert_in_range(bench_n_tokens(bench, 1), 18, 22);
}

static void who_drains_takes_resumed_requests_only(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 5);
    weft_sched_drain(bench->sched);
    struct weft_submit submit = bench_request(bench, 2, 10, 5);
    refuses(bench, &submit, WEFT_REJECT_DRAINING, "shutting down");
    submit.resume = true;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 5);
    assert_int_equal(bench_n_tokens(bench, 2), 5);
}

static void no_step_is_taken_for_what_was_refused(void **state) {
    struct bench *bench = *state;
    struct weft_submit submit = bench_request(bench, 1, 128, 1);
    (void)bench_try(bench, &submit);
    assert_true(weft_sched_idle(bench->sched));
    assert_null(bench_plan(bench));
}

/* ----------------------------------------------------------------------------- resumptions --- */

static void a_resumed_request_goes_on_where_it_was(void **state) {
    struct bench *bench = *state;
    uint32_t output[7];
    uint64_t hash = sim_prompt_hash(bench->prompt, 10, 1);
    for (uint32_t i = 0; i < 7; i++)
        output[i] = sim_token(hash, 0, i, bench->options.n_vocab);
    struct weft_submit_choice choice = {.output = output, .n_output = 7};
    struct weft_submit submit = bench_request(bench, 1, 10, 20);
    submit.choices = &choice;
    submit.resume = true;
    bench->n_output[1][0] = 7;
    bench_take(bench, &submit);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), 13);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_LENGTH);
}

static void a_resumed_request_keeps_its_place_by_age(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    for (uint64_t id = 1; id <= 4; id++) {
        struct weft_submit submit = bench_request(bench, id, 4, 2);
        submit.resume = true;
        submit.age_us = id * 100; /* the last to come back was the first to arrive */
        bench_take(bench, &submit);
    }
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id < 4; id++)
        assert_true(bench_first_event(bench, id) > bench_first_event(bench, id + 1));
}

static void a_higher_attempt_replaces_the_one_before(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 8);
    while (bench_n_tokens(bench, 1) < 3)
        bench_step(bench);
    struct weft_submit submit = bench_request(bench, 1, 10, 8);
    refuses(bench, &submit, WEFT_REJECT_INVALID, "attempt 0 already");
    uint32_t output[3];
    for (uint32_t i = 0; i < 3; i++)
        output[i] = sim_token(sim_prompt_hash(bench->prompt, 10, 1), 0, i, bench->options.n_vocab);
    struct weft_submit_choice choice = {.output = output, .n_output = 3};
    submit.choices = &choice;
    submit.resume = true;
    submit.attempt = 2;
    bench_take(bench, &submit);
    assert_int_equal(bench_stats(bench).n_waiting + bench_stats(bench).n_running, 1);

    weft_sched_cancel(bench->sched, bench->now_us, &(struct weft_sched_key){.request_id = 1}, 0);
    bench_run_until_idle(bench, true); /* a cancel of the old attempt means nothing to the new */
    assert_int_equal(bench_n_tokens(bench, 1), 8);
}

/* --------------------------------------------------------------------------------- leaving --- */

static void a_cancelled_request_leaves_the_next_plan_and_its_blocks_are_free_at_once(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 30);
    bench_submit(bench, 2, 10, 30);
    for (uint32_t i = 0; i < 5; i++)
        bench_step(bench);
    bench_plan(bench); /* it may be in this one, which is out */
    uint32_t n_free = bench_stats(bench).n_blocks_free;
    bench_cancel(bench, 1);
    assert_true(bench_stats(bench).n_blocks_free > n_free);
    uint32_t n_tokens = bench_n_tokens(bench, 1);
    const struct weft_step_plan *plan = bench_plan(bench);
    assert_int_equal(plan->n_releases, 1);
    assert_int_equal(plan->n_rows, 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 1), n_tokens); /* no event after it */
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_NONE);
    assert_int_equal(bench_n_tokens(bench, 2), 30);
    assert_int_equal(bench_stats(bench).n_cancelled, 1);
}

static void a_plan_of_releases_alone_tidies_up_an_idle_worker(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 30);
    bench_step(bench);
    bench_cancel(bench, 1);
    const struct weft_step_plan *plan = bench_step(bench);
    assert_non_null(plan);
    assert_int_equal(plan->n_rows, 0);
    assert_int_equal(plan->n_releases, 1);
    assert_null(bench_plan(bench));
}

static void a_plan_stays_valid_when_its_request_leaves(void **state) {
    struct bench *bench = *state;
    bench_submit(bench, 1, 10, 30);
    const struct weft_step_plan *plan;
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    bench_cancel(bench, 1);
    assert_memory_equal(plan->starts[0].tokens, bench->prompt, 10 * sizeof(uint32_t));
    sim_worker_send(bench->worker, plan);
    bench_run_until_idle(bench, true);
}

static void a_cancelled_request_that_waits_is_just_gone(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    for (uint64_t id = 1; id <= 20; id++)
        bench_submit(bench, id, 4, 3);
    bench_step(bench);
    for (uint64_t id = 2; id <= 19; id++)
        bench_cancel(bench, id);
    bench_cancel(bench, 55); /* never heard of */
    assert_int_equal(bench_stats(bench).n_waiting, 1);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 20), 3);
    assert_int_equal(bench_stats(bench).n_finished, 2);
}

static void a_lost_router_takes_its_requests_along(void **state) {
    struct bench *bench = *state;
    for (uint64_t id = 1; id <= 20; id++) {
        struct weft_submit submit = bench_request(bench, id, 10, 10);
        bench->router = id % 2;
        bench_take(bench, &submit);
    }
    bench_step(bench);
    weft_sched_router_lost(bench->sched, bench->now_us, 1);
    weft_sched_check(bench->sched);
    bench_run_until_idle(bench, true);
    for (uint64_t id = 1; id <= 20; id++)
        assert_int_equal(bench_n_tokens(bench, id), id % 2 ? 0 : 10);
    assert_int_equal(bench_stats(bench).n_cancelled, 10);
}

static void deadlines_end_waiting_and_running_requests(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_seqs = 1;
    struct bench *bench = remake(state, &options);
    for (uint64_t id = 1; id <= 3; id++) {
        struct weft_submit submit = bench_request(bench, id, 10, 100);
        submit.deadline_us = id == 3 ? 0 : 100000 * (3 - id);
        bench_take(bench, &submit);
    }
    uint64_t began_us = bench->now_us;
    bench_step(bench);
    bench->now_us = began_us + 99999;
    bench_step(bench);
    assert_int_equal(bench_end(bench, 2, 0), WEFT_END_NONE);
    bench->now_us = began_us + 100000;
    bench_step(bench);
    assert_int_equal(bench_end(bench, 2, 0), WEFT_END_DEADLINE); /* it never ran */
    bench->now_us = began_us + 200000;
    weft_sched_tick(bench->sched, bench->now_us);
    bench_collect(bench);
    assert_int_equal(bench_end(bench, 1, 0), WEFT_END_DEADLINE);
    assert_true(bench_n_tokens(bench, 1) > 0);
    bench_run_until_idle(bench, true);
    assert_int_equal(bench_n_tokens(bench, 3), 100);
    assert_int_equal(bench_stats(bench).n_timed_out, 2);
}

/* ------------------------------------------------------------------------------------ size --- */

#define N_MANY 100000u

static struct weft_submit one_of_many(struct bench *bench, uint32_t i) {
    struct weft_submit submit = bench_request(bench, 1, 4, 2);
    submit.request_id = i;
    submit.resume = true;
    submit.age_us = (i * 7919u) % N_MANY; /* each age once, in no order */
    return submit;
}

static void a_hundred_thousand_wait_without_getting_in_each_others_way(void **state) {
    struct weft_sched_options options = bench_options();
    options.max_queue = N_MANY;
    struct bench *bench = remake(state, &options);
    struct weft_errmsg why;
    uint32_t retry_after_ms;
    for (uint32_t i = 0; i < N_MANY; i++) {
        struct weft_submit submit = one_of_many(bench, i);
        assert_int_equal(
            weft_sched_submit(bench->sched, bench->now_us, 0, &submit, &retry_after_ms, &why), 0);
    }
    for (uint32_t i = 0; i < N_MANY; i++) {
        if (one_of_many(bench, i).age_us < N_MANY - 8) bench_cancel(bench, i);
    }
    assert_int_equal(bench_stats(bench).n_waiting, 8);
    const struct weft_step_plan *plan = NULL;
    assert_true(weft_sched_plan(bench->sched, bench->now_us, &plan));
    assert_int_equal(plan->n_starts, 8); /* the oldest */
    weft_sched_router_lost(bench->sched, bench->now_us, 0);
    assert_int_equal(bench_stats(bench).n_waiting, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_bench, free_bench)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(what_exceeds_the_models_length_is_too_long),
        CASE(what_exceeds_the_cache_is_too_long),
        CASE(malformed_requests_are_invalid),
        CASE(malformed_resumptions_are_invalid),
        CASE(a_full_queue_says_when_to_come_back),
        CASE(the_time_to_come_back_is_when_the_queue_has_room_at_its_pace),
        CASE(what_would_come_too_late_is_refused_at_once),
        CASE(where_nothing_is_to_do_a_bad_time_refuses_nobody),
        CASE(a_cold_start_refuses_nobody),
        CASE(prompts_that_wait_for_places_make_no_prompt_slow),
        CASE(a_tenant_of_many_users_keeps_nobody_out),
        CASE(too_many_tokens_do_not_wait),
        CASE(who_waits_or_runs_too_long_is_ended),
        CASE(who_drains_takes_resumed_requests_only),
        CASE(no_step_is_taken_for_what_was_refused),
        CASE(a_resumed_request_goes_on_where_it_was),
        CASE(a_resumed_request_keeps_its_place_by_age),
        CASE(a_higher_attempt_replaces_the_one_before),
        CASE(a_cancelled_request_leaves_the_next_plan_and_its_blocks_are_free_at_once),
        CASE(a_plan_of_releases_alone_tidies_up_an_idle_worker),
        CASE(a_plan_stays_valid_when_its_request_leaves),
        CASE(a_cancelled_request_that_waits_is_just_gone),
        CASE(a_lost_router_takes_its_requests_along),
        CASE(deadlines_end_waiting_and_running_requests),
        CASE(a_hundred_thousand_wait_without_getting_in_each_others_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
