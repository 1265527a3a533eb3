#include "work.h"

#include <string.h>

#include "base/check.h"

/* ------------------------------------------------------------------------------- the order --- */

static struct work_list *list_of(struct work_queue *queue, const struct work *work) {
    return work->is_large ? &queue->large : &queue->small;
}

/* Searches from the end: most jobs rank after earlier ones. */
static void insert(struct work_list *list, struct work *work) {
    struct work *before = TAILQ_LAST(list, work_list);
    while (before && before->rank > work->rank)
        before = TAILQ_PREV(before, work_list, entry);
    if (before)
        TAILQ_INSERT_AFTER(list, before, work, entry);
    else
        TAILQ_INSERT_HEAD(list, work, entry);
}

void wefti_work_put(struct work_queue *queue, struct work *work, uint64_t bytes, uint64_t now_ms) {
    WEFT_ASSERT(work->place == WORK_IDLE);
    work->queue = queue;
    work->place = WORK_QUEUED;
    work->is_large = bytes > queue->large_bytes;
    work->rank = now_ms + bytes / WEFT_WORK_BYTES_PER_MS;
    insert(list_of(queue, work), work);
}

struct work *wefti_work_take(struct work_queue *queue) {
    WEFT_ASSERT(queue->n_running <= WEFT_WORK_THREADS);
    if (queue->n_running == WEFT_WORK_THREADS) return NULL;
    struct work *work = TAILQ_FIRST(&queue->small), *large = TAILQ_FIRST(&queue->large);
    if (large && !queue->runs_large && (!work || large->rank < work->rank)) work = large;
    if (!work) return NULL;
    WEFT_ASSERT(work->place == WORK_QUEUED);
    TAILQ_REMOVE(list_of(queue, work), work, entry);
    work->place = WORK_RUNNING;
    queue->n_running++;
    if (work->is_large) queue->runs_large = true;
    return work;
}

bool wefti_work_cancel(struct work *work) {
    if (work->place != WORK_QUEUED) return false;
    TAILQ_REMOVE(list_of(work->queue, work), work, entry);
    work->place = WORK_IDLE;
    return true;
}

/* ----------------------------------------------------------------------------- the threads --- */

static void run_next(struct work_queue *queue);

static void on_run(uv_work_t *uv) {
    struct work *work = uv->data;
    WEFT_ASSERT(work->place == WORK_RUNNING);
    work->run(work);
}

static void on_done(uv_work_t *uv, int status) {
    struct work *work = uv->data;
    struct work_queue *queue = work->queue;
    WEFT_ASSERT(status == 0 && queue->n_running > 0); /* libuv is never told to cancel */
    queue->n_running--;
    if (work->is_large) queue->runs_large = false;
    work->place = WORK_IDLE;
    run_next(queue);
    work->done(work);
}

static void run_next(struct work_queue *queue) {
    struct work *work;
    while ((work = wefti_work_take(queue))) {
        work->uv.data = work;
        int status = uv_queue_work(queue->loop, &work->uv, on_run, on_done);
        WEFT_ASSERT(status == 0); /* it refuses only a missing function */
    }
}

void wefti_work_init(struct work_queue *queue, uv_loop_t *loop, uint64_t large_bytes) {
    memset(queue, 0, sizeof *queue);
    queue->loop = loop;
    queue->large_bytes = large_bytes;
    TAILQ_INIT(&queue->small);
    TAILQ_INIT(&queue->large);
}

void wefti_work_add(struct work_queue *queue, struct work *work, uint64_t bytes, uint64_t now_ms) {
    WEFT_ASSERT(work->run && work->done);
    wefti_work_put(queue, work, bytes, now_ms);
    run_next(queue);
}
