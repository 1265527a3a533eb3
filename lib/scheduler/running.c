/* The life of a sequence: each transition in one place, with all that it implies. */
#include "scheduler_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---------------------------------------------------------------------- slots, running set --- */

static uint32_t running_pos(const weft_sched *sched, const struct seq *seq) {
    uint32_t low = 0, high = sched->n_running; /* the first that is not older than seq */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (wefti_sched_seq_older(sched->running[mid], seq))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void running_insert(weft_sched *sched, struct seq *seq) {
    WEFT_ASSERT(sched->n_running < sched->running_max);
    uint32_t pos = running_pos(sched, seq);
    struct seq **at = &sched->running[pos];
    memmove(at + 1, at, (sched->n_running - pos) * sizeof(struct seq *));
    *at = seq;
    sched->n_running++;
}

static void running_erase(weft_sched *sched, struct seq *seq) {
    uint32_t pos = running_pos(sched, seq);
    struct seq **at = &sched->running[pos];
    WEFT_ASSERT(pos < sched->n_running && *at == seq);
    sched->n_running--;
    memmove(at, at + 1, (sched->n_running - pos) * sizeof(struct seq *));
}

void wefti_sched_seq_release(weft_sched *sched, struct seq *seq) {
    if (seq->is_released) return;
    WEFT_ASSERT(sched->n_pending < sched->options.max_seqs);
    sched->pending[sched->n_pending++] =
        (struct weft_step_release){.slot = seq->slot, .gen = seq->gen};
    seq->is_released = true;
}

/* The slot may be started again in the very plan that releases it: releases come first there. */
static void give_back(weft_sched *sched, struct seq *seq) {
    wefti_sched_seq_release(sched, seq);
    sched->free_slots[sched->n_free_slots++] = seq->slot;
    sched->by_slot[seq->slot] = NULL;
    wefti_sched_states_drop(sched, seq);
    weft_kv_prefix_release(sched->cache, &seq->table, &seq->chain);
    wefti_sched_window_release(sched, seq);
    running_erase(sched, seq);
    seq->n_planned = seq->n_granted = seq->chunk = seq->n_spec = seq->n_spec_out = 0;
    seq->is_held = seq->restarts = false;
}

/* ---------------------------------------------------------------------- counters and queue --- */

/* Requests with nothing running count as queued, but for those in the background: with the sign of `more`. */
static void count_queued(weft_sched *sched, const struct request *req, bool more) {
    if (req->is_background) return; /* it is in nobody's way */
    sched->n_requests_waiting += more ? 1 : UINT32_MAX;
    sched->n_queued_tokens += more ? req->n_prompt : 0ull - req->n_prompt;
    for (struct payer *payer = req->payer; payer; payer = payer->parent) {
        payer->n_queued += more ? 1 : UINT32_MAX;
        payer->n_queued_tokens += more ? req->n_prompt : 0ull - req->n_prompt;
    }
}

static void count_running(weft_sched *sched, struct request *req) {
    wefti_sched_payer_runs(sched, req, true);
    sched->n_background_seqs += req->is_background;
    if (req->n_running++ > 0) return;
    count_queued(sched, req, false);
    sched->n_requests_running++;
}

static void count_not_running(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(req->n_running > 0);
    wefti_sched_payer_runs(sched, req, false);
    sched->n_background_seqs -= req->is_background;
    if (--req->n_running > 0) return;
    sched->n_requests_running--;
    count_queued(sched, req, true);
}

static void queue(weft_sched *sched, struct request *req) {
    if (req->n_waiting > 0 && req->by_turn.pos == 0) wefti_sched_queue_push(sched, req);
}

static void call_back(struct request *req) {
    if (req->is_aside) LIST_REMOVE(req, aside_link);
    req->is_aside = false;
}

static void count_not_waiting(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(req->n_waiting > 0);
    sched->n_seqs_waiting--;
    if (--req->n_waiting > 0) return;
    req->parked = false;
    wefti_sched_unfollow(sched, req);
    wefti_sched_unawait_grammar(sched, req);
    call_back(req);
    wefti_sched_queue_remove(sched, req);
}

void wefti_sched_request_park(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(req->n_running > 0 && req->n_waiting > 0);
    wefti_sched_queue_remove(sched, req);
    req->parked = true;
}

void wefti_sched_request_set_aside(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(req->n_running > 0 && req->n_waiting > 0 && !req->is_aside);
    wefti_sched_queue_remove(sched, req);
    LIST_INSERT_HEAD(&sched->asides, req, aside_link);
    req->is_aside = true;
}

void wefti_sched_request_unpark(weft_sched *sched, struct request *req) {
    req->parked = false;
    call_back(req);
    queue(sched, req);
}

/* Ends it at its deadline, or so long after `from_us` (0: no such bound). */
static void expire(weft_sched *sched, struct request *req, uint64_t from_us, uint64_t timeout_us) {
    uint64_t at_us = req->deadline_us;
    if (req->is_background) timeout_us = 0; /* it may have to wait for long, at any time */
    if (timeout_us > 0 && from_us + timeout_us < at_us) at_us = from_us + timeout_us;
    wefti_sched_heap_remove(&sched->deadlines, &req->by_deadline);
    req->by_deadline.key = at_us;
    req->by_deadline.tie = req->order;
    if (at_us != UINT64_MAX) wefti_sched_heap_push(&sched->deadlines, &req->by_deadline);
}

void wefti_sched_request_first_start(weft_sched *sched, struct request *req) {
    req->first_plan_us = sched->now_us;
    expire(sched, req, sched->now_us, sched->options.run_timeout_us);
}

void wefti_sched_request_enqueue(weft_sched *sched, struct request *req, struct payer *flow) {
    wefti_sched_index_add(&sched->index, req);
    wefti_sched_payer_join(sched, req, flow);
    req->contrast_bytes = wefti_sched_contrast_bytes(sched, &req->sampling, req->n_prompt);
    sched->contrast_bytes += req->contrast_bytes;
    bool waits_anew = !req->is_resumed && req->first_plan_us == UINT64_MAX;
    if (req->first_plan_us != UINT64_MAX) /* it comes from another group, where it ran */
        expire(sched, req, req->first_plan_us, sched->options.run_timeout_us);
    else
        expire(sched, req, req->arrival_us, waits_anew ? sched->options.queue_timeout_us : 0);
    count_queued(sched, req, true);
    sched->n_seqs_waiting += req->n_waiting;
    queue(sched, req);
}

void wefti_sched_request_dequeue(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(req->n_running == 0 && req->n_waiting > 0 && !req->parked);
    wefti_sched_unfollow(sched, req);
    wefti_sched_unawait_grammar(sched, req);
    call_back(req);
    wefti_sched_queue_remove(sched, req);
    count_queued(sched, req, false);
    sched->contrast_bytes -= req->contrast_bytes;
    wefti_sched_payer_leave(sched, req);
    wefti_sched_heap_remove(&sched->deadlines, &req->by_deadline);
    wefti_sched_index_remove(&sched->index, req);
    sched->n_seqs_waiting -= req->n_waiting;
}

/* ----------------------------------------------------------------------------- transitions --- */

void wefti_sched_seq_start(weft_sched *sched, struct seq *seq) {
    WEFT_ASSERT(seq->state == SEQ_WAITING && seq->n_rows_out == 0);
    WEFT_ASSERT(sched->n_free_slots > 0);
    seq->state = SEQ_RUNNING;
    seq->slot = sched->free_slots[--sched->n_free_slots];
    seq->gen = ++sched->slot_gen[seq->slot];
    seq->is_released = false;
    sched->by_slot[seq->slot] = seq;
    running_insert(sched, seq);
    count_running(sched, seq->req);
    count_not_waiting(sched, seq->req);
}

/* RUNNING -> WAITING, at the front of its class. */
static void stop(weft_sched *sched, struct seq *seq, uint32_t n_in_cache) {
    WEFT_ASSERT(seq->state == SEQ_RUNNING);
    wefti_sched_publish(sched, seq, n_in_cache);
    give_back(sched, seq);
    seq->state = SEQ_WAITING;
    seq->req->n_waiting++;
    sched->n_seqs_waiting++;
    seq->req->was_preempted = true;
    count_not_running(sched, seq->req);
    wefti_sched_request_unpark(sched, seq->req); /* a parked sibling may have waited for this one */
}

void wefti_sched_seq_preempt(weft_sched *sched, struct seq *seq) {
    stop(sched, seq, seq->n_planned);
}

/* Rows that are out name this sequence; their results will find nobody. */
static void forget_rows(weft_sched *sched, struct seq *seq, bool ended) {
    for (uint32_t i = 0; i < WEFT_SCHED_PLANS_MAX; i++) {
        if (seq->row[i] == NO_ROW) continue;
        struct row *row = &sched->out[i].rows[seq->row[i]];
        WEFT_ASSERT(row->seq == seq);
        row->seq = NULL;
        row->ended = ended;
        seq->row[i] = NO_ROW;
    }
    seq->n_rows_out = seq->n_samples_out = 0;
}

/* The plan made last points at the prompt and the sampling arrays of requests it starts. It is
 * valid until the next one is made, so such a request outlives its end until then. */
static void remove_request(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(req->n_running == 0 && req->n_waiting == 0);
    count_queued(sched, req, false); /* it is not running */
    sched->contrast_bytes -= req->contrast_bytes;
    wefti_sched_payer_leave(sched, req);
    wefti_sched_heap_remove(&sched->deadlines, &req->by_deadline);
    wefti_sched_index_remove(&sched->index, req);
    if (req->last_start_plan == sched->n_plans && sched->n_plans > 0) {
        LIST_INSERT_HEAD(&sched->borrowed, req, link);
    } else {
        wefti_sched_request_free(req);
    }
}

void wefti_sched_request_free_borrowed(weft_sched *sched) {
    struct request *req = NULL;
    while ((req = LIST_FIRST(&sched->borrowed))) {
        LIST_REMOVE(req, link);
        wefti_sched_request_free(req);
    }
}

/* Tokens in the cache once all plans that are out have run. If the worker ended the sequence, rows
 * that are out are no-ops. */
static uint32_t n_computed(const weft_sched *sched, const struct seq *seq, bool ended) {
    uint32_t n = seq->n_planned;
    for (uint32_t i = 0; ended && i < WEFT_SCHED_PLANS_MAX; i++) {
        if (seq->row[i] != NO_ROW) n -= sched->out[i].rows[seq->row[i]].n_tokens;
    }
    return n;
}

/* What is published has the tokens of before. */
void wefti_sched_seq_shift(weft_sched *sched, struct seq *seq) {
    uint32_t n_in_cache = n_computed(sched, seq, true);
    forget_rows(sched, seq, true);
    if (seq->state == SEQ_RUNNING) stop(sched, seq, n_in_cache);
    wefti_sched_spill_drop(sched, seq);
    wefti_sched_seq_drop_tokens(sched, seq);
    seq->n_computed_max = wefti_sched_seq_known(seq) - 1;
    seq->n_preempted = seq->n_losses = 0; /* it got past all that */
    seq->owes_shift = true;
    sched->n_context_shifts++;
}

void wefti_sched_seq_leave(weft_sched *sched, struct seq *seq, bool ended) {
    struct request *req = seq->req;
    WEFT_ASSERT(seq->state != SEQ_DONE);
    uint32_t n_in_cache = n_computed(sched, seq, ended);
    forget_rows(sched, seq, ended);
    if (seq->state == SEQ_RUNNING) {
        wefti_sched_publish(sched, seq, n_in_cache);
        give_back(sched, seq);
        wefti_sched_session_keep(sched, seq, n_in_cache);
        count_not_running(sched, req);
    } else {
        count_not_waiting(sched, req);
    }
    wefti_sched_spill_drop(sched, seq);
    seq->state = SEQ_DONE;
    wefti_sched_headroom_sufficed(sched);
    free(seq->output);
    seq->output = NULL;
    if (req->parked) wefti_sched_request_unpark(sched, req);
    if (--req->n_live == 0) remove_request(sched, req);
}
