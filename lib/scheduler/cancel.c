/* Requests that leave before they are done: cancelled, overdue, orphaned, or given up. */
#include "scheduler_internal.h"

#include "base/check.h"

/* Once the last sequence left, the request is gone: stop looking at it then. */
void wefti_sched_request_drop(weft_sched *sched, struct request *req) {
    uint32_t n_left = req->n_live;
    for (uint32_t i = 0; n_left > 0; i++) {
        if (req->seqs[i].state == SEQ_DONE) continue;
        n_left--;
        wefti_sched_seq_leave(sched, &req->seqs[i], false);
    }
}

void weft_sched_cancel(weft_sched *sched, uint64_t now_us, const struct weft_sched_key *key,
                       uint32_t choice) {
    wefti_sched_forecast_advance(sched, now_us);
    struct request *req = wefti_sched_index_find(&sched->index, key->router, key->request_id);
    if (!req || key->attempt < req->key.attempt) return; /* gone, or resubmitted since */
    if (choice != UINT32_MAX) {
        if (req->beams) return; /* beams are no choices */
        if (choice >= req->n_choices || req->seqs[choice].state == SEQ_DONE) return;
        if (req->n_live > 1) {
            wefti_sched_seq_leave(sched, &req->seqs[choice], false);
            return;
        }
    }
    sched->n_cancelled++;
    wefti_sched_request_drop(sched, req);
}

void weft_sched_router_lost(weft_sched *sched, uint64_t now_us, uint32_t router) {
    wefti_sched_forecast_advance(sched, now_us);
    wefti_sched_files_orphan(sched, router);
    for (uint32_t i = 0; i < sched->index.n_buckets; i++) {
        for (struct request *req = LIST_FIRST(&sched->index.buckets[i]), *next; req; req = next) {
            next = LIST_NEXT(req, link); /* dropping a request changes its own links only */
            if (req->key.router != router) continue;
            sched->n_cancelled++;
            wefti_sched_request_drop(sched, req);
        }
    }
}

static bool tell_end(weft_sched *sched, const struct request *req, enum weft_end end) {
    if (wefti_sched_events_reserve(sched, req->n_live)) return false;
    for (uint32_t i = 0; i < req->n_choices; i++) {
        if (req->seqs[i].state != SEQ_DONE) wefti_sched_event_push(sched, &req->seqs[i], NULL, end);
    }
    return true;
}

bool wefti_sched_request_end(weft_sched *sched, struct request *req, enum weft_end end) {
    if (!(req->beams ? wefti_sched_beams_end(sched, req, end) : tell_end(sched, req, end)))
        return false;
    wefti_sched_request_drop(sched, req);
    return true;
}

static bool has_adapter(const struct request *req, uint64_t id) {
    for (uint32_t i = 0; i < req->n_adapters; i++) {
        if (req->adapters[i].id == id) return true;
    }
    return false;
}

bool weft_sched_uses_adapter(const weft_sched *sched, uint64_t id) {
    for (uint32_t i = 0; i < sched->index.n_buckets; i++) {
        const struct request *req = NULL;
        LIST_FOREACH(req, &sched->index.buckets[i], link) {
            if (has_adapter(req, id)) return true;
        }
    }
    return false;
}

/* Without memory for its events a request is dropped without a word: it could never run. */
void weft_sched_end_adapter(weft_sched *sched, uint64_t now_us, uint64_t id) {
    wefti_sched_forecast_advance(sched, now_us);
    for (uint32_t i = 0; i < sched->index.n_buckets; i++) {
        for (struct request *req = LIST_FIRST(&sched->index.buckets[i]), *next; req; req = next) {
            next = LIST_NEXT(req, link); /* dropping a request changes its own links only */
            if (!has_adapter(req, id)) continue;
            if (!wefti_sched_request_end(sched, req, WEFT_END_ERROR))
                wefti_sched_request_drop(sched, req);
        }
    }
}

void weft_sched_tick(weft_sched *sched, uint64_t now_us) {
    wefti_sched_forecast_advance(sched, now_us);
    wefti_sched_payers_trim(sched, now_us);
    wefti_sched_sessions_expire(sched, now_us);
    for (;;) {
        struct heap_node *top = wefti_sched_heap_top(&sched->deadlines);
        if (!top || top->key > now_us) return;
        struct request *req = WEFTI_SCHED_OWNER(top, request, by_deadline);
        if (!wefti_sched_request_end(sched, req, WEFT_END_DEADLINE))
            return; /* no memory: at the next tick */
        sched->n_timed_out++;
    }
}
