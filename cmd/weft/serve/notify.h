/* notify — what the service manager above `weft serve` is told: datagrams to the socket that it
 * names in NOTIFY_SOCKET, as sd_notify(3) describes them. Without that variable nothing is told.
 *
 * A watchdog (WATCHDOG_USEC) wants to hear that all is well at least that often, or it kills the
 * service. It hears so twice as often, as long as the caller finds it true.
 * Checked in tests/unit/test_notify.c. */
#ifndef WEFT_CMD_NOTIFY_H
#define WEFT_CMD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct weft_notify {
    int fd; /* -1: there is nobody to tell */
    struct sockaddr_un at;
    socklen_t at_len;
    uint32_t every_ms;   /* the watchdog's; 0: there is none */
    uint64_t told_at_ms; /* when it last heard; 0: never */
};

/* Reads the variables, and takes them from the environment: children must not speak for us. */
void weft_notify_init(struct weft_notify *notify);
void weft_notify_fini(struct weft_notify *notify);

/* Such as "READY=1" or "STATUS=...", several by line. Never blocks; what cannot be sent is lost. */
void weft_notify_say(const struct weft_notify *notify, const char *text);

/* Tells the watchdog, if it is time and all `is_well`; returns in how many milliseconds it is time
 * again, at most `most_ms`. */
int weft_notify_watchdog(struct weft_notify *notify, bool is_well, uint64_t now_ms, int most_ms);

#endif
