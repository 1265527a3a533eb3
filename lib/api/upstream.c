#include "api/upstream.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"

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

static struct weft_api_upstream_job *find_job(const struct weft_api_upstream *upstream, uint64_t id,
                                              uint32_t attempt) {
    uint32_t slot = (uint32_t)id;
    struct weft_api_upstream_job *job = slot < upstream->n_slots ? upstream->slots[slot] : NULL;
    if (!job || job->id != id || job->place != WEFT_API_UPSTREAM_SENT || job->attempt != attempt)
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
    job->place = WEFT_API_UPSTREAM_WAITING;
    TAILQ_INSERT_TAIL(&upstream->waiting, job, entry);
    return WEFT_OK;
}

static void set_answered(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job) {
    if (job->answered) return;
    WEFT_ASSERT(upstream->n_unanswered > 0 && upstream->unanswered_bytes >= job->sent_bytes);
    job->answered = true;
    upstream->n_unanswered--;
    upstream->unanswered_bytes -= job->sent_bytes;
}

void weft_api_upstream_close(struct weft_api_state *api, struct weft_api_upstream_job *job) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (job->place == WEFT_API_UPSTREAM_CLOSED) return;
    if (job->place == WEFT_API_UPSTREAM_SENT) set_answered(upstream, job);
    TAILQ_REMOVE(job->place == WEFT_API_UPSTREAM_WAITING ? &upstream->waiting : &upstream->sent,
                 job, entry);
    uint32_t slot = (uint32_t)job->id;
    WEFT_ASSERT(slot < upstream->n_slots && upstream->slots[slot] == job);
    upstream->slots[slot] = NULL;
    upstream->free_slots[upstream->n_free++] = slot;
    upstream->n_open--;
    job->place = WEFT_API_UPSTREAM_CLOSED;
}

/* ---------------------------------------------------------------------------------- sending --- */

/* Any failure here ends the session, which is an event of its own. */
static weft_err send_msg(struct weft_api_upstream *upstream, const struct weft_msg *msg) {
    weft_buf_clear(&upstream->scratch);
    weft_proto_encode(msg, &upstream->scratch);
    if (upstream->scratch.failed) return WEFT_E_TOOBIG;
    return upstream->link.send(upstream->link.context, upstream->scratch.data,
                               upstream->scratch.len);
}

void weft_api_upstream_cancel(struct weft_api_state *api, struct weft_api_upstream_job *job,
                              uint32_t choice) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (job->place != WEFT_API_UPSTREAM_SENT || !upstream->is_up) return;
    struct weft_msg msg = {.type = WEFT_MSG_CANCEL};
    msg.cancel.request_id = job->id;
    msg.cancel.attempt = job->attempt;
    msg.cancel.choice = choice;
    weft_err err = send_msg(upstream, &msg);
    if (err) weft_debug("cancel not sent: %s", weft_err_text(err));
}

weft_err weft_api_upstream_reset_cache(struct weft_api_state *api) {
    struct weft_api_upstream *upstream = &api->upstream;
    const struct weft_msg msg = {.type = WEFT_MSG_RESET_CACHE};
    return upstream->is_up ? send_msg(upstream, &msg) : WEFT_E_STATE;
}

static weft_err send_submit(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job,
                            uint64_t now_us) {
    struct weft_submit_choice choices[WEFT_CHOICES_MAX];
    struct weft_msg msg = {.type = WEFT_MSG_SUBMIT};
    job->ops->describe(job, now_us, choices, &msg.submit);
    WEFT_ASSERT(msg.submit.n_choices >= 1 && msg.submit.n_choices <= WEFT_CHOICES_MAX);
    msg.submit.request_id = job->id;
    msg.submit.attempt = job->attempt + 1;
    return send_msg(upstream, &msg);
}

/* The owner must close the job, or it would be met again at once, for ever. */
static void fail_job(struct weft_api_upstream_job *job, enum weft_api_upstream_failure failure) {
    job->ops->failed(job, failure);
    WEFT_ASSERT(job->place == WEFT_API_UPSTREAM_CLOSED);
}

void weft_api_upstream_pump(struct weft_api_state *api, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    while (upstream->is_up && !TAILQ_EMPTY(&upstream->waiting) &&
           upstream->n_unanswered < WEFT_API_UNANSWERED_MAX &&
           upstream->unanswered_bytes < WEFT_API_UNANSWERED_BYTES_MAX) {
        struct weft_api_upstream_job *job = TAILQ_FIRST(&upstream->waiting);
        if (job->ops->is_late(job, now_us)) {
            fail_job(job, WEFT_API_UPSTREAM_LATE);
            continue;
        }
        weft_err err = send_submit(upstream, job, now_us);
        if (err == WEFT_E_TOOBIG) {
            fail_job(job, WEFT_API_UPSTREAM_TOO_LARGE);
            continue;
        }
        if (err) return; /* DOWN follows, and it goes out again after the next UP */
        if (job->attempt > 0) api->metrics.n_resubmitted++;
        job->attempt++;
        job->answered = false;
        job->sent_bytes = (uint32_t)upstream->scratch.len;
        upstream->n_unanswered++;
        upstream->unanswered_bytes += job->sent_bytes;
        TAILQ_REMOVE(&upstream->waiting, job, entry);
        job->place = WEFT_API_UPSTREAM_SENT;
        TAILQ_INSERT_TAIL(&upstream->sent, job, entry);
    }
}

