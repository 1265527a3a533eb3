/* Ends of choices: their numbers are part of the protocol, and not everybody may report each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/end.h"

static void each_number_is_used_once(void **state) {
    (void)state;
    unsigned seen = 0;
#define X(name, number, teller, reason)                                                            \
    assert_true((number) < WEFT_END_COUNT);                                                        \
    assert_int_equal(seen & 1u << (number), 0);                                                    \
    seen |= 1u << (number);
    WEFT_END_LIST(X)
#undef X
    assert_int_equal(seen, (1u << WEFT_END_COUNT) - 1);
}

static void a_number_is_taken_from_those_who_tell_of_it_alone(void **state) {
    (void)state;
    assert_true(weft_end_is_told_by(WEFT_END_NONE, WEFT_END_BY_WORKER));
    assert_true(weft_end_is_told_by(WEFT_END_LENGTH, WEFT_END_BY_WORKER));
    assert_true(weft_end_is_told_by(WEFT_END_LENGTH, WEFT_END_BY_SCHEDULER));
    assert_false(weft_end_is_told_by(WEFT_END_DEADLINE, WEFT_END_BY_WORKER));
    assert_true(weft_end_is_told_by(WEFT_END_DEADLINE, WEFT_END_BY_SCHEDULER));
    assert_false(weft_end_is_told_by(WEFT_END_STOP_STRING, WEFT_END_BY_SCHEDULER));
    assert_true(weft_end_is_told_by(WEFT_END_STOP_STRING, WEFT_END_BY_ROUTER));
    assert_false(weft_end_is_told_by(WEFT_END_COUNT, WEFT_END_BY_ROUTER));
    assert_false(weft_end_is_told_by(UINT64_MAX, WEFT_END_BY_ROUTER));
}

static void metrics_know_four_reasons(void **state) {
    (void)state;
    assert_null(weft_end_reason(WEFT_END_NONE));
    assert_string_equal(weft_end_reason(WEFT_END_STOP_TOKEN), "stop");
    assert_string_equal(weft_end_reason(WEFT_END_LENGTH), "length");
    assert_string_equal(weft_end_reason(WEFT_END_ABORT), "abort");
    assert_string_equal(weft_end_reason(WEFT_END_DEADLINE), "error");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_used_once),
        cmocka_unit_test(a_number_is_taken_from_those_who_tell_of_it_alone),
        cmocka_unit_test(metrics_know_four_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
