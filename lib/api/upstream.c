#include "api/upstream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/rand.h"
#include "cluster/cluster.h"
#include "cluster/placing.h"

#define TICKS_APART_MS_MAX 1000

/* ------------------------------------------------------------------------------------ table --- */

static weft_err grow_table(struct weft_api_upstream *upstream) {
    uint32_t n = upstream->n_slots ? upstream->n_slots * 2 : 64;
    if (upstream->n_slots >= WEFT_API_OPEN_JOBS_MAX) return WEFT_E_FULL;
    struct weft_api_upstream_job **slots =
        realloc(upstream->slots, n * sizeof(struct weft_api_upstream_job *));
    if (!slots) return WEFT_E_NOMEM;
    upstream->slots = slots;
    uint32_t *free_slots = realloc(upstream->free_slots, n * sizeof *free_slots);
    if (!free_slots) return WEFT_E_NOMEM;
    upstream->free_slots = free_slots;
    for (uint32_t i = n; i-- > upstream->n_slots;) {
        upstream->slots[i] = NULL;
        upstream->free_slots[upstream->n_free++] = i;
    }
    upstream->n_slots = n;
    return WEFT_OK;
}

/* The job that a message of this scheduler is about. */
static struct weft_api_upstream_job *find_job(const struct weft_api_upstream *upstream,
                                              uint32_t scheduler, uint64_t id, uint32_t attempt) {
    uint32_t slot = (uint32_t)id;
    struct weft_api_upstream_job *job = slot < upstream->n_slots ? upstream->slots[slot] : NULL;
    if (!job || job->id != id || job->place != WEFT_API_UPSTREAM_SENT || job->attempt != attempt ||
        job->scheduler != scheduler)
        return NULL;
    return job;
}

weft_err weft_api_upstream_submit(struct weft_api_state *api, struct weft_api_upstream_job *job) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(job->place == WEFT_API_UPSTREAM_CLOSED);
    if (upstream->n_free == 0) {
        weft_err err = grow_table(upstream);
        if (err) return err;
    }
    uint32_t slot = upstream->free_slots[--upstream->n_free];
    WEFT_ASSERT(slot < upstream->n_slots && !upstream->slots[slot]);
    upstream->slots[slot] = job;
    upstream->n_open++;
    job->id = (uint64_t)upstream->next_gen++ << 32 | slot;
    job->attempt = 0;
    job->refused_by = job->n_refusals = job->retry_ms = 0;
    job->alone_since_ms = 0;
    job->place = WEFT_API_UPSTREAM_WAITING;
    TAILQ_INSERT_TAIL(&upstream->waiting, job, entry);
    return WEFT_OK;
}

void weft_api_upstream_close(struct weft_api_state *api, struct weft_api_upstream_job *job) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (job->place == WEFT_API_UPSTREAM_CLOSED) return;
    if (job->place == WEFT_API_UPSTREAM_SENT) wefti_api_take_off(upstream, job);
    if (job->place == WEFT_API_UPSTREAM_WAITING) TAILQ_REMOVE(&upstream->waiting, job, entry);
    if (job->place == WEFT_API_UPSTREAM_APART) TAILQ_REMOVE(&upstream->apart, job, entry);
    uint32_t slot = (uint32_t)job->id;
    WEFT_ASSERT(slot < upstream->n_slots && upstream->slots[slot] == job);
    upstream->slots[slot] = NULL;
    upstream->free_slots[upstream->n_free++] = slot;
    upstream->n_open--;
    job->place = WEFT_API_UPSTREAM_CLOSED;
}

/* ---------------------------------------------------------------------------------- sending --- */

/* Any failure here ends the session, which is an event of its own. */
static weft_err send_msg(struct weft_api_upstream *upstream, uint32_t to,
                         const struct weft_msg *msg) {
    const struct weft_api_upstream_link *link = &upstream->schedulers[to].link;
    weft_buf_clear(&upstream->scratch);
    weft_proto_encode(msg, &upstream->scratch);
    if (upstream->scratch.failed) return WEFT_E_TOOBIG;
    return link->send(link->context, upstream->scratch.data, upstream->scratch.len);
}

