#include "batches/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "batches/batches.h"
#include "server.h"

#define AGAIN_MS 5000 /* after the disk said no */
#define PENDING_BYTES_MAX                                                                          \
    (4u << 20)          /* of answers that wait for the disk: no more lines are asked then */
#define FAILURES_MAX 20 /* of one line, for want of memory; then it is too large for this machine */
#define BODY_BYTES_MAX (256u << 20) /* of one line's answer; around it: */
#define ANSWER_BYTES_MAX (BODY_BYTES_MAX + LINE_BESIDE_BYTES)
#define ANSWERS_BYTES_MAX                                                                          \
    (PENDING_BYTES_MAX + ANSWER_BYTES_MAX) /* up to the one with that it was enough */
#define LINE_BESIDE_BYTES 65536            /* of a line, around its body */

struct batch_run *wefti_batch_run_next(const struct batch_run *run) {
    return TAILQ_NEXT(run, entry);
}

static bool has_answers(const struct batch_run *run) {
    bool has = false;
    for (int i = 0; i < N_ANSWERS; i++)
        has = has || run->pending[i].len > 0 || run->write.bytes[i].len > 0;
    return has;
}

bool wefti_batch_run_is_closing(const struct batch_run *run) {
    return run->phase == RUN_CLOSING;
}

/* Answers that wait for room may wait for days. */
bool wefti_batch_run_is_busy(const struct batch_run *run) {
    return run->is_writing || (has_answers(run) && !run->lacks_room);
}

/* --------------------------------------------------------------------------------------- items --- */

static void drop_item(struct batch_item *item) {
    struct batch_run *run = item->run;
    struct batches *all = run->all;
    if (item->is_ready) TAILQ_REMOVE(&all->ready, item, ready_entry);
    TAILQ_REMOVE(&run->items, item, entry);
    weft_api_call_drop(item->call);
    WEFT_ASSERT(run->n_items > 0 && all->n_items > 0);
    run->n_items--;
    all->n_items--;
    weft_api_batch_line_fini(&item->line);
    weft_buf_fini(&item->body);
    weft_api_release(&all->server->api, item->n_held);
    free(item);
}

/* It has no answer, and is asked again later. */
static void put_back(struct batch_item *item, uint32_t wait_ms) {
    struct batch_run *run = item->run;
    WEFT_ASSERT(item->idx < run->n_places && run->places[item->idx].is_taken);
    run->places[item->idx].is_taken = false;
    if (item->idx < run->next) run->next = item->idx;
    uint64_t until_ms = weft_now_ms() + wait_ms;
    if (wait_ms && until_ms > run->wait_until_ms) run->wait_until_ms = until_ms;
    drop_item(item);
}

static void drop_items(struct batch_run *run) {
    for (struct batch_item *item = TAILQ_FIRST(&run->items), *next; item; item = next) {
        next = TAILQ_NEXT(item, entry);
        put_back(item, 0);
    }
}

/* False: there is no memory for it. */
static bool answer(struct batch_item *item, int status, const struct weft_buf *body) {
    struct batch_run *run = item->run;
    int which = status == 200 ? ANSWERS_OUTPUT : ANSWERS_ERROR;
    struct weft_buf *out = &run->pending[which];
    size_t before = out->len;
    const struct weft_api_batch_answer line = {.batch_id = run->batch.id,
                                               .idx = item->idx,
                                               .custom_id = item->line.custom_id,
                                               .status = status,
                                               .request_id = item->id,
                                               .body = {body->data, body->len}};
    if (!body->failed) weft_api_batch_write_answer(&line, out);
    if (body->failed || out->failed) {
        out->len = before;
        out->failed = false;
        return false;
    }
    run->n_pending[which]++;
    drop_item(item);
    return true;
}

/* How long to wait before it is asked again; 0: that is its answer. */
static uint32_t wait_of(struct batch_item *item, const struct weft_api_error *error) {
    uint8_t *n_failures = &item->run->places[item->idx].n_failures;
    if (error->retry_after_ms || !weft_api_error_is_memory(error)) return error->retry_after_ms;
    if (*n_failures == FAILURES_MAX) return 0;
    ++*n_failures;
    return AGAIN_MS;
}

