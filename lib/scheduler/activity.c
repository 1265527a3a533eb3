/* The batch as others see it. */
#include "scheduler_internal.h"

#include "base/check.h"

/* ------------------------------------------------------------------------------- sequences --- */

struct list {
    const weft_sched *sched;
    uint64_t now_us;
    struct weft_activity_seq *seqs;
    uint32_t n, n_max;
};

/* Tokens in the cache: what was planned, without the rows whose result has not come. */
static uint32_t n_computed(const weft_sched *sched, const struct seq *seq) {
    uint32_t n = seq->n_planned;
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++) {
        if (seq->row[i] != NO_ROW) n -= sched->out[i].rows[seq->row[i]].n_tokens;
    }
    return n;
}

/* A sequence that was put off computes its output again; it is back when only the last token is
 * left. */
static enum weft_activity_phase phase_of(const struct seq *seq, uint32_t n_done) {
    if (seq->state != SEQ_RUNNING) return WEFT_ACTIVITY_WAITING;
    bool decodes = seq->n_output > 0 && n_done + 1 >= wefti_sched_seq_known(seq);
    return decodes ? WEFT_ACTIVITY_DECODE : WEFT_ACTIVITY_PROMPT;
}

static void add(struct list *list, const struct seq *seq) {
    if (list->n == list->n_max) return;
    const struct request *req = seq->req;
    bool runs = seq->state == SEQ_RUNNING;
    uint32_t n_done = runs ? n_computed(list->sched, seq) : 0;
    list->seqs[list->n++] = (struct weft_activity_seq){
        .request_id = req->key.request_id,
        .age_us = list->now_us > req->arrival_us ? list->now_us - req->arrival_us : 0,
        .router = req->key.router,
        .choice = seq->choice,
        .phase = phase_of(seq, n_done),
        .n_prompt = req->n_prompt,
        .n_prompt_done = n_done < req->n_prompt ? n_done : req->n_prompt,
        .n_output = seq->n_output,
        .max_tokens = req->sampling.max_tokens,
        .n_blocks = runs ? seq->table.n : 0,
    };
}

static void add_waiting(struct list *list, const struct request *req) {
    for (uint32_t i = 0; i < req->n_choices; i++) {
        if (req->seqs[i].state == SEQ_WAITING) add(list, &req->seqs[i]);
    }
}

/* Choices that wait for a sibling's prompt are in no queue. */
static void add_parked(struct list *list) {
    const struct request *last = NULL;
    for (uint32_t i = 0; i < list->sched->n_running && list->n < list->n_max; i++) {
        const struct request *req = list->sched->running[i]->req; /* siblings are neighbours */
        if (req->parked && req != last) add_waiting(list, req);
        last = req;
    }
}

/* Requests that wait beside the queue: for another's prompt, for their grammar, or since
 * they have their share. */
static void add_others(struct list *list) {
    const struct request *req = NULL;
    LIST_FOREACH(req, &list->sched->asides, aside_link) {
        if (list->n == list->n_max) return;
        add_waiting(list, req);
    }
    LIST_FOREACH(req, &list->sched->followers, following.link) {
        if (list->n == list->n_max) return;
        add_waiting(list, req);
    }
    TAILQ_FOREACH(req, &list->sched->awaiting, awaiting_link) {
        if (list->n == list->n_max) return;
        add_waiting(list, req);
    }
}

/* The heap's items from its top, without changing it: the next one is always a child of one that
 * was taken. Each brings at least one sequence, so the candidates are few however many wait. */
static void add_queue(struct list *list) {
    const struct heap *heap = &list->sched->waiting;
    uint32_t at[WEFT_ACTIVITY_SEQS_MAX + 1] = {0}, n = heap->n > 0;
    while (n > 0 && list->n < list->n_max) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++) {
            if (wefti_sched_heap_before(heap->nodes[at[i]], heap->nodes[at[best]])) best = i;
        }
        uint32_t pos = at[best];
        at[best] = at[--n];
        add_waiting(list, WEFTI_SCHED_OWNER(heap->nodes[pos], request, by_age));
        for (uint32_t child = 2 * pos + 1; child <= 2 * pos + 2 && child < heap->n; child++) {
            WEFT_ASSERT(n <= WEFT_ACTIVITY_SEQS_MAX);
            at[n++] = child;
        }
    }
}

uint32_t weft_sched_list(const weft_sched *sched, uint64_t now_us, struct weft_activity_seq *seqs,
                         uint32_t n_max) {
    WEFT_ASSERT(n_max <= WEFT_ACTIVITY_SEQS_MAX);
    struct list list = {.sched = sched, .now_us = now_us, .seqs = seqs, .n_max = n_max};
    for (uint32_t i = 0; i < sched->n_running; i++)
        add(&list, sched->running[i]);
    add_parked(&list);
    add_others(&list);
    add_queue(&list);
    return list.n;
}

/* ----------------------------------------------------------------------------------- steps --- */

void weft_sched_last_step(const weft_sched *sched, struct weft_activity_step *step_out) {
    *step_out = sched->last_step;
}

void weft_activity_ring_add(struct weft_activity_ring *ring, uint64_t now_us,
                            const struct weft_activity_step *step) {
    uint32_t at = (uint32_t)(ring->n % WEFT_ACTIVITY_STEPS_MAX);
    ring->steps[at] = *step;
    ring->steps[at].step = ++ring->n;
    ring->at_us[at] = now_us;
}

uint32_t weft_activity_ring_list(const struct weft_activity_ring *ring, uint64_t now_us,
                                 struct weft_activity_step steps_out[WEFT_ACTIVITY_STEPS_MAX]) {
    uint64_t first = ring->n > WEFT_ACTIVITY_STEPS_MAX ? ring->n - WEFT_ACTIVITY_STEPS_MAX : 0;
    uint32_t n = 0;
    for (uint64_t i = first; i < ring->n; i++) {
        uint32_t at = (uint32_t)(i % WEFT_ACTIVITY_STEPS_MAX);
        steps_out[n] = ring->steps[at];
        steps_out[n++].age_us = now_us > ring->at_us[at] ? now_us - ring->at_us[at] : 0;
    }
    return n;
}
