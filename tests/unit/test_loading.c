/* What is told while a model is loaded: standard error is a pipe or a terminal of the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "common/loading.h"

static char text[8192]; /* what came out of the last capture */
static int saved_stderr, our_end;

static void begin_capture(bool is_terminal) {
    int fds[2];
    if (is_terminal)
        assert_int_equal(openpty(&fds[0], &fds[1], NULL, NULL, NULL), 0);
    else
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    saved_stderr = dup(STDERR_FILENO);
    assert_true(saved_stderr >= 0);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    (void)close(fds[1]);
    our_end = fds[0];
}

/* Up to the hang-up: what a terminal is given comes out a little later. */
static const char *end_capture(void) {
    size_t len = 0;
    assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
    (void)close(saved_stderr);
    for (ssize_t n = 1; n > 0 && len<sizeof text - 1; len += n> 0 ? (size_t)n : 0)
        n = read(our_end, text + len, sizeof text - 1 - len);
    text[len] = '\0';
    (void)close(our_end);
    return text;
}

static struct weft_eng_loading tale(uint64_t done_mib) {
    return (struct weft_eng_loading){.model_name = "tale",
                                     .weight_bytes = (uint64_t)2048 << 20,
                                     .n_copies = 1,
                                     .n_sharers = 1,
                                     .kv_bytes = (uint64_t)512 << 20,
                                     .limit_bytes = (uint64_t)8 << 30,
                                     .done_bytes = done_mib << 20};
}

struct session {
    struct weft_config config;
    struct weft_eng_options options;
    struct weft_loading loading;
};

static uint64_t clock_ms; /* stands still but for pass_ms */

static uint64_t now_ms(void) {
    return clock_ms;
}

static void begin(struct session *s, bool is_terminal, int status_fd) {
    *s = (struct session){.config.status_fd = status_fd};
    begin_capture(is_terminal);
    weft_log_init("worker", WEFT_LOG_INFO, false);
    weft_eng_options_init(&s->options);
    weft_loading_begin(&s->loading, &s->config, &s->options);
    clock_ms = 1000000;
    s->loading.now_ms = now_ms;
    s->loading.begin_ms = clock_ms;
}

static void tell(struct session *s, uint64_t done_mib) {
    struct weft_eng_loading now = tale(done_mib);
    s->options.on_loading(s->options.loading_ctx, &now);
}

static void pass_ms(uint64_t ms) {
    clock_ms += ms;
}

static void a_quick_load_is_one_line_at_its_end(void **state) {
    (void)state;
    struct session s;
    struct weft_eng_info info = {.model_name = "tale", .weight_bytes = 13u << 20, .n_threads = 1};
    for (int is_terminal = 0; is_terminal < 2; is_terminal++) {
        begin(&s, is_terminal, -1);
        tell(&s, 0);
        pass_ms(999);
        tell(&s, 2048);
        weft_loading_end(&s.loading);
        assert_string_equal(end_capture(), "");
    }
    begin(&s, false, -1);
    pass_ms(100);
    weft_loading_log(&s.loading, &info);
    assert_non_null(strstr(end_capture(), "worker: loaded tale, 13 MiB, in 0.1 s: "));
    assert_non_null(strstr(text, " 1 thread, "));
}

static void a_long_one_is_a_line_every_five_seconds(void **state) {
    (void)state;
    struct session s;
    begin(&s, false, -1);
    tell(&s, 0);
    pass_ms(1000);
    tell(&s, 256);
    pass_ms(4999);
    tell(&s, 512);
    pass_ms(1);
    tell(&s, 1024);
    weft_loading_end(&s.loading);
    (void)end_capture();
    assert_non_null(strstr(text, "loading tale, 2.0 GiB: 12 %\n"));
    assert_null(strstr(text, "25 %"));
    assert_non_null(strstr(text, "loading tale, 2.0 GiB: 50 %\n"));
}

static void on_a_terminal_it_is_a_bar_in_one_place(void **state) {
    (void)state;
    struct session s;
    begin(&s, true, -1);
    pass_ms(1000);
    tell(&s, 512);
    pass_ms(99);
    tell(&s, 513); /* too soon */
    pass_ms(1);
    tell(&s, 1024);
    weft_loading_end(&s.loading);
    (void)end_capture();
    assert_string_equal(text, "loading tale [######..................]  25 %, 512 MiB of 2.0 GiB"
                              "\x1b[K\r"
                              "loading tale [############............]  50 %, 1.0 GiB of 2.0 GiB"
                              "\x1b[K\r\x1b[K");
}

static void the_supervisor_is_told_once_what_it_needs(void **state) {
    (void)state;
    struct session s;
    int fds[2];
    char line[512];
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    begin(&s, false, fds[1]);
    tell(&s, 0);
    tell(&s, 1);
    (void)end_capture();
    ssize_t n = read(fds[0], line, sizeof line - 1);
    assert_true(n > 0);
    line[n] = '\0';
    assert_string_equal(line, "needs 2.5 GiB (weights 2.0 GiB, KV cache 512 MiB), "
                              "limit 8.0 GiB\n");
    (void)close(fds[0]);
    (void)close(fds[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quick_load_is_one_line_at_its_end),
        cmocka_unit_test(a_long_one_is_a_line_every_five_seconds),
        cmocka_unit_test(on_a_terminal_it_is_a_bar_in_one_place),
        cmocka_unit_test(the_supervisor_is_told_once_what_it_needs),
    };
    return cmocka_run_group_tests_name("loading", tests, NULL, NULL);
}
