/* Figures of the last moments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/recent.h"

static struct weft_api_percentiles read_at(const struct weft_api_recent *r, uint64_t now_ms) {
    struct weft_api_percentiles p;
    weft_api_recent_percentiles(r, now_ms, &p);
    return p;
}

static void nothing_has_no_percentiles(void **state) {
    (void)state;
    static const struct weft_api_recent r;
    struct weft_api_percentiles p = read_at(&r, 5);
    assert_int_equal(p.n, 0);
    assert_true(p.p50 == 0 && p.p99 == 0);
}

static void one_value_is_every_percentile(void **state) {
    (void)state;
    struct weft_api_recent r = {0};
    weft_api_recent_add(&r, 5, 0.25);
    struct weft_api_percentiles p = read_at(&r, 5);
    assert_int_equal(p.n, 1);
    assert_true(p.p50 == 0.25 && p.p95 == 0.25 && p.p99 == 0.25);
}

static void percentiles_are_values_that_so_many_do_not_exceed(void **state) {
    (void)state;
    struct weft_api_recent r = {0};
    for (uint32_t i = 0; i < 100; i++)
        weft_api_recent_add(&r, i, 1 + (i * 37) % 100); /* 1 to 100 in another order */
    struct weft_api_percentiles p = read_at(&r, 100);
    assert_int_equal(p.n, 100);
    assert_true(p.p50 == 50 && p.p95 == 95 && p.p99 == 99);
}

static void values_older_than_a_minute_do_not_count(void **state) {
    (void)state;
    struct weft_api_recent r = {0};
    weft_api_recent_add(&r, 1000, 7);
    weft_api_recent_add(&r, 2000, 3);
    assert_int_equal(read_at(&r, 61000).n, 2);
    assert_int_equal(read_at(&r, 61001).n, 1);
    assert_true(read_at(&r, 61001).p99 == 3);
    assert_int_equal(read_at(&r, 62001).n, 0);
}

static void only_the_last_values_are_kept(void **state) {
    (void)state;
    struct weft_api_recent r = {0};
    for (uint32_t i = 0; i < WEFT_API_RECENT_VALUES_MAX; i++)
        weft_api_recent_add(&r, 5, 1000);
    for (uint32_t i = 0; i < WEFT_API_RECENT_VALUES_MAX; i++)
        weft_api_recent_add(&r, 5, 2);
    struct weft_api_percentiles p = read_at(&r, 5);
    assert_int_equal(p.n, WEFT_API_RECENT_VALUES_MAX);
    assert_true(p.p50 == 2 && p.p99 == 2);
}

/* ----------------------------------------------------------------------------------- rates --- */

static void is_rate(const struct weft_api_rates *r, uint64_t now_ms, double prompt, double output) {
    double has_prompt, has_output;
    weft_api_rates_read(r, now_ms, &has_prompt, &has_output);
    assert_true(has_prompt == prompt && has_output == output);
}

static void a_rate_is_growth_over_the_last_seconds(void **state) {
    (void)state;
    struct weft_api_rates r = {0};
    is_rate(&r, 5, 0, 0);
    weft_api_rates_add(&r, 1000, 70, 7000);
    is_rate(&r, 1000, 0, 0); /* what was there before is no growth */
    for (uint64_t at = 1250; at <= 60000; at += 250)
        weft_api_rates_add(&r, at, 70 + (at - 1000) / 250, 7000 + (at - 1000) / 25);
    is_rate(&r, 60000, 4, 40);
    is_rate(&r, 60249, 4, 40); /* the next sample has not come yet */
}

static void a_rate_falls_to_nothing_when_no_samples_come(void **state) {
    (void)state;
    struct weft_api_rates r = {0};
    weft_api_rates_add(&r, 0, 0, 0);
    weft_api_rates_add(&r, 1000, 100, 400);
    is_rate(&r, 1000, 100, 400);
    is_rate(&r, 4000, 25, 100);
    is_rate(&r, 5001, 0, 0); /* one sample is left in the window */
    is_rate(&r, 9000, 0, 0);
}

static void many_samples_at_once_do_not_shorten_the_window(void **state) {
    (void)state;
    struct weft_api_rates r = {0};
    for (uint64_t at = 0; at <= 5000; at += 10)
        weft_api_rates_add(&r, at, at, 2 * at);
    is_rate(&r, 5000, 1000, 2000);
    assert_in_range(r.n, 20, WEFT_API_RATES_SAMPLES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_has_no_percentiles),
        cmocka_unit_test(one_value_is_every_percentile),
        cmocka_unit_test(percentiles_are_values_that_so_many_do_not_exceed),
        cmocka_unit_test(values_older_than_a_minute_do_not_count),
        cmocka_unit_test(only_the_last_values_are_kept),
        cmocka_unit_test(a_rate_is_growth_over_the_last_seconds),
        cmocka_unit_test(a_rate_falls_to_nothing_when_no_samples_come),
        cmocka_unit_test(many_samples_at_once_do_not_shorten_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
