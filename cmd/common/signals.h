/* signals — an actor's signals as a descriptor to poll, and two events.
 *
 * Model    Under a supervisor SIGINT, SIGTERM and SIGHUP are ignored: a terminal's Ctrl-C or a
 *          SIGTERM for the whole process group reaches every child, and the supervisor alone knows
 *          in which order they may go. It sends SIGUSR1 for "drain" and SIGUSR2 for "exit
 *          now, cleanly". Without a supervisor, SIGINT and SIGTERM mean EXIT as well (a
 *          router may take the first EXIT as a drain and the second one at its word). SIGPIPE
 *          is ignored in any case.
 * Threads  init comes before any other thread exists, also nng's: the signals are blocked, and
 *          threads inherit the mask. After that one thread reads.
 * Children What is ignored or blocked here stays so across fork and exec; a child must reset it.
 */
#ifndef WEFT_CMD_SIGNALS_H
#define WEFT_CMD_SIGNALS_H

#include <stdbool.h>

#include "base/err.h"

enum weft_signal {
    WEFT_SIGNAL_NONE,
    WEFT_SIGNAL_DRAIN, /* take no new work, finish what is there, stay */
    WEFT_SIGNAL_EXIT,  /* clean up and exit with status 0 */
};

/* `supervised`: started by `weft serve` (status_fd >= 0). *fd_out is non-blocking and
 * close-on-exec, readable (POLLIN) when weft_signals_next has something; close it at the end, or
 * never. */
WEFT_MUST_CHECK weft_err weft_signals_init(bool supervised, int *fd_out, struct weft_errmsg *why);

/* The next event; NONE when there is none. Call until NONE after each wake-up. */
enum weft_signal weft_signals_next(int fd);

#endif