void wefti_api_upstream_tell(struct weft_api_upstream *upstream, uint32_t scheduler,
                             const struct weft_msg *msg) {
    if (!upstream->schedulers[scheduler].is_up) return;
    weft_err err = send_msg(upstream, scheduler, msg);
    if (err) weft_debug("%s not sent: %s", weft_proto_type_name(msg->type), weft_err_text(err));
}

void weft_api_upstream_cancel(struct weft_api_state *api, struct weft_api_upstream_job *job,
                              uint32_t choice) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (job->place != WEFT_API_UPSTREAM_SENT || !upstream->schedulers[job->scheduler].is_up) return;
    struct weft_msg msg = {.type = WEFT_MSG_CANCEL};
    msg.cancel.request_id = job->id;
    msg.cancel.attempt = job->attempt;
    msg.cancel.choice = choice;
    weft_err err = send_msg(upstream, job->scheduler, &msg);
    if (err) weft_debug("cancel not sent: %s", weft_err_text(err));
}

weft_err weft_api_upstream_reset_cache(struct weft_api_state *api) {
    struct weft_api_upstream *upstream = &api->upstream;
    const struct weft_msg msg = {.type = WEFT_MSG_RESET_CACHE};
    weft_err err = WEFT_E_STATE;
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        if (!upstream->schedulers[i].is_up) continue;
        weft_err unsent = send_msg(upstream, i, &msg);
        if (err == WEFT_E_STATE || unsent) err = unsent;
        if (upstream->cluster) wefti_api_cluster_forget(upstream->cluster, i);
    }
    return err;
}

weft_err weft_api_upstream_ask(struct weft_api_state *api, struct weft_api_session_ask *ask,
                               const struct weft_session_wish *wish, struct weft_errmsg *why) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(!ask->is_open);
    if (upstream->n_schedulers > 1)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "sessions are listed, saved and restored where there is one scheduler");
    if (!upstream->is_up) return weft_err_set(why, WEFT_E_STATE, "the scheduler is not linked");
    struct weft_msg msg = {.type = WEFT_MSG_SESSION, .session = *wish};
    msg.session.id = ask->id = ++upstream->n_asks;
    if (send_msg(upstream, 0, &msg))
        return weft_err_set(why, WEFT_E_STATE, "the scheduler is not linked any more");
    LIST_INSERT_HEAD(&upstream->asks, ask, entry);
    ask->is_open = true;
    return WEFT_OK;
}

void weft_api_upstream_forget(struct weft_api_session_ask *ask) {
    if (ask->is_open) LIST_REMOVE(ask, entry);
    ask->is_open = false;
}

static void on_session_done(struct weft_api_upstream *upstream,
                            const struct weft_session_answer *answer, uint64_t now_us) {
    struct weft_api_session_ask *ask = NULL;
    LIST_FOREACH(ask, &upstream->asks, entry) {
        if (ask->id == answer->id) break;
    }
    if (!ask) return; /* nobody waits for it any more */
    weft_api_upstream_forget(ask);
    ask->answered(ask, answer, now_us);
}

static void fail_asks(struct weft_api_upstream *upstream, uint64_t now_us) {
    static const struct weft_session_answer lost = {
        .err = WEFT_E_CLOSED, .text = "the scheduler was lost meanwhile, try again"};
    struct weft_api_session_ask *ask = NULL;
    while ((ask = LIST_FIRST(&upstream->asks))) {
        weft_api_upstream_forget(ask);
        ask->answered(ask, &lost, now_us);
    }
}

/* The owner must close the job, or it would be met again at once, for ever. */
static void fail_job(struct weft_api_upstream_job *job, enum weft_api_upstream_failure failure) {
    job->ops->failed(job, failure);
    WEFT_ASSERT(job->place == WEFT_API_UPSTREAM_CLOSED);
}

static void note_sent(struct weft_api_state *api, struct weft_api_upstream_job *job, uint32_t to) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_api_scheduler *s = &upstream->schedulers[to];
    if (job->attempt > 0) api->metrics.n_resubmitted++;
    job->attempt++;
    job->answered = false;
    job->sent_bytes = (uint32_t)upstream->scratch.len;
    job->scheduler = to;
    s->n_unanswered++;
    s->unanswered_bytes += job->sent_bytes;
    TAILQ_REMOVE(&upstream->waiting, job, entry);
    job->place = WEFT_API_UPSTREAM_SENT;
    TAILQ_INSERT_TAIL(&s->sent, job, entry);
}

