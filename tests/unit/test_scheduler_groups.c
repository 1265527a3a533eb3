/* Replicas: which of them gets a request, and where requests go if their worker stays away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "scheduler/groups.h"
#include "unit/sched_bench.h"

#define N_GROUPS 2u

struct replicas {
    struct weft_sched_groups groups;
    struct bench *benches[N_GROUPS];
};

static void set_time(struct replicas *r, uint64_t now_ms) {
    for (uint32_t i = 0; i < N_GROUPS; i++)
        r->benches[i]->now_us = now_ms * 1000;
}

static uint64_t now_us(const struct replicas *r) {
    return r->benches[0]->now_us;
}

static uint64_t now_ms(const struct replicas *r) {
    return now_us(r) / 1000;
}

static void beat(struct replicas *r, uint32_t idx) {
    weft_sched_group_heartbeat(&r->groups.groups[idx], now_ms(r), 0, false);
}

/* Time passes, in which the workers `first` to `last` send their heartbeats. */
static void pass(struct replicas *r, uint64_t ms, uint32_t first, uint32_t last) {
    set_time(r, now_ms(r) + ms);
    for (uint32_t i = first; i <= last; i++)
        beat(r, i);
}

static void come(struct replicas *r, uint32_t idx) {
    weft_sched_group_came(&r->groups.groups[idx], now_ms(r));
}

static void go(struct replicas *r, uint32_t idx) {
    weft_sched_group_went(&r->groups.groups[idx], now_ms(r));
    bench_lose_worker(r->benches[idx]);
}

static struct replicas *replicas_of(const struct weft_sched_options *options) {
    struct replicas *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->groups.n = N_GROUPS;
    for (uint32_t i = 0; i < N_GROUPS; i++) {
        r->benches[i] = bench_new(&options[i]);
        r->groups.groups[i].sched = r->benches[i]->sched;
    }
    set_time(r, 1000000);
    for (uint32_t i = 0; i < N_GROUPS; i++)
        come(r, i);
    return r;
}

static struct replicas *replicas_new(void) {
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    return replicas_of(options);
}

static void replicas_free(struct replicas *r) {
    for (uint32_t i = 0; i < N_GROUPS; i++)
        bench_free(r->benches[i]);
    free(r);
}

static enum weft_reject try_submit(struct replicas *r, const struct weft_submit *submit) {
    struct weft_errmsg why;
    uint32_t retry_after_ms;
    for (uint32_t i = 0; i < N_GROUPS; i++)
        r->benches[i]->n_prompt[submit->request_id] = submit->n_prompt;
    return weft_sched_groups_submit(&r->groups, now_us(r), 0, submit, &retry_after_ms, &why);
}

static struct weft_submit request(struct replicas *r, uint64_t id) {
    return bench_request(r->benches[0], id, 6, 20);
}

static bool is_in(const struct replicas *r, uint32_t idx, uint64_t id) {
    return weft_sched_has(r->benches[idx]->sched, 0, id);
}

/* It is accepted, by this group. */
static void goes_to(struct replicas *r, uint32_t idx, uint64_t id) {
    struct weft_submit submit = request(r, id);
    assert_int_equal(try_submit(r, &submit), WEFT_REJECT_NONE);
    assert_true(is_in(r, idx, id));
    assert_false(is_in(r, 1 - idx, id));
}

static uint32_t move(struct replicas *r) {
    return weft_sched_groups_move(&r->groups, now_us(r));
}

/* A stream's tokens are counted on where it goes on. */
static void expect_from(struct replicas *r, uint32_t from, uint32_t to) {
    memcpy(r->benches[to]->n_output, r->benches[from]->n_output, sizeof r->benches[to]->n_output);
    memcpy(r->benches[to]->n_logprobs_done, r->benches[from]->n_logprobs_done,
           sizeof r->benches[to]->n_logprobs_done);
}

/* --------------------------------------------------------------------------------- placing --- */

