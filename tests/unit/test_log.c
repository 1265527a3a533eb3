/* Standard error is a pipe while a line is written; the tests look at its contents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

enum { LINE_MAX_BYTES = 4096 };

static char line[2 * LINE_MAX_BYTES]; /* written by the last call */
static size_t line_len;

#define CAPTURE(call)                                                                              \
    do {                                                                                           \
        begin_capture();                                                                           \
        call;                                                                                      \
        end_capture();                                                                             \
    } while (0)

static int saved_stderr, pipe_end;

static void begin_capture(void) {
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    saved_stderr = dup(STDERR_FILENO);
    assert_true(saved_stderr >= 0);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    (void)close(fds[1]);
    pipe_end = fds[0];
}

static void end_capture(void) {
    assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
    (void)close(saved_stderr);
    line_len = 0;
    for (ssize_t n; (n = read(pipe_end, line + line_len, sizeof line - 1 - line_len)) > 0;)
        line_len += (size_t)n;
    line[line_len] = '\0';
    (void)close(pipe_end);
}

/* One line of well-formed text, not longer than it may be. */
static void assert_one_line(void) {
    assert_in_range(line_len, 1, LINE_MAX_BYTES);
    assert_ptr_equal(memchr(line, '\n', line_len), line + line_len - 1);
    assert_int_equal(strlen(line), line_len);
    assert_true(weft_utf8_valid(line, line_len));
}

/* The message of a JSON line with these other members. The caller decrefs. */
static json_t *parse_line(const char *level, const char *actor) {
    assert_one_line();
    json_error_t error;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    if (!object) fail_msg("not JSON: %s: %s", error.text, line);
    assert_int_equal(json_object_size(object), 4);
    assert_string_equal(json_string_value(json_object_get(object, "level")), level);
    assert_string_equal(json_string_value(json_object_get(object, "actor")), actor);
    return object;
}

static void assert_json_message(const char *message) {
    json_t *object = parse_line("INFO", "worker");
    assert_string_equal(json_string_value(json_object_get(object, "msg")), message);
    json_decref(object);
}

/* "2026-01-31T12:00:00.123Z" */
static void assert_timestamp(const char *text) {
    static const char shape[] = "0000-00-00T00:00:00.000Z";
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        if (shape[i] == '0')
            assert_in_range(text[i], '0', '9');
        else
            assert_int_equal(text[i], shape[i]);
    }
}

static void a_text_line_has_time_level_actor_and_message(void **state) {
    (void)state;
    static const char *const levels[] = {"DEBUG", "INFO ", "WARN ", "ERROR"};
    weft_log_init("scheduler", WEFT_LOG_DEBUG, false);
    for (int i = 0; i < 4; i++) {
        CAPTURE(weft_log((enum weft_log_level)i, "%u of %s", 7u, "nine"));
        assert_one_line();
        assert_timestamp(line);
        char rest[64];
        (void)snprintf(rest, sizeof rest, " %s scheduler: 7 of nine\n", levels[i]);
        assert_string_equal(line + strlen("2026-01-31T12:00:00.123Z"), rest);
    }
}

