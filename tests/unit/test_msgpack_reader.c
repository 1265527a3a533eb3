/* The reader of known fields, on bytes by hand. What a whole message may not say: test_proto.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "codec/msgpack.h"
#include "codec/msgpack_reader.h"

#define READER(rd, why, literal)                                                                   \
    struct weft_errmsg why = {""};                                                                 \
    struct weft_msgpack_reader rd;                                                                 \
    weft_msgpack_reader_init(&rd, literal, sizeof literal - 1, &why)

static void every_width_of_a_number_is_read(void **state) {
    (void)state;
    READER(rd, why,
           "\x7f\xcc\xff\xcd\x12\x34\xce\xff\x00\x00\x01\xcf\xfe\xdc\xba\x98\x76\x54\x32\x10"
           "\xc2\xc3\xca\xff\x80\x00\x00");
    assert_int_equal(weft_msgpack_read_u64(&rd, "a"), 0x7f);
    assert_int_equal(weft_msgpack_read_u64(&rd, "b"), 0xff);
    assert_int_equal(weft_msgpack_read_u64(&rd, "c"), 0x1234);
    assert_int_equal(weft_msgpack_read_u32(&rd, "d", UINT32_MAX), 0xff000001u);
    assert_true(weft_msgpack_read_u64(&rd, "e") == 0xfedcba9876543210u);
    assert_false(weft_msgpack_read_bool(&rd, "f"));
    assert_true(weft_msgpack_read_bool(&rd, "g"));
    assert_true(weft_msgpack_read_f32(&rd, "h") == -INFINITY);
    weft_msgpack_reader_finish(&rd);
    assert_int_equal(rd.err, WEFT_OK);
}

static void a_signed_number_is_read_from_both_forms(void **state) {
    (void)state;
    READER(rd, why,
           "\x05\xff\xd0\x80\xd1\x80\x00\xd2\x80\x00\x00\x00\xce\x7f\xff\xff\xff"
           "\xd3\x00\x00\x00\x00\x00\x00\x00\x07\xd3\xff\xff\xff\xff\x7f\xff\xff\xff");
    assert_int_equal(weft_msgpack_read_i32(&rd, "a"), 5);
    assert_int_equal(weft_msgpack_read_i32(&rd, "b"), -1);
    assert_int_equal(weft_msgpack_read_i32(&rd, "c"), -128);
    assert_int_equal(weft_msgpack_read_i32(&rd, "d"), -32768);
    assert_int_equal(weft_msgpack_read_i32(&rd, "e"), INT32_MIN);
    assert_int_equal(weft_msgpack_read_i32(&rd, "f"), INT32_MAX);
    assert_int_equal(weft_msgpack_read_i32(&rd, "g"), 7);
    assert_int_equal(rd.err, WEFT_OK);
    assert_int_equal(weft_msgpack_read_i32(&rd, "h"), 0); /* INT32_MIN - 1 */
    assert_int_equal(rd.err, WEFT_E_TOOBIG);
    READER(above, why_above, "\xce\x80\x00\x00\x00");
    assert_int_equal(weft_msgpack_read_i32(&above, "a"), 0);
    assert_int_equal(above.err, WEFT_E_TOOBIG);
    READER(other, why_other, "\xca\x00\x00\x00\x00");
    assert_int_equal(weft_msgpack_read_i32(&other, "a"), 0);
    assert_int_equal(other.err, WEFT_E_PROTO);
    assert_non_null(strstr(why_other.text, "an integer"));
}

static void nil_is_taken_and_nothing_else(void **state) {
    (void)state;
    READER(rd, why, "\xc0\x05");
    assert_true(weft_msgpack_read_nil(&rd));
    assert_false(weft_msgpack_read_nil(&rd));
    assert_int_equal(weft_msgpack_read_u64(&rd, "a"), 5);
    assert_false(weft_msgpack_read_nil(&rd));
    assert_int_equal(rd.err, WEFT_OK);
}