static void a_request_goes_where_least_is_to_do(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    goes_to(r, 1, 2);
    goes_to(r, 0, 3);
    bench_cancel(r->benches[0], 1);
    bench_cancel(r->benches[0], 3);
    goes_to(r, 0, 4);
    replicas_free(r);
}

static void a_further_attempt_replaces_the_one_before_wherever_it_is(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    go(r, 0);
    struct weft_submit submit = request(r, 1);
    submit.attempt = 1;
    submit.resume = true;
    assert_int_equal(try_submit(r, &submit), WEFT_REJECT_NONE);
    assert_true(is_in(r, 0, 1));
    assert_false(is_in(r, 1, 1));
    replicas_free(r);
}

static void a_silent_worker_is_passed_over_while_another_gets_on(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    pass(r, WEFT_SCHED_ADVANCING_MS + 1, 0, 0);
    goes_to(r, 0, 2);
    pass(r, 100, 1, 1);
    goes_to(r, 1, 3);
    replicas_free(r);
}

static void a_silent_worker_is_better_than_one_that_is_gone(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    go(r, 1);
    pass(r, WEFT_SCHED_ADVANCING_MS + 1, 1, 0);
    goes_to(r, 0, 2);
    goes_to(r, 0, 3);
    replicas_free(r);
}

static void requests_wait_where_all_workers_are_gone(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    go(r, 0);
    go(r, 1);
    goes_to(r, 0, 1);
    goes_to(r, 1, 2);
    replicas_free(r);
}

static void a_full_queue_spills_over_to_workers_that_are_there_alone(void **state) {
    (void)state;
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    options[0].max_queue = options[1].max_queue = 1;
    options[0].max_seqs = options[1].max_seqs = 1;
    struct replicas *r = replicas_of(options);
    go(r, 1);
    goes_to(r, 0, 1);
    goes_to(r, 0, 2);
    struct weft_submit submit = request(r, 3);
    assert_int_equal(try_submit(r, &submit), WEFT_REJECT_QUEUE_FULL);
    assert_true(weft_sched_idle(r->benches[1]->sched));
    assert_int_equal(r->groups.n_passed_on, 0);
    come(r, 1);
    pass(r, WEFT_SCHED_ADVANCING_MS + 1, 0, 0);
    goes_to(r, 1, 3); /* silent as it is */
    assert_int_equal(r->groups.n_passed_on, 1);
    replicas_free(r);
}

static void a_request_goes_where_its_prefix_is_unless_that_is_much_busier(void **state) {
    (void)state;
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    options[0].prefix_cache = options[1].prefix_cache = true;
    struct replicas *r = replicas_of(options);
    goes_to(r, 0, 1);
    struct weft_submit submit = bench_request(r->benches[1], 2, 20, 4);
    assert_int_equal(try_submit(r, &submit), WEFT_REJECT_NONE);
    assert_true(is_in(r, 1, 2)); /* where less is to do */
    bench_run_until_idle(r->benches[0], true);
    bench_run_until_idle(r->benches[1], true);
    for (uint64_t id = 3; id <= 6; id++) {
        submit = bench_request(r->benches[1], id, 20, 4);
        assert_int_equal(try_submit(r, &submit), WEFT_REJECT_NONE);
        assert_true(is_in(r, id < 6, id)); /* three wait there now, and nobody here */
    }
    bench_run_until_idle(r->benches[0], true);
    bench_run_until_idle(r->benches[1], true);
    replicas_free(r);
}

static void what_is_too_much_for_one_worker_may_not_be_for_another(void **state) {
    (void)state;
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    options[0].max_queued_tokens = 10;
    options[1].max_queued_tokens = 20;
    struct replicas *r = replicas_of(options);
    goes_to(r, 0, 1);
    goes_to(r, 1, 2);
    goes_to(r, 1, 3); /* the other one has as little to do, but six tokens are waiting there */
    assert_int_equal(r->groups.n_passed_on, 1);
    bench_run_until_idle(r->benches[0], true);
    bench_run_until_idle(r->benches[1], true);
    replicas_free(r);
}

