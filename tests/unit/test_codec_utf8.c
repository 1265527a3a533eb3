#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/rand.h"
#include "codec/unicode.h"
#include "codec/utf8.h"

static void text_is_made_valid_and_not_escaped(void **state) {
    (void)state;
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    weft_utf8_clean(&out, "\"a\n\xc3\xa9\xff\xe2\x82", 8);
    assert_string_equal(weft_buf_cstr(&out), "\"a\n\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
    weft_buf_fini(&out);
}

/* Every character that there is goes out and comes back, and its bytes are one character. */
static void characters_come_back(void **state) {
    (void)state;
    struct weft_buf out;
    weft_buf_init(&out, 64);
    for (uint32_t code = 0; code <= WEFT_UTF8_CODE_MAX; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) continue; /* surrogates are none */
        size_t len;
        weft_buf_clear(&out);
        weft_utf8_put(&out, code);
        assert_int_equal(weft_utf8_next(out.data, out.len), out.len);
        assert_int_equal(weft_utf8_len(out.data[0]), out.len);
        assert_int_equal(weft_utf8_get(out.data, &len), code);
        assert_int_equal(len, out.len);
        assert_int_equal(weft_utf8_count(out.data, out.len), 1);
    }
    weft_buf_fini(&out);
}

/* However the bytes are cut, feeding them cleans them as if they came at once. */
static void pieces_are_cleaned_like_the_whole(void **state) {
    (void)state;
    uint64_t rand = weft_rand_test_seed();
    static const char *const parts[] = {"a",    "\xc3\xa9",     "\xf0\x9f\x99\x82", "\xe2\x82",
                                        "\xff", "\xed\xa0\x80", "\xf0\x90",         "\x80"};
    for (int round = 0; round < 3000; round++) {
        struct weft_buf text, whole, fed;
        char pending[4];
        uint8_t n_pending = 0;
        weft_buf_init(&text, 256);
        weft_buf_init(&whole, 1024);
        weft_buf_init(&fed, 1024);
        for (uint64_t n = weft_rand_below(&rand, 12); n > 0; n--)
            weft_buf_add_str(&text, parts[weft_rand_below(&rand, 8)]);
        const char *bytes = weft_buf_cstr(&text);
        weft_utf8_clean(&whole, bytes, text.len);
        for (size_t at = 0; at < text.len;) {
            size_t n = 1 + weft_rand_below(&rand, (uint32_t)(text.len - at));
            weft_utf8_feed(pending, &n_pending, bytes + at, n, &fed);
            at += n;
        }
        if (n_pending > 0) weft_buf_add_str(&fed, WEFT_UTF8_REPLACEMENT);
        assert_string_equal(weft_buf_cstr(&fed), weft_buf_cstr(&whole));
        assert_true(weft_utf8_valid(weft_buf_cstr(&whole), whole.len));
        weft_buf_fini(&text);
        weft_buf_fini(&whole);
        weft_buf_fini(&fed);
    }
}

static void characters_have_classes(void **state) {
    (void)state;
    assert_true(weft_unicode_is_space(' ') && weft_unicode_is_space(0x3000));
    assert_false(weft_unicode_is_space('a') || weft_unicode_is_space(0x200B));
    assert_true(weft_unicode_is_word('a') && weft_unicode_is_word('_') &&
                weft_unicode_is_word(0x4E2D) && weft_unicode_is_word('7'));
    assert_false(weft_unicode_is_word('-') || weft_unicode_is_word(' '));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_made_valid_and_not_escaped),
        cmocka_unit_test(characters_come_back),
        cmocka_unit_test(pieces_are_cleaned_like_the_whole),
        cmocka_unit_test(characters_have_classes),
    };
    return cmocka_run_group_tests_name("codec_utf8", tests, NULL, NULL);
}
