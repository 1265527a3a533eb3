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

static enum weft_log_level level_of(const char *name) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (uint32_t i = 0; name && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) return (enum weft_log_level)i;
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

void weft_actor_init(const char *name, const struct weft_config *config) {
    ask_for_short_slices();
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
