#include "base/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const char *log_actor = "weft";
static enum weft_log_level log_min = WEFT_LOG_INFO;
static bool log_json = false;

void weft_log_init(const char *actor, enum weft_log_level min_level, bool json) {
    log_actor = actor;
    log_min = min_level;
    log_json = json;
}

/* Copies `in` into `out` as the inside of a JSON string; returns the length, at most `room`. */
static size_t json_escape(char *out, size_t room, const char *in) {
    size_t n = 0;
    for (; *in && n + 6 < room; in++) {
        unsigned char c = (unsigned char)*in;
        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else if (c < 0x20) {
            n += (size_t)snprintf(out + n, room - n, "\\u%04x", c);
        } else {
            out[n++] = (char)c;
        }
    }
    return n;
}

void weft_log(enum weft_log_level level, const char *fmt, ...) {
    static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    if (level < log_min) return;
    char msg[3072];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);

    struct timespec ts;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    char when[40];
    size_t when_len = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(when + when_len, sizeof when - when_len, ".%03ldZ", ts.tv_nsec / 1000000);

    char line[4096];
    size_t len;
    if (log_json) {
        len = (size_t)snprintf(line, sizeof line,
                               "{\"ts\":\"%s\",\"level\":\"%s\",\"actor\":\"%s\",\"msg\":\"", when,
                               names[level], log_actor);
        len += json_escape(line + len, sizeof line - len - 4, msg);
        line[len++] = '"';
        line[len++] = '}';
    } else {
        len = (size_t)snprintf(line, sizeof line - 2, "%s %-5s %s: %s", when, names[level],
                               log_actor, msg);
        if (len > sizeof line - 2) len = sizeof line - 2;
    }
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len); /* nowhere to report a failing stderr */
    (void)ignored;
}
