/* A request that goes from one scheduler to another, as it is: nothing is copied, so nothing but
 * the room for it can be missing. */
#include "scheduler_internal.h"

#include "base/check.h"

bool wefti_sched_request_move(weft_sched *from, struct request *req, weft_sched *to,
                              uint64_t now_us) {
    WEFT_ASSERT(from != to && req->n_running == 0);
    WEFT_ASSERT(!wefti_sched_index_find(&to->index, req->key.router, req->key.request_id));
    bool is_as_long = from->options.max_model_len == to->options.max_model_len;
    if ((req->shifts && !is_as_long) || !wefti_sched_request_fits(to, req)) return false;
    const struct request_payer who = {req->tenant, req->flow, req->weight, req->is_background};
    struct payer *flow = wefti_sched_request_reserve(to, &who);
    if (!flow) return false;
    wefti_sched_request_dequeue(from, req);
    from->n_moved++;
    req->order = to->n_submitted++;
    req->following = (struct following){0};
    req->compiled_epoch = UINT64_MAX;
    req->last_start_plan = 0; /* of `from`, and its worker is gone */
    for (uint32_t i = 0; i < req->n_choices; i++) {
        wefti_sched_spill_drop(from, &req->seqs[i]);
        req->seqs[i].lost_epoch = UINT64_MAX;
    }
    wefti_sched_forecast_advance(to, now_us);
    wefti_sched_request_enqueue(to, req, flow);
    to->n_accepted++;
    return true;
}
