#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/rand.h"

static void a_new_buf_is_empty_and_reads_as_the_empty_string(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 10);
    assert_int_equal(buf.len, 0);
    assert_false(buf.failed);
    assert_string_equal(weft_buf_cstr(&buf), "");
    weft_buf_drop_front(&buf, 0);
    weft_buf_add(&buf, NULL, 0);
    assert_null(buf.data);
    weft_buf_fini(&buf);
}

static void pieces_are_joined_in_order(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 1000);
    weft_buf_add(&buf, "ab\0c", 4);
    weft_buf_add_char(&buf, '-');
    weft_buf_add_str(&buf, "de");
    weft_buf_add_str(&buf, "");
    weft_buf_printf(&buf, "%d%s", 42, "!");
    weft_buf_printf(&buf, "%s", "");
    assert_int_equal(buf.len, 10);
    assert_memory_equal(buf.data, "ab\0c-de42!", 10);
    assert_memory_equal(weft_buf_cstr(&buf), "ab\0c-de42!", 11);
    assert_false(buf.failed);
    weft_buf_fini(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.max_bytes, 1000);
}

static void an_append_over_the_ceiling_changes_nothing_and_is_remembered(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 8);
    weft_buf_add_str(&buf, "12345678"); /* just full */
    assert_false(buf.failed);
    assert_string_equal(weft_buf_cstr(&buf), "12345678");
    weft_buf_add_char(&buf, '9');
    assert_true(buf.failed);
    assert_string_equal(weft_buf_cstr(&buf), "12345678");
    weft_buf_clear(&buf);
    assert_false(buf.failed);
    weft_buf_printf(&buf, "%09d", 1);
    assert_true(buf.failed);
    assert_int_equal(buf.len, 0);
    weft_buf_add_str(&buf, "ab"); /* more that fits is still taken, but the failure stays */
    assert_true(buf.failed);
    assert_string_equal(weft_buf_cstr(&buf), "ab");
    weft_buf_fini(&buf);
    assert_false(buf.failed);
}

static void no_length_overflows_the_check_of_the_ceiling(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 8);
    weft_buf_add_str(&buf, "1234");
    weft_buf_add(&buf, "5", SIZE_MAX);
    weft_buf_add(&buf, "5", SIZE_MAX - 3);
    weft_buf_add(&buf, "5", 5);
    assert_true(buf.failed);
    assert_int_equal(buf.len, 4);
    weft_buf_fini(&buf);
}

static void a_text_that_cannot_be_printed_counts_as_refused(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 100);
    weft_buf_printf(&buf, "%lc", (wint_t)0x110000); /* no such character */
    assert_true(buf.failed);
    assert_int_equal(buf.len, 0);
    weft_buf_fini(&buf);
}

static void the_front_can_be_dropped_in_part_or_whole(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 100);
    weft_buf_add_str(&buf, "abcdef");
    weft_buf_drop_front(&buf, 2);
    assert_string_equal(weft_buf_cstr(&buf), "cdef");
    weft_buf_drop_front(&buf, 4);
    assert_string_equal(weft_buf_cstr(&buf), "");
    weft_buf_add_str(&buf, "g");
    assert_string_equal(weft_buf_cstr(&buf), "g");
    weft_buf_fini(&buf);
}

static void clearing_keeps_the_memory(void **state) {
    (void)state;
    struct weft_buf buf;
    weft_buf_init(&buf, 1000);
    for (int i = 0; i < 1000; i++)
        weft_buf_add_char(&buf, 'x');
    assert_false(buf.failed);
    size_t cap = buf.cap;
    weft_buf_clear(&buf);
    assert_int_equal(buf.len, 0);
    assert_int_equal(buf.cap, cap);
    weft_buf_fini(&buf);
}

/* Random appends and drops beside a plain array. */
static void it_agrees_with_a_plain_array(void **state) {
    (void)state;
    enum { MAX = 300 };
    uint64_t rand = weft_rand_test_seed();
    struct weft_buf buf;
    char model[MAX], piece[64];
    size_t len = 0;
    weft_buf_init(&buf, MAX);
    for (int round = 0; round < 20000; round++) {
        size_t n = weft_rand_below(&rand, sizeof piece);
        if (weft_rand_below(&rand, 4) == 0) {
            n = n < len ? n : len;
            weft_buf_drop_front(&buf, n);
            len -= n;
            memmove(model, model + n, len);
        } else {
            memset(piece, (int)weft_rand_below(&rand, 256), n);
            weft_buf_add(&buf, piece, n);
            assert_int_equal(buf.failed, len + n > MAX);
            buf.failed = false;
            if (len + n <= MAX) {
                memcpy(model + len, piece, n);
                len += n;
            }
        }
        assert_int_equal(buf.len, len);
        assert_memory_equal(weft_buf_cstr(&buf), model, len);
    }
    weft_buf_fini(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_buf_is_empty_and_reads_as_the_empty_string),
        cmocka_unit_test(pieces_are_joined_in_order),
        cmocka_unit_test(an_append_over_the_ceiling_changes_nothing_and_is_remembered),
        cmocka_unit_test(no_length_overflows_the_check_of_the_ceiling),
        cmocka_unit_test(a_text_that_cannot_be_printed_counts_as_refused),
        cmocka_unit_test(the_front_can_be_dropped_in_part_or_whole),
        cmocka_unit_test(clearing_keeps_the_memory),
        cmocka_unit_test(it_agrees_with_a_plain_array),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
