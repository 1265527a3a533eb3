#include "common/actor.h"

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "common/status.h"

#define SLICE_NS 100000u /* the shortest there is */

static const char *const level_names[] = {"debug", "info", "warn", "error"};
#define N_LEVELS (sizeof level_names / sizeof level_names[0])

enum weft_log_level weft_actor_log_level(const struct weft_config *config) {
    const char *level = config->log_level ? config->log_level : config->tool_log_level;
    for (uint32_t i = 0; level && i < N_LEVELS; i++) {
        if (strcmp(level, level_names[i]) == 0) return (enum weft_log_level)i;
    }
    return WEFT_LOG_INFO;
}

/* The kernel's struct since 3.14; the C library does not name it. */
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};
_Static_assert(sizeof(struct attr) == 48, "the first version of it");

/* A token passes through every actor, and each runs for some microseconds and sleeps again. Asking
 * for short slices makes Linux (6.12 and later) let such a thread run as soon as it wakes, instead
 * of when whoever has the CPU has used up a slice of milliseconds; its share of the CPU stays the
 * same. Threads made later inherit it, so compute threads return to a barrier as soon. Older
 * kernels do nothing, and a refusal costs speed only. */
static void ask_for_short_slices(void) {
    struct attr attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getattr, 0, &attr, (unsigned)sizeof attr, 0) != 0) return;
    if (attr.policy != SCHED_OTHER) return;
    attr.size = sizeof attr;
    attr.runtime_ns = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void weft_actor_log(const char *name, const struct weft_config *config) {
    weft_check_actor(name);
    weft_log_init(name, weft_actor_log_level(config),
                  config->log_format && strcmp(config->log_format, "json") == 0);
}

void weft_actor_init(const char *name, const struct weft_config *config) {
    ask_for_short_slices();
    weft_actor_log(name, config);
}

int weft_actor_bad_config(const char *name, const struct weft_config *config,
                          const char *sentence) {
    weft_actor_log(name, config);
    if (config->status_fd >= 0)
        weft_status_write(config->status_fd, "failed", sentence);
    else
        weft_say(WEFT_LOG_ERROR, "%s", sentence);
    return WEFT_EXIT_FATAL;
}

const char *weft_actor_reload(const struct weft_config *config, int value) {
    struct weft_config fresh;
    struct weft_errmsg why = {""};
    bool done = false;
    if (config->status_fd >= 0) {
        if (value < 0 || value >= (int)N_LEVELS) return NULL;
        weft_log_set_level((enum weft_log_level)value);
        weft_debug("the log level is %s", level_names[value]);
        return level_names[value];
    }
    if (weft_config_parse(config->program, config->argc, config->argv, &fresh, &done, &why)) {
        weft_say(WEFT_LOG_ERROR, "SIGHUP: nothing is read again: %s", why.text);
        return NULL;
    }
    enum weft_log_level level = weft_actor_log_level(&fresh);
    weft_log_set_level(level);
    weft_say(WEFT_LOG_INFO,
             "SIGHUP: read again: --log-level, which is %s, and the router's --api-key-file; other "
             "settings need a restart",
             level_names[level]);
    return level_names[level];
}

void weft_actor_stopped(const struct weft_config *config) {
    if (config->status_fd < 0) weft_say(WEFT_LOG_INFO, "stopped");
}

int weft_actor_fail(const struct weft_config *config, const char *sentence) {
    if (config->status_fd >= 0) /* the supervisor says it, once */
        weft_status_write(config->status_fd, "failed", sentence);
    else
        weft_error("%s", sentence);
    return WEFT_EXIT_FATAL;
}
