#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

static void whole_numbers_are_digits_and_nothing_else(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},       {"7", 7},
        {"007", 7},     {"4294967296", 4294967296u},
        {"1234", 1234}, {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {
        "",
        " ",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x10",
        "1_000",
        "١",
        "1\n",
        "a",
        "--",
        "18446744073709551616",
        "18446744073709551620",
        "28446744073709551615",
        "99999999999999999999999999",
    };
    uint64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(weft_parse_u64(good[i].text, UINT64_MAX, &value), WEFT_OK);
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = 5;
        assert_int_equal(weft_parse_u64(bad[i], UINT64_MAX, &value), WEFT_E_INVAL);
        assert_true(value == 0);
    }
}

static void a_whole_number_may_reach_its_maximum_and_no_more(void **state) {
    (void)state;
    uint64_t value;
    assert_int_equal(weft_parse_u64("65535", 65535, &value), WEFT_OK);
    assert_int_equal(weft_parse_u64("65536", 65535, &value), WEFT_E_INVAL);
    assert_true(value == 0);
    assert_int_equal(weft_parse_u64("0", 0, &value), WEFT_OK);
    assert_int_equal(weft_parse_u64("1", 0, &value), WEFT_E_INVAL);
}

static void floating_point_is_decimal_and_finite(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"0", 0.0},      {"1.5", 1.5}, {"-2", -2.0},
        {"+3", 3.0},     {".25", .25}, {"1e-3", 1e-3},
        {"1E3", 1e3},    {"5.", 5.0},  {"-.5", -.5},
        {"1e-400", 0.0}, {"0.1", 0.1}, {"1.7976931348623157e308", 0x1.fffffffffffffp1023},
    };
    static const char *const bad[] = {
        "",      " ",      "-",     "+",    ".",    "e5",   "1e",  "1e+",  "1,5",  "1 ",
        " 1",    "1.2.3",  "nan",   "NAN",  "-nan", "+nan", "inf", "-inf", "+inf", "infinity",
        "1e309", "-1e309", "0x1p3", "0X10", "--1",  "+-1",  "1d",  "1e5f", "\n1",  "-infinity",
    };
    double value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (weft_parse_double(good[i].text, &value)) fail_msg("refused: %s", good[i].text);
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = 5;
        if (!weft_parse_double(bad[i], &value)) fail_msg("taken: \"%s\"", bad[i]);
        assert_true(value == 0.0);
    }
}

static void sizes_have_binary_and_decimal_units(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"123", 123},
        {"123B", 123},
        {"64K", 65536},
        {"64KiB", 65536},
        {"64kB", 64000},
        {"16M", 16777216},
        {"16MiB", 16777216},
        {"16MB", 16000000},
        {"2G", 2147483648u},
        {"2GiB", 2147483648u},
        {"2GB", 2000000000u},
        {"1T", 1099511627776u},
        {"1TiB", 1099511627776u},
        {"1TB", 1000000000000u},
        {"1.5GiB", 1610612736u},
        {".5K", 512},
        {"0.0001K", 0}, /* rounded down */
        {"9007199254740991", 9007199254740991u},
        {"8388607TiB", 8388607u * 1099511627776u},
    };
    static const char *const bad[] = {
        "",
        " ",
        "B",
        "GiB",
        "1 GiB",
        "1GiB ",
        " 1",
        "-1",
        "+1",
        "1e3",
        "1k",
        "1KB",
        "1gib",
        "1Gib",
        "1GiBs",
        "1P",
        "1PiB",
        "1.2.3K",
        ".",
        ".G",
        "1,5G",
        "0x10",
        "1KK",
        "1K1",
        "nan",
        "infG",
        "8388608TiB",
        "9223372036854775808",
        "18446744073709551616",
        "1234567890123456789012345678901234567890",
    };
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (weft_parse_size(good[i].text, &bytes)) fail_msg("refused: %s", good[i].text);
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bytes = 5;
        if (!weft_parse_size(bad[i], &bytes)) fail_msg("taken: \"%s\"", bad[i]);
        assert_true(bytes == 0);
    }
}

static void booleans_have_four_spellings_each(void **state) {
    (void)state;
    static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "Yes", "oN"};
    static const char *const no[] = {"0", "false", "no", "off", "FALSE", "No", "oFF"};
    static const char *const bad[] = {"", " ", "2", "t", "y", "tru", "truee", "1 ", " on", "-1"};
    bool value;
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        assert_int_equal(weft_parse_bool(yes[i], &value), WEFT_OK);
        assert_true(value);
        assert_int_equal(weft_parse_bool(no[i], &value), WEFT_OK);
        assert_false(value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = true;
        assert_int_equal(weft_parse_bool(bad[i], &value), WEFT_E_INVAL);
        assert_false(value);
    }
}

/* The edges of the ranges of Unicode's table of well-formed sequences. */
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
        cmocka_unit_test(whole_numbers_are_digits_and_nothing_else),
        cmocka_unit_test(a_whole_number_may_reach_its_maximum_and_no_more),
        cmocka_unit_test(floating_point_is_decimal_and_finite),
        cmocka_unit_test(sizes_have_binary_and_decimal_units),
        cmocka_unit_test(booleans_have_four_spellings_each),
        cmocka_unit_test(utf8_characters_are_told_from_ill_formed_bytes),
        cmocka_unit_test(utf8_that_breaks_off_is_told_from_what_is_none),
        cmocka_unit_test(utf8_is_judged_over_the_whole_text),
        cmocka_unit_test(printable_replaces_bytes_one_for_one),
    };
    return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
