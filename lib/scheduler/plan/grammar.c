/* Requests that wait until the worker has compiled their grammar.
 *
 * Compiling one may take a second, and a step that samples without it would wait as long, and all
 * that are in the step with it. So a request whose turn it is for the first time with this worker
 * leaves the queue, and its grammar is announced; it is queued again, at its old place, when the
 * worker says so. What was compiled once the worker keeps: then the answer comes at once.
 *
 * At most ANNOUNCED_MAX are announced and not answered at a time, so what is cancelled meanwhile cannot
 * pile up in the worker; short ones first, since they take next to nothing, and then in the order of
 * their turns. A worker answers each of them; if one does not for PATIENCE_US, the sequence starts
 * without: then its rows are late until the grammar is there. */
#include "scheduler_internal.h"

#include "base/check.h"

#define ANNOUNCED_MAX 4u
#define PATIENCE_US 60000000ull

bool wefti_sched_lacks_grammar(const weft_sched *sched, const struct request *req) {
    return req->sampling.grammar.kind != WEFT_GRAMMAR_NONE && req->compiled_epoch != sched->epoch;
}

void wefti_sched_await_grammar(weft_sched *sched, struct request *req) {
    WEFT_ASSERT(!req->awaits_grammar && req->n_running == 0);
    wefti_sched_queue_remove(sched, req);
    req->announced_us = UINT64_MAX;
    req->awaits_grammar = true;
    TAILQ_INSERT_TAIL(&sched->awaiting, req, awaiting_link);
}

void wefti_sched_unawait_grammar(weft_sched *sched, struct request *req) {
    if (!req->awaits_grammar) return;
    TAILQ_REMOVE(&sched->awaiting, req, awaiting_link);
    req->awaits_grammar = false;
}

static void go_on(weft_sched *sched, struct request *req) {
    req->compiled_epoch = sched->epoch;
    wefti_sched_unawait_grammar(sched, req);
    wefti_sched_request_unpark(sched, req); /* back into the queue */
}

void wefti_sched_wake_awaiting(weft_sched *sched) {
    struct request *req, *next;
    for (req = TAILQ_FIRST(&sched->awaiting); req; req = next) {
        next = TAILQ_NEXT(req, awaiting_link);
        bool is_announced = req->announced_us != UINT64_MAX;
        if (is_announced && sched->now_us >= req->announced_us + PATIENCE_US) go_on(sched, req);
    }
}

void wefti_sched_forget_announced(weft_sched *sched) {
    struct request *req = NULL;
    while ((req = TAILQ_FIRST(&sched->awaiting))) {
        wefti_sched_unawait_grammar(sched, req);
        wefti_sched_request_unpark(sched, req);
    }
    sched->n_announced = 0;
    sched->n_grammars_before = sched->n_grammars;
}

bool weft_sched_next_grammar(weft_sched *sched, uint64_t now_us, uint64_t *id_out,
                             const struct weft_grammar **grammar_out) {
    struct request *req = NULL, *it = NULL;
    if (sched->n_announced == ANNOUNCED_MAX) return false;
    TAILQ_FOREACH(it, &sched->awaiting, awaiting_link) {
        if (it->announced_us != UINT64_MAX) continue;
        if (!req || it->sampling.grammar.n_bytes < req->sampling.grammar.n_bytes) req = it;
    }
    if (!req) return false;
    req->announced_us = now_us;
    sched->n_announced++;
    *id_out = req->grammar_id = ++sched->n_grammars;
    *grammar_out = &req->sampling.grammar;
    return true;
}

void weft_sched_compiled(weft_sched *sched, uint64_t now_us, uint64_t id) {
    struct request *req = NULL;
    wefti_sched_forecast_advance(sched, now_us);
    if (id <= sched->n_grammars_before || id > sched->n_grammars) return;
    if (sched->n_announced > 0) sched->n_announced--;
    TAILQ_FOREACH(req, &sched->awaiting, awaiting_link) {
        if (req->announced_us == UINT64_MAX || req->grammar_id != id) continue;
        go_on(sched, req);
        return;
    }
}
