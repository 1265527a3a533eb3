/* signals — an actor's signals as a descriptor to poll, and a few events.
 *
 * Model    Under a supervisor SIGINT, SIGTERM and SIGHUP are ignored: a terminal's Ctrl-C or a
 *          SIGTERM for the whole process group reaches every child, and the supervisor alone knows
 *          in which order they may go. It sends the real-time signals below; from anybody else they
 *          mean nothing. They are queued: of an ordinary signal only one waits at a time, and a
 *          stranger's would hide the supervisor's.
 *          Without a supervisor SIGINT and SIGTERM mean EXIT (a router may take the first EXIT as a
 *          drain and the second one at its word), and SIGHUP means RELOAD unless it was ignored
 *          from the start (nohup). SIGUSR1, SIGUSR2, SIGPIPE and SIGXFSZ are ignored in any
 *          case.
 * Threads  init comes before any other thread exists, also nng's: the signals are blocked, and
 *          threads inherit the mask. After that one thread reads.
 * Children What is ignored or blocked here stays so across fork and exec; a child must reset it.
 */
#ifndef WEFT_CMD_SIGNALS_H
#define WEFT_CMD_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "base/err.h"

/* From the supervisor to its children. */
#define WEFT_SIGNO_DRAIN SIGRTMIN
#define WEFT_SIGNO_EXIT (SIGRTMIN + 1)
#define WEFT_SIGNO_RELOAD (SIGRTMIN + 2)
#define WEFT_SIGNO_LOST (SIGRTMIN + 3)
#define WEFT_SIGNO_TAKE (SIGRTMIN + 4)

enum weft_signal {
    WEFT_SIGNAL_NONE,
    WEFT_SIGNAL_DRAIN,  /* take no new work, finish what is there, stay: the end is near */
    WEFT_SIGNAL_EXIT,   /* clean up and exit with status 0 */
    WEFT_SIGNAL_RELOAD, /* weft_actor_reload, with the value that came with it */
    WEFT_SIGNAL_LOST,   /* to the scheduler: a worker died before it said hello */
    WEFT_SIGNAL_TAKE,   /* to the router: it may take the place of the server it is to replace */
};

/* `supervised`: started by `weft serve` (status_fd >= 0). *fd_out is non-blocking and
 * close-on-exec, readable (POLLIN) when weft_signals_next has something; close it at the end, or
 * never. */
WEFT_MUST_CHECK weft_err weft_signals_init(bool supervised, int *fd_out, struct weft_errmsg *why);

/* The next event; NONE when there is none. Call until NONE after each wake-up. *value_out (may be
 * NULL): the number that the supervisor sent along. */
enum weft_signal weft_signals_next(int fd, int *value_out);

/* Whether one waits to be taken: whoever is about to complain that a peer went may have been asked
 * to go as well. */
bool weft_signals_pending(int fd);

/* For the supervisor: those that its children take from it. A child is started with them blocked,
 * so that none can end it before it watches them. */
void weft_signals_of_supervisor(sigset_t *set_out);
/* Whether a signal is ignored, as it is after nohup, or in a script's background job. */
bool weft_signal_is_ignored(int signo);

#endif
