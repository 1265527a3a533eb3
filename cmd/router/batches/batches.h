/* batches — files and batches of a router: who asks for them (ask.h), where they are kept (store.h), and how their
 * lines are computed (run.c).
 *
 * Lines    become calls without a connection, in the background (WEFT_PRIORITY_BACKGROUND): the scheduler sees to it
 *          that they are in nobody's way. As many are under way as a worker computes at once; the text of the next
 *          ones is read when there is room, so nothing of a batch is in memory but its lines' places.
 * Once     A line's answer is written and synced before it counts. Whatever ends before that is asked again: in this
 *          process after a refusal that says so, or in the next one, which reads what is there, cuts off a line
 *          that is not whole, and goes on with those that have no answer.
 * Job      A server may be there for one batch alone, which is in no store (job.h).
 * Owner    One process has a folder at a time. A server that replaces another waits until that one has let go.
 */
#ifndef WEFT_ROUTER_BATCHES_H
#define WEFT_ROUTER_BATCHES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "batches/io.h"
#include "batches/job.h"
#include "batches/store.h"

#define WEFT_BATCH_RUNS_MAX 4   /* batches at once, the oldest first */
#define WEFT_BATCH_ITEMS_MAX 64 /* lines at once, of all of them */

struct server;
struct batch_item;

enum batches_state {
    BATCHES_OFF,     /* there is no folder */
    BATCHES_CLOSED,  /* another process has it, or the disk said no: it is tried again */
    BATCHES_OPENING, /* a thread has the store */
    BATCHES_OPEN,
    BATCHES_LEAVING, /* what is under way in threads ends; then the next process may have it */
    BATCHES_LEFT,
};

TAILQ_HEAD(batch_runs, batch_run);
TAILQ_HEAD(batch_items, batch_item);

struct batches {
    struct batch_op opening; /* first */
    struct server *server;
    enum batches_state state;
    struct batch_store store;
    struct batch_job job;
    struct batch_io io;
    struct batch_runs runs;
    struct batch_items ready; /* whose calls have something to tell */
    uint32_t n_runs, n_items;
    uint64_t upload_bytes; /* of files that are coming */
    uint64_t try_ms, swept_ms;
    bool has_complained; /* that another process has the store */
    bool lacks_room;     /* the log said so */
};

/* From the settings; without a folder everything below does nothing. */
WEFT_MUST_CHECK weft_err wefti_batches_init(struct batches *all, struct server *server,
                                            struct weft_errmsg *why);
void wefti_batches_open(struct batches *all); /* once there is a loop: a thread begins to */
void wefti_batches_tick(struct batches *all, uint64_t now_ms);
void wefti_batches_turn(struct batches *all); /* once per turn of the loop */
bool wefti_batches_is_awake(const struct batches *all);
bool wefti_batches_is_busy(const struct batches *all); /* answers are on their way to the disk */
void wefti_batches_leave(struct batches *all);         /* another server goes on */
void wefti_batches_stop(struct batches *all); /* the loop ends; threads may still be at work */
void wefti_batches_fini(struct batches *all); /* after the loop */

/* ----------------------------------------------------------------- between run.c and the rest --- */

/* Begins with those that wait, as far as there is room. */
void wefti_batch_runs_start(struct batches *all);
void wefti_batch_run_pump(struct batch_run *run); /* looks what can be done for it now */
struct batch_run *wefti_batch_run_next(const struct batch_run *run);
void wefti_batch_runs_drop(struct batches *all); /* all that no thread has */
bool wefti_batch_run_is_closing(const struct batch_run *run);
bool wefti_batch_run_is_busy(const struct batch_run *run);
void wefti_batch_item_tell(struct batch_item *item); /* one that is ready */

#endif
