/* The supervisor: one process without threads that starts router, scheduler and workers, and keeps
 * them running.
 *
 * What it owns: a memfd with the packed weights for each NUMA node that has a worker (so a
 * restarted worker maps instead of packing, and so does every worker but the node's first), or the
 * packed file it was given instead (so a restarted worker maps the same one, whatever has taken its
 * name since), who may use which CPUs, the addresses of the links, the port once it is known, and
 * each child's status pipe. It takes no part in serving: no nng, no sockets. It watches whether the
 * scheduler's loop turns, as the scheduler watches the worker.
 *
 * Signals: children ignore SIGTERM, SIGINT and SIGHUP, so a signal to the whole process group
 * reaches the supervisor alone in effect; it then drains the router (SIGUSR1) and stops the others
 * (SIGUSR2) when the router has ended. Children die with it (PR_SET_PDEATHSIG). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/rand.h"
#include "commands.h"
#include "common/actor.h"
#include "common/config.h"
#include "common/status.h"
#include "model/model.h"
#include "placement.h"

/* Children by index: these two, and behind them the workers. */
enum { SCHEDULER, ROUTER, FIRST_WORKER, CHILDREN_MAX = FIRST_WORKER + WEFT_WORKERS_MAX };

#define ARGS_MAX 64
#define BACKOFF_MS_MIN 100
#define BACKOFF_MS_MAX 5000
/* With the back-off above about 20 s: longer than a passing shortage, shorter than a person's
 * patience. */
#define START_FAILURES_MAX 10
#define STOP_GRACE_MS 3000
/* The supervisor's loop turns at least so often. One that took this much longer was itself stopped,
 * and perhaps all processes with it: that the scheduler was silent meanwhile proves nothing. */
#define WATCH_MS 2000
#define PAUSED_MS 2000
#define URL_BYTES 64
#define CONFIG_BYTES_MAX ((size_t)16 << 20)

struct child {
    enum weft_program program;
    const char *name;
    char title[24]; /* in messages: which of several workers */
    pid_t pid;      /* 0: not running */
    int status_fd;  /* -1: closed */
    char line[1024];
    size_t line_len;
    bool ready;           /* since its last start */
    bool was_ready;       /* since any */
    char last_words[512]; /* its "failed TEXT", since its last start */
    uint32_t n_failures;  /* starts in a row that ended before ready */
    uint64_t restart_at_ms;
    uint64_t heard_at_ms; /* on its status pipe; or as late as it could have been heard */

    /* a worker's */
    char url[URL_BYTES];
    int weights_fd;     /* its node's memfd; -1: none is needed */
    uint32_t packer;    /* the child that fills it */
    uint64_t kv_memory; /* what it had when it was first ready: its successors get as much */
    bool is_placed;     /* on these CPUs; else on any */
    cpu_set_t cpus;
};

enum phase { PHASE_RUN, PHASE_DRAIN, PHASE_STOP };

struct supervisor {
    struct weft_config config;
    uint32_t n_workers, n_children;
    struct child children[CHILDREN_MAX];
    char bin_dir[512];
    char scheduler_url[URL_BYTES], worker_urls[URL_BYTES * WEFT_WORKERS_MAX];
    char n_workers_text[12];
    int packed_fd;       /* that file; -1: it is not one */
    char model_path[32]; /* of that file, by descriptor */
    int signal_fd;
    enum phase phase;
    uint64_t phase_until_ms; /* then the next measure */
    uint64_t turn_ms;        /* when the loop last turned */
    char ready_on[1024];     /* the router's address; "": it is not ready yet */
    char identity[1024];     /* what the first router read of the model; "": it has not said */
    bool announced;
    int exit_status;
    char fatal[1024]; /* why it cannot go on; "" while it can */
};

static void set_fatal(struct supervisor *sup, const char *who, const char *text) {
    if (sup->fatal[0]) return;
    (void)snprintf(sup->fatal, sizeof sup->fatal, "%s: %s", who, text);
    sup->exit_status = 1;
}

static bool find_bin_dir(char *dir, size_t dir_bytes) {
    ssize_t n = readlink("/proc/self/exe", dir, dir_bytes - 1);
    if (n <= 0) return false;
    dir[n] = '\0';
    char *slash = strrchr(dir, '/');
    if (!slash) return false;
    *slash = '\0';
    return true;
}

