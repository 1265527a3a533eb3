/* cluster — the actors of one world: routers with clients, schedulers, workers.
 *
 *   scheduler.c  the real actor of cmd/scheduler, turn by turn
 *   worker.c     the control thread's rules around sim_worker, which holds plans against its contract
 *   router.c     the real calls and upstream of lib/api over the real links of cmd/router
 *   clients.c    what a router's clients ask, and whether they get just that
 */
#ifndef WEFT_TESTS_FAULTS_CLUSTER_H
#define WEFT_TESTS_FAULTS_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "property/faults/sim.h"
#include "scheduler/scheduler.h"

#define ROUTERS_MAX 2u
#define SCHEDULERS_MAX 3u
#define GROUPS_MAX 3u /* of a scheduler */
#define N_VOCAB 4096u /* that of the tokenizer */
#define GRACE_MS 5000u

struct router;
struct scheduler;
struct worker;

struct shape {
    uint32_t n_routers, n_schedulers, n_groups;
    struct weft_sched_options worker; /* what each of them has */
    uint32_t max_queue;
    bool is_tight; /* queues fill: newcomers may be refused */
    uint32_t step_us, token_us;
    uint64_t think_us; /* between two newcomers of a router */
    uint32_t n_clients_max;
};

extern struct shape shape;
extern struct router *routers[ROUTERS_MAX];
extern struct scheduler *schedulers[SCHEDULERS_MAX];
extern struct worker *workers[SCHEDULERS_MAX][GROUPS_MAX];

/* ------------------------------------------------------------------------------- schedulers --- */

struct scheduler *scheduler_new(uint32_t idx);
void scheduler_start(struct scheduler *scheduler);
void scheduler_kill(struct scheduler *scheduler);
void scheduler_free(struct scheduler *scheduler);
struct sim_proc *scheduler_proc(struct scheduler *scheduler);
bool scheduler_serves(const struct scheduler *scheduler); /* and takes turns */
/* Everything has ended: nothing may be left. */
void scheduler_check_idle(const struct scheduler *scheduler);
void scheduler_url(char out[64], uint32_t idx);
void worker_url(char out[64], uint32_t scheduler, uint32_t group);

/* ---------------------------------------------------------------------------------- workers --- */

struct worker *worker_new(uint32_t scheduler, uint32_t group);
void worker_start(struct worker *worker);
void worker_kill(struct worker *worker);
void worker_free(struct worker *worker);
struct sim_proc *worker_proc(struct worker *worker);
/* The next step takes so long; without progress: as if it were stuck. */
void worker_slow(struct worker *worker, uint64_t us, bool has_progress);

/* ---------------------------------------------------------------------------------- routers --- */

void routers_begin(void); /* once: reads the tokenizer */
void routers_end(void);

struct router *router_new(uint32_t idx);
void router_start(struct router *router);
void router_kill(struct router *router);
void router_free(struct router *router);
struct sim_proc *router_proc(struct router *router);
/* No more clients come. */
void router_close(struct router *router);
uint64_t router_n_steps(const struct router *router); /* that its clients still wait for, at most */
bool router_is_idle(const struct router *router);
void router_check_well(const struct router *router); /* /health is 200 */

/* Of all worlds. */
extern struct tally {
    uint64_t n_calls, n_done, n_failed, n_dropped, n_tokens, n_resubmitted, n_moved, n_refused;
} tally;

#endif
