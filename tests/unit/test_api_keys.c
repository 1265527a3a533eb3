#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/keys.h"

static struct weft_api_keys keys; /* zero before each test */

static int set_up(void **state) {
    (void)state;
    memset(&keys, 0, sizeof keys);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    weft_api_keys_fini(&keys);
    return 0;
}

static const struct weft_api_key *find(const char *text) {
    return weft_api_keys_find(&keys, text, strlen(text));
}

static void refuses(const char *text, const char *part) {
    struct weft_errmsg why = {""};
    assert_int_not_equal(weft_api_keys_add_lines(&keys, text, &why), WEFT_OK);
    if (!strstr(why.text, part)) fail_msg("\"%s\" lacks \"%s\"", why.text, part);
    weft_api_keys_fini(&keys);
}

static void lines_name_and_weigh_keys(void **state) {
    (void)state;
    assert_int_equal(
        weft_api_keys_add_lines(
            &keys, "alpha\n\r\n  beta\tname=team-b   weight=3 \r\ngamma weight=1000", NULL),
        WEFT_OK);
    assert_int_equal(keys.n, 3);
    assert_string_equal(find("alpha")->name, "");
    assert_int_equal(find("alpha")->weight, 1);
    assert_string_equal(find("beta")->name, "team-b");
    assert_int_equal(find("beta")->weight, 3);
    assert_int_equal(find("gamma")->weight, 1000);
}

static void an_admin_is_who_the_line_says_or_who_set_up_the_server(void **state) {
    (void)state;
    assert_int_equal(weft_api_keys_add_lines(
                         &keys, "a\nb admin\nadmin\nc admin name=x weight=2\nd name=admin", NULL),
                     WEFT_OK);
    assert_int_equal(weft_api_keys_add(&keys, "e", 1, NULL), WEFT_OK);
    assert_false(find("a")->is_admin || find("admin")->is_admin || find("d")->is_admin);
    assert_true(find("b")->is_admin && find("c")->is_admin && find("e")->is_admin);
    assert_true(keys.has_admins);
    assert_int_equal(find("c")->weight, 2);
    assert_string_equal(find("d")->name, "admin");
}

static void without_an_admin_there_is_none_to_ask_for(void **state) {
    (void)state;
    assert_int_equal(weft_api_keys_add_lines(&keys, "a\nadmin\nd name=admin", NULL), WEFT_OK);
    assert_int_equal(weft_api_keys_add(&keys, "e", 1, NULL), WEFT_OK);
    assert_false(keys.has_admins);
}

/* Routers must agree, before and after a reload: so the number is written out. */
static void keys_of_one_name_are_one_tenant(void **state) {
    (void)state;
    assert_int_equal(weft_api_keys_add_lines(&keys,
                                             "old name=team\nnew name=team weight=2\n"
                                             "alone\nother name=alone\nteam",
                                             NULL),
                     WEFT_OK);
    assert_true(find("old")->tenant == UINT64_C(0xb1621c62f873050a));
    assert_true(find("new")->tenant == find("old")->tenant);
    for (uint32_t i = 1; i < keys.n; i++) {
        assert_true(keys.keys[i].tenant != 0);
        for (uint32_t k = 1; k < i; k++)
            assert_true(keys.keys[i].tenant != keys.keys[k].tenant);
    }
    uint64_t tenant = find("alone")->tenant;
    weft_api_keys_fini(&keys);
    assert_int_equal(weft_api_keys_add_lines(&keys, "first\nalone", NULL), WEFT_OK);
    assert_true(find("alone")->tenant == tenant);
}

static void only_whole_keys_are_found(void **state) {
    (void)state;
    assert_int_equal(weft_api_keys_add(&keys, "sesame", 6, NULL), WEFT_OK);
    assert_non_null(find("sesame"));
    static const char *const others[] = {"", "s", "sesam", "sesame ", "sesamesesame", "Sesame"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_null(find(others[i]));
}

static void faulty_lines_are_named_and_keys_are_not(void **state) {
    (void)state;
    refuses("good\nsecret nam=x\n", "line 2: ");
    refuses("secret words in a row", "line 1: ");
    refuses("k name=", "1 to 64 bytes");
    refuses("k name=0123456789012345678901234567890123456789012345678901234567890123456789",
            "1 to 64 bytes");
    refuses("k name=\x01", "printable");
    refuses("k weight=0", "1 to 1000");
    refuses("k weight=1001", "1 to 1000");
    refuses("k weight=99999999999999999999", "1 to 1000");
    refuses("k weight=-1", "1 to 1000");
    refuses("k weight=", "1 to 1000");
    refuses("k admin=1", "only name=TEXT, weight=N and admin");
    refuses("k Admin", "only name=TEXT, weight=N and admin");
    refuses("same\nother\nsame name=x\n", "line 3: the same key twice");
    struct weft_errmsg why = {""};
    assert_int_not_equal(weft_api_keys_add_lines(&keys, "secret words", &why), WEFT_OK);
    assert_null(strstr(why.text, "words"));
    assert_null(strstr(why.text, "secret"));
}

static void one_key_too_many_is_refused(void **state) {
    (void)state;
    char text[WEFT_API_KEYS_MAX * 4 + 8] = "", *at = text;
    for (int i = 0; i <= WEFT_API_KEYS_MAX; i++) {
        *at++ = (char)('a' + i / 26);
        *at++ = (char)('a' + i % 26);
        *at++ = '\n';
    }
    assert_int_equal(weft_api_keys_add_lines(&keys, text, NULL), WEFT_E_FULL);
    assert_int_equal(keys.n, WEFT_API_KEYS_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_name_and_weigh_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_admin_is_who_the_line_says_or_who_set_up_the_server,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_an_admin_there_is_none_to_ask_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(keys_of_one_name_are_one_tenant, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_whole_keys_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(faulty_lines_are_named_and_keys_are_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_key_too_many_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