/* True: the next job may be looked at. */
static bool send_job(struct weft_api_state *api, struct weft_api_upstream_job *job,
                     uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_submit_choice choices[WEFT_CHOICES_MAX];
    struct weft_msg msg = {.type = WEFT_MSG_SUBMIT};
    bool is_full;
    job->ops->describe(job, now_us, choices, &msg.submit);
    WEFT_ASSERT(msg.submit.n_choices >= 1 && msg.submit.n_choices <= WEFT_CHOICES_MAX);
    msg.submit.request_id = job->id;
    msg.submit.attempt = job->attempt + 1;
    uint32_t to = wefti_api_place_job(api, job, &msg.submit, now_us, &is_full);
    if (to == WEFTI_API_NOBODY) return !is_full;
    weft_err err = send_msg(upstream, to, &msg);
    if (err && upstream->cluster) wefti_api_cluster_ended(upstream->cluster, to);
    if (err == WEFT_E_TOOBIG) fail_job(job, WEFT_API_UPSTREAM_TOO_LARGE);
    if (err)
        return err == WEFT_E_TOOBIG; /* DOWN follows, and it goes out again after the next UP */
    note_sent(api, job, to);
    return true;
}

static bool has_window(const struct weft_api_upstream *upstream) {
    return upstream->cluster || wefti_api_has_window(&upstream->schedulers[0]);
}

void weft_api_upstream_pump(struct weft_api_state *api, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    bool goes_on = true;
    while (goes_on && !TAILQ_EMPTY(&upstream->waiting) && has_window(upstream)) {
        struct weft_api_upstream_job *job = TAILQ_FIRST(&upstream->waiting);
        if (job->ops->is_late(job, now_us))
            fail_job(job, WEFT_API_UPSTREAM_LATE);
        else
            goes_on = send_job(api, job, now_us);
    }
}

/* -------------------------------------------------------------------------------- receiving --- */

void weft_api_upstream_unlinked(struct weft_api_state *api, uint32_t scheduler, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(scheduler < upstream->n_schedulers);
    upstream->schedulers[scheduler].is_up = false;
    fail_asks(upstream, now_us);
    wefti_api_place_again(upstream, scheduler);
    if (upstream->cluster) wefti_api_cluster_down(upstream->cluster, scheduler, now_us / 1000);
    if (api->adapters.ops) api->adapters.ops->unlinked(api, scheduler);
    wefti_api_see_together(upstream, now_us / 1000);
}

void weft_api_upstream_linked(struct weft_api_state *api, uint32_t scheduler) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(scheduler < upstream->n_schedulers);
    struct weft_api_scheduler *s = &upstream->schedulers[scheduler];
    s->is_up = upstream->is_up = true;
    s->heard_at_ms = s->able_at_ms = 0;
    if (upstream->cluster) wefti_api_cluster_up(upstream->cluster, scheduler);
    struct weft_msg msg = {.type = WEFT_MSG_ROUTER_HELLO};
    msg.router_hello.version = WEFT_PROTO_VERSION;
    msg.router_hello.instance = upstream->instance;
    msg.router_hello.pid = upstream->pid;
    weft_err err = send_msg(upstream, scheduler, &msg);
    if (err) weft_debug("hello not sent: %s", weft_err_text(err));
    if (api->adapters.ops) api->adapters.ops->linked(api, scheduler);
    weft_debug("linked to the scheduler, %u jobs open", upstream->n_open);
}

/* "the scheduler", or "the scheduler at tcp://..." of several. */
static const char *name_of(const struct weft_api_upstream *upstream,
                           const struct weft_api_scheduler *s, struct weft_errmsg *text) {
    if (!upstream->cluster) return "the scheduler";
    (void)snprintf(text->text, sizeof text->text, "the scheduler at %s", s->link.name);
    return text->text;
}

static void tick_scheduler(struct weft_api_upstream *upstream, struct weft_api_scheduler *s,
                           uint64_t now_ms, bool stood_still) {
    struct weft_errmsg name;
    if (!s->is_up) return;
    if (s->heard_at_ms == 0 || stood_still) s->heard_at_ms = now_ms; /* 0: a new session */
    if (now_ms <= s->heard_at_ms + WEFT_API_UPSTREAM_SILENT_MS) return;
    weft_warn("%s has said nothing for %u s: starting over with it", name_of(upstream, s, &name),
              WEFT_API_UPSTREAM_SILENT_MS / 1000u);
    s->heard_at_ms = 0;
    s->link.reset(s->link.context);
}