static void what_fits_nowhere_else_waits_for_a_worker_that_is_gone(void **state) {
    (void)state;
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    options[0].max_model_len = 20;
    struct replicas *r = replicas_of(options);
    go(r, 1);
    struct weft_submit submit = bench_request(r->benches[1], 1, 30, 4);
    assert_int_equal(try_submit(r, &submit), WEFT_REJECT_NONE);
    assert_true(is_in(r, 1, 1));
    goes_to(r, 0, 2);
    /* It does not move either: it is looked at once in a while, and costs nobody anything. */
    for (uint32_t i = 0; i < 100; i++) {
        pass(r, 500, 0, 0);
        assert_int_equal(move(r), 0);
    }
    assert_true(is_in(r, 1, 1));
    come(r, 1);
    bench_run_until_idle(r->benches[1], true);
    assert_int_equal(bench_end(r->benches[1], 1, 0), WEFT_END_LENGTH);
    replicas_free(r);
}

static void what_fits_a_full_queue_alone_is_told_to_come_again(void **state) {
    (void)state;
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    options[0].max_queue = options[0].max_seqs = 1;
    options[1].max_model_len = 20;
    struct replicas *r = replicas_of(options);
    pass(r, WEFT_SCHED_ADVANCING_MS + 1, 0, 0); /* so the other one comes second */
    goes_to(r, 0, 1);
    goes_to(r, 0, 2);
    struct weft_submit submit = bench_request(r->benches[0], 3, 30, 4);
    assert_int_equal(try_submit(r, &submit), WEFT_REJECT_QUEUE_FULL);
    replicas_free(r);
}

/* ---------------------------------------------------------------------------------- moving --- */

static void what_waits_for_a_worker_that_stays_away_moves_with_its_tokens(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    goes_to(r, 1, 2);
    struct weft_submit several = request(r, 3);
    several.n_choices = 3;
    several.sampling.n_prompt_logprobs = 2;
    assert_int_equal(try_submit(r, &several), WEFT_REJECT_NONE);
    assert_true(is_in(r, 0, 3));
    for (uint32_t i = 0; i < 6; i++)
        assert_non_null(bench_step(r->benches[0]));
    uint32_t n_had = bench_n_tokens(r->benches[0], 1);
    assert_true(n_had > 0 && n_had < 20);
    go(r, 0);
    pass(r, WEFT_SCHED_AWAY_MS - 1, 1, 1);
    assert_int_equal(move(r), 0);
    pass(r, 1, 1, 1);
    expect_from(r, 0, 1);
    assert_int_equal(move(r), 2);
    assert_true(weft_sched_idle(r->benches[0]->sched));
    assert_int_equal(bench_stats(r->benches[0]).n_moved, 2);
    weft_sched_check(r->benches[0]->sched);
    weft_sched_check(r->benches[1]->sched);
    bench_run_until_idle(r->benches[1], true); /* which compares every token */
    assert_int_equal(n_had + bench_n_tokens(r->benches[1], 1), 20);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bench_end(r->benches[1], 3, i), WEFT_END_LENGTH);
    replicas_free(r);
}

static void choices_that_were_set_aside_move_as_well(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    struct weft_submit many = request(r, 1);
    many.n_choices = 24;
    assert_int_equal(try_submit(r, &many), WEFT_REJECT_NONE);
    assert_true(is_in(r, 0, 1));
    for (uint32_t i = 0; i < 4; i++)
        assert_non_null(bench_step(r->benches[0]));
    assert_int_equal(bench_stats(r->benches[0]).n_running_seqs, 7); /* a place is left to others */
    const struct weft_sched_key key = {.request_id = 1};
    for (uint32_t choice = 0; choice < 7; choice++)
        weft_sched_cancel(r->benches[0]->sched, now_us(r), &key, choice);
    go(r, 0);
    pass(r, WEFT_SCHED_AWAY_MS, 1, 1);
    assert_int_equal(move(r), 1);
    weft_sched_check(r->benches[0]->sched);
    weft_sched_check(r->benches[1]->sched);
    bench_run_until_idle(r->benches[1], true);
    for (uint32_t choice = 7; choice < 24; choice++)
        assert_int_equal(bench_end(r->benches[1], 1, choice), WEFT_END_LENGTH);
    replicas_free(r);
}

