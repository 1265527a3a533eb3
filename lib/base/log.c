#include "base/log.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json_escape.h"
#include "base/utf8.h"

#define RARELY_MS 1000
#define LINE_BYTES_MAX 4096 /* PIPE_BUF: what a pipe takes whole */

static const char *log_actor = "weft";
static _Atomic enum weft_log_level log_min = WEFT_LOG_INFO;
static bool log_json = false;
static _Atomic unsigned n_left_out; /* lines that nobody took */

void weft_log_init(const char *actor, enum weft_log_level min_level, bool json) {
    log_actor = actor;
    log_min = min_level;
    log_json = json;
}

void weft_log_set_level(enum weft_log_level min_level) {
    log_min = min_level;
}

bool weft_log_is_json(void) {
    return log_json;
}

/* Copies `in` into `out` as the inside of a JSON string; returns the length, at most `room`. Whole
 * characters only, so that a cut line still parses. */
static size_t json_escape(char *out, size_t room, const char *in) {
    size_t n = 0, left = strlen(in);
    while (left > 0 && n + 6 < room) { /* the longest piece */
        char escaped[WEFT_JSON_ESCAPE_BYTES_MAX];
        size_t len = weft_utf8_next(in, left), n_escaped = weft_json_escape(*in, escaped);
        if (len == 0) {
            /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): has a length */
            memcpy(out + n, "\\ufffd", 6);
            n += 6;
            len = 1;
        } else if (n_escaped > 0) {
            memcpy(out + n, escaped, n_escaped);
            n += n_escaped;
        } else {
            memcpy(out + n, in, len);
            n += len;
        }
        in += len;
        left -= len;
    }
    return n;
}

/* The line of a message, which loses its control characters on the way; returns its length. `said`:
 * by weft_say. */
static size_t make_line(char line[LINE_BYTES_MAX], enum weft_log_level level, bool said,
                        char *msg) {
    static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    struct timespec ts;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    char when[40];
    size_t when_len = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(when + when_len, sizeof when - when_len, ".%03ldZ", ts.tv_nsec / 1000000);

    size_t len;
    if (log_json) {
        len = (size_t)snprintf(line, LINE_BYTES_MAX,
                               "{\"ts\":\"%s\",\"level\":\"%s\",\"actor\":\"%s\",\"msg\":\"", when,
                               names[level], log_actor);
        len += json_escape(line + len, LINE_BYTES_MAX - len - 4, msg);
        line[len++] = '"';
        line[len++] = '}';
    } else {
        weft_utf8_printable(msg); /* a line break in it would forge a second event */
        bool is_weft = strcmp(log_actor, "weft") == 0;
        if (said)
            len = (size_t)snprintf(line, LINE_BYTES_MAX - 1, "%s%s: %s", is_weft ? "" : "weft-",
                                   log_actor, msg);
        else
            len = (size_t)snprintf(line, LINE_BYTES_MAX - 1, "%s %-5s %s: %s", when, names[level],
                                   log_actor, msg);
        if (len > LINE_BYTES_MAX - 2) len = LINE_BYTES_MAX - 2; /* what was written without its 0 */
    }
    line[len++] = '\n';
    return len;
}

/* False: the reader of our lines stands still (a terminal's Ctrl-S, a stuck log driver), and the
 * write would wait for it. A pipe that has room has it for a whole line. */
static bool has_room(void) {
    struct pollfd pfd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&pfd, 1, 0) != 0;
}

static void put_line(enum weft_log_level level, bool said, char *msg) {
    char line[LINE_BYTES_MAX];
    size_t len = make_line(line, level, said, msg);
    ssize_t ignored = write(STDERR_FILENO, line, len); /* nowhere to report a failing stderr */
    (void)ignored;
}

/* Tells of lines that were left out. False: the next one is, too. */
static bool make_room(void) {
    char msg[80];
    unsigned n = has_room() ? atomic_exchange(&n_left_out, 0) : 0;
    if (n > 0) {
        (void)snprintf(msg, sizeof msg, "%u lines were left out: nobody read the log", n);
        put_line(WEFT_LOG_WARN, false, msg);
    }
    if (has_room()) return true;
    (void)atomic_fetch_add(&n_left_out, 1);
    return false;
}

void weft_log_line(const char *line, size_t len) {
    if (!make_room()) return;
    ssize_t ignored = write(STDERR_FILENO, line, len < LINE_BYTES_MAX ? len : LINE_BYTES_MAX);
    (void)ignored;
}

static void put(enum weft_log_level level, bool said, const char *fmt, va_list args) {
    if (!make_room()) return;
    char msg[3072];
    (void)vsnprintf(msg, sizeof msg, fmt, args);
    put_line(level, said, msg);
}

void weft_log(enum weft_log_level level, const char *fmt, ...) {
    if (level < log_min) return;
    va_list args;
    va_start(args, fmt);
    put(level, false, fmt, args);
    va_end(args);
}

void weft_say(enum weft_log_level level, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    put(level, true, fmt, args);
    va_end(args);
}

enum weft_log_level weft_log_rarely(enum weft_log_level level, uint64_t now_ms,
                                    uint64_t *quiet_until_ms) {
    if (now_ms < *quiet_until_ms) return WEFT_LOG_DEBUG;
    *quiet_until_ms = now_ms + RARELY_MS;
    return level;
}
