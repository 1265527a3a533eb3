#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traffic/arrivals.h"

enum { N_DRAWS = 200000 };

/* The mean of a gamma distribution made to have mean 1 is 1, its variance 1 / shape. */
static void gaps_have_the_mean_and_the_variance_of_their_shape(void **state) {
    (void)state;
    static const double shapes[] = {0.1, 0.25, 0.5, 1, 2, 10, 1000};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint64_t seed = 7;
        double sum = 0, squares = 0;
        for (int k = 0; k < N_DRAWS; k++) {
            double x = weft_traffic_gamma(shapes[i], &seed);
            assert_true(isfinite(x) && x >= 0);
            sum += x;
            squares += x * x;
        }
        double mean = sum / N_DRAWS, variance = squares / N_DRAWS - mean * mean;
        /* Five standard errors of the mean; the variance's own error grows with the kurtosis. */
        assert_true(fabs(mean - 1) < 5 * sqrt(1 / shapes[i] / N_DRAWS));
        assert_true(fabs(variance * shapes[i] - 1) < 5 * sqrt((2 + 6 / shapes[i]) / N_DRAWS));
    }
}

static void a_poisson_process_forgets_how_long_it_has_waited(void **state) {
    (void)state;
    uint64_t seed = 1;
    uint32_t over_one = 0, over_two = 0;
    for (int k = 0; k < N_DRAWS; k++) {
        double x = weft_traffic_gamma(1, &seed);
        over_one += x > 1;
        over_two += x > 2;
    }
    assert_true(fabs((double)over_one / N_DRAWS - exp(-1)) < 0.01);
    assert_true(fabs((double)over_two / over_one - exp(-1)) < 0.01);
}

static void moments_ascend_from_zero_at_the_rate(void **state) {
    (void)state;
    uint64_t *at = malloc(N_DRAWS * sizeof *at);
    assert_non_null(at);
    for (uint32_t halves = 0; halves < 6; halves++) {
        weft_traffic_arrivals(50, halves / 2.0, 3, N_DRAWS, at);
        assert_true(at[0] == 0);
        for (uint32_t i = 1; i < N_DRAWS; i++)
            assert_true(at[i] >= at[i - 1]);
        assert_true(fabs((double)at[N_DRAWS - 1] / 1e9 / (N_DRAWS / 50.0) - 1) < 0.02);
    }
    free(at);
}

static void equal_gaps_are_exact_however_many_there_are(void **state) {
    (void)state;
    uint64_t *at = malloc(N_DRAWS * sizeof *at);
    assert_non_null(at);
    weft_traffic_arrivals(4, 0, 3, N_DRAWS, at);
    for (uint32_t i = 0; i < N_DRAWS; i++)
        assert_true(at[i] == i * UINT64_C(250000000));
    free(at);
}

static void the_same_seed_gives_the_same_moments(void **state) {
    (void)state;
    uint64_t a[100], b[100], c[100];
    weft_traffic_arrivals(2, 0.5, 11, 100, a);
    weft_traffic_arrivals(2, 0.5, 11, 100, b);
    weft_traffic_arrivals(2, 0.5, 12, 100, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
}

static void rates_and_bursts_at_their_ends_stay_finite(void **state) {
    (void)state;
    static uint64_t at[10000];
    weft_traffic_arrivals(1e-6, 1e-3, 1, 10000, at);
    for (uint32_t i = 1; i < 10000; i++)
        assert_true(at[i] >= at[i - 1]);
    weft_traffic_arrivals(1e6, 1e3, 1, 10000, at);
    assert_true(at[9999] < UINT64_C(1000000000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_have_the_mean_and_the_variance_of_their_shape),
        cmocka_unit_test(a_poisson_process_forgets_how_long_it_has_waited),
        cmocka_unit_test(moments_ascend_from_zero_at_the_rate),
        cmocka_unit_test(equal_gaps_are_exact_however_many_there_are),
        cmocka_unit_test(the_same_seed_gives_the_same_moments),
        cmocka_unit_test(rates_and_bursts_at_their_ends_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
