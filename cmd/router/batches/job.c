#include "batches/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "batches/batches.h"
#include "batches/run.h"
#include "common/status.h"
#include "server.h"

#define TELL_MS 500

weft_err wefti_batch_job_begin(struct batches *all, struct weft_errmsg *why) {
    struct weft_api_batch batch = {.status = WEFT_API_BATCH_VALIDATING,
                                   .created_s = (int64_t)time(NULL),
                                   .expires_s = INT64_MAX,
                                   .weight = 1};
    WEFT_ASSERT(all->job.input_fd >= 0 && all->job.output_fd >= 0);
    weft_api_stored_id("batch_", batch.id);
    TAILQ_INIT(&all->store.files);
    TAILQ_INIT(&all->store.batches);
    all->store.bytes_max = UINT64_MAX;
    all->state = BATCHES_CLOSED;
    if (wefti_batch_add(&all->store, &batch)) return WEFT_OK;
    return weft_err_set(why, WEFT_E_NOMEM, "no memory for a batch");
}

static void tell(struct batches *all, uint64_t now_ms) {
    const struct weft_api_batch *batch = &TAILQ_FIRST(&all->store.batches)->batch;
    const struct batch_run *run = TAILQ_FIRST(&all->runs);
    char text[80];
    if (batch->status == WEFT_API_BATCH_VALIDATING || batch->status == WEFT_API_BATCH_FAILED)
        return;
    if (run) all->job.n_bytes = run->n_counted;
    (void)snprintf(text, sizeof text, "%u %u %u %" PRIu64, batch->n_completed + batch->n_failed,
                   batch->n_failed, batch->n_total, all->job.n_bytes);
    all->job.told_ms = now_ms;
    weft_status_write(all->server->config.status_fd, "batch", text);
}

void wefti_batch_job_tick(struct batches *all, uint64_t now_ms) {
    if (now_ms - all->job.told_ms >= TELL_MS) tell(all, now_ms);
}

void wefti_batch_job_fail(struct batches *all, const char *why) {
    struct batch_job *job = &all->job;
    if (job->has_failed) return;
    job->has_failed = true;
    (void)snprintf(job->failure.text, sizeof job->failure.text, "%s", why);
}

void wefti_batch_job_end(struct batches *all, uint32_t n_faults) {
    char text[80];
    all->job.is_over = true;
    (void)snprintf(text, sizeof text, "--batch: %u fault%s in the file: nothing was computed",
                   n_faults, n_faults == 1 ? "" : "s");
    if (n_faults)
        wefti_batch_job_fail(all, text);
    else
        tell(all, weft_now_ms());
}