static void shift(uint64_t *at_ms, uint64_t by_ms, uint64_t now_ms) {
    if (*at_ms != 0) *at_ms = weft_min_u64(*at_ms + by_ms, now_ms);
}

/* This process stood still, perhaps with all others: --restart-grace counts only while it runs. */
static void extend_grace(struct weft_api_upstream *upstream, uint64_t by_ms, uint64_t now_ms) {
    shift(&upstream->served_at_ms, by_ms, now_ms);
    for (uint32_t i = 0; i < upstream->n_schedulers; i++)
        shift(&upstream->schedulers[i].served_at_ms, by_ms, now_ms);
    for (uint32_t i = 0; i < upstream->n_slots; i++) {
        if (upstream->slots[i]) shift(&upstream->slots[i]->alone_since_ms, by_ms, now_ms);
    }
}

void weft_api_upstream_tick(struct weft_api_state *api, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    uint64_t now_ms = now_us / 1000, since_tick_ms = now_ms - upstream->ticked_at_ms;
    bool stood_still = since_tick_ms > TICKS_APART_MS_MAX;
    if (stood_still && upstream->ticked_at_ms > 0) extend_grace(upstream, since_tick_ms, now_ms);
    upstream->ticked_at_ms = now_ms;
    for (uint32_t i = 0; i < upstream->n_schedulers; i++)
        tick_scheduler(upstream, &upstream->schedulers[i], now_ms, stood_still);
    if (upstream->cluster) wefti_api_place_tick(api, now_us, stood_still);
}

/* Fails jobs begun with another model, which would continue with other tokens. */
static void fail_strangers(struct weft_api_upstream *upstream, const char *fingerprint) {
    for (uint32_t i = 0; i < upstream->n_slots; i++) {
        struct weft_api_upstream_job *job = upstream->slots[i];
        if (job && strcmp(job->ops->fingerprint(job), fingerprint) != 0)
            fail_job(job, WEFT_API_UPSTREAM_MODEL_CHANGED);
    }
}

/* The number that an idle scheduler takes: some run at once, the others wait. */
static uint32_t max_prompts(const struct weft_msg_snapshot *snapshot) {
    const struct weft_model_info *model = &snapshot->model;
    uint32_t n_running =
        model->max_seqs < model->max_batched_tokens ? model->max_seqs : model->max_batched_tokens;
    uint64_t n = (uint64_t)snapshot->max_queue + n_running;
    return n < WEFT_API_PROMPTS_MAX ? (uint32_t)n : WEFT_API_PROMPTS_MAX;
}

static void on_model(struct weft_api_limits *limits, const struct weft_msg_snapshot *snapshot) {
    const struct weft_model_info *model = &snapshot->model;
    limits->max_prompts = max_prompts(snapshot);
    bool is_new = limits->n_vocab != model->n_vocab;
    limits->n_vocab = model->n_vocab;
    limits->max_model_len = model->max_model_len;
    limits->shape.n_hidden = model->n_hidden;
    limits->shape.n_labels = model->n_labels;
    if (!is_new) return;
    for (size_t i = 0; i < limits->n_eos; i++) {
        if (limits->eos[i] < limits->n_vocab) continue;
        weft_warn("end-of-sequence token %u is beyond the model's vocabulary of %u: passed over",
                  limits->eos[i], limits->n_vocab);
    }
}

const char *weft_api_upstream_public_id(const struct weft_api_upstream *upstream,
                                        uint64_t request_id, uint32_t *choice) {
    uint32_t slot = (uint32_t)request_id;
    const struct weft_api_upstream_job *job =
        slot < upstream->n_slots ? upstream->slots[slot] : NULL;
    return job && job->id == request_id ? job->ops->public_id(job, choice) : NULL;
}

static void keep_activity(struct weft_api_scheduler *s) {
    struct weft_activity *activity = &s->snapshot.activity;
    WEFT_ASSERT(activity->n_steps <= WEFT_ACTIVITY_STEPS_MAX);
    WEFT_ASSERT(activity->n_seqs <= WEFT_ACTIVITY_SEQS_MAX);
    for (uint32_t i = 0; i < activity->n_steps; i++)
        s->steps[i] = activity->steps[i];
    for (uint32_t i = 0; i < activity->n_seqs; i++)
        s->seqs[i] = activity->seqs[i];
    activity->steps = s->steps;
    activity->seqs = s->seqs;
}