static void a_json_line_has_the_same_four_members(void **state) {
    (void)state;
    static const char *const levels[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    weft_log_init("router", WEFT_LOG_DEBUG, true);
    for (int i = 0; i < 4; i++) {
        CAPTURE(weft_log((enum weft_log_level)i, "%u of %s", 7u, "nine"));
        json_t *object = parse_line(levels[i], "router");
        const char *when = json_string_value(json_object_get(object, "ts"));
        assert_int_equal(strlen(when), 24);
        assert_timestamp(when);
        assert_string_equal(json_string_value(json_object_get(object, "msg")), "7 of nine");
        json_decref(object);
    }
}

static void what_is_said_is_plain_in_text_and_not_bound_to_a_level(void **state) {
    (void)state;
    weft_log_init("weft", WEFT_LOG_ERROR, false);
    CAPTURE(weft_say(WEFT_LOG_INFO, "ready on %s", "http://x"));
    assert_string_equal(line, "weft: ready on http://x\n");
    weft_log_init("worker", WEFT_LOG_ERROR, false);
    CAPTURE(weft_say(WEFT_LOG_INFO, "stopped\nweft: ready"));
    assert_string_equal(line, "weft-worker: stopped?weft: ready\n");
    weft_log_init("weft", WEFT_LOG_ERROR, true);
    CAPTURE(weft_say(WEFT_LOG_INFO, "ready on \"%s\"", "x"));
    json_t *json = parse_line("INFO", "weft");
    json_decref(json);
    assert_true(weft_log_is_json());
}

static void the_level_may_change_later(void **state) {
    (void)state;
    weft_log_init("weft", WEFT_LOG_INFO, false);
    CAPTURE(weft_debug("x"));
    assert_int_equal(line_len, 0);
    weft_log_set_level(WEFT_LOG_DEBUG);
    CAPTURE(weft_debug("x"));
    assert_one_line();
    weft_log_set_level(WEFT_LOG_WARN);
    CAPTURE(weft_info("x"));
    assert_int_equal(line_len, 0);
}

static void what_is_below_the_level_is_not_written(void **state) {
    (void)state;
    weft_log_init("worker", WEFT_LOG_WARN, false);
    CAPTURE(weft_debug("no"));
    assert_int_equal(line_len, 0);
    CAPTURE(weft_info("no"));
    assert_int_equal(line_len, 0);
    CAPTURE(weft_warn("yes"));
    assert_one_line();
    CAPTURE(weft_error("yes"));
    assert_one_line();
}

static void a_message_cannot_forge_a_second_text_line(void **state) {
    (void)state;
    weft_log_init("worker", WEFT_LOG_INFO, false);
    CAPTURE(weft_info("model \"%s\"", "x\n2026-01-31T12:00:00.123Z ERROR worker: forged\r\x1b[2J"));
    assert_one_line();
    assert_non_null(strstr(line, "x?2026"));
    assert_non_null(strstr(line, "forged??[2J\"\n"));
    CAPTURE(weft_info("\xff\xc3 \xed\xa0\x80 \xe2\x82\xac"));
    assert_one_line();
    assert_non_null(strstr(line, "worker: ?? ??? \xe2\x82\xac\n"));
}

static void quotes_and_control_characters_are_escaped_in_json(void **state) {
    (void)state;
    weft_log_init("worker", WEFT_LOG_INFO, true);
    CAPTURE(weft_info("say \"hi\" \\ \b\f\n\r\t\x01\x1f\x7f/"));
    assert_json_message("say \"hi\" \\ \b\f\n\r\t\x01\x1f\x7f/");
    CAPTURE(weft_info("\"}\n{\"msg\":\"forged"));
    assert_json_message("\"}\n{\"msg\":\"forged");
    CAPTURE(weft_info("%s", ""));
    assert_json_message("");
}

static void ill_formed_utf8_is_replaced_in_json(void **state) {
    (void)state;
    weft_log_init("worker", WEFT_LOG_INFO, true);
    CAPTURE(weft_info("Zürich \xe2\x82\xac \xf0\x9f\xa7\xb5"));
    assert_json_message("Zürich \xe2\x82\xac \xf0\x9f\xa7\xb5");
    CAPTURE(weft_info("a\xff"
                      "b\xe2\x82"));
    assert_json_message("a\xef\xbf\xbd"
                        "b\xef\xbf\xbd\xef\xbf\xbd");
    CAPTURE(weft_info("%s", "\xed\xa0\x80\xc0\x80"));
    assert_json_message("\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

/* Pieces of every width, at every offset, so that the cut falls on each place of a piece. */
static void a_long_line_is_cut_and_stays_whole(void **state) {
    (void)state;
    static const char *const pieces[] = {"x", "\xc3\xa4", "\xf0\x9f\xa7\xb5", "\x01", "\"", "\xff"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        for (size_t start = 0; start < 8; start++) {
            char message[8192] = "";
            size_t len = start;
            memset(message, '-', start);
            for (; len + 8 < sizeof message; len += strlen(pieces[i]))
                memcpy(message + len, pieces[i], strlen(pieces[i]));
            message[len] = '\0';
            weft_log_init("worker", WEFT_LOG_INFO, true);
            CAPTURE(weft_info("%s", message));
            json_decref(parse_line("INFO", "worker"));
            assert_true(line_len > 3000);
            weft_log_init("worker", WEFT_LOG_INFO, false);
            CAPTURE(weft_info("%s", message));
            assert_one_line();
            assert_true(line_len > 3000);
        }
    }
}

/* A pipe of one page that nobody reads: an ordinary write would wait. */
static void a_reader_that_stands_still_stops_nobody(void **state) {
    (void)state;
    enum { N_LINES = 100 };
    char wanted[64], long_text[1000];
    size_t n_whole = 0;
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    weft_log_init("router", WEFT_LOG_INFO, false);
    begin_capture();
    assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, 0), 0); /* it would block */
    assert_true(fcntl(STDERR_FILENO, F_SETPIPE_SZ, 4096) >= 4096);
    for (int i = 0; i < N_LINES; i++)
        weft_info("%s", long_text);
    end_capture();
    for (size_t i = 0; i < line_len; i++)
        n_whole += line[i] == '\n';
    assert_in_range(n_whole, 1, 8);
    assert_int_equal(line[line_len - 1], '\n');
    CAPTURE(weft_info("again"));
    (void)snprintf(wanted, sizeof wanted, "WARN  router: %zu lines were left out",
                   N_LINES - n_whole);
    assert_non_null(strstr(line, wanted));
    assert_non_null(strstr(line, "INFO  router: again\n"));
    CAPTURE(weft_info("once more"));
    assert_one_line();
}

static void what_repeats_is_told_once_a_second(void **state) {
    (void)state;
    uint64_t quiet_until_ms = 0;
    assert_int_equal(weft_log_rarely(WEFT_LOG_WARN, 5, &quiet_until_ms), WEFT_LOG_WARN);
    assert_int_equal(weft_log_rarely(WEFT_LOG_WARN, 5, &quiet_until_ms), WEFT_LOG_DEBUG);
    assert_int_equal(weft_log_rarely(WEFT_LOG_WARN, 1004, &quiet_until_ms), WEFT_LOG_DEBUG);
    assert_int_equal(weft_log_rarely(WEFT_LOG_ERROR, 1005, &quiet_until_ms), WEFT_LOG_ERROR);
    assert_int_equal(weft_log_rarely(WEFT_LOG_ERROR, 2004, &quiet_until_ms), WEFT_LOG_DEBUG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_line_has_time_level_actor_and_message),
        cmocka_unit_test(a_json_line_has_the_same_four_members),
        cmocka_unit_test(what_is_said_is_plain_in_text_and_not_bound_to_a_level),
        cmocka_unit_test(the_level_may_change_later),
        cmocka_unit_test(what_is_below_the_level_is_not_written),
        cmocka_unit_test(a_message_cannot_forge_a_second_text_line),
        cmocka_unit_test(quotes_and_control_characters_are_escaped_in_json),
        cmocka_unit_test(ill_formed_utf8_is_replaced_in_json),
        cmocka_unit_test(a_long_line_is_cut_and_stays_whole),
        cmocka_unit_test(a_reader_that_stands_still_stops_nobody),
        cmocka_unit_test(what_repeats_is_told_once_a_second),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
