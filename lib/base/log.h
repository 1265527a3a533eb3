/* base/log — one line per event on standard error, as text or as JSON.
 *
 * Text: "2026-01-31T12:00:00.123Z INFO  scheduler: message". JSON: one object per line with the
 * keys ts, level, actor, msg. Thread-safe: a line is one write(2) of at most 4 KiB, longer ones are
 * cut. Whatever the message holds, it stays one line of well-formed UTF-8: text shows '?' for
 * control characters and ill-formed bytes, JSON escapes the former and shows U+FFFD for the latter.
 *
 * A reader that stands still stops nobody: lines that standard error has no room for are left out,
 * and a count of them precedes the next line that it has room for.
 */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum weft_log_level { WEFT_LOG_DEBUG, WEFT_LOG_INFO, WEFT_LOG_WARN, WEFT_LOG_ERROR };

/* Once at start, before other threads exist. `actor` must outlive the process. */
void weft_log_init(const char *actor, enum weft_log_level min_level, bool json);

/* From any thread, at any time. */
void weft_log_set_level(enum weft_log_level min_level);

void weft_log(enum weft_log_level level, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* Writes a line of the caller's own form, its end included, of at most 4 KiB: like others it is left
 * out if there is no room for it. */
void weft_log_line(const char *line, size_t len);

/* For people who wait at a terminal, and so whatever the level: "weft: ready on ...", why a program
 * ends. As text it is the program's name and the message; as JSON it is like any other line. */
void weft_say(enum weft_log_level level, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_log_is_json(void);

/* For a line that a fault may repeat without end: `level` once a second at most, else DEBUG. What
 * `quiet_until_ms` points to is the caller's, 0 at first, for this line alone. */
enum weft_log_level weft_log_rarely(enum weft_log_level level, uint64_t now_ms,
                                    uint64_t *quiet_until_ms);

#define weft_debug(...) weft_log(WEFT_LOG_DEBUG, __VA_ARGS__)
#define weft_info(...) weft_log(WEFT_LOG_INFO, __VA_ARGS__)
#define weft_warn(...) weft_log(WEFT_LOG_WARN, __VA_ARGS__)
#define weft_error(...) weft_log(WEFT_LOG_ERROR, __VA_ARGS__)

#endif