static void tell_error(struct batch_item *item, const struct weft_api_error *error) {
    struct weft_buf body;
    struct weft_str path = item->line.url; /* errors look as this one's do */
    uint32_t wait_ms = wait_of(item, error);
    if (wait_ms) {
        put_back(item, wait_ms);
        return;
    }
    weft_buf_init(&body, BODY_BYTES_MAX);
    weft_api_error_write(error, item->id, path.data ? path.data : "", path.len, &body);
    if (!answer(item, error->status, &body)) put_back(item, AGAIN_MS);
    weft_buf_fini(&body);
}

static void make_ready(struct batch_item *item) {
    WEFT_ASSERT(!item->is_ready);
    item->is_ready = true;
    TAILQ_INSERT_TAIL(&item->run->all->ready, item, ready_entry);
}

/* One piece of it; true: it has more. */
static bool render_more(struct batch_item *item) {
    struct weft_buf *body = &item->body;
    return weft_api_render_body(item->call, body, WEFT_OUT_BYTES) != WEFT_API_RENDER_DONE &&
           !body->failed;
}

/* An answer that cannot be held has no room here, or never will have any. */
static void tell_why_not(struct batch_item *item) {
    struct weft_api_error error = {0};
    if (item->body.len > BODY_BYTES_MAX / 2)
        weft_api_error_set(&error, 500, NULL, "answer_too_large",
                           "the answer is larger than %u bytes, or than the memory that is left",
                           BODY_BYTES_MAX);
    else
        weft_api_error_set(&error, 500, NULL, NULL, "out of memory");
    tell_error(item, &error);
}

static void tell_body(struct batch_item *item) {
    if (render_more(
            item)) { /* streams are waiting for theirs, and this one's memory for its end: first, next time */
        item->is_ready = true;
        TAILQ_INSERT_HEAD(&item->run->all->ready, item, ready_entry);
    } else if (!answer(item, 200, &item->body)) {
        tell_why_not(item);
    }
}

static bool has_many_answers(const struct batch_run *run) {
    return run->pending[0].len + run->pending[1].len > PENDING_BYTES_MAX;
}

void wefti_batch_item_tell(struct batch_item *item) {
    struct batch_run *run = item->run;
    WEFT_ASSERT(item->is_ready && item->call);
    TAILQ_REMOVE(&run->all->ready, item, ready_entry);
    item->is_ready = false;
    enum weft_api_call_state state = weft_api_call_state(item->call);
    bool has_ended = state == WEFT_API_CALL_FAILED || state == WEFT_API_CALL_DONE;
    item->waits = has_ended && has_many_answers(run);
    if (!has_ended || item->waits) return;
    if (state == WEFT_API_CALL_FAILED)
        tell_error(item, weft_api_call_error(item->call));
    else
        tell_body(item);
    wefti_batch_run_pump(run);
}

/* Those whose answers had to wait for others'. */
static void go_on(struct batch_run *run) {
    struct batch_item *item;
    TAILQ_FOREACH(item, &run->items, entry) {
        if (!item->waits) continue;
        item->waits = false;
        make_ready(item);
    }
}

static void on_wake(weft_api_call *call) {
    struct batch_item *item = weft_api_call_owner(call);
    if (!item->is_ready && !item->waits) make_ready(item);
}

/* A line's body becomes a call's. False: there is no room for it now. */
static bool begin_call(struct batch_item *item) {
    struct batch_run *run = item->run;
    struct server *server = run->all->server;
    uint64_t cost = weft_api_cost(&server->api, item->line.n_body);
    struct weft_buf body;
    weft_api_release(&server->api, item->n_held);
    item->n_held = 0;
    if (!weft_api_hold(&server->api, cost)) return false;
    weft_buf_init(&body, server->config.max_body_bytes);
    weft_buf_add(&body, item->line.body, item->line.n_body);
    const struct weft_api_call_request request = {
        .kind = item->line.kind,
        .body = &body,
        .request_id = item->id,
        .asker = {.tenant = run->batch.tenant, .weight = run->batch.weight, .is_background = true},
        .free_bytes = server->api.small_bytes,
        .wake = on_wake,
        .owner = item,
        .now_us = weft_now_us(),
        .now_s = (int64_t)time(NULL),
    };
    if (!body.failed) item->call = weft_api_call_new(&server->api, &request);
    if (!item->call) {
        weft_buf_fini(&body);
        weft_api_release(&server->api, cost);
        return false;
    }
    free(item->line.body);
    item->line.body = NULL;
    wefti_server_begin(server, item->call);
    return true;
}

