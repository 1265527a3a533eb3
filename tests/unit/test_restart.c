/* When a child is started again, and when the server gives up. Time is a variable here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "restart/restart.h"

enum { SCHEDULER, ROUTER, WORKER, OTHER_WORKER };

static struct weft_restart restart;
static uint64_t now_ms;

static void start(uint32_t child) {
    weft_restart_started(&restart, child);
}

static void start_ready(uint32_t child) {
    start(child);
    weft_restart_ready(&restart, child, now_ms);
}

static struct weft_restart_decision end_as(uint32_t child, enum weft_restart_end end) {
    return weft_restart_ended(&restart, child, end, now_ms);
}

/* The wait for the next start after an end from which the server recovers; moves the time on. */
static uint64_t wait_after(uint32_t child, enum weft_restart_end end) {
    uint64_t begin_ms = now_ms;
    struct weft_restart_decision decision = end_as(child, end);
    assert_int_equal(decision.action, WEFT_RESTART_START);
    assert_true(decision.start_at_ms >= now_ms);
    assert_int_equal(restart.children[child].start_at_ms, decision.start_at_ms);
    now_ms = decision.start_at_ms;
    return now_ms - begin_ms;
}

static uint64_t fail_start(uint32_t child) {
    start(child);
    return wait_after(child, WEFT_RESTART_DIED);
}

/* The child is ready for `life_ms`. */
static uint64_t live(uint32_t child, uint64_t life_ms) {
    start_ready(child);
    now_ms += life_ms;
    return wait_after(child, WEFT_RESTART_DIED);
}

static void expect_end(struct weft_restart_decision decision, enum weft_restart_reason reason,
                       uint32_t n_in_row) {
    assert_int_equal(decision.action, WEFT_RESTART_GIVE_UP);
    assert_int_equal(decision.reason, reason);
    assert_int_equal(decision.n_in_row, n_in_row);
}

static void init(uint32_t n_workers) {
    now_ms = 1000000;
    weft_restart_init(&restart, WORKER + n_workers, WORKER, 1);
}

/* All children run, and have been ready for a while. */
static void init_running(uint32_t n_workers) {
    init(n_workers);
    for (uint32_t i = 0; i < WORKER + n_workers; i++)
        start_ready(i);
    assert_true(weft_restart_has_begun(&restart));
    now_ms += 60000;
}

/* ---------------------------------------------------------------------------- the beginning --- */

static void it_has_begun_when_all_have_been_ready_once(void **state) {
    (void)state;
    init(2);
    for (uint32_t i = 0; i < WORKER + 2; i++) {
        assert_false(weft_restart_has_begun(&restart));
        start_ready(i);
    }
    assert_true(weft_restart_has_begun(&restart));
    (void)end_as(ROUTER, WEFT_RESTART_DIED);
    assert_true(weft_restart_has_begun(&restart));
}

static void before_that_a_reason_ends_the_server(void **state) {
    (void)state;
    for (int with_others = 0; with_others < 2; with_others++) {
        init(2);
        for (uint32_t i = 0; with_others && i < OTHER_WORKER; i++)
            start_ready(i);
        start(OTHER_WORKER);
        expect_end(end_as(OTHER_WORKER, WEFT_RESTART_REFUSED), WEFT_RESTART_LAST_END, 0);
        expect_end(end_as(OTHER_WORKER, WEFT_RESTART_NOT_STARTED), WEFT_RESTART_LAST_END, 0);
    }
}

