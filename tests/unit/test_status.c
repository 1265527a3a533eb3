#include "common/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void a_line_is_a_word_and_its_text(void **state) {
    (void)state;
    int ends[2];
    char told[64] = "";
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    weft_status_write(ends[1], "ready", NULL);
    weft_status_write(ends[1], "failed", "two\nlines");
    assert_true(read(ends[0], told, sizeof told - 1) > 0);
    assert_string_equal(told, "ready\nfailed two lines\n");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void without_a_reader_or_a_descriptor_nothing_happens(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)close(ends[0]);
    weft_status_write(ends[1], "alive", NULL);
    weft_status_write(-1, "alive", NULL);
    (void)close(ends[1]);
}

/* A pipe that blocks: a blocking write would end in the alarm. */
static void what_a_full_pipe_has_no_room_for_is_dropped_whole(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
    (void)alarm(20);
    for (int i = 0; i < 100000; i++)
        weft_status_write(ends[1], "alive", NULL);
    (void)alarm(0);
    (void)close(ends[1]);
    static char told[1 << 20];
    size_t len = 0;
    for (ssize_t n; (n = read(ends[0], told + len, sizeof told - len)) > 0;)
        len += (size_t)n;
    (void)close(ends[0]);
    assert_true(len > 0 && len < sizeof told);
    assert_int_equal(len % 6, 0);
    for (size_t i = 0; i < len; i += 6)
        assert_memory_equal(told + i, "alive\n", 6);
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN); /* as every actor does */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_word_and_its_text),
        cmocka_unit_test(without_a_reader_or_a_descriptor_nothing_happens),
        cmocka_unit_test(what_a_full_pipe_has_no_room_for_is_dropped_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
