/* What this process uses of the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/process.h"

static void each_open_file_counts(void **state) {
    (void)state;
    uint32_t before = weft_process_open_files();
    assert_true(before >= 3);
    int fds[5];
    for (uint32_t i = 0; i < 5; i++) {
        fds[i] = dup(0);
        assert_true(fds[i] >= 0);
    }
    assert_int_equal(weft_process_open_files(), before + 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(close(fds[i]), 0);
    assert_int_equal(weft_process_open_files(), before);
}

static void the_soft_limit_is_that_of_files(void **state) {
    (void)state;
    struct rlimit limit;
    struct weft_process process;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 77;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    weft_process_read(&process);
    assert_int_equal(process.max_files, 77);
    assert_int_equal(process.open_files, weft_process_open_files());
}

static void computing_takes_cpu_time(void **state) {
    (void)state;
    struct weft_process before, after;
    weft_process_read(&before);
    volatile uint64_t sum = 0;
    do {
        for (uint32_t i = 0; i < 1000000; i++)
            sum += i;
        weft_process_read(&after);
    } while (after.cpu_seconds < before.cpu_seconds + 0.01);
    assert_true(after.cpu_seconds > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_open_file_counts),
        cmocka_unit_test(the_soft_limit_is_that_of_files),
        cmocka_unit_test(computing_takes_cpu_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
