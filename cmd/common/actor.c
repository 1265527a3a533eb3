#include "cmd/common/actor.h"

#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "cmd/common/status.h"

static enum weft_log_level level_of(const char *name) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (uint32_t i = 0; name && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) return (enum weft_log_level)i;
    }
    return WEFT_LOG_INFO;
}

void weft_actor_init(const char *name, const struct weft_config *config) {
    weft_check_actor(name);
    weft_log_init(name, level_of(config->log_level),
                  config->log_format && strcmp(config->log_format, "json") == 0);
}

int weft_actor_fail(const struct weft_config *config, const char *sentence) {
    if (config->status_fd >= 0) /* the supervisor says it, once */
        weft_status_write(config->status_fd, "failed", sentence);
    else
        weft_error("%s", sentence);
    return WEFT_EXIT_FATAL;
}
