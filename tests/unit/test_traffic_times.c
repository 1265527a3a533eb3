#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "traffic/times.h"

static bool near(double a, double b) {
    return fabs(a - b) < 1e-3;
}

static void no_times_have_percentiles_of_zero(void **state) {
    (void)state;
    struct weft_traffic_times times = {0};
    assert_true(weft_traffic_percentile(&times, 0.5) == 0);
    weft_traffic_times_fini(&times);
}

static void a_percentile_is_a_value_that_was_there(void **state) {
    (void)state;
    struct weft_traffic_times times = {0};
    for (int i = 100; i > 0; i--)
        assert_true(weft_traffic_times_add(&times, 100 - i, i));
    assert_true(near(weft_traffic_percentile(&times, 0), 1));
    assert_true(near(weft_traffic_percentile(&times, 0.5), 50));
    assert_true(near(weft_traffic_percentile(&times, 0.951), 96));
    assert_true(near(weft_traffic_percentile(&times, 1), 100));
    weft_traffic_times_fini(&times);
}

static void times_added_after_a_percentile_count(void **state) {
    (void)state;
    struct weft_traffic_times times = {0};
    for (int i = 0; i < 5000; i++)
        assert_true(weft_traffic_times_add(&times, i, 7));
    assert_true(near(weft_traffic_percentile(&times, 1), 7));
    assert_true(weft_traffic_times_add(&times, 1, 9));
    assert_true(weft_traffic_times_add(&times, 1, 3));
    assert_true(near(weft_traffic_percentile(&times, 1), 9));
    assert_true(near(weft_traffic_percentile(&times, 0), 3));
    weft_traffic_times_fini(&times);
}

static void each_time_keeps_its_moment(void **state) {
    (void)state;
    struct weft_traffic_times times = {0};
    for (int i = 0; i < 10; i++)
        assert_true(weft_traffic_times_add(&times, i, 10 - i));
    assert_true(near(weft_traffic_percentile(&times, 1), 10));
    for (size_t i = 0; i < times.n; i++)
        assert_true(near((double)times.samples[i].at_s + (double)times.samples[i].ms, 10));
    weft_traffic_times_fini(&times);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_times_have_percentiles_of_zero),
        cmocka_unit_test(a_percentile_is_a_value_that_was_there),
        cmocka_unit_test(times_added_after_a_percentile_count),
        cmocka_unit_test(each_time_keeps_its_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
