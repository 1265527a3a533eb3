/* supervisor — shared by the files of `weft serve` and `weft run --batch`.
 *
 *   serve.c         the commands: settings, addresses, who runs where
 *   supervise.c     the loop: signals, phases, who is started and when; lib/restart decides
 *   ranks.c         workers that divide a model, and so begin and end together
 *   child.c         a process: how it is made, and how its end is told
 *   status_lines.c  what children say on their status pipes
 *   placement.c     which CPUs are whose
 *   addresses.c     where the links meet, by --link
 *   memory.c        how --memory-limit is shared out
 *   hosts.c         where others reach the server
 *   activation.c    sockets that a service manager gives
 *   notify.c        what the service manager is told
 *   offline.c       the batch that `weft run --batch` is there for
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
#include "common/memory_terms.h"
#include "notify.h"
#include "offline.h"
#include "restart/restart.h"

/* Children by index: these two, and after them the workers. */
enum { SCHEDULER, ROUTER, FIRST_WORKER, CHILDREN_MAX = FIRST_WORKER + WEFT_WORKERS_MAX };
_Static_assert((int)CHILDREN_MAX <= (int)WEFT_RESTART_CHILDREN_MAX, "each has its state there");

struct child {
    enum weft_program program;
    const char *name;
    char title[40]; /* in messages: "the worker", or which of several */
    pid_t pid;      /* 0: not running */
    pid_t last_pid; /* the same, or that of its last life */
    int status_fd;  /* -1: closed */
    char line[1024];
    size_t line_len;
    char last_words[512]; /* its "failed TEXT", since its last start */
    char needs[448];      /* its "needs TEXT", of any life */
    bool is_killed;       /* by us */
    uint64_t heard_at_ms; /* on its status pipe; or as late as it could have been heard */

    /* a worker's */
    const char *url;    /* of its group */
    int weights_fd;     /* its node's memfd, or its own; -1: none is needed */
    uint32_t packer;    /* the child that fills it */
    uint64_t kv_memory; /* as when it was first ready: its successors get as much */
    bool is_placed;     /* on these CPUs; else on any */
    cpu_set_t cpus;
};

/* Workers that divide a model: the children FIRST_WORKER + i * n_ranks and those after it. A life of
 * a group ends with that of any of them; then the others are asked to end, or killed, and all are
 * started anew, with new memory in which to meet. */
struct group {
    int fd;         /* of that memory; -1: none was made yet */
    bool is_ending; /* one has ended in this life, */
    bool is_known;  /* and one of those is to blame */
    uint64_t kill_at_ms;
};

enum phase { PHASE_RUN, PHASE_DRAIN, PHASE_STOP };

struct supervisor {
    struct weft_config config;
    uint32_t n_workers, n_children;
    struct child children[CHILDREN_MAX];
    uint32_t n_ranks; /* of each group; 1: workers compute by themselves */
    struct group groups[WEFT_WORKERS_MAX];
    struct weft_restart restart;
    char bin_dir[512];
    struct weft_addresses addresses; /* of links */
    char memory_terms
        [WEFT_MEMORY_TERMS_BYTES]; /* of config.memory_limit, what is not the workers' to size */
    struct weft_notify notify;
    struct weft_offline offline;
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

/* Groups: those of workers that are ranks, where n_ranks is over 1. */
bool wefti_is_rank(const struct supervisor *sup, uint32_t child_idx);
void wefti_ranks_init(struct supervisor *sup);
void wefti_ranks_fini(struct supervisor *sup);
/* Begins a life: no rank has a process yet. IO, NOMEM. */
WEFT_MUST_CHECK weft_err wefti_ranks_begin(struct supervisor *sup, uint32_t group_idx,
                                           struct weft_errmsg *why);
/* A rank has ended, and has no process any more: ends the others. True: it only followed another. */
bool wefti_ranks_ended(struct supervisor *sup, uint32_t child_idx, int status);
/* A rank has no process, since none could be made: ends the others. */
void wefti_ranks_not_started(struct supervisor *sup, uint32_t child_idx);
/* How many ms until the next life may begin (0: now) or the next look at this one is due. */
uint64_t wefti_ranks_wait_ms(struct supervisor *sup, uint32_t group_idx, uint64_t now_ms,
                             bool *is_down_out);

/* Lowers bounds that nobody chose to what --memory-limit allows, and tells the workers what is left to others.
 * INVAL: bounds that do not go together. Nothing is done without a limit. */
WEFT_MUST_CHECK weft_err wefti_memory_share_out(struct supervisor *sup, struct weft_errmsg *why);

/* Takes in what a child has written to its status pipe. */
void wefti_status_read(struct supervisor *sup, uint32_t child_idx);

/* Until all children have ended, for whatever reason; `fatal` and `exit_status` say which. */
void wefti_supervise(struct supervisor *sup);

#endif
