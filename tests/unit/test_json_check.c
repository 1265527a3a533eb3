/* One JSON object in pieces: what is whole, what is cut off, what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "codec/json_check.h"

static bool is_whole(const char *text, size_t len, size_t piece) {
    struct weft_json_check check = {0};
    for (size_t at = 0; at < len; at += piece)
        weft_json_check_more(&check, text + at, len - at < piece ? len - at : piece);
    return weft_json_check_is_whole(&check);
}

static const char *const objects[] = {
    "{}",
    " {\t}\r\n",
    "{\"a\":1}",
    "{\"a\" : [ ] , \"b\":{\"c\":[1,2 ,{\"d\":null}]},\"e\":\"\"}",
    "{\"n\":[0,-0,1.5,-12.25e+10,1E5,3e-2,0.0]}",
    "{\"t\":[true,false,null],\"\\u00e9\\n\":\"\\\"\\\\\\/\\b\\f\\r\\t{}[]\"}",
};

static const char *const others[] = {
    "",
    "[]",
    "1",
    "\"a\"",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{1:2}",
    "{\"a\":01}",
    "{\"a\":1.}",
    "{\"a\":-}",
    "{\"a\":1e}",
    "{\"a\":.5}",
    "{\"a\":+1}",
    "{\"a\":tru}",
    "{\"a\":nul",
    "{\"a\":[1}",
    "{\"a\":{]}",
    "{\"a\":\"\\x\"}",
    "{\"a\":\"\\u12g4\"}",
    "{\"a\":\"\n\"}",
    "{}}",
    "{} {}",
    "{\"a\" 1}",
    "{\"a\":1 2}",
    "{\"a\":[,]}",
    "{\"a\":[1,]}",
    "{\"a\":1.2.3}",
    "{\"a\":1e2e3}",
    "{\"a\":truefalse}",
};

static void objects_are_whole_however_they_come(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        for (size_t piece = 1; piece < 8; piece++)
            assert_true(is_whole(objects[i], strlen(objects[i]), piece));
    }
}

static void what_is_cut_off_is_not_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        size_t end = (size_t)(strrchr(objects[i], '}') - objects[i]);
        for (size_t len = 0; len <= end; len++)
            assert_false(is_whole(objects[i], len, 3));
    }
}

static void what_is_no_object_is_not_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(is_whole(others[i], strlen(others[i]), 1));
    assert_false(is_whole("{}\0", 3, 1));
}

/* Every text of three changed bytes: jansson is the other opinion. */
static void it_agrees_with_a_parser(void **state) {
    (void)state;
    static const char bytes[] = "{}[]\",:\\u0aef-+.Et1 \n";
    char text[] = "{\"a\":[1.5,\"\\u00e9\",true],\"b\":{\"c\":-0e1}}";
    size_t n = sizeof text - 1, n_bytes = sizeof bytes - 1;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n_bytes * n_bytes; k++) {
            char old[] = {text[i], text[(i + 1) % n]};
            text[i] = bytes[k / n_bytes];
            text[(i + 1) % n] = bytes[k % n_bytes];
            json_t *json = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
            bool is_surrogate =
                !json && strstr(text, "\\ud"); /* half a pair is of no concern here */
            if (!is_surrogate) assert_int_equal(is_whole(text, n, 5), json_is_object(json));
            json_decref(json);
            text[i] = old[0];
            text[(i + 1) % n] = old[1];
        }
    }
}

static void depth_has_its_bound(void **state) {
    (void)state;
    char text[2 * WEFT_JSON_CHECK_DEPTH_MAX + 16];
    for (size_t n = WEFT_JSON_CHECK_DEPTH_MAX - 1; n <= WEFT_JSON_CHECK_DEPTH_MAX; n++) {
        size_t len = 0;
        memcpy(text, "{\"a\":", 5);
        len = 5;
        memset(text + len, '[', n);
        len += n;
        memset(text + len, ']', n);
        len += n;
        text[len++] = '}';
        assert_int_equal(is_whole(text, len, 7), n < WEFT_JSON_CHECK_DEPTH_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_whole_however_they_come),
        cmocka_unit_test(what_is_cut_off_is_not_whole),
        cmocka_unit_test(what_is_no_object_is_not_whole),
        cmocka_unit_test(it_agrees_with_a_parser),
        cmocka_unit_test(depth_has_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