static void keep_snapshot(struct weft_api_scheduler *s, const struct weft_msg_snapshot *snapshot,
                          uint64_t now_ms) {
    struct weft_model_info known = s->snapshot.model;
    bool had_model = s->has_snapshot && s->snapshot.has_model;
    s->snapshot = *snapshot;
    keep_activity(s);
    s->has_snapshot = true;
    s->snapshot_at_ms = now_ms;
    if (snapshot->serving && snapshot->has_model) s->served_at_ms = now_ms;
    /* While the worker restarts its model is still the one we know. */
    if (!snapshot->has_model && had_model) {
        s->snapshot.model = known;
        s->snapshot.has_model = true;
    }
}

static bool is_of_same_model(const struct weft_model_info *a, const struct weft_model_info *b) {
    return a->n_vocab == b->n_vocab && strcmp(a->arch, b->arch) == 0 &&
           strcmp(a->model_name, b->model_name) == 0;
}

/* Another one that is there, and decides which model it is. */
static const struct weft_api_scheduler *find_reference(const struct weft_api_upstream *upstream,
                                                       const struct weft_api_scheduler *except) {
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        const struct weft_api_scheduler *s = &upstream->schedulers[i];
        if (s != except && s->is_up && !s->is_stranger && s->has_snapshot && s->snapshot.has_model)
            return s;
    }
    return NULL;
}

static void judge(struct weft_api_upstream *upstream, uint32_t scheduler) {
    struct weft_api_scheduler *s = &upstream->schedulers[scheduler];
    const struct weft_api_scheduler *other = find_reference(upstream, s);
    const struct weft_model_info *model = &s->snapshot.model;
    bool was_stranger = s->is_stranger;
    if (!s->snapshot.has_model) return;
    s->is_stranger = other && !is_of_same_model(&other->snapshot.model, model);
    wefti_api_cluster_leave_out(upstream->cluster, scheduler, s->is_stranger);
    if (s->is_stranger && !was_stranger)
        weft_error("the scheduler at %s serves %s (%s, a vocabulary of %u), the one at %s %s (%s, "
                   "%u): it is left out",
                   s->link.name, model->model_name, model->arch, model->n_vocab, other->link.name,
                   other->snapshot.model.model_name, other->snapshot.model.arch,
                   other->snapshot.model.n_vocab);
    if (!s->is_stranger && was_stranger)
        weft_info("the scheduler at %s serves the same model as the others now", s->link.name);
}

static void report(struct weft_api_upstream *upstream, uint32_t scheduler, uint64_t now_ms) {
    const struct weft_msg_snapshot *s = &upstream->schedulers[scheduler].snapshot;
    const struct wefti_api_report told = {
        .can_serve = s->serving && s->has_model && !s->draining,
        .fingerprint = s->has_model ? s->model.fingerprint : "",
        .n_seqs = s->model.max_seqs * (s->n_workers_serving ? s->n_workers_serving : 1),
        .n_requests = s->n_running + s->n_waiting,
        .n_cache_tokens = (uint64_t)s->n_blocks * s->model.block_size,
    };
    wefti_api_cluster_report(upstream->cluster, scheduler, &told, now_ms);
}

/* The scheduler computes with other weights, types or instructions than before. */
static void on_other_fingerprint(struct weft_api_state *api, uint32_t scheduler,
                                 const char *fingerprint) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (upstream->cluster) { /* who is bound goes where its own is */
        wefti_api_place_again(upstream, scheduler);
        weft_expert_rows_fini(&upstream->schedulers[scheduler].experts);
    } else {
        fail_strangers(upstream, fingerprint);
        weft_expert_rows_fini(&api->metrics.experts); /* its own follow the snapshot */
    }
}

