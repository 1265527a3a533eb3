#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "codec/msgpack.h"
#include "codec/msgpack_json.h"

static const char *const samples[] = {
    "null",
    "true",
    "[0,127,128,255,256,65535,65536,4294967296,9223372036854775807]",
    "[-1,-32,-33,-128,-129,-32769,-2147483649,-9223372036854775807]",
    "[0.5,-1e300,1e-9]",
    "{\"a\":{\"b\":[[],{}]},\"\":\"\"}",
    "\"0123456789012345678901234567890123456789\"",
    "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,[18]]",
};

static int write_to_buf(void *context, const char *bytes, size_t n) {
    weft_buf_add(context, bytes, n);
    return 0;
}

/* By msgpack-c alone: the bytes are another's idea of the format. */
static void pack(msgpack_packer *p, const json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        msgpack_pack_map(p, json_object_size(value));
        json_object_foreach((json_t *)(uintptr_t)value, key, item) {
            (void)msgpack_pack_str_with_body(p, key, strlen(key));
            pack(p, item);
        }
        return;
    case JSON_ARRAY:
        msgpack_pack_array(p, json_array_size(value));
        json_array_foreach(value, i, item) {
            pack(p, item);
        }
        return;
    case JSON_STRING:
        (void)msgpack_pack_str_with_body(p, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        msgpack_pack_int64(p, json_integer_value(value));
        return;
    case JSON_REAL:
        msgpack_pack_double(p, json_real_value(value));
        return;
    case JSON_TRUE:
        msgpack_pack_true(p);
        return;
    case JSON_FALSE:
        msgpack_pack_false(p);
        return;
    case JSON_NULL:
        msgpack_pack_nil(p);
    }
}

static struct weft_buf packed(const char *json) {
    struct weft_buf out;
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    weft_buf_init(&out, 1 << 20);
    msgpack_packer packer;
    msgpack_packer_init(&packer, &out, write_to_buf);
    pack(&packer, value);
    assert_false(out.failed);
    json_decref(value);
    return out;
}

static void values_survive_the_round_trip(void **state) {
    (void)state;
    struct weft_errmsg why;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct weft_buf bytes = packed(samples[i]);
        json_t *want = json_loads(samples[i], JSON_DECODE_ANY, NULL);
        json_t *got = weft_msgpack_to_json(bytes.data, bytes.len, &why);
        assert_non_null(got);
        assert_true(json_equal(want, got));
        json_decref(want);
        json_decref(got);
        weft_buf_fini(&bytes);
    }
}

static void a_message_is_measured_however_it_is_cut(void **state) {
    (void)state;
    struct weft_errmsg why;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct weft_buf bytes = packed(samples[i]);
        struct weft_mp_scan scan = {0};
        for (size_t n = 0; n < bytes.len; n++)
            assert_int_equal(weft_msgpack_scan(&scan, bytes.data, n, 1 << 20, &why), WEFT_MP_MORE);
        assert_int_equal(weft_msgpack_scan(&scan, bytes.data, bytes.len, 1 << 20, &why),
                         WEFT_MP_OK);
        assert_int_equal(scan.at, bytes.len);
        weft_buf_fini(&bytes);
    }
}

/* Measures `from` bytes, skips the rest in pieces of `piece`; how many bytes the message had. */
static size_t skip_rest(const struct weft_buf *bytes, size_t from, size_t piece) {
    struct weft_errmsg why;
    struct weft_mp_scan scan = {0};
    size_t at, used;
    assert_int_equal(weft_msgpack_scan(&scan, bytes->data, from, 1 << 20, &why), WEFT_MP_MORE);
    at = scan.at;
    for (size_t end = from;; end += piece) {
        if (end > bytes->len) end = bytes->len;
        enum weft_mp_status status = weft_msgpack_skip(&scan, bytes->data + at, end - at, &used);
        at += used;
        if (status == WEFT_MP_OK) return at;
        assert_int_equal(status, WEFT_MP_MORE);
        assert_true(end < bytes->len);
        assert_true(end - at < 9); /* at most a head waits for its end */
    }
}

static void a_message_is_skipped_to_its_end_and_no_further(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct weft_buf bytes = packed(samples[i]);
        size_t len = bytes.len;
        weft_buf_add(&bytes, "\x94\x00", 2); /* the next one begins */
        for (size_t from = 0; from < len; from++) {
            for (size_t piece = 1; piece < 12; piece++)
                assert_int_equal(skip_rest(&bytes, from, piece), len);
        }
        weft_buf_fini(&bytes);
    }
}

static void what_is_too_long_can_be_skipped(void **state) {
    (void)state;
    struct weft_errmsg why;
    struct weft_buf bytes = packed("[0,7,\"0123456789012345678901234567890123456789\",[1,2]]");
    for (size_t n = 1; n <= bytes.len; n++) {
        struct weft_mp_scan scan = {0};
        size_t used;
        enum weft_mp_status status = weft_msgpack_scan(&scan, bytes.data, n, 20, &why);
        if (status == WEFT_MP_MORE) continue;
        assert_int_equal(status, WEFT_MP_LONG);
        size_t at = scan.at;
        assert_int_equal(weft_msgpack_skip(&scan, bytes.data + at, bytes.len - at, &used),
                         WEFT_MP_OK);
        assert_int_equal(at + used, bytes.len);
    }
    weft_buf_fini(&bytes);
}

