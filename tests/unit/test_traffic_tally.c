#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "traffic/tally.h"

static const struct weft_traffic_goal goal = {.ttft_ms = 100};

static struct weft_traffic_tally make(uint32_t n_turns) {
    struct weft_traffic_tally tally;
    assert_int_equal(weft_traffic_tally_init(&tally, n_turns, &goal), WEFT_OK);
    return tally;
}

static void answers_are_summed_and_the_good_ones_apart(void **state) {
    (void)state;
    struct weft_traffic_tally tally = make(2);
    struct weft_traffic_done done = {.outcome = {.ttft_ms = 50, .e2el_ms = 80, .n_tokens = 7},
                                     .n_prompt = 100,
                                     .n_cached = 30,
                                     .has_cached = true};
    weft_traffic_tally_done(&tally, &done);
    done.outcome.ttft_ms = 150;
    done.turn = 1;
    done.has_cached = false;
    done.n_cached = 0;
    weft_traffic_tally_done(&tally, &done);
    assert_int_equal(tally.n_done, 2);
    assert_int_equal(tally.n_good, 1);
    assert_int_equal(tally.n_tokens, 14);
    assert_int_equal(tally.n_good_tokens, 7);
    assert_int_equal(tally.n_prompt, 200);
    assert_int_equal(tally.n_cached, 30);
    assert_true(tally.has_cached && !tally.no_memory);
    assert_int_equal(tally.turns[0].n_cached, 30);
    assert_int_equal(tally.turns[1].first.n, 1);
    weft_traffic_tally_fini(&tally);
}

static void failures_are_counted_by_kind_and_status(void **state) {
    (void)state;
    struct weft_traffic_tally tally = make(1);
    struct weft_traffic_failed failed = {
        .kind = WEFT_TRAFFIC_STATUS, .status = 429, .retry_after_ms = 2000, .why = "full"};
    weft_traffic_tally_failed(&tally, &failed);
    weft_traffic_tally_failed(&tally, &failed);
    failed = (struct weft_traffic_failed){
        .kind = WEFT_TRAFFIC_RESET, .retry_after_ms = -1, .why = "gone"};
    weft_traffic_tally_failed(&tally, &failed);
    assert_int_equal(tally.n_failed, 3);
    assert_int_equal(tally.n_statuses, 1);
    assert_int_equal(tally.statuses[0].n, 2);
    assert_int_equal(tally.n_failures[WEFT_TRAFFIC_RESET], 1);
    assert_int_equal(tally.retry_after.n, 2);
    assert_true(weft_traffic_percentile(&tally.retry_after, 0.5) == 2000);
    assert_string_equal(tally.why.text, "full");
    assert_string_equal(weft_traffic_failure_name(WEFT_TRAFFIC_RESET), "reset");
    assert_null(weft_traffic_failure_name(WEFT_TRAFFIC_STATUS));
    weft_traffic_tally_fini(&tally);
}

static void a_server_of_many_statuses_fills_no_more_than_there_is(void **state) {
    (void)state;
    struct weft_traffic_tally tally = make(1);
    uint32_t n = 0;
    for (uint32_t status = 300; status < 400; status++) {
        struct weft_traffic_failed failed = {
            .kind = WEFT_TRAFFIC_STATUS, .status = status, .retry_after_ms = -1, .why = ""};
        weft_traffic_tally_failed(&tally, &failed);
    }
    assert_int_equal(tally.n_statuses, WEFT_TRAFFIC_STATUSES_MAX);
    assert_int_equal(tally.statuses[WEFT_TRAFFIC_STATUSES_MAX - 1].status, 0);
    for (uint32_t i = 0; i < tally.n_statuses; i++)
        n += tally.statuses[i].n;
    assert_int_equal(n, 100);
    weft_traffic_tally_fini(&tally);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_summed_and_the_good_ones_apart),
        cmocka_unit_test(failures_are_counted_by_kind_and_status),
        cmocka_unit_test(a_server_of_many_statuses_fills_no_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