/* In the child, after fork: only calls that are safe there, then exec. */
static _Noreturn void become(const struct supervisor *sup, const struct child *child, char **argv,
                             pid_t parent) {
    char path[640];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before the line above */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
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

/* All workers but the first of a node wait until that one has packed what they share: started at
 * once they would do nothing else, but hold memory and CPUs. */
static bool may_start(const struct supervisor *sup, const struct child *child) {
    if (child->program != WEFT_PROG_WORKER || child->weights_fd < 0) return true;
    const struct child *packer = &sup->children[child->packer];
    return packer == child || packer->was_ready;
}

static void start_child(struct supervisor *sup, uint32_t idx) {
    struct child *child = &sup->children[idx];
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        set_fatal(sup, child->title, "cannot make a pipe");
        return;
    }
    sup->config.status_fd = fds[1];
    sup->config.weights_fd = child->weights_fd;
    sup->config.worker_url = idx == SCHEDULER ? sup->worker_urls : child->url;
    uint64_t kv_memory = sup->config.kv_memory;
    if (kv_memory == 0) sup->config.kv_memory = child->kv_memory;
    const char *model = sup->packed_fd < 0 ? sup->config.model : sup->model_path;
    int kept_fd = sup->packed_fd >= 0 ? sup->packed_fd : child->weights_fd;
    char *argv[ARGS_MAX + 3];
    uint32_t n = 0;
    argv[n++] = (char *)(uintptr_t)child->name;
    if (child->program != WEFT_PROG_SCHEDULER) argv[n++] = (char *)(uintptr_t)model;
    uint32_t n_fixed = n;
    n += weft_config_argv(&sup->config, child->program, argv + n, ARGS_MAX);
    sup->config.kv_memory = kv_memory;
    argv[n] = NULL;
    bool has_settings = n > n_fixed;
    pid_t parent = getpid();
    pid_t pid = has_settings ? fork() : -1;
    if (pid == 0) {
        struct child self = *child;
        self.status_fd = fds[1];
        if (!keep_over_exec(fds[1]) || (kept_fd >= 0 && !keep_over_exec(kept_fd))) _exit(1);
        become(sup, &self, argv, parent);
    }
    while (n > n_fixed)
        free(argv[--n]);
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        set_fatal(sup, child->title, has_settings ? "cannot fork" : "no memory for its settings");
        return;
    }
    if (child->status_fd >= 0) (void)close(child->status_fd);
    child->pid = pid;
    child->status_fd = fds[0];
    child->line_len = 0;
    child->ready = false;
    child->last_words[0] = '\0';
    child->restart_at_ms = 0;
    weft_debug("started %s, pid %d", child->name, (int)pid);
}

/* The router's "ready URL RPC_PORT IDENTITY": from now on the ports are known, and a restarted
 * router gets the same ones even where the command line asked for any. It must find the same model,
 * too: the workers have its weights, whatever lies there by then. */
static void router_ready(struct supervisor *sup, char *text) {
    char *identity = NULL;
    (void)strtok_r(text, " ", &identity);
    const char *port_text = strtok_r(NULL, " ", &identity);
    if (port_text) {
        uint64_t rpc_port = 0;
        if (!weft_parse_u64(port_text, 65535, &rpc_port) && rpc_port)
            sup->config.rpc_port = (uint32_t)rpc_port;
    }
    char *colon = strrchr(text, ':');
    uint64_t port = 0;
    if (colon && !weft_parse_u64(colon + 1, 65535, &port) && port)
        sup->config.port = (uint32_t)port;
    (void)snprintf(sup->ready_on, sizeof sup->ready_on, "%.*s", (int)sizeof sup->ready_on - 1,
                   text);
    if (sup->identity[0] || !identity) return;
    (void)snprintf(sup->identity, sizeof sup->identity, "%.*s", (int)sizeof sup->identity - 1,
                   identity);
    sup->config.model_identity = sup->identity;
}

