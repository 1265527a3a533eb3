/* A signalfd rather than a handler with a pipe: nothing runs in a signal context, and two signals
 * of one kind that arrive together are one event, as they should be. */
#include "common/signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void ignore(int signo) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN;
    (void)sigaction(signo, &action, NULL); /* fails only for signals that do not exist */
}

weft_err weft_signals_init(bool supervised, int *fd_out, struct weft_errmsg *why) {
    *fd_out = -1;
    ignore(SIGPIPE);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigaddset(&set, SIGUSR2);
    if (supervised) {
        ignore(SIGHUP);
        ignore(SIGINT);
        ignore(SIGTERM);
    } else {
        (void)sigaddset(&set, SIGINT);
        (void)sigaddset(&set, SIGTERM);
    }
    int status = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (status != 0) return weft_err_errno(why, status, "cannot block signals");
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) return weft_err_errno(why, errno, "cannot make a signal descriptor");
    *fd_out = fd;
    return WEFT_OK;
}

enum weft_signal weft_signals_next(int fd) {
    struct signalfd_siginfo info;
    ssize_t n;
    do {
        n = read(fd, &info, sizeof info);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof info) return WEFT_SIGNAL_NONE;
    return info.ssi_signo == SIGUSR1 ? WEFT_SIGNAL_DRAIN : WEFT_SIGNAL_EXIT;
}