static void a_text_and_a_vector_are_borrowed(void **state) {
    (void)state;
    static const char bytes[] = "\xd9\x02hi\xc5\x00\x04\x01\x02\x03\x04";
    READER(rd, why, bytes);
    size_t len;
    uint32_t n;
    assert_ptr_equal(weft_msgpack_read_str(&rd, "a", 2, &len), bytes + 2);
    assert_int_equal(len, 2);
    const uint8_t *pairs = weft_msgpack_read_bin(&rd, "b", 2, 2, &n);
    assert_non_null(pairs);
    assert_int_equal(n, 2);
    assert_memory_equal(pairs, "\1\2\3\4", 4);
}

/* One form is not taken for another, even where its value would do. */
static void other_forms_are_refused_where_they_begin(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *want;
        size_t len;
    } cases[] = {
        {"\xd0\x05", "m: a should be an unsigned integer, starts with 0xd0 (byte 1)", 2},
        {"\xe0", "m: a should be an unsigned integer, starts with 0xe0 (byte 1)", 1},
        {"\xcb", "m: a should be an unsigned integer, starts with 0xcb (byte 1)", 1},
        {"\xc1", "m: a should be an unsigned integer, starts with 0xc1 (byte 1)", 1},
        {"\xcd\x01", "m: a needs 2 bytes, 1 are left (byte 2)", 2},
        {"", "m: a needs 1 bytes, 0 are left (byte 1)", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char bytes[8] = {1};
        struct weft_errmsg why = {""};
        struct weft_msgpack_reader rd;
        memcpy(bytes + 1, cases[i].bytes, cases[i].len);
        weft_msgpack_reader_init(&rd, bytes, 1 + cases[i].len, &why);
        rd.message = "m";
        assert_int_equal(weft_msgpack_read_u64(&rd, "first"), 1);
        assert_int_equal(weft_msgpack_read_u64(&rd, "a"), 0);
        assert_int_equal(rd.err, WEFT_E_PROTO);
        assert_string_equal(why.text, cases[i].want);
        assert_int_equal(weft_msgpack_read_u64(&rd, "b"), 0); /* the first fault stands */
        assert_string_equal(why.text, cases[i].want);
    }
    READER(f64, why_f64, "\xcb\0\0\0\0\0\0\0\0");
    assert_true(weft_msgpack_read_f32(&f64, "a") == 0.0f);
    assert_int_equal(f64.err, WEFT_E_PROTO);
    READER(bin, why_bin, "\xc4\1x");
    size_t len;
    assert_null(weft_msgpack_read_str(&bin, "a", 9, &len));
    assert_int_equal(bin.err, WEFT_E_PROTO);
    READER(str, why_str, "\xa1x");
    uint32_t n;
    assert_null(weft_msgpack_read_bin(&str, "a", 1, 9, &n));
    assert_int_equal(str.err, WEFT_E_PROTO);
}

struct literal {
    const char *bytes;
    size_t len;
};
#define LITERAL(text)                                                                              \
    { text, sizeof text - 1 }

/* A struct of two known fields that has one more, and a number that follows the struct. */
static weft_err skip_one(const struct literal *later, struct weft_errmsg *why) {
    char bytes[64] = "\x93\1\2";
    size_t len = 3;
    memcpy(bytes + len, later->bytes, later->len);
    len += later->len;
    bytes[len++] = 9;
    struct weft_msgpack_reader rd;
    weft_msgpack_reader_init(&rd, bytes, len, why);
    uint32_t n_more = weft_msgpack_read_open(&rd, "struct", 2);
    assert_int_equal(n_more, 1);
    assert_int_equal(weft_msgpack_read_u64(&rd, "a"), 1);
    assert_int_equal(weft_msgpack_read_u64(&rd, "b"), 2);
    weft_msgpack_read_close(&rd, "later", n_more);
    uint64_t next = weft_msgpack_read_u64(&rd, "next");
    assert_true(rd.err || next == 9);
    weft_msgpack_reader_finish(&rd);
    return rd.err;
}

