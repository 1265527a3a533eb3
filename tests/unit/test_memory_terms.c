/* What the supervisor tells the workers of a limit, and what else may stand in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "common/memory_terms.h"

static void terms_come_back_as_they_were(void **state) {
    (void)state;
    struct weft_eng_limit out = {.bytes = 5},
                          in = {.bytes = 5, .n_terms = WEFT_ENG_LIMIT_TERMS_MAX};
    struct weft_errmsg why = {""};
    char text[WEFT_MEMORY_TERMS_BYTES];
    for (uint32_t i = 0; i < in.n_terms; i++) {
        in.terms[i] = (struct weft_eng_limit_term){
            .n = 1000000, .part = i, .least_bytes = 1000000000000000u - i, .most_bytes = i};
        memset(in.terms[i].name, 'a' + (int)i, i == 0 ? sizeof in.terms[i].name - 1 : 4);
        memset(in.terms[i].flag, '-', i == 0 ? sizeof in.terms[i].flag - 1 : i);
    }
    assert_int_equal(weft_memory_terms_parse(weft_memory_terms_print(&in, text), &out, &why),
                     WEFT_OK);
    assert_int_equal(out.n_terms, in.n_terms);
    for (uint32_t i = 0; i < in.n_terms; i++) {
        const struct weft_eng_limit_term *a = &in.terms[i], *b = &out.terms[i];
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->flag, b->flag);
        assert_true(a->n == b->n && a->part == b->part && a->least_bytes == b->least_bytes &&
                    a->most_bytes == b->most_bytes);
    }
}

static void what_is_no_list_of_terms_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "a",
        "a::1:0:5",
        "a::1:0:5:6:7",
        ":--b:1:0:5:6",
        "a::x:0:5:6",
        "a::1:-1:5:6",
        "a::1:0:5:",
        "a::1:0:5:6,",
        "a::1:0:5:1e9",
        "a::1:0::6",
        "abcdefghijklmnop::1:0:5:6",
        "a:123456789012345678901234:1:0:5:6",
        "a::1:0:5:6,a::1:0:5:6,a::1:0:5:6,a::1:0:5:6,a::1:0:5:6,a::1:0:5:6,a::1:0:5:6",
        "a::1:0:1000000000000001:6"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weft_eng_limit limit = {0};
        struct weft_errmsg why = {""};
        if (!weft_memory_terms_parse(texts[i], &limit, &why)) fail_msg("taken: %s", texts[i]);
        assert_non_null(strstr(why.text, "--memory-terms"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_come_back_as_they_were),
        cmocka_unit_test(what_is_no_list_of_terms_is_refused),
    };
    return cmocka_run_group_tests_name("memory_terms", tests, NULL, NULL);
}
