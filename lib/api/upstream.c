#include "api/upstream.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"

/* ------------------------------------------------------------------------------------ table --- */

static weft_err grow_table(struct upstream *up) {
    uint32_t n = up->n_slots ? up->n_slots * 2 : 64;
    if (up->n_slots >= WEFT_OPEN_JOBS_MAX) return WEFT_E_FULL;
    struct upstream_job **slots = realloc(up->slots, n * sizeof(struct upstream_job *));
    if (!slots) return WEFT_E_NOMEM;
    up->slots = slots;
    uint32_t *free_slots = realloc(up->free_slots, n * sizeof *free_slots);
    if (!free_slots) return WEFT_E_NOMEM;
    up->free_slots = free_slots;
    for (uint32_t i = n; i-- > up->n_slots;) {
        up->slots[i] = NULL;
        up->free_slots[up->n_free++] = i;
    }
    up->n_slots = n;
    return WEFT_OK;
}

static struct upstream_job *find_job(const struct upstream *up, uint64_t id, uint32_t attempt) {
    uint32_t slot = (uint32_t)id;
    struct upstream_job *job = slot < up->n_slots ? up->slots[slot] : NULL;
    if (!job || job->id != id || job->place != UPSTREAM_SENT || job->attempt != attempt)
        return NULL;
    return job;
}

weft_err wefti_up_submit(struct core *core, struct upstream_job *job) {
    struct upstream *up = &core->up;
    WEFT_ASSERT(job->place == UPSTREAM_CLOSED);
    if (up->n_free == 0) {
        weft_err err = grow_table(up);
        if (err) return err;
    }
    uint32_t slot = up->free_slots[--up->n_free];
    up->slots[slot] = job;
    up->n_open++;
    job->id = (uint64_t)up->next_gen++ << 32 | slot;
    job->attempt = 0;
    job->place = UPSTREAM_WAITING;
    TAILQ_INSERT_TAIL(&up->waiting, job, entry);
    return WEFT_OK;
}

static void set_answered(struct upstream *up, struct upstream_job *job) {
    if (job->answered) return;
    WEFT_ASSERT(up->n_unanswered > 0 && up->unanswered_bytes >= job->sent_bytes);
    job->answered = true;
    up->n_unanswered--;
    up->unanswered_bytes -= job->sent_bytes;
}

void wefti_up_close(struct core *core, struct upstream_job *job) {
    struct upstream *up = &core->up;
    if (job->place == UPSTREAM_CLOSED) return;
    if (job->place == UPSTREAM_SENT) set_answered(up, job);
    TAILQ_REMOVE(job->place == UPSTREAM_WAITING ? &up->waiting : &up->sent, job, entry);
    uint32_t slot = (uint32_t)job->id;
    WEFT_ASSERT(slot < up->n_slots && up->slots[slot] == job);
    up->slots[slot] = NULL;
    up->free_slots[up->n_free++] = slot;
    up->n_open--;
    job->place = UPSTREAM_CLOSED;
}

/* ---------------------------------------------------------------------------------- sending --- */

/* Whatever goes wrong here ends the session, and its end is an event of its own. */
static weft_err send_msg(struct upstream *up, const struct weft_msg *msg) {
    weft_buf_clear(&up->scratch);
    weft_proto_encode(msg, &up->scratch);
    if (up->scratch.failed) return WEFT_E_TOOBIG;
    return up->link.send(up->link.context, up->scratch.data, up->scratch.len);
}

void wefti_up_cancel(struct core *core, struct upstream_job *job, uint32_t choice) {
    struct upstream *up = &core->up;
    if (job->place != UPSTREAM_SENT || !up->is_up) return;
    struct weft_msg msg = {.type = WEFT_MSG_CANCEL};
    msg.cancel.request_id = job->id;
    msg.cancel.attempt = job->attempt;
    msg.cancel.choice = choice;
    weft_err err = send_msg(up, &msg);
    if (err) weft_debug("cancel not sent: %s", weft_err_text(err));
}

static weft_err send_submit(struct upstream *up, struct upstream_job *job, uint64_t now_us) {
    struct weft_submit_choice choices[WEFT_CHOICES_MAX];
    struct weft_msg msg = {.type = WEFT_MSG_SUBMIT};
    job->ops->describe(job, now_us, choices, &msg.submit);
    WEFT_ASSERT(msg.submit.n_choices >= 1 && msg.submit.n_choices <= WEFT_CHOICES_MAX);
    msg.submit.request_id = job->id;
    msg.submit.attempt = job->attempt + 1;
    return send_msg(up, &msg);
}