/* -------------------------------------------------------------------------------- receiving --- */

/* All sent jobs are sent again, before those that never were. */
void weft_api_upstream_unlinked(struct weft_api_state *api) {
    struct weft_api_upstream *upstream = &api->upstream;
    upstream->is_up = false;
    upstream->n_unanswered = 0;
    upstream->unanswered_bytes = 0;
    struct weft_api_upstream_job *job;
    TAILQ_FOREACH(job, &upstream->sent, entry) {
        job->place = WEFT_API_UPSTREAM_WAITING;
        job->answered = true;
    }
    TAILQ_CONCAT(&upstream->sent, &upstream->waiting, entry);
    TAILQ_CONCAT(&upstream->waiting, &upstream->sent, entry);
}

void weft_api_upstream_linked(struct weft_api_state *api) {
    struct weft_api_upstream *upstream = &api->upstream;
    upstream->is_up = true;
    upstream->heard_at_ms = 0;
    struct weft_msg msg = {.type = WEFT_MSG_ROUTER_HELLO};
    msg.router_hello.version = WEFT_PROTO_VERSION;
    msg.router_hello.instance = upstream->instance;
    msg.router_hello.pid = upstream->pid;
    weft_err err = send_msg(upstream, &msg);
    if (err) weft_debug("hello not sent: %s", weft_err_text(err));
    weft_debug("linked to the scheduler, %u jobs open", upstream->n_open);
}