static void begin_item(struct batch_item *item) {
    struct weft_api_error error = {0};
    const struct server *server = item->run->all->server;
    (void)snprintf(item->id, sizeof item->id, "%s-%u", item->run->batch.id, item->idx + 1);
    if (!item->is_fair)
        weft_api_error_set(&error, 400, item->fault.param, item->fault.code, "%s",
                           item->fault.message);
    else if (item->line.n_body > server->config.max_body_bytes)
        weft_api_error_set(&error, 413, NULL, NULL, "the body is larger than %llu bytes",
                           (unsigned long long)server->config.max_body_bytes);
    if (error.status)
        tell_error(item, &error);
    else if (!begin_call(item))
        put_back(item, WEFT_API_RETRY_MS);
}

/* ------------------------------------------------------------------------------------- reading --- */

static bool may_ask(const struct batch_run *run) {
    const struct batches *all = run->all;
    const struct weft_api_state *api = &all->server->api;
    if (all->state != BATCHES_OPEN || api->is_leaving || api->draining || api->is_replaced)
        return false;
    if (run->job && !all->server->was_ready) return false; /* its adapters are still loaded */
    if (has_many_answers(run)) return false;
    return !weft_api_why_not(api, weft_now_ms());
}

/* As many lines as a worker has places, shared among the batches. A job has all workers for itself, and twice as many
 * lines as they have places: so each place has its next one in the queue when it gets free. */
static uint32_t n_wanted(const struct batch_run *run) {
    const struct batches *all = run->all;
    const struct weft_msg_snapshot *snapshot = &all->server->api.upstream.snapshot;
    uint32_t n = weft_min_u32(snapshot->model.max_seqs, WEFT_BATCH_ITEMS_MAX);
    if (run->job)
        n = weft_min_u32(2 * snapshot->model.max_seqs *
                             weft_max_u32(snapshot->n_workers_serving, 1),
                         WEFT_BATCH_JOB_ITEMS_MAX);
    else
        n = weft_max_u32(n / weft_max_u32(all->n_runs, 1), 1);
    return n > run->n_items ? n - run->n_items : 0;
}

static void after_read(struct batch_op *op) {
    struct run_read *read = (struct run_read *)op;
    struct batch_run *run = read->run;
    uint32_t n = read->n, n_read = read->n_read;
    WEFT_ASSERT(run->is_reading && n > 0 && n_read <= n);
    run->is_reading = false;
    read->n = read->n_read = 0;
    if (op->err) weft_warn("batch %s: %s", run->batch.id, op->why.text);
    if (op->err && run->job) wefti_batch_job_fail(run->all, op->why.text);
    for (uint32_t i = 0; i < n; i++) {
        if (op->err || i >= n_read || !may_ask(run))
            put_back(read->items[i], op->err ? AGAIN_MS : 0);
        else
            begin_item(read->items[i]);
    }
    wefti_batch_run_pump(run);
}

static struct batch_item *new_item(struct batch_run *run, uint32_t idx) {
    struct batch_item *item = calloc(1, sizeof *item);
    if (!item) return NULL;
    item->run = run;
    item->idx = idx;
    weft_buf_init(&item->body, BODY_BYTES_MAX);
    TAILQ_INSERT_TAIL(&run->items, item, entry);
    run->n_items++;
    run->all->n_items++;
    run->places[idx].is_taken = true;
    return item;
}

/* Room for a line's text before it is read. Half of the budget is for those who wait for their answers. */
static bool hold_line(struct batch_item *item) {
    struct weft_api_state *api = &item->run->all->server->api;
    uint64_t n = item->run->places[item->idx].n_bytes, n_most = api->settings.max_body_bytes;
    uint64_t cost =
        weft_api_cost(api, n < n_most ? n : n_most); /* what is over that is around the body */
    if ((api->held_bytes > 0 && api->held_bytes + cost > api->held_max / 2) ||
        !weft_api_hold(api, cost))
        return false;
    item->n_held = cost;
    return true;
}

