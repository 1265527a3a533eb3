#include "notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"

/* Shorter ones would keep the supervisor busy with them. */
#define EVERY_MS_MIN 100

static void take_address(struct weft_notify *notify, const char *path) {
    size_t len = strlen(path);
    bool is_abstract = path[0] == '@';
    if ((!is_abstract && path[0] != '/') || len < 2 || len >= sizeof notify->at.sun_path) {
        weft_warn("NOTIFY_SOCKET is no address of a socket: nobody is told how the server is");
        return;
    }
    notify->at.sun_family = AF_UNIX;
    memcpy(notify->at.sun_path, path, len);
    if (is_abstract) notify->at.sun_path[0] = '\0';
    notify->at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->fd < 0)
        weft_warn("no socket for NOTIFY_SOCKET: nobody is told how the server is: %s",
                  strerror(errno));
}

static void take_watchdog(struct weft_notify *notify, const char *usec_text, const char *pid_text) {
    uint64_t usec = 0, pid = 0;
    if (!usec_text || weft_parse_u64(usec_text, (uint64_t)UINT32_MAX * 1000, &usec) || usec == 0)
        return;
    if (pid_text && (weft_parse_u64(pid_text, INT32_MAX, &pid) || (pid_t)pid != getpid())) return;
    uint64_t every_ms = usec / 2000;
    notify->every_ms = every_ms > EVERY_MS_MIN ? (uint32_t)every_ms : EVERY_MS_MIN;
}

void weft_notify_init(struct weft_notify *notify) {
    *notify = (struct weft_notify){.fd = -1};
    const char *path = getenv("NOTIFY_SOCKET");
    if (path && *path) take_address(notify, path);
    if (notify->fd >= 0) take_watchdog(notify, getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"));
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

void weft_notify_fini(struct weft_notify *notify) {
    if (notify->fd >= 0) (void)close(notify->fd);
    notify->fd = -1;
}

void weft_notify_say(const struct weft_notify *notify, const char *text) {
    if (notify->fd < 0) return;
    (void)sendto(notify->fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&notify->at,
                 notify->at_len);
}

int weft_notify_watchdog(struct weft_notify *notify, bool is_well, uint64_t now_ms, int most_ms) {
    if (notify->every_ms == 0) return most_ms;
    bool is_time = notify->told_at_ms == 0 || now_ms - notify->told_at_ms >= notify->every_ms;
    if (is_time && is_well) {
        weft_notify_say(notify, "WATCHDOG=1");
        notify->told_at_ms = now_ms;
        is_time = false;
    }
    /* What is not well now may be soon: it is looked at again after a whole period. */
    uint64_t left = is_time ? notify->every_ms : notify->told_at_ms + notify->every_ms - now_ms;
    return left < (uint64_t)most_ms ? (int)left : most_ms;
}