static void nothing_moves_to_a_worker_that_is_not_there(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    go(r, 0);
    go(r, 1);
    pass(r, 10 * WEFT_SCHED_AWAY_MS, 1, 0);
    assert_int_equal(move(r), 0);
    come(r, 1);
    assert_int_equal(move(r), 1);
    assert_true(is_in(r, 1, 1));
    replicas_free(r);
}

static void nobody_is_moved_twice_within_the_time_that_a_worker_may_be_away(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    go(r, 0);
    pass(r, WEFT_SCHED_AWAY_MS, 1, 1);
    assert_int_equal(move(r), 1);
    come(r, 0);
    go(r, 1);
    uint32_t n_moved = 0;
    for (uint64_t ms = 0; ms < WEFT_SCHED_AWAY_MS; ms += 50) {
        n_moved += move(r);
        pass(r, 50, 0, 0);
    }
    assert_int_equal(n_moved, 0);
    assert_int_equal(move(r), 1);
    assert_true(is_in(r, 0, 1));
    replicas_free(r);
}

static void a_silent_worker_that_is_left_alone_keeps_what_it_has(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    go(r, 1);
    pass(r, WEFT_SCHED_AWAY_MS, 0, 0);
    for (uint32_t i = 0; i < 60; i++) { /* 3 s without a heartbeat, and requests come */
        pass(r, 50, 1, 0);
        if (i < 20) goes_to(r, 0, 2 + i);
        assert_int_equal(move(r), 0);
    }
    assert_false(weft_sched_groups_advance(&r->groups, now_ms(r)));
    replicas_free(r);
}

static void who_moves_keeps_age_and_deadline_and_can_be_cancelled(void **state) {
    (void)state;
    struct weft_sched_options options[N_GROUPS] = {bench_options(), bench_options()};
    options[0].max_seqs = options[1].max_seqs = 1;
    struct replicas *r = replicas_of(options);
    goes_to(r, 0, 1);
    go(r, 1);
    struct weft_submit overdue = request(r, 2);
    overdue.deadline_us = 1000ull * (WEFT_SCHED_AWAY_MS + 50);
    assert_int_equal(try_submit(r, &overdue), WEFT_REJECT_NONE);
    goes_to(r, 0, 3);
    come(r, 1);
    go(r, 0);
    pass(r, 1, 1, 1);
    goes_to(r, 1, 4);
    pass(r, WEFT_SCHED_AWAY_MS, 1, 1);
    assert_int_equal(move(r), 3);
    bench_cancel(r->benches[1], 3);
    assert_false(is_in(r, 1, 3));
    pass(r, 50, 1, 1);
    bench_run_until_idle(r->benches[1], true);
    assert_int_equal(bench_end(r->benches[1], 2, 0), WEFT_END_DEADLINE);
    assert_true(bench_end_event(r->benches[1], 1) < bench_end_event(r->benches[1], 4));
    replicas_free(r);
}

static void workers_that_die_of_a_request_are_counted_wherever_it_goes(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    goes_to(r, 0, 1);
    uint32_t n_losses = 0, at = 0;
    while (n_losses < WEFT_SEQ_LOSSES_MAX) {
        assert_true(is_in(r, at, 1));
        assert_non_null(bench_plan(r->benches[at]));
        go(r, at);
        n_losses++;
        bench_collect(r->benches[at]);
        if (n_losses % 3) {
            come(r, at);
            continue;
        }
        pass(r, WEFT_SCHED_AWAY_MS, 1 - at, 1 - at);
        assert_int_equal(move(r), n_losses < WEFT_SEQ_LOSSES_MAX);
        come(r, at);
        at = 1 - at;
    }
    assert_int_equal(bench_end(r->benches[1 - at], 1, 0), WEFT_END_ERROR);
    replicas_free(r);
}

