#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

static void every_code_has_a_text_of_its_own(void **state) {
    (void)state;
    static const weft_err codes[] = {
#define CODE(name, text) WEFT_##name,
        WEFT_ERR_LIST(CODE)
#undef CODE
    };
    size_t n = sizeof codes / sizeof codes[0];
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(weft_err_text(codes[i])) > 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(weft_err_text(codes[i]), weft_err_text(codes[k]));
    }
    assert_int_equal(WEFT_OK, 0);
    assert_string_equal(weft_err_text((weft_err)n), "unknown error");
}

static void set_returns_the_code_and_keeps_the_sentence(void **state) {
    (void)state;
    struct weft_errmsg why;
    assert_int_equal(weft_err_set(&why, WEFT_E_FULL, "wanted %d, had %s", 3, "none"), WEFT_E_FULL);
    assert_string_equal(why.text, "wanted 3, had none");
    assert_int_equal(weft_err_set(NULL, WEFT_E_PROTO, "nobody reads %s", "this"), WEFT_E_PROTO);
}

static void errno_is_sorted_into_three_codes_and_spelt_out(void **state) {
    (void)state;
    struct weft_errmsg why;
    assert_int_equal(weft_err_errno(&why, ENOENT, "cannot open \"%s\"", "x"), WEFT_E_NOTFOUND);
    assert_string_equal(why.text, "cannot open \"x\": No such file or directory");
    assert_int_equal(weft_err_errno(&why, ENOTDIR, "a"), WEFT_E_NOTFOUND);
    assert_int_equal(weft_err_errno(&why, ENOMEM, "a"), WEFT_E_NOMEM);
    assert_int_equal(weft_err_errno(&why, EACCES, "a"), WEFT_E_IO);
    assert_string_equal(why.text, "a: Permission denied");
    assert_int_equal(weft_err_errno(NULL, EACCES, "a"), WEFT_E_IO);
}

static void a_sentence_that_is_too_long_is_cut_and_terminated(void **state) {
    (void)state;
    struct weft_errmsg why;
    char name[2 * sizeof why.text];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)weft_err_set(&why, WEFT_E_IO, "%s", name);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    (void)weft_err_errno(&why, EACCES, "%s", name);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    name[sizeof why.text - 5] = '\0'; /* room for ": Pe" only, and then for nothing */
    (void)weft_err_errno(&why, EACCES, "%s", name);
    assert_string_equal(why.text + sizeof why.text - 5, ": Pe");
    name[sizeof why.text - 5] = 'n';
    name[sizeof why.text - 1] = '\0';
    (void)weft_err_errno(&why, EACCES, "%s", name);
    assert_string_equal(why.text, name);
}

static void what_a_terminal_would_obey_is_replaced(void **state) {
    (void)state;
    struct weft_errmsg why;
    (void)weft_err_set(&why, WEFT_E_PROTO, "a\x1b[31mb\nc\x7f");
    assert_string_equal(why.text, "a?[31mb?c?");
    (void)weft_err_errno(&why, EACCES, "\r%s", "\x01");
    assert_string_equal(why.text, "??: Permission denied");
    (void)weft_err_set(&why, WEFT_E_PROTO,
                       "csi \xc2\x9b"
                       "31m");
    assert_string_equal(why.text, "csi ??31m");
}

static void well_formed_utf8_stays_and_the_rest_is_replaced(void **state) {
    (void)state;
    struct weft_errmsg why;
    (void)weft_err_set(&why, WEFT_E_PROTO, "Zürich \xe2\x82\xac \xf0\x9f\xa7\xb5");
    assert_string_equal(why.text, "Zürich \xe2\x82\xac \xf0\x9f\xa7\xb5");
    (void)weft_err_set(&why, WEFT_E_PROTO, "\xff \xc3 \xed\xa0\x80 \xe2\x82");
    assert_string_equal(why.text, "? ? ??? ??");
}

static void a_cut_in_the_middle_of_a_character_leaves_no_half_of_it(void **state) {
    (void)state;
    struct weft_errmsg why;
    for (size_t start = 0; start < 4; start++) {
        char name[sizeof why.text + 8] = "";
        memset(name, 'n', start);
        for (size_t at = start; at < sizeof why.text; at += 4)
            (void)snprintf(name + at, sizeof name - at, "\xf0\x9f\xa7\xb5");
        (void)weft_err_set(&why, WEFT_E_IO, "%s", name);
        assert_int_equal(strlen(why.text), sizeof why.text - 1);
        assert_true(weft_utf8_valid(why.text, strlen(why.text)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_text_of_its_own),
        cmocka_unit_test(set_returns_the_code_and_keeps_the_sentence),
        cmocka_unit_test(errno_is_sorted_into_three_codes_and_spelt_out),
        cmocka_unit_test(a_sentence_that_is_too_long_is_cut_and_terminated),
        cmocka_unit_test(what_a_terminal_would_obey_is_replaced),
        cmocka_unit_test(well_formed_utf8_stays_and_the_rest_is_replaced),
        cmocka_unit_test(a_cut_in_the_middle_of_a_character_leaves_no_half_of_it),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
