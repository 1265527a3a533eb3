#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/utf8.h"
#include "codec/json_out.h"

static void expect_text(const char *bytes, size_t len, const char *want) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_json_text(&out, bytes, len);
    assert_string_equal(weft_buf_cstr(&out), want);
    weft_buf_fini(&out);
}

static void strings_are_escaped(void **state) {
    (void)state;
    expect_text("", 0, "");
    expect_text("plain", 5, "plain");
    expect_text("\"\\\n\r\t", 5, "\\\"\\\\\\n\\r\\t");
    expect_text("a\0b\x1f", 4, "a\\u0000b\\u001f");
    expect_text("\b\f\x7f", 3, "\\b\\f\x7f");
    expect_text("\xc3\xa9\xf0\x9f\x99\x82", 6, "\xc3\xa9\xf0\x9f\x99\x82");
}

static void bytes_that_are_no_text_become_replacement_characters(void **state) {
    (void)state;
    expect_text("\xff", 1, "\xef\xbf\xbd");
    expect_text("a\xc3", 2, "a\xef\xbf\xbd");
    expect_text("\xe2\x82", 2, "\xef\xbf\xbd");                             /* one maximal part */
    expect_text("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate: none */
    expect_text("\xc0\xaf", 2, "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    expect_text("\xf0\x9f\x99z", 4, "\xef\xbf\xbdz");
}

static void any_bytes_make_valid_json(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    for (int round = 0; round < 5000; round++) {
        char bytes[24];
        size_t n = weft_rand_below(&rand, sizeof bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)weft_rand_next(&rand);
        struct weft_buf out;
        weft_buf_init(&out, 1 << 16);
        weft_json_str(&out, bytes, n);
        json_t *json = json_loadb(out.data, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(json);
        if (weft_utf8_valid(bytes, n)) {
            assert_int_equal(json_string_length(json), n);
            assert_memory_equal(json_string_value(json), bytes, n);
        }
        json_decref(json);
        weft_buf_fini(&out);
    }
}

static void expect_float(float value, const char *want) {
    struct weft_buf out;
    weft_buf_init(&out, 64);
    weft_json_float(&out, value);
    assert_string_equal(weft_buf_cstr(&out), want);
    weft_buf_fini(&out);
}

static void floats_come_back_bit_for_bit(void **state) {
    (void)state;
    expect_float(0, "0.0");
    expect_float(-1, "-1.0");
    expect_float(-INFINITY, "-9999.0");
    expect_float(NAN, "-9999.0");
    uint64_t rand = weft_rand_test_seed();
    for (int round = 0; round < 100000; round++) {
        uint32_t bits = (uint32_t)weft_rand_next(&rand), back_bits;
        float value, back;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        struct weft_buf out;
        weft_buf_init(&out, 64);
        weft_json_float(&out, value);
        back = (float)strtod(weft_buf_cstr(&out), NULL); /* as a client reads it: double first */
        memcpy(&back_bits, &back, sizeof back);
        assert_int_equal(back_bits, bits);
        weft_buf_fini(&out);
    }
}

static void whole_numbers_are_written_in_decimal(void **state) {
    (void)state;
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    const uint64_t values[] = {0, 7, 10, 100200, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        weft_json_uint(&out, values[i]);
        weft_buf_add_char(&out, ' ');
    }
    assert_string_equal(weft_buf_cstr(&out), "0 7 10 100200 4294967295 18446744073709551615 ");
    weft_buf_fini(&out);
}

static void bodies_are_measured_before_they_are_parsed(void **state) {
    (void)state;
    assert_true(weft_json_within("[1,2,3]", 7, 4, 1));
    assert_false(weft_json_within("[1,2,3]", 7, 3, 1));
    assert_false(weft_json_within("[[1]]", 5, 100, 1));
    assert_true(weft_json_within("[[1],[2]]", 9, 100, 2));
    assert_true(weft_json_within("\"[[[[,,,,\\\"[[\"", 13, 1, 1)); /* inside a string */
    assert_true(weft_json_within("]]]]", 4, 10, 1));
    assert_true(weft_json_within("\"\\", 2, 1, 1)); /* ends in mid-escape */
}

static void expect_widened(const char *text, const char *want) {
    char copy[512];
    (void)snprintf(copy, sizeof copy, "%s", text);
    weft_json_widen(copy, strlen(copy));
    assert_string_equal(copy, want);
}

static void whole_numbers_over_64_bits_become_the_nearest_double(void **state) {
    (void)state;
    expect_widened("[9223372036854775807,-9223372036854775808,1]",
                   "[9223372036854775807,-9223372036854775808,1]");
    expect_widened("9223372036854775808", "92233720368547758e2");
    expect_widened("[-9223372036854775809 ]", "[-92233720368547758e2 ]");
    expect_widened("{\"a\":123456789012345678901234567890}",
                   "{\"a\":12345678901234567e13          }");
    expect_widened("\"123456789012345678901\"", "\"123456789012345678901\"");
    expect_widened("\"\\\"123456789012345678901\"", "\"\\\"123456789012345678901\"");
    expect_widened("1.123456789012345678901", "1.123456789012345678901");
    expect_widened("123456789012345678901.5", "123456789012345678901.5");
    expect_widened("123456789012345678901e5", "123456789012345678901e5");
    expect_widened("1e-123456789012345678901", "1e-123456789012345678901");
    expect_widened("00000000000000000000001", "00000000000000000000001"); /* it stays malformed */
    char text[512] = "";
    memset(text, '9', sizeof text - 1);
    weft_json_widen(text, sizeof text - 1);
    assert_true(strtod(text, NULL) > 9e307 && strtod(text, NULL) < 1.1e308);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(bytes_that_are_no_text_become_replacement_characters),
        cmocka_unit_test(any_bytes_make_valid_json),
        cmocka_unit_test(floats_come_back_bit_for_bit),
        cmocka_unit_test(whole_numbers_are_written_in_decimal),
        cmocka_unit_test(bodies_are_measured_before_they_are_parsed),
        cmocka_unit_test(whole_numbers_over_64_bits_become_the_nearest_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