static void on_snapshot(struct weft_api_state *api, uint32_t scheduler,
                        const struct weft_msg_snapshot *snapshot, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_api_scheduler *s = &upstream->schedulers[scheduler];
    const char *fingerprint = snapshot->model.fingerprint;
    if (snapshot->has_model && s->has_snapshot && s->snapshot.has_model &&
        strcmp(fingerprint, s->snapshot.model.fingerprint) != 0)
        on_other_fingerprint(api, scheduler, fingerprint);
    keep_snapshot(s, snapshot, now_us / 1000);
    if (upstream->cluster) {
        judge(upstream, scheduler);
        report(upstream, scheduler, now_us / 1000);
    }
    wefti_api_see_together(upstream, now_us / 1000);
    upstream->n_snapshots++;
    if (snapshot->has_model && upstream->snapshot.has_model)
        on_model(&api->limits, &upstream->snapshot);
    if (api->adapters.ops) api->adapters.ops->reported(api);
    weft_api_metrics_snapshot(&api->metrics, &s->counted, snapshot, s->snapshot_at_ms);
}

static void on_events(struct weft_api_upstream *upstream, uint32_t scheduler,
                      const struct weft_msg_events *events, uint64_t now_us) {
    for (uint32_t i = 0; i < events->n; i++) {
        const struct weft_event *event = &events->events[i];
        struct weft_api_upstream_job *job =
            find_job(upstream, scheduler, event->request_id, event->attempt);
        if (job) job->ops->event(job, event, now_us);
    }
}

/* Ends the session with a scheduler that makes no sense, which may be so in the next one, too. */
static void start_over(struct weft_api_upstream *upstream, uint32_t scheduler, uint64_t now_us,
                       const char *because) {
    struct weft_api_scheduler *s = &upstream->schedulers[scheduler];
    struct weft_errmsg name;
    weft_log(weft_log_rarely(WEFT_LOG_ERROR, now_us / 1000, &s->quiet_until_ms),
             "starting over with %s: %s", name_of(upstream, s, &name), because);
    s->link.reset(s->link.context);
}

/* The counts of experts that a scheduler tells of; its own where there are several. */
static struct weft_expert_rows *rows_of(struct weft_api_state *api, struct weft_api_scheduler *s) {
    return api->upstream.cluster ? &s->experts : &api->metrics.experts;
}

static void on_hello(struct weft_api_state *api, uint32_t scheduler,
                     const struct weft_msg_sched_hello *hello, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_api_scheduler *s = &upstream->schedulers[scheduler];
    if (hello->version != WEFT_PROTO_VERSION) {
        struct weft_errmsg why;
        (void)weft_err_set(&why, WEFT_E_PROTO,
                           "it speaks version %u of the protocol, this router %d", hello->version,
                           WEFT_PROTO_VERSION);
        start_over(upstream, scheduler, now_us, why.text);
        return;
    }
    if (hello->instance != s->instance) {
        weft_expert_rows_new_source(rows_of(api, s));
        if (upstream->cluster) wefti_api_cluster_forget(upstream->cluster, scheduler);
    }
    s->instance = hello->instance;
}

static void on_experts(struct weft_api_state *api, uint32_t scheduler,
                       const struct weft_msg_experts *told) {
    weft_err err = weft_expert_rows_carry(rows_of(api, &api->upstream.schedulers[scheduler]), told);
    if (err) weft_warn("the counts of experts are lost: %s", weft_err_text(err));
    if (api->upstream.cluster) wefti_api_sum_experts(&api->upstream, &api->metrics.experts);
}

static void on_answer(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job) {
    wefti_api_set_answered(upstream, job);
    if (upstream->cluster) wefti_api_cluster_answered(upstream->cluster, job->scheduler);
}

static void on_accepted(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job) {
    on_answer(upstream, job);
    job->refused_by = job->n_refusals = job->retry_ms = 0;
    job->ops->accepted(job);
}

static void on_rejected(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job,
                        struct weft_rejection *msg, uint64_t now_us) {
    on_answer(upstream, job);
    if (wefti_api_place_refused(upstream, job, msg, now_us)) return;
    job->ops->rejected(job, msg);
}