/* The owner must close it: a job that stayed would be met again at once, for ever. */
static void fail_job(struct upstream_job *job, enum upstream_failure failure) {
    job->ops->failed(job, failure);
    WEFT_ASSERT(job->place == UPSTREAM_CLOSED);
}

void wefti_up_pump(struct core *core, uint64_t now_us) {
    struct upstream *up = &core->up;
    while (up->is_up && !TAILQ_EMPTY(&up->waiting) && up->n_unanswered < WEFT_UNANSWERED_MAX &&
           up->unanswered_bytes < WEFT_UNANSWERED_BYTES_MAX) {
        struct upstream_job *job = TAILQ_FIRST(&up->waiting);
        if (job->ops->is_late(job, now_us)) {
            fail_job(job, UPSTREAM_LATE);
            continue;
        }
        weft_err err = send_submit(up, job, now_us);
        if (err == WEFT_E_TOOBIG) {
            fail_job(job, UPSTREAM_TOO_LARGE);
            continue;
        }
        if (err) return; /* DOWN follows, and it goes out again after the next UP */
        if (job->attempt > 0) core->metrics.n_resubmitted++;
        job->attempt++;
        job->answered = false;
        job->sent_bytes = (uint32_t)up->scratch.len;
        up->n_unanswered++;
        up->unanswered_bytes += job->sent_bytes;
        TAILQ_REMOVE(&up->waiting, job, entry);
        job->place = UPSTREAM_SENT;
        TAILQ_INSERT_TAIL(&up->sent, job, entry);
    }
}

/* -------------------------------------------------------------------------------- receiving --- */

/* All that had been sent has to be sent again, before what never was. */
void wefti_up_unlinked(struct core *core) {
    struct upstream *up = &core->up;
    up->is_up = false;
    up->n_unanswered = 0;
    up->unanswered_bytes = 0;
    struct upstream_job *job;
    TAILQ_FOREACH(job, &up->sent, entry) {
        job->place = UPSTREAM_WAITING;
        job->answered = true;
    }
    TAILQ_CONCAT(&up->sent, &up->waiting, entry);
    TAILQ_CONCAT(&up->waiting, &up->sent, entry);
}

void wefti_up_linked(struct core *core) {
    struct upstream *up = &core->up;
    up->is_up = true;
    struct weft_msg msg = {.type = WEFT_MSG_ROUTER_HELLO};
    msg.router_hello.version = WEFT_PROTO_VERSION;
    msg.router_hello.instance = up->instance;
    msg.router_hello.pid = up->pid;
    weft_err err = send_msg(up, &msg);
    if (err) weft_debug("hello not sent: %s", weft_err_text(err));
    weft_debug("linked to the scheduler, %u jobs open", up->n_open);
}

/* Another model would go on with other tokens: what was begun cannot be finished. */
static void fail_strangers(struct upstream *up, const char *fingerprint) {
    for (uint32_t i = 0; i < up->n_slots; i++) {
        struct upstream_job *job = up->slots[i];
        if (job && strcmp(job->ops->fingerprint(job), fingerprint) != 0)
            fail_job(job, UPSTREAM_MODEL_CHANGED);
    }
}

/* As many as an idle scheduler takes in: some run at once, the others wait. */
static uint32_t max_prompts(const struct weft_msg_snapshot *snapshot) {
    const struct weft_model_info *model = &snapshot->model;
    uint32_t n_running =
        model->max_seqs < model->max_batched_tokens ? model->max_seqs : model->max_batched_tokens;
    uint64_t n = (uint64_t)snapshot->max_queue + n_running;
    return n < WEFT_PROMPTS_MAX ? (uint32_t)n : WEFT_PROMPTS_MAX;
}

