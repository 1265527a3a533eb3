/* actor — the start of every process, and its last words when it cannot go on. */
#ifndef WEFT_CMD_ACTOR_H
#define WEFT_CMD_ACTOR_H

#include "base/log.h"
#include "common/config.h"

/* Names the process in its log lines and failed assertions, as --log-format and --log-level ask.
 * Before other threads exist; `name` must outlive the process. */
void weft_actor_log(const char *name, const struct weft_config *config);

/* The same, and asks the kernel to let its threads run as soon as they wake. */
void weft_actor_init(const char *name, const struct weft_config *config);

/* The program's settings cannot be used: says why, as --log-format asks (and to the supervisor, if
 * there is one), and returns WEFT_EXIT_FATAL. In place of weft_actor_init. */
int weft_actor_bad_config(const char *name, const struct weft_config *config, const char *sentence);

/* On SIGHUP: takes the log level from the --config file and says so; it is all that can be read
 * again. Under a supervisor, which has read it and says so itself, `value` is the level. Returns
 * the level's name, which lives as long as the process; NULL: it could not be read. */
const char *weft_actor_reload(const struct weft_config *config, int value);

/* A level as --log-level names it. */
enum weft_log_level weft_actor_log_level(const struct weft_config *config);

/* Says "stopped", the last words of a clean end; under a supervisor that is for it to say. */
void weft_actor_stopped(const struct weft_config *config);

/* Tells the supervisor "failed SENTENCE", or logs the sentence where there is none, and returns
 * WEFT_EXIT_FATAL for main to exit with: starting again would not help. */
int weft_actor_fail(const struct weft_config *config, const char *sentence);

#endif
