/* Assertions end the process, so each case runs in a child whose standard error is a pipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

/* Runs fn in a child; returns its wait status, and what it wrote in `text_out`. */
static int run_child(void (*fn)(void), char *text_out, size_t text_bytes) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL); /* cmocka catches it, and would go on with its own tests */
        (void)dup2(fds[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    (void)close(fds[1]);
    size_t len = 0;
    for (ssize_t n; (n = read(fds[0], text_out + len, text_bytes - 1 - len)) > 0;)
        len += (size_t)n;
    text_out[len] = '\0';
    (void)close(fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void fail_an_assert(void) {
    weft_check_actor("scheduler");
    int n_free = 3;
    WEFT_ASSERT(n_free == 4);
}

static void hold_an_assert(void) {
    int n_calls = 0;
    WEFT_ASSERT(++n_calls == 1);
    if (n_calls != 1) _exit(1);
}

static void dcheck(void) {
    int n_calls = 0;
    WEFT_DCHECK(++n_calls > 0);
    _exit(n_calls);
}

static void a_failed_assert_names_actor_expression_and_place_and_aborts(void **state) {
    (void)state;
    char text[512];
    int status = run_child(fail_an_assert, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "scheduler: assertion failed: n_free == 4 ("));
    assert_non_null(strstr(text, "test_check.c:"));
}

static void an_assert_that_holds_is_silent_and_evaluated_once(void **state) {
    (void)state;
    char text[512];
    int status = run_child(hold_an_assert, text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(text, "");
}

static void a_dcheck_runs_in_debug_and_sanitizer_builds_only(void **state) {
    (void)state;
#if !defined(NDEBUG) || defined(WEFT_SANITIZED)
    bool runs = true;
#else
    bool runs = false;
#endif
    char text[512];
    int status = run_child(dcheck, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), runs ? 1 : 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_assert_names_actor_expression_and_place_and_aborts),
        cmocka_unit_test(an_assert_that_holds_is_silent_and_evaluated_once),
        cmocka_unit_test(a_dcheck_runs_in_debug_and_sanitizer_builds_only),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
