/* What a service manager hears, by a socket of our own in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "inside/cmd_weft/serve/notify.h"

struct manager {
    int fd;
    char heard[64];
};

/* Bound to an abstract address, or a path; both as NOTIFY_SOCKET names them. */
static void listen_at(struct manager *m, const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    memcpy(at.sun_path, name, len);
    if (name[0] == '@') at.sun_path[0] = '\0';
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(m->fd >= 0);
    socklen_t at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&at, at_len), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
}

/* The next datagram, or "". */
static const char *next(struct manager *m) {
    ssize_t n = recv(m->fd, m->heard, sizeof m->heard - 1, 0);
    m->heard[n > 0 ? n : 0] = '\0';
    return m->heard;
}

static void abstract_name(char *name, size_t name_bytes) {
    (void)snprintf(name, name_bytes, "@weft-test-notify-%d", (int)getpid());
}

static void it_says_what_it_is_told_to_and_children_inherit_nothing(void **state) {
    (void)state;
    struct manager m;
    struct weft_notify notify;
    char names[2][64];
    abstract_name(names[0], sizeof names[0]);
    (void)snprintf(names[1], sizeof names[1], "/tmp/weft-test-notify-%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        listen_at(&m, names[i]);
        (void)setenv("WATCHDOG_USEC", "1000000", 1);
        (void)setenv("WATCHDOG_PID", "1", 1);
        weft_notify_init(&notify);
        assert_null(getenv("NOTIFY_SOCKET"));
        assert_null(getenv("WATCHDOG_USEC"));
        assert_null(getenv("WATCHDOG_PID"));
        weft_notify_say(&notify, "READY=1\nSTATUS=serving");
        assert_string_equal(next(&m), "READY=1\nSTATUS=serving");
        weft_notify_fini(&notify);
        weft_notify_say(&notify, "STOPPING=1");
        assert_string_equal(next(&m), "");
        (void)close(m.fd);
    }
    (void)unlink(names[1]);
}

static void without_a_manager_or_with_a_strange_address_nothing_happens(void **state) {
    (void)state;
    char too_long[300];
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[0] = '/';
    too_long[sizeof too_long - 1] = '\0';
    const char *const names[] = {NULL, "", "@", "/", "relative", "/nobody/listens/here", too_long};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct weft_notify notify;
        if (names[i]) (void)setenv("NOTIFY_SOCKET", names[i], 1);
        (void)setenv("WATCHDOG_USEC", "1000000", 1);
        weft_notify_init(&notify);
        weft_notify_say(&notify, "READY=1");
        (void)weft_notify_watchdog(&notify, true, 1, 1000);
        weft_notify_fini(&notify);
        assert_null(getenv("NOTIFY_SOCKET"));
    }
}

static void the_watchdog_hears_twice_as_often_as_it_wants_while_all_is_well(void **state) {
    (void)state;
    struct manager m;
    struct weft_notify notify;
    char name[64], pid[16];
    abstract_name(name, sizeof name);
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    listen_at(&m, name);
    (void)setenv("WATCHDOG_USEC", "6000000", 1);
    (void)setenv("WATCHDOG_PID", pid, 1);
    weft_notify_init(&notify);
    assert_int_equal(weft_notify_watchdog(&notify, true, 10000, 2000), 2000);
    assert_string_equal(next(&m), "WATCHDOG=1");
    assert_int_equal(weft_notify_watchdog(&notify, true, 12000, 2000), 1000);
    assert_string_equal(next(&m), "");
    assert_int_equal(weft_notify_watchdog(&notify, true, 13000, 9000), 3000);
    assert_string_equal(next(&m), "WATCHDOG=1");
    assert_int_equal(weft_notify_watchdog(&notify, false, 16000, 9000), 3000);
    assert_int_equal(weft_notify_watchdog(&notify, false, 99000, 100), 100);
    assert_string_equal(next(&m), "");
    assert_int_equal(weft_notify_watchdog(&notify, true, 99100, 9000), 3000);
    assert_string_equal(next(&m), "WATCHDOG=1");
    weft_notify_fini(&notify);
    (void)close(m.fd);
}

static void a_watchdog_of_somebody_else_or_none_is_not_fed(void **state) {
    (void)state;
    const char *const variables[][2] = {
        {NULL, NULL}, {"6000000", "1"}, {"soon", NULL}, {"0", NULL}, {"-1", NULL}, {"6000000", "x"},
    };
    char name[64];
    abstract_name(name, sizeof name);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        struct manager m;
        struct weft_notify notify;
        listen_at(&m, name);
        if (variables[i][0]) (void)setenv("WATCHDOG_USEC", variables[i][0], 1);
        if (variables[i][1]) (void)setenv("WATCHDOG_PID", variables[i][1], 1);
        weft_notify_init(&notify);
        assert_int_equal(weft_notify_watchdog(&notify, true, 10000, 2000), 2000);
        assert_string_equal(next(&m), "");
        weft_notify_fini(&notify);
        (void)close(m.fd);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_it_is_told_to_and_children_inherit_nothing),
        cmocka_unit_test(without_a_manager_or_with_a_strange_address_nothing_happens),
        cmocka_unit_test(the_watchdog_hears_twice_as_often_as_it_wants_while_all_is_well),
        cmocka_unit_test(a_watchdog_of_somebody_else_or_none_is_not_fed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