static void read_more(struct batch_run *run) {
    struct run_read *read = &run->read;
    uint32_t most = n_wanted(run);
    if (most > READ_LINES_MAX) most = READ_LINES_MAX;
    read->n_bytes_max = 0;
    while (read->n < most && run->next < run->n_places) {
        if (run->places[run->next].is_taken) {
            run->next++;
            continue;
        }
        struct batch_item *item = new_item(run, run->next);
        if (!item) break;
        if (!hold_line(item)) {
            put_back(item, 0);
            break;
        }
        read->n_bytes_max += run->places[item->idx].n_bytes;
        read->items[read->n++] = item;
    }
    if (read->n == 0) return;
    run->is_reading = true;
    read->run = run;
    read->op.run = wefti_batch_read_in_thread;
    read->op.done = after_read;
    wefti_batch_io_add(&run->all->io, &read->op);
}

/* ------------------------------------------------------------------------------------- writing --- */

/* The lines of these answers have none any more. */
static void take_back(struct batch_run *run, struct weft_buf *answers) {
    struct weft_str rest = {answers->data, answers->len}, line;
    uint32_t idx;
    while (weft_api_batch_next_line(&rest, &line)) {
        bool is_own = weft_api_batch_answered(line, run->batch.id, &idx);
        WEFT_ASSERT(is_own && idx < run->n_places && run->places[idx].is_taken);
        run->places[idx].is_taken = false;
        if (idx < run->next) run->next = idx;
    }
    weft_buf_fini(answers);
}

/* A batch that is to end does not wait for room: what could not be written was not answered. */
static void drop_answers(struct batch_run *run) {
    WEFT_ASSERT(!run->is_writing);
    for (int i = 0; i < N_ANSWERS; i++) {
        take_back(run, &run->pending[i]);
        take_back(run, &run->write.bytes[i]);
        run->n_pending[i] = run->write.n[i] = 0;
    }
    run->lacks_room = false;
    run->wait_until_ms = 0;
}

static void complain_of_room(struct batches *all, const char *why) {
    if (all->job.input_fd >= 0) wefti_batch_job_fail(all, why);
    if (all->lacks_room || all->job.input_fd >= 0) return;
    all->lacks_room = true;
    weft_warn("batches wait for room: %s", why);
}

static void after_write(struct batch_op *op) {
    struct run_write *write = (struct run_write *)op;
    struct batch_run *run = write->run;
    struct batches *all = run->all;
    WEFT_ASSERT(run->is_writing && run->phase == RUN_ON);
    run->is_writing = false;
    run->lacks_room = op->err != WEFT_OK;
    if (op->err) {
        run->wait_until_ms = weft_now_ms() + AGAIN_MS;
        complain_of_room(all, op->why.text);
    } else {
        all->lacks_room = false;
    }
    for (int i = 0; i < N_ANSWERS; i++) {
        if (write->bytes[i].len > 0) continue;
        run->n_answers[i] += write->n[i];
        all->server->api.metrics.n_batch_lines[i] += write->n[i];
        write->n[i] = 0;
    }
    all->store.bytes += run->n_bytes[0] + run->n_bytes[1] - run->n_counted;
    run->n_counted = run->n_bytes[0] + run->n_bytes[1];
    run->stored->batch.n_completed = run->n_answers[ANSWERS_OUTPUT];
    run->stored->batch.n_failed = run->n_answers[ANSWERS_ERROR];
    wefti_batch_run_pump(run);
}

static void write_answers(struct batch_run *run, uint64_t now_ms) {
    struct run_write *write = &run->write;
    struct batches *all = run->all;
    uint64_t n = 0;
    for (int i = 0; i < N_ANSWERS; i++) {
        if (write->bytes[i].len == 0 && run->pending[i].len > 0) {
            write->bytes[i] = run->pending[i];
            write->n[i] = run->n_pending[i];
            weft_buf_init(&run->pending[i], ANSWERS_BYTES_MAX);
            run->n_pending[i] = 0;
        }
        n += write->bytes[i].len;
    }
    go_on(run);
    run->lacks_room = all->store.bytes + n > all->store.bytes_max;
    if (run->lacks_room) {
        run->wait_until_ms = now_ms + AGAIN_MS;
        complain_of_room(all, "--batch-store-size is used up");
        return;
    }
    run->is_writing = true;
    write->run = run;
    write->op.run = wefti_batch_write_in_thread;
    write->op.done = after_write;
    wefti_batch_io_add(&all->io, &write->op);
}

/* --------------------------------------------------------------------------- beginning and end --- */

