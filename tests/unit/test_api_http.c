#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "inside/api/http/head.h"

/* Scans `text` cut in two at every place. -1: not allowed; else how many bytes the head has, 0
 * while it is not complete. */
static int scan(const char *text) {
    int first = -2;
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n; cut++) {
        struct weft_api_head_scan state = {0};
        bool is_done, is_ok;
        int result = 0;
        size_t used = wefti_api_http_scan(&state, text, cut, &is_done, &is_ok);
        if (is_ok && !is_done) {
            assert_int_equal(used, cut);
            used += wefti_api_http_scan(&state, text + cut, n - cut, &is_done, &is_ok);
        }
        if (!is_ok)
            result = -1;
        else if (is_done)
            result = (int)used;
        if (first == -2) first = result;
        assert_int_equal(result, first);
    }
    return first;
}

static void a_head_ends_at_its_empty_line(void **state) {
    (void)state;
    assert_int_equal(scan("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"), 27);
    assert_int_equal(scan("\r\n\r\nGET / HTTP/1.1\r\n\r\n"), 22);
    assert_int_equal(scan("GET / HTTP/1.1\r\nHost: a\r\n\r"), 0);
    assert_int_equal(scan(""), 0);
}

static void only_cr_lf_ends_a_line(void **state) {
    (void)state;
    assert_int_equal(scan("GET / HTTP/1.1\nHost: a\n\n"), -1);
    assert_int_equal(scan("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"), -1);
    assert_int_equal(scan("GET / HTTP/1.1\r\nHost: a\r\n\n"), -1);
    assert_int_equal(scan("GET / HTTP/1.1\r\r\n"), -1);
}

static void lines_are_not_folded(void **state) {
    (void)state;
    assert_int_equal(scan("GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n"), -1);
    assert_int_equal(scan("GET / HTTP/1.1\r\nX: a\r\n\tb\r\n\r\n"), -1);
}

static void lines_have_a_name(void **state) {
    (void)state;
    assert_int_equal(scan("GET / HTTP/1.1\r\n: a\r\n\r\n"), -1);
    assert_int_equal(scan("GET / HTTP/1.1\r\nX: a\r\n:\r\n\r\n"), -1);
}

static void expect_path(const char *target, const char *want) {
    struct weft_api_span path = wefti_api_http_path(target, strlen(target));
    assert_int_equal(path.len, strlen(want));
    assert_memory_equal(path.at, want, path.len);
}

static void the_path_of_a_target_ends_before_the_query(void **state) {
    (void)state;
    expect_path("/", "/");
    expect_path("/ping?a=/b", "/ping");
    expect_path("/v1/models?", "/v1/models");
    expect_path("*", "*");
    expect_path("", "");
}

static void a_target_may_name_the_host(void **state) {
    (void)state;
    expect_path("http://x/ping", "/ping");
    expect_path("http://x:80/ping?a", "/ping");
    expect_path("http://x", "/");
    expect_path("http://x?/ping", "/");
    expect_path("http://x?a=/ping", "/");
    expect_path("http://x#/ping", "/");
    expect_path("x?http://y/ping", "x?http://y/ping"); /* no scheme: nothing we know */
    expect_path("x/y://z/ping", "x/y://z/ping");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_ends_at_its_empty_line),
        cmocka_unit_test(only_cr_lf_ends_a_line),
        cmocka_unit_test(lines_are_not_folded),
        cmocka_unit_test(lines_have_a_name),
        cmocka_unit_test(the_path_of_a_target_ends_before_the_query),
        cmocka_unit_test(a_target_may_name_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
