#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void utf8_characters_are_told_from_ill_formed_bytes(void **state) {
    (void)state;
    static const char *const good[] = {
        "\x01",         "\x7f",         "\xc2\x80",         "\xdf\xbf",
        "\xe0\xa0\x80", "\xec\xbf\xbf", "\xed\x9f\xbf",     "\xee\x80\x80",
        "\xef\xbf\xbf", "\xef\xbb\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
    };
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc2",
        "\xc2\x7f",
        "\xc2\xc0",
        "\xe0\x9f\xbf",
        "\xe0\xa0",
        "\xe0\xa0\x7f",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf0\x90\x80",
        "\xf0\x90\x80\xc0",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xf8\x88\x80\x80\x80",
        "\xfe",
        "\xff",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        size_t n = strlen(good[i]);
        assert_int_equal(weft_utf8_next(good[i], n), n);
        assert_true(weft_utf8_valid(good[i], n));
        assert_int_equal(weft_utf8_next(good[i], n - 1), 0); /* cut short */
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(weft_utf8_next(bad[i], strlen(bad[i])), 0);
        assert_false(weft_utf8_valid(bad[i], strlen(bad[i])));
    }
}

static void utf8_that_breaks_off_is_told_from_what_is_none(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        bool whole;
    } cases[] = {
        {"", 0, false},
        {"ab", 1, true},
        {"\xc3\xa4z", 2, true},
        {"\xf0\x9f\xa7\xb5", 4, true},
        {"\xf0\x9f\xa7", 3, false},
        {"\xf0\x9f\xa7z", 3, false},
        {"\xe2\x82\xe2", 2, false},
        {"\xe0\x80\x80", 1, false}, /* overlong: no second byte fits */
        {"\xe0\xa0", 2, false},
        {"\xed\xa0\x80", 1, false}, /* a surrogate */
        {"\xf0\x8f\xbf\xbf", 1, false},
        {"\xf4\x90", 1, false}, /* above U+10FFFF */
        {"\x80", 0, false},
        {"\xc1\xbf", 0, false},
        {"\xf5\x80", 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool whole = !cases[i].whole;
        assert_int_equal(weft_utf8_start(cases[i].bytes, strlen(cases[i].bytes), &whole),
                         cases[i].n);
        assert_int_equal(whole, cases[i].whole);
    }
}

static void utf8_is_judged_over_the_whole_text(void **state) {
    (void)state;
    assert_true(weft_utf8_valid("", 0));
    assert_true(weft_utf8_valid("a\0b", 3));
    assert_true(weft_utf8_valid("a\xc3\xa4\xe2\x82\xac\xf0\x9f\xa7\xb5z", 11));
    assert_false(weft_utf8_valid("a\xc3\xa4\xe2\x82\xac\xf0\x9f\xa7z", 10));
    assert_false(weft_utf8_valid("abc\xff", 4));
    assert_true(weft_utf8_valid("abc\xff", 3));
    assert_int_equal(weft_utf8_next("ab", 2), 1);
    assert_int_equal(weft_utf8_next("", 0), 0);
}

static void printable_replaces_bytes_one_for_one(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"plain text ~", "plain text ~"},
        {"\t\r\n\x1b[0m\x7f", "????[0m?"},
        {"a\xff"
         "b\xc3",
         "a?b?"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"\xe2\x82"
         "x",
         "??x"},
        {"a\xe2\x80\xae"
         "b\xe2\x81\xa6\xe2\x80\xa8",
         "a???b??????"}, /* from right to left, and a line separator */
        {"\xe2\x80\xaf\xe2\x80\xa6", "\xe2\x80\xaf\xe2\x80\xa6"},
        {"\xc2\x80\xc2\x9f\xc2\xa0", "????\xc2\xa0"}, /* C1 is control, the no-break space is not */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "%s", cases[i][0]);
        weft_utf8_printable(text);
        assert_string_equal(text, cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_characters_are_told_from_ill_formed_bytes),
        cmocka_unit_test(utf8_that_breaks_off_is_told_from_what_is_none),
        cmocka_unit_test(utf8_is_judged_over_the_whole_text),
        cmocka_unit_test(printable_replaces_bytes_one_for_one),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