static enum weft_mp_status scan_bytes(const char *bytes, size_t n, size_t bytes_max) {
    struct weft_mp_scan scan = {0};
    struct weft_errmsg why;
    return weft_msgpack_scan(&scan, bytes, n, bytes_max, &why);
}

static void claims_are_bounded(void **state) {
    (void)state;
    char deep[40];
    memset(deep, (char)0x91, sizeof deep); /* [[[[... */
    assert_int_equal(scan_bytes(deep, WEFT_MSGPACK_DEPTH_MAX, 1000), WEFT_MP_MORE);
    assert_int_equal(scan_bytes(deep, WEFT_MSGPACK_DEPTH_MAX + 1, 1000), WEFT_MP_BAD);
    assert_int_equal(scan_bytes("\xdd\xff\xff\xff\xff", 5, 1000), WEFT_MP_BAD); /* 4 G elements */
    assert_int_equal(scan_bytes("\xdf\xff\xff\xff\xff", 5, 1000), WEFT_MP_BAD);
    assert_int_equal(scan_bytes("\xdb\xff\xff\xff\xff", 5, 1000), WEFT_MP_LONG); /* 4 GB of text */
    assert_int_equal(scan_bytes("\xdb\x00\x00\x03\x00", 5, 1000), WEFT_MP_MORE);
    assert_int_equal(scan_bytes("\xc1", 1, 1000), WEFT_MP_BAD);
    assert_int_equal(scan_bytes("\xdd\x00\x00\x00\x00", 5, 1000), WEFT_MP_OK);
}

static void refuses(const char *bytes, size_t n) {
    struct weft_errmsg why = {""};
    assert_int_equal(scan_bytes(bytes, n, 1000), WEFT_MP_OK);
    assert_null(weft_msgpack_to_json(bytes, n, &why));
    assert_true(why.text[0] != '\0');
}

static void what_json_cannot_say_is_refused(void **state) {
    (void)state;
    refuses("\x81\x01\x02", 3);             /* an integer key */
    refuses("\x82\xa1k\x01\xa1k\x02", 7);   /* a key twice */
    refuses("\xa1\xff", 2);                 /* not UTF-8 */
    refuses("\x81\xa1\xff\x01", 4);         /* nor the key */
    refuses("\xcb\x7f\xf0\0\0\0\0\0\0", 9); /* infinity */
    refuses("\xd4\x01\x00", 3);             /* an extension */
}

static void a_fault_names_the_field_that_has_it(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } cases[] = {
        {"\x82\xa1k\x01\xa1t\xcb\x7f\xf0\0\0\0\0\0\0", 15, "'t': a number is not finite"},
        {"\x81\xa1k\x91\x81\xa1i\xa1\xff", 9, "'k': a string is not valid UTF-8"},
        {"\x82\xa1k\x01\xa1k\x02", 7, "'k': a map holds a key twice"},
        {"\x82\xa1k\x01\x02\x03", 6, "the keys of a map"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_errmsg why = {""};
        assert_null(weft_msgpack_to_json(cases[i].bytes, cases[i].n, &why));
        if (strncmp(why.text, cases[i].words, strlen(cases[i].words)) != 0)
            fail_msg("%s", why.text);
    }
}

static void bin_counts_as_text(void **state) {
    (void)state;
    struct weft_errmsg why;
    json_t *value = weft_msgpack_to_json("\xc4\x02hi", 4, &why);
    assert_string_equal(json_string_value(value), "hi");
    json_decref(value);
}

static void keys_are_found_without_decoding(void **state) {
    (void)state;
    struct weft_buf bytes = packed("{\"a\":[1,{\"x\":2}],\"b\":\"yes\",\"c\":3}");
    struct weft_mp_item item;
    assert_true(weft_msgpack_find(bytes.data, bytes.len, "b", &item));
    assert_int_equal(item.type, WEFT_MP_TEXT);
    assert_memory_equal(item.bytes, "yes", 3);
    assert_true(weft_msgpack_find(bytes.data, bytes.len, "c", &item));
    assert_int_equal(item.i, 3);
    assert_false(weft_msgpack_find(bytes.data, bytes.len, "x", &item));
    assert_false(weft_msgpack_find("\x01", 1, "x", &item));
    weft_buf_fini(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_survive_the_round_trip),
        cmocka_unit_test(a_message_is_measured_however_it_is_cut),
        cmocka_unit_test(a_message_is_skipped_to_its_end_and_no_further),
        cmocka_unit_test(what_is_too_long_can_be_skipped),
        cmocka_unit_test(claims_are_bounded),
        cmocka_unit_test(what_json_cannot_say_is_refused),
        cmocka_unit_test(a_fault_names_the_field_that_has_it),
        cmocka_unit_test(bin_counts_as_text),
        cmocka_unit_test(keys_are_found_without_decoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
