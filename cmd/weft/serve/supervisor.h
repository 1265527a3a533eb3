/* supervisor — shared by the files of `weft serve`.
 *
 *   serve.c         the command: settings, addresses, who runs where
 *   supervise.c     the loop: signals, phases, who is started and when; lib/restart decides
 *   child.c         a process: how it is made, and how its end is told
 *   status_lines.c  what children say on their status pipes
 *   placement.c     which CPUs are whose
 *   addresses.c     where the links meet, by --link
 *   hosts.c         where others reach the server
 *   notify.c        what the service manager is told
 */
#ifndef WEFT_SERVE_SUPERVISOR_H
#define WEFT_SERVE_SUPERVISOR_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "addresses.h"
#include "base/err.h"
#include "base/limits.h"
#include "common/config.h"
#include "notify.h"
#include "restart/restart.h"

/* Children by index: these two, and after them the workers. */
enum { SCHEDULER, ROUTER, FIRST_WORKER, CHILDREN_MAX = FIRST_WORKER + WEFT_WORKERS_MAX };
_Static_assert((int)CHILDREN_MAX <= (int)WEFT_RESTART_CHILDREN_MAX, "each has its state there");

struct child {
    enum weft_program program;
    const char *name;
    char title[24]; /* in messages: "the worker", or which of several */
    pid_t pid;      /* 0: not running */
    int status_fd;  /* -1: closed */
    char line[1024];
    size_t line_len;
    char last_words[512]; /* its "failed TEXT", since its last start */
    char needs[320];      /* its "needs TEXT", of any life */
    bool is_killed;       /* by us */
    uint64_t heard_at_ms; /* on its status pipe; or as late as it could have been heard */

    /* a worker's */
    const char *url;
    int weights_fd;     /* its node's memfd; -1: none is needed */
    uint32_t packer;    /* the child that fills it */
    uint64_t kv_memory; /* as when it was first ready: its successors get as much */
    bool is_placed;     /* on these CPUs; else on any */
    cpu_set_t cpus;
};

enum phase { PHASE_RUN, PHASE_DRAIN, PHASE_STOP };

struct supervisor {
    struct weft_config config;
    uint32_t n_workers, n_children;
    struct child children[CHILDREN_MAX];
    struct weft_restart restart;
    char bin_dir[512];
    struct weft_addresses addresses; /* of links */
    struct weft_notify notify;
    int packed_fd;       /* that file; -1: it is not one */
    char model_path[32]; /* of that file, by descriptor */
    int signal_fd;
    enum phase phase;
    uint64_t phase_until_ms; /* then the next measure */
    uint64_t turn_ms;        /* when the loop last turned */
    char ready_on[1024];     /* the router's address; "": it is not ready yet */
    char identity[1024];     /* what the first router read of the model; "": it has not said */
    bool announced;
    pid_t told_to_take; /* the router that may take another server's sockets; 0: none */
    bool was_replaced;  /* another server has its router's */
    bool was_asked;     /* by a signal to end */
    int exit_status;
    char fatal[1088]; /* why it cannot go on; "" while it can */
};

/* Makes the process of a child that has none. IO, NOMEM: there is none still. */
WEFT_MUST_CHECK weft_err wefti_child_start(struct supervisor *sup, uint32_t child_idx,
                                           struct weft_errmsg *why);
/* How a process ended, from waitpid's status: "was killed by signal 11 (Segmentation fault)". */
void wefti_child_describe_end(int status, enum weft_restart_end end, char *out, size_t out_bytes);
enum weft_restart_end wefti_child_end(const struct child *child, int status);

/* Takes in what a child has written to its status pipe. */
void wefti_status_read(struct supervisor *sup, uint32_t child_idx);

/* Until all children have ended, for whatever reason; `fatal` and `exit_status` say which. */
void wefti_supervise(struct supervisor *sup);

#endif
