/* Bytes as base64: RFC 4648's own examples, and pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "codec/base64.h"

static void expect(const char *bytes, size_t n, const char *want) {
    char text[64];
    size_t len = weft_base64(bytes, n, text);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(text, want, len);
}

static void texts_are_those_of_the_standard(void **state) {
    (void)state;
    expect("", 0, "");
    expect("f", 1, "Zg==");
    expect("fo", 2, "Zm8=");
    expect("foo", 3, "Zm9v");
    expect("foob", 4, "Zm9vYg==");
    expect("fooba", 5, "Zm9vYmE=");
    expect("foobar", 6, "Zm9vYmFy");
    expect("\xff\xef\xbe\0", 4, "/+++AA==");
}

static void pieces_make_the_same_text(void **state) {
    (void)state;
    static const char bytes[] = "\0\1\2\3\4\5\6\7\x80\x90\xa0\xff";
    char whole[16], pieces[16];
    size_t n = weft_base64(bytes, 12, whole);
    size_t at = weft_base64(bytes, 3, pieces);
    at += weft_base64(bytes + 3, 6, pieces + at);
    at += weft_base64(bytes + 9, 3, pieces + at);
    assert_int_equal(at, n);
    assert_memory_equal(pieces, whole, n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_the_standard),
        cmocka_unit_test(pieces_make_the_same_text),
    };
    return cmocka_run_group_tests_name("base64", tests, NULL, NULL);
}
