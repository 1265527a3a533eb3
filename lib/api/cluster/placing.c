#include "cluster/placing.h"

#include <string.h>

#include "api/adapters.h"
#include "api/api.h"
#include "base/check.h"

/* Refusals of one request by several schedulers, before its client hears of the last one. */
#define REFUSALS_MAX 8

/* ------------------------------------------------------------------------------------ the lists --- */

static struct weft_api_scheduler *scheduler_of(struct weft_api_upstream *upstream,
                                               const struct weft_api_upstream_job *job) {
    WEFT_ASSERT(job->scheduler < upstream->n_schedulers);
    return &upstream->schedulers[job->scheduler];
}

void wefti_api_set_answered(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job) {
    struct weft_api_scheduler *at = scheduler_of(upstream, job);
    if (job->answered) return;
    WEFT_ASSERT(at->n_unanswered > 0 && at->unanswered_bytes >= job->sent_bytes);
    job->answered = true;
    at->n_unanswered--;
    at->unanswered_bytes -= job->sent_bytes;
}

void wefti_api_take_off(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job) {
    WEFT_ASSERT(job->place == WEFT_API_UPSTREAM_SENT);
    wefti_api_set_answered(upstream, job);
    TAILQ_REMOVE(&scheduler_of(upstream, job)->sent, job, entry);
    if (upstream->cluster) wefti_api_cluster_ended(upstream->cluster, job->scheduler);
}

bool wefti_api_has_window(const struct weft_api_scheduler *s) {
    return s->is_up && s->n_unanswered < WEFT_API_UNANSWERED_MAX &&
           s->unanswered_bytes < WEFT_API_UNANSWERED_BYTES_MAX;
}

static void set_apart(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job,
                      uint64_t due_us) {
    job->due_us = due_us;
    job->place = WEFT_API_UPSTREAM_APART;
    TAILQ_INSERT_TAIL(&upstream->apart, job, entry);
}

void wefti_api_place_again(struct weft_api_upstream *upstream, uint32_t scheduler) {
    struct weft_api_upstream_job *job;
    struct weft_api_scheduler *s = &upstream->schedulers[scheduler];
    while ((job = TAILQ_LAST(&s->sent, weft_api_upstream_jobs))) {
        wefti_api_take_off(upstream, job);
        job->place = WEFT_API_UPSTREAM_WAITING;
        job->refused_by = 0;
        TAILQ_INSERT_HEAD(&upstream->waiting, job, entry);
    }
    WEFT_ASSERT(s->n_unanswered == 0 && s->unanswered_bytes == 0);
}

/* --------------------------------------------------------------------------------------- choosing --- */

static const char *bound_to(const struct weft_api_upstream_job *job) {
    return job->ops->is_bound(job) ? job->ops->fingerprint(job) : NULL;
}

static uint32_t without_window(const struct weft_api_upstream *upstream) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < upstream->n_schedulers; i++)
        bits |= wefti_api_has_window(&upstream->schedulers[i]) ? 0 : 1u << i;
    return bits;
}

/* Nobody can take it: somebody may come back within the grace. Who is there and only left alone for its
 * failures has its next chance before that counts. */
static void leave_alone(struct weft_api_state *api, struct weft_api_upstream_job *job,
                        uint32_t not_these, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    uint64_t now_ms = now_us / 1000;
    WEFT_ASSERT(job->place == WEFT_API_UPSTREAM_WAITING);
    if (job->alone_since_ms == 0) job->alone_since_ms = now_ms;
    uint64_t until_ms = job->alone_since_ms + api->settings.restart_grace_ms;
    if (wefti_api_cluster_any_rests(upstream->cluster, bound_to(job), not_these, now_ms))
        until_ms += WEFTI_API_BACKOFF_MS_MAX;
    if (now_ms >= until_ms) {
        job->ops->failed(job,
                         bound_to(job) ? WEFT_API_UPSTREAM_NO_EQUAL : WEFT_API_UPSTREAM_NOBODY);
        WEFT_ASSERT(job->place == WEFT_API_UPSTREAM_CLOSED);
        return;
    }
    TAILQ_REMOVE(&upstream->waiting, job, entry);
    job->refused_by = 0;
    set_apart(upstream, job, 0);
}

uint32_t wefti_api_place_job(struct weft_api_state *api, struct weft_api_upstream_job *job,
                             const struct weft_submit *submit, uint64_t now_us, bool *is_full_out) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct wefti_api_cluster *cluster = upstream->cluster;
    *is_full_out = false;
    if (!cluster) return 0;
    const char *fingerprint = bound_to(job);
    uint64_t now_ms = now_us / 1000;
    uint32_t not_these = job->refused_by;
    if (api->adapters.ops)
        not_these |= api->adapters.ops->lacking(api, submit->adapters, submit->n_adapters);
    if (!wefti_api_cluster_any(cluster, fingerprint, not_these, now_ms)) {
        leave_alone(api, job, not_these, now_us);
        return WEFTI_API_NOBODY;
    }
    const struct wefti_api_wish wish = {.tokens = submit->prompt,
                                        .n_tokens = submit->n_prompt,
                                        .space = submit->cache_salt,
                                        .fingerprint = fingerprint,
                                        .not_these = not_these | without_window(upstream)};
    uint32_t to = wefti_api_cluster_place(cluster, &wish, now_ms);
    *is_full_out = to == WEFTI_API_NOBODY;
    if (*is_full_out) return to;
    job->alone_since_ms = 0;
    job->ops->placed(job, cluster->nodes[to].fingerprint);
    if (job->attempt > 0 && job->scheduler != to) api->metrics.n_moved++;
    return to;
}

