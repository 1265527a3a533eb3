/* A signalfd rather than a handler with a pipe: nothing runs in a signal context, and two signals
 * of one kind that arrive together are one event, as they should be. */
#include "common/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static pid_t supervisor; /* 0: none */

static void ignore(int signo) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN;
    (void)sigaction(signo, &action, NULL); /* fails only for signals that do not exist */
}

bool weft_signal_is_ignored(int signo) {
    struct sigaction now;
    return sigaction(signo, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void weft_signals_of_supervisor(sigset_t *set) {
    (void)sigemptyset(set);
    (void)sigaddset(set, WEFT_SIGNO_DRAIN);
    (void)sigaddset(set, WEFT_SIGNO_EXIT);
    (void)sigaddset(set, WEFT_SIGNO_RELOAD);
    (void)sigaddset(set, WEFT_SIGNO_LOST);
    (void)sigaddset(set, WEFT_SIGNO_TAKE);
}

weft_err weft_signals_init(bool supervised, int *fd_out, struct weft_errmsg *why) {
    *fd_out = -1;
    ignore(SIGPIPE);
    ignore(SIGUSR1);
    ignore(SIGUSR2);
    ignore(SIGXFSZ); /* a write beyond `ulimit -f` fails, and the file's owner says so */
    sigset_t set;
    supervisor = supervised ? getppid() : 0;
    if (supervised) {
        weft_signals_of_supervisor(&set);
        ignore(SIGHUP);
        ignore(SIGINT);
        ignore(SIGTERM);
    } else {
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGINT);
        (void)sigaddset(&set, SIGTERM);
        if (!weft_signal_is_ignored(SIGHUP)) (void)sigaddset(&set, SIGHUP);
    }
    int status = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (status != 0) return weft_err_errno(why, status, "cannot block signals");
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) return weft_err_errno(why, errno, "cannot make a signal descriptor");
    *fd_out = fd;
    return WEFT_OK;
}

static enum weft_signal meaning(uint32_t signo) {
    if (signo == (uint32_t)WEFT_SIGNO_DRAIN) return WEFT_SIGNAL_DRAIN;
    if (signo == (uint32_t)WEFT_SIGNO_LOST) return WEFT_SIGNAL_LOST;
    if (signo == (uint32_t)WEFT_SIGNO_TAKE) return WEFT_SIGNAL_TAKE;
    if (signo == SIGHUP || signo == (uint32_t)WEFT_SIGNO_RELOAD) return WEFT_SIGNAL_RELOAD;
    return WEFT_SIGNAL_EXIT;
}

enum weft_signal weft_signals_next(int fd, int *value_out) {
    struct signalfd_siginfo info;
    for (;;) {
        ssize_t n = read(fd, &info, sizeof info);
        if (n < 0 && errno == EINTR) continue;
        if (n != (ssize_t)sizeof info) return WEFT_SIGNAL_NONE;
        if (supervisor && info.ssi_pid != (uint32_t)supervisor) continue;
        if (value_out) *value_out = info.ssi_int;
        return meaning(info.ssi_signo);
    }
}

bool weft_signals_pending(int fd) {
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    return poll(&pfd, 1, 0) > 0;
}