/* Once the router and every worker have been ready: what cannot be had at all has shown by then. */
static void announce(struct supervisor *sup) {
    if (sup->announced || !sup->ready_on[0]) return;
    for (uint32_t i = 0; i < sup->n_children; i++) {
        if (!sup->children[i].was_ready) return;
    }
    sup->announced = true;
    (void)fprintf(stderr, "weft: ready on %s\n", sup->ready_on);
}

/* Of a worker, "KV_BYTES". */
static void worker_ready(struct child *child, const char *text) {
    uint64_t bytes = 0;
    if (child->kv_memory == 0 && !weft_parse_u64(text, UINT64_MAX, &bytes))
        child->kv_memory = bytes;
}

static void status_line(struct supervisor *sup, uint32_t idx, char *line) {
    struct child *child = &sup->children[idx];
    if (!strncmp(line, "failed ", 7)) {
        size_t n = strnlen(line + 7, sizeof child->last_words - 1);
        memcpy(child->last_words, line + 7, n);
        child->last_words[n] = '\0';
    } else if (!strncmp(line, "ready", 5)) {
        child->ready = child->was_ready = true;
        child->n_failures = 0;
        if (idx == ROUTER && line[5] == ' ') router_ready(sup, line + 6);
        if (idx >= FIRST_WORKER && line[5] == ' ') worker_ready(child, line + 6);
        announce(sup);
    } /* "alive" is news by having come */
}

static void read_status(struct supervisor *sup, uint32_t idx) {
    struct child *child = &sup->children[idx];
    ssize_t n = read(child->status_fd, child->line + child->line_len,
                     sizeof child->line - 1 - child->line_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        (void)close(child->status_fd);
        child->status_fd = -1;
        return;
    }
    child->heard_at_ms = weft_now_ms();
    child->line_len += (size_t)n;
    child->line[child->line_len] = '\0';
    for (char *end; (end = strchr(child->line, '\n'));) {
        *end = '\0';
        status_line(sup, idx, child->line);
        size_t used = (size_t)(end + 1 - child->line);
        memmove(child->line, child->line + used, child->line_len - used + 1);
        child->line_len -= used;
    }
    if (child->line_len == sizeof child->line - 1) child->line_len = 0; /* not one of ours */
}

static void describe_exit(int status, char *out, size_t out_bytes) {
    if (WIFSIGNALED(
            status)) /* only a mapped file that shrank, or a disk that failed, gives SIGBUS */
        (void)snprintf(out, out_bytes, "killed by signal %d (%s%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)),
                       WTERMSIG(status) == SIGBUS ? ": was the model's file cut short, or its disk "
                                                    "lost, while it was in use?"
                                                  : "");
    else
        (void)snprintf(out, out_bytes, "exited with status %d", WEXITSTATUS(status));
}

/* Of several workers one may stay away, as long as another serves. */
static bool is_needed(const struct supervisor *sup, uint32_t idx) {
    for (uint32_t i = FIRST_WORKER; i < sup->n_children; i++) {
        const struct child *other = &sup->children[i];
        if (idx >= FIRST_WORKER && i != idx && sup->announced && other->pid && other->ready)
            return false;
    }
    return true;
}

static void child_ended(struct supervisor *sup, uint32_t idx, int status) {
    struct child *child = &sup->children[idx];
    if (child->status_fd >= 0) read_status(sup, idx); /* its last words may explain it */
    child->pid = 0;
    char text[160];
    describe_exit(status, text, sizeof text);
    if (sup->phase == PHASE_STOP || (sup->phase == PHASE_DRAIN && idx == ROUTER)) {
        weft_debug("%s %s", child->title, text);
        return;
    }
    /* Before the first "ready" its reason is ours to give up. Later on the same settings have
     * worked once: what it met (no memory, a name in use) may pass, and streams are open. */
    int exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (exit_status == WEFT_EXIT_CHANGED || (!sup->announced && exit_status == WEFT_EXIT_FATAL)) {
        set_fatal(sup, child->title, child->last_words[0] ? child->last_words : text);
        return;
    }
    uint64_t wait_ms = 0;
    if (!child->ready) {
        uint32_t shift = child->n_failures < 6 ? child->n_failures : 6;
        wait_ms = (uint64_t)BACKOFF_MS_MIN << shift;
        if (wait_ms > BACKOFF_MS_MAX) wait_ms = BACKOFF_MS_MAX;
        if (++child->n_failures > START_FAILURES_MAX && is_needed(sup, idx)) {
            char sentence[768];
            (void)snprintf(
                sentence, sizeof sentence, "%s before it was ready, %d times in a row%s%s", text,
                START_FAILURES_MAX + 1, child->last_words[0] ? ": " : "", child->last_words);
            set_fatal(sup, child->title, sentence);
            return;
        }
    }
    weft_warn("%s %s%s%s; starting it again%s", child->title, text,
              child->last_words[0] ? ": " : "", child->last_words, wait_ms ? " in a moment" : "");
    child->restart_at_ms = weft_now_ms() + wait_ms;
    if (wait_ms == 0) start_child(sup, idx);
}