static void run_free(struct batch_run *run) {
    struct batches *all = run->all;
    WEFT_ASSERT(!run->is_reading && !run->is_writing && run->stored->run == run);
    drop_items(run);
    WEFT_ASSERT(run->n_items == 0);
    TAILQ_REMOVE(&all->runs, run, entry);
    all->n_runs--;
    all->store.bytes -= run->n_counted;
    run->stored->run = NULL;
    for (int i = 0; i < N_ANSWERS; i++) {
        weft_buf_fini(&run->pending[i]);
        weft_buf_fini(&run->write.bytes[i]);
    }
    wefti_batch_run_forget(run);
    free(run);
}

/* The batch is over. */
static void finish(struct batch_run *run) {
    struct batches *all = run->all;
    struct weft_api_batch *batch = &run->stored->batch;
    char *metadata = batch->metadata;
    *batch = run->batch;
    batch->metadata = metadata;
    batch->errors = run->faults;
    run->faults = NULL;
    wefti_batch_let_go(&all->store, batch->input);
    all->job.n_bytes = run->n_counted;
    all->store.bytes -= run->n_counted;
    run->n_counted = 0;
    const bool has[] = {batch->has_output, batch->has_error};
    for (int i = 0; i < N_ANSWERS; i++) {
        struct weft_api_file file;
        wefti_batch_answer_file(run, i, &file);
        if (has[i])
            (void)wefti_batch_add_file(&all->store, &file); /* else known at the next start */
    }
    weft_info("batch %s: %u of %u requests completed, %u failed", batch->id, batch->n_completed,
              batch->n_total, batch->n_failed);
    bool is_job = run->job != NULL;
    uint32_t n_faults = run->n_faults;
    run_free(run);
    if (is_job) wefti_batch_job_end(all, n_faults);
    wefti_batch_runs_start(all);
}

static void after_close(struct batch_op *op) {
    struct batch_run *run = (struct batch_run *)op;
    if (!op->err) {
        finish(run);
        return;
    }
    complain_of_room(run->all, op->why.text);
    wefti_batch_run_forget(run); /* what is there by now, a thread finds out */
    run->phase = RUN_ON;
    run->is_lost = true;
    run->wait_until_ms = weft_now_ms() + AGAIN_MS;
}

static void begin_close(struct batch_run *run, bool expires) {
    run->phase = RUN_CLOSING;
    run->expires = expires;
    run->now_s = (int64_t)time(NULL);
    enum weft_api_batch_status status = run->stored->batch.status;
    if (expires) run->stored->batch.at_s[WEFT_API_BATCH_EXPIRED] = run->now_s;
    memcpy(run->batch.at_s, run->stored->batch.at_s, sizeof run->batch.at_s);
    run->batch.status = status;
    if (status != WEFT_API_BATCH_CANCELLING)
        weft_api_batch_enter(&run->stored->batch, WEFT_API_BATCH_FINALIZING, run->now_s);
    run->op.run = wefti_batch_close_in_thread;
    run->op.done = after_close;
    wefti_batch_io_add(&run->all->io, &run->op);
}

static void after_open(struct batch_op *op) {
    struct batch_run *run = (struct batch_run *)op;
    struct batches *all = run->all;
    struct weft_api_batch *batch = &run->stored->batch;
    if (run->checking && all->state == BATCHES_OPEN) { /* whatever has come meanwhile goes first: */
        run->batch.status = batch->status; /* what is kept at the end knows of a cancel */
        memcpy(run->batch.at_s, batch->at_s, sizeof run->batch.at_s);
        wefti_batch_io_add(&all->io, &run->op);
        return;
    }
    run->phase = RUN_ON;
    if (run->checking) { /* it is to leave */
        wefti_batch_run_forget(run);
        run->is_lost = true;
        return;
    }
    if (op->err) {
        complain_of_room(all, op->why.text);
        run->is_lost = true;
        run->wait_until_ms = weft_now_ms() + AGAIN_MS;
        return;
    }
    run->is_lost = false;
    if (weft_api_batch_is_over(&run->batch)) {
        finish(run);
        return;
    }
    batch->n_total = run->n_places;
    batch->n_completed = run->n_answers[ANSWERS_OUTPUT];
    batch->n_failed = run->n_answers[ANSWERS_ERROR];
    if (batch->status == WEFT_API_BATCH_VALIDATING)
        weft_api_batch_enter(batch, WEFT_API_BATCH_IN_PROGRESS, run->now_s);
    all->store.bytes -= run->n_counted;
    run->n_counted = run->n_bytes[0] + run->n_bytes[1];
    all->store.bytes += run->n_counted;
    wefti_batch_run_pump(run);
}

