#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"

static const unsigned char bytes[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                                      0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f};

static void numbers_are_little_endian_and_need_no_alignment(void **state) {
    (void)state;
    struct weft_cursor cur;
    weft_cursor_init(&cur, bytes, sizeof bytes);
    assert_int_equal(weft_cursor_left(&cur), 15);
    assert_int_equal(weft_cursor_u8(&cur), 0x01);
    assert_int_equal(weft_cursor_u16(&cur), 0x0302);
    assert_int_equal(weft_cursor_u32(&cur), 0x07060504);
    assert_true(weft_cursor_u64(&cur) == 0x0f0e0d0c0b0a0908u);
    assert_int_equal(weft_cursor_left(&cur), 0);
    assert_false(cur.failed);
}

static void take_lends_the_bytes_of_the_input(void **state) {
    (void)state;
    struct weft_cursor cur;
    weft_cursor_init(&cur, bytes, sizeof bytes);
    assert_ptr_equal(weft_cursor_take(&cur, 4), bytes);
    assert_ptr_equal(weft_cursor_take(&cur, 0), bytes + 4);
    assert_ptr_equal(weft_cursor_take(&cur, 11), bytes + 4);
    assert_ptr_equal(weft_cursor_take(&cur, 0), bytes + sizeof bytes);
    assert_false(cur.failed);
}

static void a_read_past_the_end_fails_and_gives_zero(void **state) {
    (void)state;
    for (size_t n = 0; n < 8; n++) {
        unsigned char *exact = malloc(n + (n == 0)); /* a sanitizer sees one byte too far */
        assert_non_null(exact);
        memcpy(exact, bytes, n);
        struct weft_cursor cur;
        weft_cursor_init(&cur, exact, n);
        assert_true(weft_cursor_u64(&cur) == 0);
        assert_true(cur.failed);
        weft_cursor_init(&cur, exact, n);
        assert_int_equal(weft_cursor_u32(&cur) != 0, n >= 4);
        assert_int_equal(cur.failed, n < 4);
        weft_cursor_init(&cur, exact, n);
        assert_int_equal(weft_cursor_u16(&cur) != 0, n >= 2);
        assert_int_equal(cur.failed, n < 2);
        weft_cursor_init(&cur, exact, n);
        assert_int_equal(weft_cursor_u8(&cur) != 0, n >= 1);
        assert_int_equal(cur.failed, n < 1);
        free(exact);
    }
}

static void after_a_failure_everything_fails(void **state) {
    (void)state;
    struct weft_cursor cur;
    weft_cursor_init(&cur, bytes, sizeof bytes);
    assert_null(weft_cursor_take(&cur, 16));
    assert_true(cur.failed);
    assert_int_equal(weft_cursor_left(&cur), 0);
    assert_null(weft_cursor_take(&cur, 1));
    assert_null(weft_cursor_take(&cur, 0));
    assert_int_equal(weft_cursor_u8(&cur), 0);
}

static void a_length_that_would_overflow_the_pointer_is_refused(void **state) {
    (void)state;
    struct weft_cursor cur;
    weft_cursor_init(&cur, bytes, sizeof bytes);
    (void)weft_cursor_u8(&cur);
    assert_null(weft_cursor_take(&cur, SIZE_MAX));
    assert_true(cur.failed);
}

static void an_empty_input_has_no_bytes_to_give(void **state) {
    (void)state;
    struct weft_cursor cur;
    weft_cursor_init(&cur, "", 0);
    assert_int_equal(weft_cursor_left(&cur), 0);
    assert_non_null(weft_cursor_take(&cur, 0));
    assert_false(cur.failed);
    assert_int_equal(weft_cursor_u8(&cur), 0);
    assert_true(cur.failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian_and_need_no_alignment),
        cmocka_unit_test(take_lends_the_bytes_of_the_input),
        cmocka_unit_test(a_read_past_the_end_fails_and_gives_zero),
        cmocka_unit_test(after_a_failure_everything_fails),
        cmocka_unit_test(a_length_that_would_overflow_the_pointer_is_refused),
        cmocka_unit_test(an_empty_input_has_no_bytes_to_give),
    };
    return cmocka_run_group_tests_name("cursor", tests, NULL, NULL);
}