static void reap(struct supervisor *sup) {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (uint32_t i = 0; i < sup->n_children; i++) {
            if (sup->children[i].pid == pid) {
                child_ended(sup, i, status);
                break;
            }
        }
    }
}

static void signal_child(struct supervisor *sup, uint32_t idx, int sig) {
    if (sup->children[idx].pid > 0) (void)kill(sup->children[idx].pid, sig);
}

static void begin_stop(struct supervisor *sup) {
    sup->phase = PHASE_STOP;
    sup->phase_until_ms = weft_now_ms() + STOP_GRACE_MS;
    for (uint32_t i = 0; i < sup->n_children; i++)
        signal_child(sup, i, SIGUSR2);
}

static void begin_drain(struct supervisor *sup) {
    weft_info("draining: no new requests, running ones have up to %u ms",
              sup->config.drain_timeout_ms);
    sup->phase = PHASE_DRAIN;
    /* The router keeps the limit itself; a second more and it is taken for stuck. */
    sup->phase_until_ms = weft_now_ms() + sup->config.drain_timeout_ms + 1000;
    signal_child(sup, ROUTER, SIGUSR1);
}

static void take_signals(struct supervisor *sup) {
    struct signalfd_siginfo info;
    while (read(sup->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue; /* reap() looks anyway */
        if (sup->phase == PHASE_RUN)
            begin_drain(sup);
        else if (sup->phase == PHASE_DRAIN)
            begin_stop(sup); /* asked twice: now */
    }
}

/* A scheduler that stands still keeps its links, so that routers would wait for it for ever.
 * Killed, it is replaced, and they resume their streams with the new one. (What its pipe holds has
 * been read just before, by loop().) */
static void watch_scheduler(struct supervisor *sup, uint64_t now) {
    struct child *child = &sup->children[SCHEDULER];
    bool paused = now - sup->turn_ms > WATCH_MS + PAUSED_MS;
    sup->turn_ms = now;
    if (!child->pid || !child->ready) return;
    if (paused) child->heard_at_ms = now;
    if (now - child->heard_at_ms < WEFT_STATUS_SILENT_MS) return;
    weft_error("%s has stood still for %u s: killing it", child->name,
               WEFT_STATUS_SILENT_MS / 1000u);
    signal_child(sup, SCHEDULER, SIGKILL);
    child->heard_at_ms = now; /* one attempt per period */
}

/* Timers and phases; returns how long poll may sleep. */
static int advance(struct supervisor *sup) {
    uint64_t now = weft_now_ms();
    if (sup->fatal[0] && sup->phase != PHASE_STOP) begin_stop(sup);
    if (sup->phase == PHASE_DRAIN && (sup->children[ROUTER].pid == 0 || now >= sup->phase_until_ms))
        begin_stop(sup);
    if (sup->phase == PHASE_STOP) {
        if (now < sup->phase_until_ms) return 100;
        for (uint32_t i = 0; i < sup->n_children; i++)
            signal_child(sup, i, SIGKILL);
        return 100;
    }
    watch_scheduler(sup, now);
    int wait_ms = sup->phase == PHASE_DRAIN ? 100 : WATCH_MS;
    for (uint32_t i = sup->n_children; i-- > 0;) { /* workers first: they take the longest */
        struct child *child = &sup->children[i];
        if (child->pid || (sup->phase == PHASE_DRAIN && i == ROUTER)) continue;
        if (!may_start(sup, child)) continue; /* the one it waits for will say "ready" */
        if (now >= child->restart_at_ms) {
            start_child(sup, i);
            continue;
        }
        int left = (int)(child->restart_at_ms - now) + 1;
        if (left < wait_ms) wait_ms = left;
    }
    return wait_ms;
}

static bool all_ended(const struct supervisor *sup) {
    for (uint32_t i = 0; i < sup->n_children; i++) {
        if (sup->children[i].pid) return false;
    }
    return true;
}

static void loop(struct supervisor *sup) {
    while (sup->phase != PHASE_STOP || !all_ended(sup)) {
        int wait_ms = advance(sup);
        struct pollfd fds[CHILDREN_MAX + 1] = {{.fd = sup->signal_fd, .events = POLLIN}};
        for (uint32_t i = 0; i < sup->n_children; i++)
            fds[i + 1] = (struct pollfd){.fd = sup->children[i].status_fd, .events = POLLIN};
        if (poll(fds, sup->n_children + 1, wait_ms) < 0 && errno != EINTR) break;
        for (uint32_t i = 0; i < sup->n_children; i++) {
            if (fds[i + 1].revents && sup->children[i].status_fd == fds[i + 1].fd)
                read_status(sup, i);
        }
        take_signals(sup);
        reap(sup);
    }
}

static bool is_ignored(int sig) {
    struct sigaction now;
    return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static struct child new_child(enum weft_program program, const char *name) {
    struct child child = {.program = program, .name = name, .status_fd = -1, .weights_fd = -1};
    (void)snprintf(child.title, sizeof child.title, "%s", name);
    return child;
}

/* Of the workers before it the first on the same node packs for both. */
static weft_err give_weights(struct supervisor *sup, const uint32_t *nodes, uint32_t worker_idx,
                             struct weft_errmsg *why) {
    struct child *child = &sup->children[FIRST_WORKER + worker_idx];
    for (uint32_t i = 0; i < worker_idx; i++) {
        if (nodes[i] != nodes[worker_idx]) continue;
        child->weights_fd = sup->children[FIRST_WORKER + i].weights_fd;
        child->packer = sup->children[FIRST_WORKER + i].packer;
        return WEFT_OK;
    }
    child->packer = FIRST_WORKER + worker_idx;
    child->weights_fd = memfd_create("weft-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (child->weights_fd < 0) return weft_err_errno(why, errno, "cannot make a memory file");
    return WEFT_OK;
}

/* One worker has all CPUs and places its threads itself. More of them get a part each, unless the
 * threads asked for are more than that. */
static weft_err set_up_workers(struct supervisor *sup, uint64_t tag, struct weft_errmsg *why) {
    static struct weft_placement placement;
    uint32_t nodes[WEFT_WORKERS_MAX];
    weft_placement_read(&placement);
    uint32_t n = sup->config.n_workers, n_threads = sup->config.threads;
    if (n == 0) n = weft_placement_n_nodes(&placement);
    sup->n_workers = n < WEFT_WORKERS_MAX ? n : WEFT_WORKERS_MAX;
    sup->n_children = FIRST_WORKER + sup->n_workers;
    (void)snprintf(sup->n_workers_text, sizeof sup->n_workers_text, "%u", sup->n_workers);
    sup->config.workers = sup->n_workers_text;
    if (sup->n_workers > 1 && sup->n_workers * (n_threads ? n_threads : 1) > placement.n_cpus)
        weft_warn("%u workers with %u or more threads each have %u CPUs to share", sup->n_workers,
                  n_threads ? n_threads : 1, placement.n_cpus);
    for (uint32_t i = 0; i < sup->n_workers; i++) {
        struct child *child = &sup->children[FIRST_WORKER + i];
        uint32_t begin = 0, end = 0;
        *child = new_child(WEFT_PROG_WORKER, "weft-worker");
        if (sup->n_workers > 1)
            (void)snprintf(child->title, sizeof child->title, "weft-worker %u", i);
        (void)snprintf(child->url, sizeof child->url, "abstract://weft-%016" PRIx64 "-w%u", tag, i);
        (void)snprintf(sup->worker_urls + strlen(sup->worker_urls),
                       sizeof sup->worker_urls - strlen(sup->worker_urls), "%s%s", i ? "," : "",
                       child->url);
        weft_placement_part(&placement, sup->n_workers, i, &begin, &end);
        nodes[i] = placement.places[begin].node;
        child->is_placed = sup->n_workers > 1 && n_threads <= end - begin;
        CPU_ZERO(&child->cpus);
        for (uint32_t c = begin; c < end; c++)
            CPU_SET(placement.places[c].cpu, &child->cpus);
        weft_err err = sup->packed_fd < 0 ? give_weights(sup, nodes, i, why) : WEFT_OK;
        if (err) return err;
    }
    return WEFT_OK;
}

static weft_err set_up(struct supervisor *sup, struct weft_errmsg *why) {
    sup->children[SCHEDULER] = new_child(WEFT_PROG_SCHEDULER, "weft-scheduler");
    sup->children[ROUTER] = new_child(WEFT_PROG_ROUTER, "weft-router");
    if (!find_bin_dir(sup->bin_dir, sizeof sup->bin_dir))
        return weft_err_errno(why, errno, "cannot find the folder of this program");
    /* A random part, so that nobody can sit on the address before we do. */
    uint64_t tag = weft_rand_seed();
    (void)snprintf(sup->scheduler_url, sizeof sup->scheduler_url,
                   "abstract://weft-%016" PRIx64 "-s", tag);
    sup->config.scheduler_url = sup->scheduler_url;
    weft_err err = set_up_workers(sup, tag, why);
    if (err) return err;
    if (!sup->config.served_model_name) sup->config.served_model_name = sup->config.model;
    /* A log reader that goes away must not take the service with it; and children whose end was to
     * be ignored by whoever started us could not be waited for. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    /* What we were started to ignore (nohup, a script's background job) stays ignored: blocked, it
     * would be queued for the signalfd all the same. */
    if (!is_ignored(SIGINT)) (void)sigaddset(&set, SIGINT);
    if (!is_ignored(SIGHUP)) (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    sup->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sup->signal_fd < 0) return weft_err_errno(why, errno, "cannot watch signals");
    return WEFT_OK;
}

/* Opened once for all workers there will be: a file renamed over it meanwhile is another model. */
static weft_err hold_packed(struct supervisor *sup, struct weft_errmsg *why) {
    sup->packed_fd = open(sup->config.model, O_RDONLY | O_CLOEXEC);
    if (sup->packed_fd < 0) return weft_err_errno(why, errno, "cannot open %s", sup->config.model);
    (void)snprintf(sup->model_path, sizeof sup->model_path, "/proc/self/fd/%d", sup->packed_fd);
    return WEFT_OK;
}

/* What is no model at all is said here, once, and not by whichever child finds it first. */
static weft_err check_model(struct supervisor *sup, struct weft_errmsg *why) {
    struct weft_model_place place;
    json_t *config = NULL;
    weft_err err = weft_model_locate(sup->config.model, &place, why);
    if (err) return err;
    sup->packed_fd = -1;
    if (place.packed)
        err = hold_packed(sup, why);
    else if (place.format == WEFT_MODEL_HF)
        err = weft_model_json(place.path, "config.json", CONFIG_BYTES_MAX, &config, why);
    json_decref(config);
    weft_model_place_fini(&place);
    return err;
}

int weft_cmd_serve(int argc, char **argv) {
    static struct supervisor sup;
    struct weft_errmsg why = {""};
    bool done = false;
    weft_err err = weft_config_parse(WEFT_PROG_SERVE, argc, argv, &sup.config, &done, &why);
    if (err) return weft_cmd_fail(err, &why);
    if (done) return 0;
    weft_actor_init("weft", &sup.config);
    err = check_model(&sup, &why);
    if (err) return weft_cmd_fail(err, &why);
    err = set_up(&sup, &why);
    if (err) return weft_cmd_fail(err, &why);
    loop(&sup); /* it starts them */
    if (sup.fatal[0]) (void)fprintf(stderr, "weft: %s\n", sup.fatal);
    return sup.exit_status;
}