/* ---------------------------------------------------------------------------------- health --- */

static void a_worker_advances_while_it_beats_and_moves_or_has_nothing_to_do(void **state) {
    (void)state;
    struct replicas *r = replicas_new();
    struct weft_sched_group *g = &r->groups.groups[0];
    assert_true(weft_sched_groups_serve(&r->groups));
    assert_true(weft_sched_groups_advance(&r->groups, now_ms(r)));
    goes_to(r, 0, 1);
    pass(r, WEFT_SCHED_ADVANCING_MS, 1, 1);
    assert_true(weft_sched_group_advances(g, now_ms(r)));
    pass(r, 1, 1, 1);
    assert_false(weft_sched_group_advances(g, now_ms(r)));
    assert_false(weft_sched_groups_advance(&r->groups, now_ms(r))); /* it holds up one of its own */
    weft_sched_group_heartbeat(g, now_ms(r), 1, true);
    assert_true(weft_sched_group_advances(g, now_ms(r)));
    uint64_t since_ms = now_ms(r);
    for (; now_ms(r) <= since_ms + WEFT_SCHED_STUCK_MS; pass(r, 250, 1, 1)) {
        weft_sched_group_heartbeat(g, now_ms(r), 1, true); /* it beats, and does not move */
        assert_null(weft_sched_group_symptom(g, now_ms(r)));
    }
    assert_false(weft_sched_group_advances(g, now_ms(r)));
    weft_sched_group_heartbeat(g, now_ms(r), 1, true);
    assert_string_equal(weft_sched_group_symptom(g, now_ms(r)), "made no progress");
    weft_sched_group_excuse(g, now_ms(r));
    assert_null(weft_sched_group_symptom(g, now_ms(r)));
    pass(r, WEFT_SCHED_STUCK_MS + 1, 1, 1);
    assert_string_equal(weft_sched_group_symptom(g, now_ms(r)), "sent no heartbeat");
    go(r, 0);
    assert_null(weft_sched_group_symptom(g, now_ms(r)));
    assert_false(weft_sched_groups_advance(&r->groups, now_ms(r)));
    bench_cancel(r->benches[0], 1);
    assert_true(weft_sched_groups_advance(&r->groups, now_ms(r)));
    go(r, 1);
    assert_false(weft_sched_groups_serve(&r->groups));
    replicas_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_goes_where_least_is_to_do),
        cmocka_unit_test(a_further_attempt_replaces_the_one_before_wherever_it_is),
        cmocka_unit_test(a_silent_worker_is_passed_over_while_another_gets_on),
        cmocka_unit_test(a_silent_worker_is_better_than_one_that_is_gone),
        cmocka_unit_test(requests_wait_where_all_workers_are_gone),
        cmocka_unit_test(a_full_queue_spills_over_to_workers_that_are_there_alone),
        cmocka_unit_test(a_request_goes_where_its_prefix_is_unless_that_is_much_busier),
        cmocka_unit_test(what_is_too_much_for_one_worker_may_not_be_for_another),
        cmocka_unit_test(what_fits_nowhere_else_waits_for_a_worker_that_is_gone),
        cmocka_unit_test(what_fits_a_full_queue_alone_is_told_to_come_again),
        cmocka_unit_test(what_waits_for_a_worker_that_stays_away_moves_with_its_tokens),
        cmocka_unit_test(choices_that_were_set_aside_move_as_well),
        cmocka_unit_test(nothing_moves_to_a_worker_that_is_not_there),
        cmocka_unit_test(nobody_is_moved_twice_within_the_time_that_a_worker_may_be_away),
        cmocka_unit_test(a_silent_worker_that_is_left_alone_keeps_what_it_has),
        cmocka_unit_test(who_moves_keeps_age_and_deadline_and_can_be_cancelled),
        cmocka_unit_test(workers_that_die_of_a_request_are_counted_wherever_it_goes),
        cmocka_unit_test(a_worker_advances_while_it_beats_and_moves_or_has_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