void weft_api_upstream_tick(struct weft_api_state *api, uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    uint64_t now_ms = now_us / 1000, since_tick_ms = now_ms - upstream->ticked_at_ms;
    upstream->ticked_at_ms = now_ms;
    if (!upstream->is_up) return;
    if (upstream->heard_at_ms == 0 || since_tick_ms > TICKS_APART_MS_MAX)
        upstream->heard_at_ms = now_ms; /* a new session, or this process stood still */
    if (now_ms <= upstream->heard_at_ms + WEFT_API_UPSTREAM_SILENT_MS) return;
    weft_warn("the scheduler has said nothing for %u s: starting over with it",
              WEFT_API_UPSTREAM_SILENT_MS / 1000u);
    upstream->heard_at_ms = 0;
    upstream->link.reset(upstream->link.context);
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

static void keep_activity(struct weft_api_upstream *upstream) {
    struct weft_activity *activity = &upstream->snapshot.activity;
    WEFT_ASSERT(activity->n_steps <= WEFT_ACTIVITY_STEPS_MAX);
    WEFT_ASSERT(activity->n_seqs <= WEFT_ACTIVITY_SEQS_MAX);
    for (uint32_t i = 0; i < activity->n_steps; i++)
        upstream->steps[i] = activity->steps[i];
    for (uint32_t i = 0; i < activity->n_seqs; i++)
        upstream->seqs[i] = activity->seqs[i];
    activity->steps = upstream->steps;
    activity->seqs = upstream->seqs;
}

static void on_snapshot(struct weft_api_state *api, const struct weft_msg_snapshot *snapshot,
                        uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (snapshot->has_model) {
        const struct weft_model_info *model = &snapshot->model;
        if (upstream->has_snapshot && upstream->snapshot.has_model &&
            strcmp(model->fingerprint, upstream->snapshot.model.fingerprint) != 0) {
            fail_strangers(upstream, model->fingerprint);
            weft_expert_rows_fini(&api->metrics.experts); /* its own follow the snapshot */
        }
        on_model(&api->limits, snapshot);
    }
    struct weft_model_info known = upstream->snapshot.model;
    bool had_model = upstream->has_snapshot && upstream->snapshot.has_model;
    upstream->snapshot = *snapshot;
    keep_activity(upstream);
    upstream->has_snapshot = true;
    upstream->n_snapshots++;
    upstream->snapshot_at_ms = now_us / 1000;
    if (snapshot->serving && snapshot->has_model) upstream->served_at_ms = upstream->snapshot_at_ms;
    /* While the worker restarts its model is still the one we know. */
    if (!snapshot->has_model && had_model) {
        upstream->snapshot.model = known;
        upstream->snapshot.has_model = true;
    }
    weft_api_metrics_snapshot(&api->metrics, &upstream->counted, snapshot,
                              upstream->snapshot_at_ms);
}

static void on_events(struct weft_api_upstream *upstream, const struct weft_msg_events *events,
                      uint64_t now_us) {
    for (uint32_t i = 0; i < events->n; i++) {
        const struct weft_event *event = &events->events[i];
        struct weft_api_upstream_job *job = find_job(upstream, event->request_id, event->attempt);
        if (job) job->ops->event(job, event, now_us);
    }
}

/* Ends the session with a scheduler that makes no sense, which may be so in the next one, too. */
static void start_over(struct weft_api_upstream *upstream, uint64_t now_us, const char *because) {
    weft_log(weft_log_rarely(WEFT_LOG_ERROR, now_us / 1000, &upstream->quiet_until_ms),
             "starting over with the scheduler: %s", because);
    upstream->link.reset(upstream->link.context);
}

static void on_hello(struct weft_api_state *api, const struct weft_msg_sched_hello *hello,
                     uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    if (hello->version != WEFT_PROTO_VERSION) {
        struct weft_errmsg why;
        (void)weft_err_set(&why, WEFT_E_PROTO,
                           "it speaks version %u of the protocol, this router %d", hello->version,
                           WEFT_PROTO_VERSION);
        start_over(upstream, now_us, why.text);
        return;
    }
    if (hello->instance != upstream->scheduler) weft_expert_rows_new_source(&api->metrics.experts);
    upstream->scheduler = hello->instance;
}

static void on_experts(struct weft_api_state *api, const struct weft_msg_experts *told) {
    weft_err err = weft_expert_rows_carry(&api->metrics.experts, told);
    if (err) weft_warn("the counts of experts are lost: %s", weft_err_text(err));
}

void weft_api_upstream_message(struct weft_api_state *api, const void *bytes, size_t len,
                               uint64_t now_us) {
    struct weft_api_upstream *upstream = &api->upstream;
    struct weft_msg msg;
    struct weft_errmsg why;
    upstream->heard_at_ms = now_us / 1000;
    weft_err err = weft_proto_decode(upstream->decoder, bytes, len, &msg, &why);
    if (err) {
        start_over(upstream, now_us, why.text);
        return;
    }
    struct weft_api_upstream_job *job = NULL;
    switch (msg.type) {
    case WEFT_MSG_SCHED_HELLO:
        on_hello(api, &msg.sched_hello, now_us);
        return;
    case WEFT_MSG_ACCEPTED:
        job = find_job(upstream, msg.accepted.request_id, msg.accepted.attempt);
        if (!job) return;
        set_answered(upstream, job);
        job->ops->accepted(job);
        return;
    case WEFT_MSG_REJECTED:
        job = find_job(upstream, msg.rejected.request_id, msg.rejected.attempt);
        if (!job) return;
        set_answered(upstream, job);
        job->ops->rejected(job, &msg.rejected);
        return;
    case WEFT_MSG_EVENTS:
        on_events(upstream, &msg.events, now_us);
        return;
    case WEFT_MSG_SNAPSHOT:
        on_snapshot(api, &msg.snapshot, now_us);
        return;
    case WEFT_MSG_EXPERTS:
        on_experts(api, &msg.experts);
        return;
    default:
        (void)weft_err_set(&why, WEFT_E_PROTO, "a scheduler sends no %s",
                           weft_proto_type_name(msg.type));
        start_over(upstream, now_us, why.text);
    }
}

/* --------------------------------------------------------------------------------- lifetime --- */

weft_err weft_api_upstream_init(struct weft_api_state *api,
                                const struct weft_api_upstream_link *link, uint32_t pid,
                                struct weft_errmsg *why) {
    struct weft_api_upstream *upstream = &api->upstream;
    memset(upstream, 0, sizeof *upstream);
    upstream->link = *link;
    upstream->pid = pid;
    upstream->instance = weft_rand_seed();
    TAILQ_INIT(&upstream->waiting);
    TAILQ_INIT(&upstream->sent);
    weft_buf_init(&upstream->scratch, WEFT_MESSAGE_BYTES_MAX);
    weft_err err = weft_proto_decoder_new(&upstream->decoder);
    if (err) return weft_err_set(why, err, "cannot make a decoder");
    return WEFT_OK;
}

void weft_api_upstream_fini(struct weft_api_state *api) {
    struct weft_api_upstream *upstream = &api->upstream;
    WEFT_ASSERT(upstream->n_open == 0 && upstream->n_unanswered == 0);
    WEFT_ASSERT(TAILQ_EMPTY(&upstream->waiting) && TAILQ_EMPTY(&upstream->sent));
    weft_proto_decoder_free(upstream->decoder);
    weft_buf_fini(&upstream->scratch);
    free(upstream->slots);
    free(upstream->free_slots);
    memset(upstream, 0, sizeof *upstream);
}
