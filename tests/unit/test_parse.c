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

static void sizes_are_written_with_two_digits_or_more(void **state) {
    (void)state;
    char text[WEFT_SIZE_TEXT_BYTES];
    assert_string_equal(weft_size_text(0, text), "0 B");
    assert_string_equal(weft_size_text(900, text), "900 B");
    assert_string_equal(weft_size_text(1024, text), "1.0 KiB");
    assert_string_equal(weft_size_text((13u << 20) + 100000, text), "13 MiB");
    assert_string_equal(weft_size_text(1023u << 20, text), "1023 MiB");
    assert_string_equal(weft_size_text((1u << 30) - 1, text), "1.0 GiB");
    assert_string_equal(weft_size_text(2469606195, text), "2.3 GiB");
    assert_string_equal(weft_size_text(UINT64_MAX, text), "16777216 TiB");
}

static void a_size_that_is_rounded_up_is_what_its_text_says(void **state) {
    (void)state;
    uint64_t bytes = 1, said;
    for (uint32_t i = 0; i < 400; i++, bytes += bytes / 11 + 1) {
        char text[WEFT_SIZE_TEXT_BYTES];
        uint64_t up = weft_size_up(bytes);
        assert_true(up >= bytes && up - bytes <= bytes / 8);
        (void)weft_size_text(up, text);
        char *blank = strchr(text, ' ');
        memmove(blank, blank + 1, strlen(blank)); /* as one argument */
        assert_int_equal(weft_parse_size(text, &said), WEFT_OK);
        assert_true(said == up && weft_size_up(up) == up);
    }
    assert_true(weft_size_up((118u << 20) - 5) == 118u << 20);
    assert_true(weft_size_up((1u << 30) + 1) == 1181116006);
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

/* All members of a list, each in brackets. */
static const char *members(const char *list, const char *separators) {
    static char text[64];
    struct weft_str member;
    size_t n = 0;
    text[0] = '\0';
    while (weft_parse_member(&list, separators, &member))
        n += (size_t)snprintf(text + n, sizeof text - n, "[%.*s]", (int)member.len, member.data);
    assert_null(member.data);
    return text;
}

static void a_list_has_a_member_on_each_side_of_a_comma(void **state) {
    (void)state;
    assert_string_equal(members(NULL, ","), "");
    assert_string_equal(members("", ","), "[]");
    assert_string_equal(members("1", ","), "[1]");
    assert_string_equal(members("1,4,16", ","), "[1][4][16]");
    assert_string_equal(members(" 1 , 4 ", ","), "[1][4]");
    assert_string_equal(members("1,,2", ","), "[1][][2]");
    assert_string_equal(members(",1,", ","), "[][1][]");
    assert_string_equal(members(" , ", ","), "[][]");
    assert_string_equal(members("a b,c", ","), "[a b][c]");
    assert_string_equal(members("a\nb,c", ",\n"), "[a][b][c]");
    assert_string_equal(members(" a  b, c ", ", "), "[a][b][c]");
    assert_string_equal(members("a ,, b", ", "), "[a][][b]");
    assert_string_equal(members("a b, ", ", "), "[a][b][]");
}

static void a_member_may_be_a_number(void **state) {
    (void)state;
    uint64_t n = 5;
    assert_int_equal(weft_parse_member_u64((struct weft_str){"12,3", 2}, 99, &n), WEFT_OK);
    assert_true(n == 12);
    static const struct weft_str bad[] = {
        {NULL, 0}, {"12,3", 3}, {"100", 3}, {"000000000000000000001", 21}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        n = 5;
        assert_int_equal(weft_parse_member_u64(bad[i], 99, &n), WEFT_E_INVAL);
        assert_true(n == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_digits_and_nothing_else),
        cmocka_unit_test(a_whole_number_may_reach_its_maximum_and_no_more),
        cmocka_unit_test(floating_point_is_decimal_and_finite),
        cmocka_unit_test(sizes_have_binary_and_decimal_units),
        cmocka_unit_test(sizes_are_written_with_two_digits_or_more),
        cmocka_unit_test(a_size_that_is_rounded_up_is_what_its_text_says),
        cmocka_unit_test(booleans_have_four_spellings_each),
        cmocka_unit_test(a_list_has_a_member_on_each_side_of_a_comma),
        cmocka_unit_test(a_member_may_be_a_number),
    };
    return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