static void on_model(struct api_limits *limits, const struct weft_msg_snapshot *snapshot) {
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

static void on_snapshot(struct core *core, const struct weft_msg_snapshot *snapshot,
                        uint64_t now_us) {
    struct upstream *up = &core->up;
    if (snapshot->has_model) {
        const struct weft_model_info *model = &snapshot->model;
        if (up->has_snapshot && up->snapshot.has_model &&
            strcmp(model->fingerprint, up->snapshot.model.fingerprint) != 0) {
            fail_strangers(up, model->fingerprint);
            weft_expert_rows_fini(&core->metrics.experts); /* its own come behind the snapshot */
        }
        on_model(&core->limits, snapshot);
    }
    struct weft_model_info known = up->snapshot.model;
    bool had_model = up->has_snapshot && up->snapshot.has_model;
    up->snapshot = *snapshot;
    up->has_snapshot = true;
    up->snapshot_at_ms = now_us / 1000;
    if (snapshot->serving && snapshot->has_model) up->served_at_ms = up->snapshot_at_ms;
    /* While the worker restarts its model is still the one we know. */
    if (!snapshot->has_model && had_model) {
        up->snapshot.model = known;
        up->snapshot.has_model = true;
    }
    wefti_metrics_snapshot(&core->metrics, snapshot);
}

static void on_events(struct upstream *up, const struct weft_msg_events *events, uint64_t now_us) {
    for (uint32_t i = 0; i < events->n; i++) {
        const struct weft_event *event = &events->events[i];
        struct upstream_job *job = find_job(up, event->request_id, event->attempt);
        if (job) job->ops->event(job, event, now_us);
    }
}

static void on_hello(struct core *core, const struct weft_msg_sched_hello *hello) {
    struct upstream *up = &core->up;
    if (hello->version != WEFT_PROTO_VERSION) {
        weft_error("the scheduler speaks version %u of the protocol, this router %d",
                   hello->version, WEFT_PROTO_VERSION);
        up->link.reset(up->link.context);
        return;
    }
    if (hello->instance != up->scheduler) weft_expert_rows_new_source(&core->metrics.experts);
    up->scheduler = hello->instance;
}

static void on_experts(struct core *core, const struct weft_msg_experts *told) {
    weft_err err = weft_expert_rows_carry(&core->metrics.experts, told);
    if (err) weft_warn("the counts of experts are lost: %s", weft_err_text(err));
}

void wefti_up_message(struct core *core, const void *bytes, size_t len, uint64_t now_us) {
    struct upstream *up = &core->up;
    struct weft_msg msg;
    struct weft_errmsg why;
    weft_err err = weft_proto_decode(up->decoder, bytes, len, &msg, &why);
    if (err) {
        weft_warn("the scheduler sent nonsense: %s", why.text);
        up->link.reset(up->link.context);
        return;
    }
    struct upstream_job *job = NULL;
    switch (msg.type) {
    case WEFT_MSG_SCHED_HELLO:
        on_hello(core, &msg.sched_hello);
        return;
    case WEFT_MSG_ACCEPTED:
        job = find_job(up, msg.accepted.request_id, msg.accepted.attempt);
        if (!job) return;
        set_answered(up, job);
        job->ops->accepted(job);
        return;
    case WEFT_MSG_REJECTED:
        job = find_job(up, msg.rejected.request_id, msg.rejected.attempt);
        if (!job) return;
        set_answered(up, job);
        job->ops->rejected(job, &msg.rejected);
        return;
    case WEFT_MSG_EVENTS:
        on_events(up, &msg.events, now_us);
        return;
    case WEFT_MSG_SNAPSHOT:
        on_snapshot(core, &msg.snapshot, now_us);
        return;
    case WEFT_MSG_EXPERTS:
        on_experts(core, &msg.experts);
        return;
    default:
        weft_warn("unexpected message \"%s\" from the scheduler", weft_proto_type_name(msg.type));
        up->link.reset(up->link.context);
    }
}

/* --------------------------------------------------------------------------------- lifetime --- */

weft_err wefti_up_init(struct core *core, const struct upstream_link *link, uint32_t pid,
                       struct weft_errmsg *why) {
    struct upstream *up = &core->up;
    memset(up, 0, sizeof *up);
    TAILQ_INIT(&up->parked);
    up->link = *link;
    up->pid = pid;
    up->instance = weft_rand_seed();
    TAILQ_INIT(&up->waiting);
    TAILQ_INIT(&up->sent);
    weft_buf_init(&up->scratch, WEFT_MESSAGE_BYTES_MAX);
    weft_err err = weft_proto_decoder_new(&up->decoder);
    if (err) return weft_err_set(why, err, "cannot make a decoder");
    return WEFT_OK;
}

void wefti_up_fini(struct core *core) {
    struct upstream *up = &core->up;
    WEFT_ASSERT(up->n_open == 0 && up->n_unanswered == 0);
    WEFT_ASSERT(TAILQ_EMPTY(&up->waiting) && TAILQ_EMPTY(&up->sent));
    WEFT_ASSERT(TAILQ_EMPTY(&up->parked) && up->n_parked_prompts == 0);
    weft_proto_decoder_free(up->decoder);
    weft_buf_fini(&up->scratch);
    free(up->slots);
    free(up->free_slots);
    memset(up, 0, sizeof *up);
}