void weft_api_upstream_message(struct weft_api_state *api, uint32_t scheduler, const void *bytes,
                               size_t len, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_msg msg;
    struct weft_errmsg why;
    WEFT_ASSERT(scheduler < upstream->n_schedulers);
    upstream->schedulers[scheduler].heard_at_ms = now_us / 1000;
    weft_err err = weft_proto_decode(upstream->decoder, bytes, len, &msg, &why);
    if (err) {
        start_over(upstream, scheduler, now_us, why.text);
        return;
    }
    struct weft_api_upstream_job *job = NULL;
    switch (msg.type) {
    case WEFT_MSG_SCHED_HELLO:
        on_hello(api, scheduler, &msg.sched_hello, now_us);
        return;
    case WEFT_MSG_ACCEPTED:
        job = find_job(upstream, scheduler, msg.accepted.request_id, msg.accepted.attempt);
        if (job) on_accepted(upstream, job);
        return;
    case WEFT_MSG_REJECTED:
        job = find_job(upstream, scheduler, msg.rejected.request_id, msg.rejected.attempt);
        if (job) on_rejected(upstream, job, &msg.rejected, now_us);
        return;
    case WEFT_MSG_EVENTS:
        on_events(upstream, scheduler, &msg.events, now_us);
        return;
    case WEFT_MSG_SESSION_DONE:
        on_session_done(upstream, &msg.session_done, now_us);
        return;
    case WEFT_MSG_SNAPSHOT:
        on_snapshot(api, scheduler, &msg.snapshot, now_us);
        return;
    case WEFT_MSG_EXPERTS:
        on_experts(api, scheduler, &msg.experts);
        return;
    case WEFT_MSG_LORA:
        if (api->adapters.ops) api->adapters.ops->told(api, scheduler, &msg.lora);
        return;
    default:
        (void)weft_err_set(&why, WEFT_E_PROTO, "a scheduler sends no %s",
                           weft_proto_type_name(msg.type));
        start_over(upstream, scheduler, now_us, why.text);
    }
}

/* --------------------------------------------------------------------------------- lifetime --- */

static weft_err make_cluster(struct weft_api_upstream *upstream) {
    const char *names[WEFT_API_SCHEDULERS_MAX];
    for (uint32_t i = 0; i < upstream->n_schedulers; i++)
        names[i] = upstream->schedulers[i].link.name;
    upstream->cluster = calloc(1, sizeof *upstream->cluster);
    if (!upstream->cluster) return WEFT_E_NOMEM;
    wefti_api_cluster_init(upstream->cluster, names, upstream->n_schedulers, upstream->instance,
                           WEFT_API_SNAPSHOT_AGE_MS_MAX);
    return WEFT_OK;
}

weft_err weft_api_upstream_init(struct weft_api_state *api,
                                const struct weft_api_upstream_link *links, uint32_t n,
                                uint32_t pid, struct weft_errmsg *why) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(n >= 1 && n <= WEFT_API_SCHEDULERS_MAX);
    memset(upstream, 0, sizeof *upstream);
    upstream->pid = pid;
    upstream->instance = weft_rand_seed();
    TAILQ_INIT(&upstream->waiting);
    TAILQ_INIT(&upstream->apart);
    weft_buf_init(&upstream->scratch, WEFT_MESSAGE_BYTES_MAX);
    upstream->schedulers = calloc(n, sizeof *upstream->schedulers);
    if (!upstream->schedulers) return weft_err_set(why, WEFT_E_NOMEM, "no memory for schedulers");
    upstream->n_schedulers = n;
    for (uint32_t i = 0; i < n; i++) {
        upstream->schedulers[i].link = links[i];
        TAILQ_INIT(&upstream->schedulers[i].sent);
    }
    weft_err err = n > 1 ? make_cluster(upstream) : WEFT_OK;
    if (err) return weft_err_set(why, err, "no memory for several schedulers");
    err = weft_proto_decoder_new(&upstream->decoder);
    if (err) return weft_err_set(why, err, "cannot make a decoder");
    return WEFT_OK;
}

void weft_api_upstream_fini(struct weft_api_state *api) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(upstream->n_open == 0);
    WEFT_ASSERT(TAILQ_EMPTY(&upstream->waiting) && TAILQ_EMPTY(&upstream->apart));
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        struct weft_api_scheduler *s = &upstream->schedulers[i];
        WEFT_ASSERT(TAILQ_EMPTY(&s->sent) && s->n_unanswered == 0);
        weft_expert_rows_fini(&s->experts);
    }
    weft_proto_decoder_free(upstream->decoder);
    weft_buf_fini(&upstream->scratch);
    free(upstream->schedulers);
    free(upstream->cluster);
    free(upstream->slots);
    free(upstream->free_slots);
    memset(upstream, 0, sizeof *upstream);
}
