/* Events since the caller last asked. */
#include "scheduler_internal.h"

#include <stdlib.h>

#include "base/check.h"

/* Grows by doubling; the ceiling is 1 + WEFT_MORE_MAX events per live sequence and result taken in
 * between two calls of weft_sched_events_clear. */
weft_err wefti_sched_events_reserve(weft_sched *sched, size_t n_more) {
    size_t wanted = sched->n_events + n_more;
    if (wanted <= sched->events_cap) return WEFT_OK;
    size_t cap = sched->events_cap ? sched->events_cap : 64;
    while (cap < wanted)
        cap *= 2;
    struct weft_sched_event *events = realloc(sched->events, cap * sizeof *events);
    if (!events) return WEFT_E_NOMEM;
    sched->events = events;
    sched->events_cap = cap;
    return WEFT_OK;
}

static void add_out(struct weft_event *event, const struct weft_step_out *out) {
    event->sampled = out->sampled;
    event->token = out->token;
    event->output_idx = out->output_idx;
    event->sampler_state = out->sampler_state;
    event->has_logprobs = out->has_logprobs;
    event->logprobs = out->logprobs;
    event->prompt_pos = out->prompt_pos;
    event->n_prompt_logprobs = out->n_prompt_logprobs;
    event->prompt_logprobs = out->prompt_logprobs;
    event->n_values = out->n_values;
    event->values = out->values;
}

void wefti_sched_event_push(weft_sched *sched, const struct seq *seq,
                            const struct weft_step_out *out, enum weft_end end) {
    WEFT_ASSERT(sched->n_events < sched->events_cap);
    const struct request *req = seq->req;
    bool was_planned = req->first_plan_us != UINT64_MAX;
    struct weft_event event = {
        .request_id = req->key.request_id,
        .attempt = req->key.attempt,
        .choice = seq->choice,
        .end = end,
        .n_prompt_cached = req->n_prompt_cached,
        .queued_us = was_planned ? req->first_plan_us - req->arrival_us : 0,
    };
    if (out) add_out(&event, out);
    sched->events[sched->n_events++] =
        (struct weft_sched_event){.router = req->key.router, .event = event};
}

const struct weft_sched_event *weft_sched_events(const weft_sched *sched, size_t *n_out) {
    *n_out = sched->n_events;
    return sched->events;
}

void weft_sched_events_clear(weft_sched *sched) {
    sched->n_events = 0;
}