static void before_that_each_is_needed(void **state) {
    (void)state;
    init(2);
    for (uint32_t i = 0; i < OTHER_WORKER; i++)
        start_ready(i);
    for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++)
        (void)fail_start(OTHER_WORKER);
    start(OTHER_WORKER);
    expect_end(end_as(OTHER_WORKER, WEFT_RESTART_DIED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

/* Out of memory, mostly: eleven tries of a large model would take minutes. */
static void before_that_few_kills_by_the_system_are_enough(void **state) {
    (void)state;
    init(2);
    for (uint32_t i = 0; i < OTHER_WORKER; i++)
        start_ready(i);
    for (uint32_t i = 1; i < WEFT_RESTART_KILLED_MAX; i++) {
        start(OTHER_WORKER);
        assert_true(wait_after(OTHER_WORKER, WEFT_RESTART_KILLED) > 0);
    }
    start(OTHER_WORKER);
    expect_end(end_as(OTHER_WORKER, WEFT_RESTART_KILLED), WEFT_RESTART_KILLED_OFF,
               WEFT_RESTART_KILLED_MAX);
}

static void kills_count_in_a_row_and_before_it_is_ready(void **state) {
    (void)state;
    init(1);
    for (uint32_t i = 1; i < WEFT_RESTART_KILLED_MAX; i++) {
        start(WORKER);
        (void)wait_after(WORKER, WEFT_RESTART_KILLED);
    }
    (void)fail_start(WORKER); /* for another reason */
    for (uint32_t i = 1; i < WEFT_RESTART_KILLED_MAX; i++) {
        start(WORKER);
        (void)wait_after(WORKER, WEFT_RESTART_KILLED);
    }
    start_ready(WORKER);
    (void)wait_after(WORKER, WEFT_RESTART_KILLED);
    start(WORKER);
    (void)wait_after(WORKER, WEFT_RESTART_KILLED);
}

/* ------------------------------------------------------------------------------- afterwards --- */

static void later_on_a_kill_is_a_death_like_others(void **state) {
    (void)state;
    init_running(1);
    assert_int_equal(wait_after(WORKER, WEFT_RESTART_KILLED), 0);
    for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++) {
        start(WORKER);
        (void)wait_after(WORKER, WEFT_RESTART_KILLED);
    }
    start(WORKER);
    expect_end(end_as(WORKER, WEFT_RESTART_KILLED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

static void who_served_is_started_at_once(void **state) {
    (void)state;
    init_running(1);
    for (uint32_t i = 0; i < WORKER + 1; i++) {
        assert_int_equal(wait_after(i, WEFT_RESTART_DIED), 0);
        for (int n = 0; n < 100; n++)
            assert_int_equal(live(i, WEFT_RESTART_SHORT_MS), 0);
    }
}

static void who_fails_is_waited_for_longer_and_longer(void **state) {
    (void)state;
    static const uint64_t waits_ms[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000};
    init_running(1);
    assert_int_equal(wait_after(WORKER, WEFT_RESTART_DIED), 0);
    for (uint32_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++)
        assert_int_equal(fail_start(WORKER), waits_ms[i]);
    start(WORKER);
    expect_end(end_as(WORKER, WEFT_RESTART_DIED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

static void being_ready_wipes_out_failures(void **state) {
    (void)state;
    init_running(1);
    (void)wait_after(ROUTER, WEFT_RESTART_DIED);
    for (int n = 0; n < 5; n++) {
        for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++)
            (void)fail_start(ROUTER);
        assert_int_equal(live(ROUTER, 5000), 0);
    }
}

static void a_reason_given_later_on_may_pass(void **state) {
    (void)state;
    init_running(1);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    start(WORKER);
    assert_int_equal(wait_after(WORKER, WEFT_RESTART_REFUSED), 100);
    assert_int_equal(live(WORKER, 5000), 0);
}

static void what_would_be_wrong_ends_the_server_at_any_time(void **state) {
    (void)state;
    init_running(2);
    (void)wait_after(ROUTER, WEFT_RESTART_DIED);
    start(ROUTER);
    expect_end(end_as(ROUTER, WEFT_RESTART_WRONG), WEFT_RESTART_LAST_END, 0);
    expect_end(end_as(OTHER_WORKER, WEFT_RESTART_WRONG), WEFT_RESTART_LAST_END, 0);
}

static void a_start_that_fails_for_want_of_a_process_is_a_failed_try(void **state) {
    (void)state;
    init_running(1);
    (void)wait_after(SCHEDULER, WEFT_RESTART_DIED);
    assert_int_equal(wait_after(SCHEDULER, WEFT_RESTART_NOT_STARTED), 100);
    assert_int_equal(wait_after(SCHEDULER, WEFT_RESTART_NOT_STARTED), 200);
    assert_int_equal(fail_start(SCHEDULER), 400);
    assert_int_equal(live(SCHEDULER, 5000), 0);
    for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++)
        (void)wait_after(SCHEDULER, WEFT_RESTART_NOT_STARTED);
    expect_end(end_as(SCHEDULER, WEFT_RESTART_NOT_STARTED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

/* ------------------------------------------------------------------------------ short lives --- */

static void short_lives_are_waited_for_and_at_last_given_up(void **state) {
    (void)state;
    for (uint32_t child = 0; child < WORKER + 1; child++) {
        init_running(1);
        (void)wait_after(child, WEFT_RESTART_DIED);
        uint64_t before_ms = 0, sum_ms = 0;
        for (uint32_t i = 1; i < WEFT_RESTART_SHORT_MAX; i++) {
            uint64_t wait_ms = live(child, WEFT_RESTART_SHORT_MS - 1);
            assert_true(i <= WEFT_RESTART_SHORT_FREE ? wait_ms == 0 : wait_ms > 0);
            assert_true(wait_ms >= before_ms && wait_ms <= WEFT_RESTART_SHORT_WAIT_MS_MAX);
            sum_ms += wait_ms;
            before_ms = wait_ms;
        }
        assert_true(sum_ms > 10000 && sum_ms < 15000);
        start_ready(child);
        expect_end(end_as(child, WEFT_RESTART_DIED), WEFT_RESTART_SHORT_LIVED,
                   WEFT_RESTART_SHORT_MAX);
    }
}

static void a_request_that_kills_workers_is_found_out_before_that(void **state) {
    (void)state;
    uint64_t sum_ms = 0;
    init_running(1);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    for (int request = 0; request < 5; request++) { /* one after another, and no work in between */
        for (uint32_t i = 0; i < WEFT_SEQ_LOSSES_MAX; i++)
            sum_ms += live(WORKER, 0);
        weft_restart_explained(&restart);
    }
    assert_true(sum_ms < 5 * 6000); /* nobody else waits for long either */
}

static void work_or_a_long_life_in_between_wipes_them_out(void **state) {
    (void)state;
    init_running(1);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    for (int n = 0; n < 4; n++) {
        for (uint32_t i = 1; i < WEFT_RESTART_SHORT_MAX; i++)
            (void)live(WORKER, 0);
        start_ready(WORKER);
        if (n % 2)
            weft_restart_worked(&restart, WORKER);
        else
            now_ms += WEFT_RESTART_SHORT_MS;
        assert_int_equal(wait_after(WORKER, WEFT_RESTART_DIED), 0);
    }
    for (uint32_t i = 0; i < 3 * WEFT_RESTART_SHORT_MAX; i++) { /* somebody kills it for sport */
        start_ready(WORKER);
        weft_restart_worked(&restart, WORKER);
        assert_int_equal(wait_after(WORKER, WEFT_RESTART_DIED), 0);
    }
    for (uint32_t i = 1; i < WEFT_RESTART_SHORT_MAX;
         i++) /* the work of lives before is no excuse */
        (void)live(WORKER, 0);
    start_ready(WORKER);
    expect_end(end_as(WORKER, WEFT_RESTART_DIED), WEFT_RESTART_SHORT_LIVED, WEFT_RESTART_SHORT_MAX);
}

static void a_failure_between_short_lives_does_not_wipe_them_out(void **state) {
    (void)state;
    init_running(1);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    for (uint32_t i = 1; i < WEFT_RESTART_SHORT_MAX; i++) {
        (void)live(WORKER, 0);
        (void)fail_start(WORKER);
    }
    start_ready(WORKER);
    expect_end(end_as(WORKER, WEFT_RESTART_DIED), WEFT_RESTART_SHORT_LIVED, WEFT_RESTART_SHORT_MAX);
}

static void being_ready_is_told_once(void **state) {
    (void)state;
    init_running(1);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    start_ready(WORKER);
    now_ms += WEFT_RESTART_SHORT_MS;
    weft_restart_ready(&restart, WORKER, now_ms);
    assert_int_equal(wait_after(WORKER, WEFT_RESTART_DIED), 0);
    assert_int_equal(restart.children[WORKER].n_short, 0);
}

/* --------------------------------------------------------------------------------- replicas --- */

static void make_hopeless(uint32_t child) {
    (void)wait_after(child, WEFT_RESTART_DIED);
    for (uint32_t i = 0; i < 3 * WEFT_RESTART_FAILED_MAX; i++)
        (void)fail_start(child);
}

static void a_replica_may_stay_away_while_another_serves(void **state) {
    (void)state;
    init_running(2);
    make_hopeless(OTHER_WORKER);
    assert_int_equal(fail_start(OTHER_WORKER), WEFT_RESTART_MS_MAX);
    start_ready(OTHER_WORKER); /* whenever it comes back, it is one like any */
    now_ms += 5000;
    assert_int_equal(wait_after(OTHER_WORKER, WEFT_RESTART_DIED), 0);
}

static void and_while_the_one_that_served_is_on_its_way_back(void **state) {
    (void)state;
    init_running(2);
    make_hopeless(OTHER_WORKER);
    start(OTHER_WORKER);
    assert_int_equal(wait_after(WORKER, WEFT_RESTART_DIED), 0); /* once, as any may */
    assert_int_equal(wait_after(OTHER_WORKER, WEFT_RESTART_DIED), WEFT_RESTART_MS_MAX);
    start(WORKER);
    (void)fail_start(OTHER_WORKER);
    weft_restart_ready(&restart, WORKER, now_ms);
    (void)fail_start(OTHER_WORKER);
}

static void all_replicas_hopeless_end_the_server(void **state) {
    (void)state;
    init_running(2);
    make_hopeless(OTHER_WORKER);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++) {
        (void)fail_start(WORKER);
        (void)fail_start(OTHER_WORKER);
    }
    start(WORKER);
    expect_end(end_as(WORKER, WEFT_RESTART_DIED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

static void make_short_lived(uint32_t child) {
    (void)wait_after(child, WEFT_RESTART_DIED);
    for (uint32_t i = 0; i < 2 * WEFT_RESTART_SHORT_MAX; i++)
        (void)live(child, 0);
    assert_int_equal(live(child, 0), WEFT_RESTART_MS_MAX);
}

static void a_replica_of_short_lives_is_spared_like_one_that_fails(void **state) {
    (void)state;
    init_running(2);
    make_short_lived(OTHER_WORKER);
    (void)wait_after(WORKER, WEFT_RESTART_DIED);
    for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++)
        (void)fail_start(WORKER);
    start(WORKER); /* but then it is all of them */
    expect_end(end_as(WORKER, WEFT_RESTART_DIED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

static void one_that_is_ready_serves_whatever_it_was(void **state) {
    (void)state;
    init_running(2);
    make_short_lived(OTHER_WORKER);
    start_ready(OTHER_WORKER);
    make_hopeless(WORKER);
    (void)wait_after(OTHER_WORKER, WEFT_RESTART_DIED); /* it lived for long this time */
    (void)fail_start(WORKER);
}

static void nobody_spares_the_router_or_the_scheduler(void **state) {
    (void)state;
    for (uint32_t child = 0; child < WORKER; child++) {
        init_running(2);
        (void)wait_after(child, WEFT_RESTART_DIED);
        for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++)
            (void)fail_start(child);
        start(child);
        expect_end(end_as(child, WEFT_RESTART_DIED), WEFT_RESTART_NEVER_READY,
                   WEFT_RESTART_FAILED_MAX);
    }
}

/* ---------------------------------------------------------------------------------- groups --- */

/* Two groups of two. */
static void init_groups(void) {
    now_ms = 1000000;
    weft_restart_init(&restart, WORKER + 4, WORKER, 2);
    for (uint32_t i = 0; i < WORKER + 4; i++)
        start_ready(i);
    now_ms += 60000;
}

static void who_is_let_go_is_not_blamed(void **state) {
    (void)state;
    init_groups();
    for (uint32_t i = 0; i < 2 * WEFT_RESTART_SHORT_MAX; i++) {
        weft_restart_let_go(&restart, WORKER);
        assert_int_equal(restart.children[WORKER].start_at_ms, 0);
        start_ready(WORKER);
    }
    assert_int_equal(wait_after(WORKER, WEFT_RESTART_DIED), 0);
}

/* The others of its group are no help to a hopeless one. */
static void a_group_is_spared_only_by_another(void **state) {
    (void)state;
    init_groups();
    make_hopeless(WORKER);
    assert_int_equal(fail_start(WORKER), WEFT_RESTART_MS_MAX);
    (void)wait_after(WORKER + 2, WEFT_RESTART_DIED);
    for (uint32_t i = 1; i < WEFT_RESTART_FAILED_MAX; i++)
        (void)fail_start(WORKER + 2);
    start(WORKER + 2);
    expect_end(end_as(WORKER + 2, WEFT_RESTART_DIED), WEFT_RESTART_NEVER_READY,
               WEFT_RESTART_FAILED_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_begun_when_all_have_been_ready_once),
        cmocka_unit_test(before_that_a_reason_ends_the_server),
        cmocka_unit_test(before_that_each_is_needed),
        cmocka_unit_test(before_that_few_kills_by_the_system_are_enough),
        cmocka_unit_test(kills_count_in_a_row_and_before_it_is_ready),
        cmocka_unit_test(later_on_a_kill_is_a_death_like_others),
        cmocka_unit_test(who_served_is_started_at_once),
        cmocka_unit_test(who_fails_is_waited_for_longer_and_longer),
        cmocka_unit_test(being_ready_wipes_out_failures),
        cmocka_unit_test(a_reason_given_later_on_may_pass),
        cmocka_unit_test(what_would_be_wrong_ends_the_server_at_any_time),
        cmocka_unit_test(a_start_that_fails_for_want_of_a_process_is_a_failed_try),
        cmocka_unit_test(short_lives_are_waited_for_and_at_last_given_up),
        cmocka_unit_test(a_request_that_kills_workers_is_found_out_before_that),
        cmocka_unit_test(work_or_a_long_life_in_between_wipes_them_out),
        cmocka_unit_test(a_failure_between_short_lives_does_not_wipe_them_out),
        cmocka_unit_test(being_ready_is_told_once),
        cmocka_unit_test(a_replica_may_stay_away_while_another_serves),
        cmocka_unit_test(and_while_the_one_that_served_is_on_its_way_back),
        cmocka_unit_test(all_replicas_hopeless_end_the_server),
        cmocka_unit_test(a_replica_of_short_lives_is_spared_like_one_that_fails),
        cmocka_unit_test(one_that_is_ready_serves_whatever_it_was),
        cmocka_unit_test(nobody_spares_the_router_or_the_scheduler),
        cmocka_unit_test(who_is_let_go_is_not_blamed),
        cmocka_unit_test(a_group_is_spared_only_by_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
