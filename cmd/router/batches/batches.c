#include "batches/batches.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server.h"

#define TRY_MS 200
#define SWEEP_MS 1000
#define ITEMS_PER_TURN 8 /* rendered and written: streams are waiting for theirs */

static struct batches *batches_of(struct batch_op *op) {
    _Static_assert(offsetof(struct batches, opening) == 0, "one address for both");
    return (struct batches *)op;
}

/* Batches that are not over need their files. */
static void hold_inputs(struct batches *all) {
    struct stored_batch *stored;
    TAILQ_FOREACH(stored, &all->store.batches, entry) {
        const struct weft_api_batch *batch = &stored->batch;
        if (weft_api_batch_is_over(batch)) continue;
        struct stored_file *input = wefti_batch_find_file(&all->store, batch->tenant, batch->input);
        if (input) input->n_users++;
    }
}

static void open_in_thread(struct batch_op *op) {
    op->err = wefti_batch_store_open_in_thread(&batches_of(op)->store, &op->why);
}

static void after_open(struct batch_op *op) {
    struct batches *all = batches_of(op);
    if (all->state != BATCHES_OPENING) { /* it is to leave */
        wefti_batch_store_fini(&all->store);
        return;
    }
    all->state = op->err ? BATCHES_CLOSED : BATCHES_OPEN;
    all->try_ms = weft_now_ms() + TRY_MS;
    if (op->err && !all->has_complained) {
        all->has_complained = true;
        weft_warn("--batch-store: %s", op->err == WEFT_E_AGAIN
                                           ? "another process has it: batches wait until that ends"
                                           : op->why.text);
    }
    if (op->err) return;
    weft_info("--batch-store: %u files and %u batches", all->store.n_files, all->store.n_batches);
    hold_inputs(all);
    wefti_batch_runs_start(all);
}

