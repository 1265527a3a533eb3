/* A child's process: made by fork and exec, with the descriptors that it needs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "common/signals.h"
#include "common/status.h"
#include "supervisor.h"

#define ARGS_MAX 64

/* In the child, after fork: only calls that are safe there, then exec. */
static _Noreturn void become(const struct supervisor *sup, const struct child *child, char **argv,
                             pid_t parent) {
    char path[640];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before the line above */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    sigset_t ours;
    weft_signals_of_supervisor(&ours);
    (void)sigprocmask(SIG_SETMASK, &ours, NULL);
    if (child->is_placed) (void)sched_setaffinity(0, sizeof child->cpus, &child->cpus);
    (void)unsetenv("WEFT_CONFIG"); /* its contents are in argv already */
    if (child->program != WEFT_PROG_ROUTER) {
        (void)unsetenv("WEFT_API_KEY");
        (void)unsetenv("WEFT_API_KEY_FILE");
    } else if (sup->config.api_key) {
        (void)setenv("WEFT_API_KEY", sup->config.api_key, 1);
    }
    (void)snprintf(path, sizeof path, "%s/%s", sup->bin_dir, child->name);
    (void)execv(path, argv);
    char text[768];
    (void)snprintf(text, sizeof text, "cannot run %s: %s", path, strerror(errno));
    weft_status_write(child->status_fd, "failed", text);
    _exit(WEFT_EXIT_FATAL);
}

/* Descriptors a child needs survive exec; all others are close-on-exec. */
static bool keep_over_exec(int fd) {
    return fcntl(fd, F_SETFD, 0) == 0;
}

/* Nodes whose weights are not packed yet: at the start their workers pack at the same time, and none
 * may take the memory that is free now for its own. Of a limit all of them count at any time. */
static uint32_t copies_to_come(const struct supervisor *sup) {
    uint32_t n = 0;
    bool is_limited = sup->config.memory_limit > 0;
    for (uint32_t i = FIRST_WORKER; i < sup->n_children; i++)
        n += sup->children[i].packer == i && (is_limited || !sup->restart.children[i].was_ready);
    return n > 1 ? n : 1;
}

/* The group's memory; -1: it is no rank. */
static int group_fd(const struct supervisor *sup, const struct child *child) {
    uint32_t idx = (uint32_t)(child - sup->children);
    return wefti_is_rank(sup, idx) ? sup->groups[(idx - FIRST_WORKER) / sup->n_ranks].fd : -1;
}

static void tell_rank(const struct supervisor *sup, const struct child *child,
                      struct weft_config *config) {
    config->n_ranks = sup->n_ranks;
    config->group_fd = group_fd(sup, child);
    if (config->group_fd >= 0)
        config->rank = (uint32_t)(child - &sup->children[FIRST_WORKER]) % sup->n_ranks;
}

/* The program's settings for this child, as arguments; the caller frees all but the first n_fixed.
 * False: no memory. */
static bool make_argv(struct supervisor *sup, const struct child *child, int status_fd, char **argv,
                      uint32_t *n_fixed_out, uint32_t *n_out) {
    struct weft_config config = sup->config;
    config.status_fd = status_fd;
    config.weights_fd = child->weights_fd;
    config.weights_copies = copies_to_come(sup);
    config.worker_url =
        child->program == WEFT_PROG_SCHEDULER ? sup->addresses.all_workers : child->url;
    tell_rank(sup, child, &config);
    weft_addresses_tell(&sup->addresses, child->program, &config);
    if (config.kv_memory == 0) config.kv_memory = child->kv_memory;
    const char *model = sup->packed_fd < 0 ? config.model : sup->model_path;
    if (sup->packed_fd >= 0) config.model_root = config.model;
    uint32_t n = 0;
    argv[n++] = (char *)(uintptr_t)child->name;
    if (child->program != WEFT_PROG_SCHEDULER) argv[n++] = (char *)(uintptr_t)model;
    *n_fixed_out = n;
    n += weft_config_argv(&config, child->program, argv + n, ARGS_MAX);
    argv[n] = NULL;
    *n_out = n;
    return n > *n_fixed_out;
}

