#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "traffic/goal.h"

static void bounds_are_read_in_any_order_and_form(void **state) {
    (void)state;
    struct weft_traffic_goal goal;
    struct weft_errmsg why;
    assert_int_equal(weft_traffic_goal_parse("ttft:2000,itl:200", &goal, &why), WEFT_OK);
    assert_true(goal.ttft_ms == 2000 && goal.itl_ms == 200 && goal.tpot_ms == 0);
    assert_int_equal(weft_traffic_goal_parse(" tpot:0.5  e2el:1e4 ", &goal, &why), WEFT_OK);
    assert_true(goal.tpot_ms == 0.5 && goal.e2el_ms == 1e4 && goal.ttft_ms == 0);
}

static void what_is_no_bound_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",           " ",        "ttft",       "ttft:",        ":5",      "ttft:-1",
        "ttft:0",     "ttft:nan", "ttft:1e999", "tttf:5",       "ttft:5s", "ttft:5:5",
        "itl:5 five", ",itl:5",   "itl:5,",     "itl:5,,tpot:5"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weft_traffic_goal goal;
        struct weft_errmsg why = {""};
        assert_int_equal(weft_traffic_goal_parse(texts[i], &goal, &why), WEFT_E_INVAL);
        assert_non_null(strstr(why.text, "--goodput"));
    }
}

static void each_bound_is_kept_up_to_itself(void **state) {
    (void)state;
    const struct weft_traffic_goal goal = {.ttft_ms = 100, .tpot_ms = 10, .e2el_ms = 500};
    struct weft_traffic_outcome o = {.ttft_ms = 100, .e2el_ms = 200, .n_tokens = 11};
    assert_true(weft_traffic_is_good(&goal, &o));
    o.ttft_ms = 100.5;
    assert_false(weft_traffic_is_good(&goal, &o));
    o = (struct weft_traffic_outcome){.ttft_ms = 99, .e2el_ms = 200, .n_tokens = 11};
    assert_false(weft_traffic_is_good(&goal, &o)); /* 10.1 ms a token */
    o = (struct weft_traffic_outcome){.ttft_ms = 1, .e2el_ms = 501, .n_tokens = 1};
    assert_false(weft_traffic_is_good(&goal, &o));
    o.e2el_ms = 500;
    assert_true(weft_traffic_is_good(&goal, &o)); /* one token has nothing between */
}

static void one_gap_in_a_hundred_may_be_longer(void **state) {
    (void)state;
    const struct weft_traffic_goal goal = {.itl_ms = 50};
    struct weft_traffic_outcome o = {.n_gaps = 100, .n_gaps_over = 1};
    assert_true(weft_traffic_is_good(&goal, &o));
    o.n_gaps_over = 2;
    assert_false(weft_traffic_is_good(&goal, &o));
    o = (struct weft_traffic_outcome){.n_gaps = 99, .n_gaps_over = 1};
    assert_false(weft_traffic_is_good(&goal, &o));
    o = (struct weft_traffic_outcome){.n_gaps = 0};
    assert_true(weft_traffic_is_good(&goal, &o));
}

static void a_requests_own_deadline_goes_before_the_bound_of_all(void **state) {
    (void)state;
    const struct weft_traffic_goal goal = {.ttft_ms = 100};
    struct weft_traffic_outcome o = {.ttft_ms = 900, .deadline_ms = 1000};
    assert_true(weft_traffic_is_good(&goal, &o));
    o = (struct weft_traffic_outcome){.ttft_ms = 90, .deadline_ms = 50};
    assert_false(weft_traffic_is_good(&goal, &o));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_read_in_any_order_and_form),
        cmocka_unit_test(what_is_no_bound_is_refused),
        cmocka_unit_test(each_bound_is_kept_up_to_itself),
        cmocka_unit_test(one_gap_in_a_hundred_may_be_longer),
        cmocka_unit_test(a_requests_own_deadline_goes_before_the_bound_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