static void begin_open(struct batch_run *run) {
    run->phase = RUN_OPENING;
    run->batch = run->stored->batch;
    run->now_s = (int64_t)time(NULL);
    run->op.run = wefti_batch_open_in_thread;
    run->op.done = after_open;
    wefti_batch_io_add(&run->all->io, &run->op);
}

void wefti_batch_run_pump(struct batch_run *run) {
    uint64_t now_ms = weft_now_ms();
    const struct weft_api_batch *batch = &run->stored->batch;
    if (run->phase != RUN_ON || run->all->state != BATCHES_OPEN) return;
    if (now_ms < run->wait_until_ms && run->is_lost) return;
    if (run->is_lost) {
        begin_open(run);
        return;
    }
    bool has_expired = batch->at_s[WEFT_API_BATCH_EXPIRED] > 0; /* some lines may say so already */
    /* Both are whole seconds that were cut: after that one has passed the window is over, too. */
    bool is_late = has_expired || (int64_t)time(NULL) > batch->expires_s;
    bool stops = is_late || batch->status == WEFT_API_BATCH_CANCELLING;
    if (stops && !run->is_reading) drop_items(run);
    bool may_begin = now_ms >= run->wait_until_ms;
    if (!run->is_writing && may_begin && has_answers(run)) write_answers(run, now_ms);
    if (stops && run->lacks_room && !run->is_writing) drop_answers(run);
    if (run->is_writing || has_answers(run)) {
        if (run->is_reading || stops || !may_begin) return;
    } else if (!run->is_reading && run->n_items == 0) {
        uint32_t n_answers = run->n_answers[0] + run->n_answers[1];
        if ((stops || n_answers == run->n_places) && may_begin) {
            begin_close(run, is_late && batch->status != WEFT_API_BATCH_CANCELLING &&
                                 (has_expired || n_answers < run->n_places));
            return;
        }
    }
    if (!stops && may_begin && !run->is_reading && may_ask(run)) read_more(run);
}

static void begin_run(struct batches *all, struct stored_batch *stored) {
    struct batch_run *run = calloc(1, sizeof *run);
    if (!run) return;
    run->all = all;
    run->job = all->job.input_fd >= 0 ? &all->job : NULL;
    run->n_lines_max = run->job ? WEFT_BATCH_JOB_LINES_MAX : WEFT_API_BATCH_LINES_MAX;
    run->stored = stored;
    run->folder = all->store.folder;
    run->ttl_s = all->store.ttl_s;
    run->line_bytes_max = all->server->config.max_body_bytes + LINE_BESIDE_BYTES;
    run->json_bytes_max = weft_api_reading_bytes(&all->server->api, run->line_bytes_max);
    run->input_fd = -1;
    TAILQ_INIT(&run->items);
    for (int i = 0; i < N_ANSWERS; i++) {
        run->fds[i] = -1;
        weft_buf_init(&run->pending[i], ANSWERS_BYTES_MAX);
        weft_buf_init(&run->write.bytes[i], ANSWERS_BYTES_MAX);
    }
    stored->run = run;
    TAILQ_INSERT_TAIL(&all->runs, run, entry);
    all->n_runs++;
    begin_open(run);
}

void wefti_batch_runs_start(struct batches *all) {
    struct stored_batch *stored;
    if (all->state != BATCHES_OPEN) return;
    TAILQ_FOREACH_REVERSE(stored, &all->store.batches, stored_batches, entry) {
        if (all->n_runs >= WEFT_BATCH_RUNS_MAX) return;
        if (!stored->run && !weft_api_batch_is_over(&stored->batch)) begin_run(all, stored);
    }
}

void wefti_batch_runs_drop(struct batches *all) {
    for (struct batch_run *run = TAILQ_FIRST(&all->runs), *next; run; run = next) {
        next = TAILQ_NEXT(run, entry);
        if (!run->is_reading) drop_items(run);
        bool is_in_thread = run->is_reading || run->is_writing || run->phase != RUN_ON;
        if (!is_in_thread) run_free(run);
    }
}