static void later_fields_of_every_form_are_skipped(void **state) {
    (void)state;
    static const struct literal forms[] = {
        LITERAL("\x05"),
        LITERAL("\xe0"),
        LITERAL("\xc0"),
        LITERAL("\xc3"),
        LITERAL("\xa1x"),
        LITERAL("\xd9\1x"),
        LITERAL("\xda\0\1x"),
        LITERAL("\xdb\0\0\0\1x"),
        LITERAL("\xc4\1x"),
        LITERAL("\xc5\0\1x"),
        LITERAL("\xc6\0\0\0\1x"),
        LITERAL("\xc7\1tx"),
        LITERAL("\xc8\0\1tx"),
        LITERAL("\xc9\0\0\0\1tx"),
        LITERAL("\xd4t1"),
        LITERAL("\xd5t12"),
        LITERAL("\xd6t1234"),
        LITERAL("\xd7t12345678"),
        LITERAL("\xd8t1234567812345678"),
        LITERAL("\xca\0\0\0\0"),
        LITERAL("\xcb\0\0\0\0\0\0\0\0"),
        LITERAL("\xcc\0"),
        LITERAL("\xcd\0\0"),
        LITERAL("\xce\0\0\0\0"),
        LITERAL("\xcf\0\0\0\0\0\0\0\0"),
        LITERAL("\xd0\0"),
        LITERAL("\xd1\0\0"),
        LITERAL("\xd2\0\0\0\0"),
        LITERAL("\xd3\0\0\0\0\0\0\0\0"),
        LITERAL("\x90"),
        LITERAL("\x92\x91\1\2"),
        LITERAL("\xdc\0\1\1"),
        LITERAL("\xdd\0\0\0\1\1"),
        LITERAL("\x80"),
        LITERAL("\x82\1\x90\2\x81\3\4"),
        LITERAL("\xde\0\1\1\1"),
        LITERAL("\xdf\0\0\0\1\1\1"),
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct weft_errmsg why = {""};
        if (skip_one(&forms[i], &why)) fail_msg("form %zu: %s", i, why.text);
    }
}

static void later_fields_that_are_none_are_refused(void **state) {
    (void)state;
    static const struct literal forms[] = {
        LITERAL("\xc1"),                 /* never used */
        LITERAL("\xc4\2x"),              /* runs over the number, so that this is missing */
        LITERAL("\xdb\xff\xff\xff\xff"), /* text that is not there */
        LITERAL("\xdf\xff\xff\xff\xff"), /* nor so many pairs */
        LITERAL("\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\1"),
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct weft_errmsg why = {""};
        assert_int_equal(skip_one(&forms[i], &why), WEFT_E_PROTO);
        assert_true(why.text[0] != '\0');
    }
}

/* The struct is one level; so many more may be in it. */
static void depth_counts_from_the_outermost_array(void **state) {
    (void)state;
    for (size_t depth = 1; depth < 40; depth++) {
        char bytes[48];
        memset(bytes, (char)0x91, depth);
        bytes[depth] = 1;
        struct literal later = {bytes, depth + 1};
        struct weft_errmsg why = {""};
        assert_int_equal(skip_one(&later, &why),
                         depth + 1 <= WEFT_MSGPACK_DEPTH_MAX ? WEFT_OK : WEFT_E_PROTO);
    }
}

static void a_list_is_counted_against_the_bytes_left(void **state) {
    (void)state;
    READER(fits, why_fits, "\x92\x91\1\x91\2");
    assert_int_equal(weft_msgpack_read_list(&fits, "l", 1, 2), 2);
    READER(claims, why_claims, "\x92\x91\1\x91");
    assert_int_equal(weft_msgpack_read_list(&claims, "l", 1, 2), 0);
    assert_int_equal(claims.err, WEFT_E_PROTO);
    READER(many, why_many, "\x93\x91\1\x91\2\x91\3");
    assert_int_equal(weft_msgpack_read_list(&many, "l", 1, 2), 0);
    assert_int_equal(many.err, WEFT_E_TOOBIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_of_a_number_is_read),
        cmocka_unit_test(a_signed_number_is_read_from_both_forms),
        cmocka_unit_test(nil_is_taken_and_nothing_else),
        cmocka_unit_test(a_text_and_a_vector_are_borrowed),
        cmocka_unit_test(other_forms_are_refused_where_they_begin),
        cmocka_unit_test(later_fields_of_every_form_are_skipped),
        cmocka_unit_test(later_fields_that_are_none_are_refused),
        cmocka_unit_test(depth_counts_from_the_outermost_array),
        cmocka_unit_test(a_list_is_counted_against_the_bytes_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
