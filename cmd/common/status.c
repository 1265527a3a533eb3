#include "common/status.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void weft_status_write(int fd, const char *word, const char *text) {
    if (fd < 0) return;
    char line[1024];
    int n = snprintf(line, sizeof line, "%s%s%s", word, text ? " " : "", text ? text : "");
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len > sizeof line - 2) len = sizeof line - 2;
    for (size_t i = 0; i < len; i++) {
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' '; /* one line is one message */
    }
    line[len] = '\n';
    /* Asked for, because O_NONBLOCK would hold for all who share the descriptor, a terminal
     * perhaps. A pipe with room takes a line below PIPE_BUF whole. A supervisor that is gone
     * needs no news. */
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, 0) <= 0 || !(room.revents & POLLOUT)) return;
    if (write(fd, line, len + 1) < 0) return;
}
