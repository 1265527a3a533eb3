#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/rand.h"

/* The first outputs of splitmix64 as published beside its descriptions, for two seeds. */
static void it_gives_the_known_answers_of_splitmix64(void **state) {
    (void)state;
    static const uint64_t from_0[] = {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u,
                                      0x06c45d188009454fu};
    static const uint64_t from_1234567[] = {6457827717110365317u, 3203168211198807973u,
                                            9817491932198370423u, 4593380528125082431u,
                                            16408922859458223821u};
    uint64_t rand = 0;
    for (size_t i = 0; i < 3; i++)
        assert_true(weft_rand_next(&rand) == from_0[i]);
    rand = 1234567;
    for (size_t i = 0; i < 5; i++)
        assert_true(weft_rand_next(&rand) == from_1234567[i]);
}

static void below_stays_below_and_reaches_every_number(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    for (uint32_t n = 1; n <= 40; n++) {
        uint32_t seen[40] = {0};
        for (uint32_t i = 0; i < n * 200; i++) {
            uint32_t value = weft_rand_below(&rand, n);
            assert_true(value < n);
            seen[value]++;
        }
        for (uint32_t i = 0; i < n; i++) /* 200 expected; 7 standard deviations are 100 */
            assert_in_range(seen[i], 100, 300);
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(weft_rand_below(&rand, UINT32_MAX) < UINT32_MAX);
}

static void unit_lies_in_the_half_open_interval_and_fills_it(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    double sum = 0, least = 1, most = 0;
    for (int i = 0; i < 100000; i++) {
        double value = weft_rand_unit(&rand);
        assert_true(value >= 0.0 && value < 1.0);
        sum += value;
        if (value < least) least = value;
        if (value > most) most = value;
    }
    assert_true(sum / 100000 > 0.49 && sum / 100000 < 0.51); /* 11 standard deviations */
    assert_true(least < 0.001 && most > 0.999);
}

static void seeds_of_the_kernel_differ(void **state) {
    (void)state;
    assert_true(weft_rand_seed() != weft_rand_seed());
}

/* The last case: it leaves WEFT_SEED unset. */
static void a_property_test_repeats_with_the_seed_of_the_environment(void **state) {
    (void)state;
    assert_int_equal(setenv("WEFT_SEED", "18446744073709551615", 1), 0);
    assert_true(weft_rand_test_seed() == UINT64_MAX);
    assert_int_equal(setenv("WEFT_SEED", "not a number", 1), 0);
    assert_true(weft_rand_test_seed() != weft_rand_test_seed());
    assert_int_equal(unsetenv("WEFT_SEED"), 0);
    assert_true(weft_rand_test_seed() != weft_rand_test_seed());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gives_the_known_answers_of_splitmix64),
        cmocka_unit_test(below_stays_below_and_reaches_every_number),
        cmocka_unit_test(unit_lies_in_the_half_open_interval_and_fills_it),
        cmocka_unit_test(seeds_of_the_kernel_differ),
        cmocka_unit_test(a_property_test_repeats_with_the_seed_of_the_environment),
    };
    return cmocka_run_group_tests_name("rand", tests, NULL, NULL);
}