/* What a service manager has opened, and the files of a batch, are for routers. */
static int of_router(const struct supervisor *sup, const struct child *child, int fd) {
    return child == &sup->children[ROUTER] ? fd : -1;
}

static pid_t fork_child(const struct supervisor *sup, const struct child *child, int status_fd,
                        char **argv) {
    const int kept_fds[] = {status_fd,
                            sup->packed_fd >= 0 ? sup->packed_fd : child->weights_fd,
                            group_fd(sup, child),
                            of_router(sup, child, sup->config.http_fd),
                            of_router(sup, child, sup->config.rpc_fd),
                            of_router(sup, child, sup->config.batch_fd),
                            of_router(sup, child, sup->config.answers_fd)};
    sigset_t ours, before;
    weft_signals_of_supervisor(&ours);
    (void)sigprocmask(SIG_BLOCK, &ours,
                      &before); /* none may end the child before it watches them */
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) {
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return pid;
    }
    struct child self = *child;
    self.status_fd = status_fd;
    for (size_t i = 0; i < sizeof kept_fds / sizeof kept_fds[0]; i++) {
        if (kept_fds[i] >= 0 && !keep_over_exec(kept_fds[i])) _exit(1);
    }
    if (!weft_addresses_keep(&sup->addresses, child->program)) _exit(1);
    become(sup, &self, argv, parent);
}

weft_err wefti_child_start(struct supervisor *sup, uint32_t child_idx, struct weft_errmsg *why) {
    struct child *child = &sup->children[child_idx];
    char *argv[ARGS_MAX + 3];
    uint32_t n_fixed = 0, n = 0;
    int fds[2];
    WEFT_ASSERT(child_idx < sup->n_children && child->pid == 0);
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return weft_err_errno(why, errno, "cannot make a pipe");
    weft_err err = WEFT_OK;
    pid_t pid = -1;
    if (!make_argv(sup, child, fds[1], argv, &n_fixed, &n))
        err = weft_err_set(why, WEFT_E_NOMEM, "no memory for its settings");
    else if ((pid = fork_child(sup, child, fds[1], argv)) < 0)
        err = weft_err_errno(why, errno, "cannot make a process");
    while (n > n_fixed)
        free(argv[--n]);
    (void)close(fds[1]);
    if (err) {
        (void)close(fds[0]);
        return err;
    }
    if (child->status_fd >= 0) (void)close(child->status_fd);
    child->pid = child->last_pid = pid;
    child->status_fd = fds[0];
    child->line_len = 0;
    child->is_killed = false;
    child->last_words[0] = '\0';
    weft_debug("started %s, pid %d", child->name, (int)pid);
    return WEFT_OK;
}

enum weft_restart_end wefti_child_end(const struct child *child, int status) {
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !child->is_killed)
        return WEFT_RESTART_KILLED;
    if (!WIFEXITED(status)) return WEFT_RESTART_DIED;
    if (WEXITSTATUS(status) == WEFT_EXIT_FINAL) return WEFT_RESTART_WRONG;
    return WEXITSTATUS(status) == WEFT_EXIT_FATAL ? WEFT_RESTART_REFUSED : WEFT_RESTART_DIED;
}

void wefti_child_describe_end(int status, enum weft_restart_end end, char *out, size_t out_bytes) {
    if (!WIFSIGNALED(status)) {
        (void)snprintf(out, out_bytes, "exited with status %d", WEXITSTATUS(status));
        return;
    }
    const char *guess = "";
    if (end == WEFT_RESTART_KILLED) guess = ": out of memory, if it was the system";
    /* Only a mapped file that shrank, or a failed disk, gives SIGBUS. */
    if (WTERMSIG(status) == SIGBUS)
        guess = ": was the model's file cut short, or its disk lost, while in use?";
    (void)snprintf(out, out_bytes, "was killed by signal %d (%s%s)", WTERMSIG(status),
                   strsignal(WTERMSIG(status)), guess);
}
