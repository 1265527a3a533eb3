/* actor — the start of every process, and its last words when it cannot go on. */
#ifndef WEFT_CMD_ACTOR_H
#define WEFT_CMD_ACTOR_H

#include "common/config.h"

/* Names the process in its log lines and failed assertions, as --log-format and --log-level ask,
 * and asks the kernel to let its threads run as soon as they wake.
 * Before other threads exist; `name` must outlive the process. */
void weft_actor_init(const char *name, const struct weft_config *config);

/* Tells the supervisor "failed SENTENCE", or logs the sentence where there is none, and returns
 * WEFT_EXIT_FATAL for main to exit with: starting again would not help. */
int weft_actor_fail(const struct weft_config *config, const char *sentence);

#endif