/* --------------------------------------------------------------------------------------- refusals --- */

bool wefti_api_place_refused(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job,
                             struct weft_rejection *msg, uint64_t now_us) {
    if (!upstream->cluster || msg->reason == WEFT_REJECT_INVALID) return false;
    bool is_for_good = msg->reason == WEFT_REJECT_TOO_LONG ||
                       (msg->reason == WEFT_REJECT_NO_MEMORY && msg->retry_after_ms == 0);
    uint32_t retry_ms = msg->retry_after_ms ? msg->retry_after_ms : WEFT_API_RETRY_MS;
    if (!is_for_good && (job->retry_ms == 0 || retry_ms < job->retry_ms)) job->retry_ms = retry_ms;
    job->refused_by |= 1u << job->scheduler;
    job->n_refusals++;
    bool is_asked_again =
        job->n_refusals < REFUSALS_MAX &&
        wefti_api_cluster_any(upstream->cluster, bound_to(job), job->refused_by, now_us / 1000);
    if (!is_asked_again && is_for_good && job->retry_ms > 0) { /* by another, which was busy */
        msg->reason = WEFT_REJECT_OVERLOADED;
        msg->text = "whoever could take the request has too much to do, try again later";
    }
    if (!is_asked_again && job->retry_ms > 0) msg->retry_after_ms = job->retry_ms;
    if (!is_asked_again) return false;
    wefti_api_take_off(upstream, job);
    set_apart(upstream, job,
              now_us + wefti_api_cluster_pause_us(upstream->cluster, job->n_refusals - 1));
    return true;
}

/* ------------------------------------------------------------------------------------------ time --- */

static void look_at_those_apart(struct weft_api_upstream *upstream, uint64_t now_us) {
    struct weft_api_upstream_job *job, *next;
    for (job = TAILQ_FIRST(&upstream->apart); job; job = next) {
        next = TAILQ_NEXT(job, entry);
        if (now_us < job->due_us) continue;
        TAILQ_REMOVE(&upstream->apart, job, entry);
        job->place = WEFT_API_UPSTREAM_WAITING;
        TAILQ_INSERT_TAIL(&upstream->waiting, job, entry);
    }
}

static void move(struct weft_api_state *api, struct weft_api_upstream_job *job) {
    struct weft_api_upstream *upstream = &api->upstream;
    weft_api_upstream_cancel(api, job, UINT32_MAX);
    wefti_api_take_off(upstream, job);
    job->place = WEFT_API_UPSTREAM_WAITING;
    TAILQ_INSERT_HEAD(&upstream->waiting, job, entry);
}

void wefti_api_place_elsewhere(struct weft_api_state *api, uint32_t scheduler,
                               uint64_t adapter_id) {
    struct weft_api_scheduler *from = &api->upstream.schedulers[scheduler];
    struct weft_api_upstream_job *job, *before;
    for (job = TAILQ_LAST(&from->sent, weft_api_upstream_jobs); job; job = before) {
        before = TAILQ_PREV(job, weft_api_upstream_jobs, entry);
        if (job->ops->uses_adapter(job, adapter_id)) move(api, job);
    }
}

/* Moves what others can take. The scheduler may hear of it later, if it only stood still. */
static void take_from(struct weft_api_state *api, uint32_t scheduler, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_api_scheduler *from = &upstream->schedulers[scheduler];
    struct weft_api_upstream_job *job, *before;
    uint32_t n = 0;
    for (job = TAILQ_LAST(&from->sent, weft_api_upstream_jobs); job; job = before) {
        before = TAILQ_PREV(job, weft_api_upstream_jobs, entry);
        if (!wefti_api_cluster_any(upstream->cluster, bound_to(job), 1u << scheduler,
                                   now_us / 1000))
            continue;
        move(api, job);
        n++;
    }
    if (n > 0) wefti_api_cluster_failed(upstream->cluster, scheduler, now_us / 1000);
}

/* One that drains finishes what it has. */
static bool is_able(const struct weft_api_scheduler *s, uint64_t now_ms) {
    bool is_fresh = s->has_snapshot && now_ms <= s->snapshot_at_ms + WEFT_API_SNAPSHOT_AGE_MS_MAX;
    return is_fresh && s->snapshot.serving && !s->is_stranger;
}

void wefti_api_place_tick(struct weft_api_state *api, uint64_t now_us, bool stood_still) {
    struct weft_api_upstream *upstream = &api->upstream;
    uint64_t now_ms = now_us / 1000;
    WEFT_ASSERT(upstream->cluster);
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        struct weft_api_scheduler *s = &upstream->schedulers[i];
        if (!s->is_up) continue;
        if (s->able_at_ms == 0 || stood_still || is_able(s, now_ms)) s->able_at_ms = now_ms;
        if (now_ms <= s->able_at_ms + WEFT_API_UPSTREAM_UNABLE_MS) continue;
        take_from(api, i, now_us);
        s->able_at_ms = now_ms;
    }
    look_at_those_apart(upstream, now_us);
    wefti_api_see_together(upstream, now_ms);
}