weft_err wefti_batches_init(struct batches *all, struct server *server, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    memset(all, 0, sizeof *all);
    all->server = server;
    TAILQ_INIT(&all->runs);
    TAILQ_INIT(&all->ready);
    wefti_batch_io_init(&all->io, &server->work);
    all->store.lock_fd = -1;
    all->job.input_fd = config->batch_fd;
    all->job.output_fd = config->answers_fd;
    if (config->batch_fd < 0 && !config->batch_store) return WEFT_OK;
    (void)signal(SIGXFSZ,
                 SIG_IGN); /* a limit of the process is a full disk, and no reason to die */
    if (config->batch_fd >= 0) return wefti_batch_job_begin(all, why);
    weft_err err = wefti_batch_store_init(&all->store, config->batch_store, why);
    if (err) return err;
    all->store.bytes_max = config->batch_store_bytes;
    all->store.ttl_s = config->batch_ttl_s;
    all->state = BATCHES_CLOSED;
    all->opening.run = open_in_thread;
    all->opening.done = after_open;
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------------- old ones --- */

struct sweep_op {
    struct batch_op op; /* first */
    char json[WEFT_BATCH_PATH_BYTES], bytes[WEFT_BATCH_PATH_BYTES];
};

static void sweep_in_thread(struct batch_op *op) {
    const struct sweep_op *sweep = (const struct sweep_op *)op;
    (void)unlink(sweep->json);
    if (sweep->bytes[0]) (void)unlink(sweep->bytes);
}

static void after_sweep(struct batch_op *op) {
    free(op);
}

static struct sweep_op *new_sweep(void) {
    struct sweep_op *sweep = calloc(1, sizeof *sweep);
    if (!sweep) return NULL;
    sweep->op.run = sweep_in_thread;
    sweep->op.done = after_sweep;
    return sweep;
}

static void sweep(struct batches *all, int64_t now_s) {
    struct batch_store *store = &all->store;
    struct sweep_op *op = NULL;
    for (struct stored_file *file = TAILQ_FIRST(&store->files), *next; file; file = next) {
        next = TAILQ_NEXT(file, entry);
        bool is_old = file->file.expires_s > 0 && file->file.expires_s <= now_s;
        if (!is_old || file->n_users > 0 || file->is_going || !(op = new_sweep())) continue;
        wefti_batch_path(store->folder, BATCH_PATH_FILE, file->file.id, op->json);
        wefti_batch_path(store->folder, BATCH_PATH_BYTES, file->file.id, op->bytes);
        wefti_batch_forget_file(store, file);
        wefti_batch_io_add(&all->io, &op->op);
    }
    for (struct stored_batch *batch = TAILQ_FIRST(&store->batches), *next; batch; batch = next) {
        next = TAILQ_NEXT(batch, entry);
        const struct weft_api_batch *b = &batch->batch;
        bool is_old =
            weft_api_batch_is_over(b) && b->at_s[b->status] + (int64_t)store->ttl_s <= now_s;
        if (!is_old || batch->run || !(op = new_sweep())) continue;
        wefti_batch_path(store->folder, BATCH_PATH_BATCH, b->id, op->json);
        wefti_batch_forget(store, batch);
        wefti_batch_io_add(&all->io, &op->op);
    }
}

/* ---------------------------------------------------------------------------------- on the loop --- */

/* Nothing of the store is in a thread, and no run is left. */
static void finish_leaving(struct batches *all) {
    wefti_batch_runs_drop(all);
    if (!wefti_batch_io_is_idle(&all->io) || !TAILQ_EMPTY(&all->runs)) return;
    wefti_batch_store_fini(&all->store);
    all->state = BATCHES_LEFT;
}

void wefti_batches_open(struct batches *all) {
    if (all->state != BATCHES_CLOSED) return;
    if (all->job.input_fd >= 0) {
        all->state = BATCHES_OPEN;
        wefti_batch_runs_start(all);
        return;
    }
    all->state = BATCHES_OPENING;
    wefti_batch_io_add(&all->io, &all->opening);
}

void wefti_batches_tick(struct batches *all, uint64_t now_ms) {
    if (all->job.input_fd >= 0) wefti_batch_job_tick(all, now_ms);
    if (now_ms >= all->try_ms && !all->server->replaced_ms) wefti_batches_open(all);
    if (all->state == BATCHES_LEAVING) finish_leaving(all);
    if (all->state != BATCHES_OPEN) return;
    wefti_batch_runs_start(all);
    for (struct batch_run *run = TAILQ_FIRST(&all->runs), *next; run; run = next) {
        next = wefti_batch_run_next(run);
        wefti_batch_run_pump(run);
    }
    if (now_ms - all->swept_ms < SWEEP_MS || all->job.input_fd >= 0) return;
    all->swept_ms = now_ms;
    sweep(all, (int64_t)time(NULL));
}

void wefti_batches_turn(struct batches *all) {
    for (int i = 0; i < ITEMS_PER_TURN && !TAILQ_EMPTY(&all->ready); i++)
        wefti_batch_item_tell(TAILQ_FIRST(&all->ready));
}

bool wefti_batches_is_awake(const struct batches *all) {
    return !TAILQ_EMPTY(&all->ready);
}

bool wefti_batches_is_busy(const struct batches *all) {
    const struct batch_run *run = TAILQ_FIRST(&all->runs);
    while (run && !wefti_batch_run_is_busy(run))
        run = wefti_batch_run_next(run);
    return run != NULL;
}

void wefti_batches_leave(struct batches *all) {
    if (all->state == BATCHES_OFF || all->state == BATCHES_LEFT) return;
    bool is_in_thread = all->state == BATCHES_OPENING;
    all->state = is_in_thread ? BATCHES_LEFT : BATCHES_LEAVING;
    if (!is_in_thread) finish_leaving(all);
}

void wefti_batches_stop(struct batches *all) {
    if (all->job.input_fd >= 0 && !all->job.is_over && !TAILQ_EMPTY(&all->store.batches))
        wefti_batch_job_tick(all, UINT64_MAX); /* what lasts by now is shown */
    if (all->state != BATCHES_OFF) all->state = BATCHES_LEAVING;
    wefti_batch_runs_drop(all);
}

void wefti_batches_fini(struct batches *all) {
    if (all->state == BATCHES_OFF) return;
    wefti_batch_runs_drop(all);
    WEFT_ASSERT(TAILQ_EMPTY(&all->runs));
    wefti_batch_store_fini(&all->store);
    all->state = BATCHES_LEFT;
}
