/* Shares out the rest of a step among prompts.
 *
 * A single prompt gets all. With several, the oldest gets half, and the rest goes to the others,
 * fewest missing tokens first; the oldest also gets what they do not need. So the oldest prompt is
 * never starved, each in turn becomes the oldest, and a short question that comes after a
 * 100k-token document is answered within a few steps, before the document is through. Plain first
 * come, first served would make it wait for all of that. Of several tenants or users, those that were
 * served least come first: the oldest is the oldest of theirs, and shares its half with theirs alone.
 * Under the other policies prompts go in their order alone. Those in the background get nothing while others have
 * prompts, and little beside their streams (yield.c).
 *
 * Order is by age and never by phase: a chunk's size does not change what is computed
 * (docs/architecture.md#batch-invariance). */
#include "scheduler_internal.h"

#include "base/check.h"
#include "base/minmax.h"

/* While prompts come one after another the model would see mixed steps alone, and could not tell what
 * the streams take without them, on which the automatic bound rests. So of so many steps one is
 * left to the streams, but for the least that prompts always get. */
#define PROBE_PLANS 16

static bool ranks_first(const struct seq *a, const struct seq *b) {
    int order = wefti_sched_served_less(a->req, b->req);
    if (order) return order < 0;
    return a->req == b->req ? a->choice < b->choice
                            : wefti_sched_heap_before(&a->req->by_turn, &b->req->by_turn);
}

static bool shorter(const struct seq *a, const struct seq *b) {
    int order = wefti_sched_served_less(a->req, b->req);
    if (order) return order < 0;
    uint32_t left_a = wefti_sched_seq_left(a), left_b = wefti_sched_seq_left(b);
    return left_a != left_b ? left_a < left_b : wefti_sched_seq_older(a, b);
}

/* As many of n_tokens as it wants and as have room for their log-probabilities: first in its own
 * ration, then in the unclaimed rest. Where prompts are computed whole, all that it wants or none. */
static uint32_t give(weft_sched *sched, struct seq *seq, uint32_t n_tokens) {
    uint32_t wanted = wefti_sched_seq_left(seq) - seq->chunk;
    if (wanted > n_tokens) wanted = n_tokens;
    wanted = wefti_sched_states_chunk(sched, seq, wanted);
    uint32_t room = wefti_sched_window_room(sched, seq, seq->chunk + wanted);
    while (room < seq->chunk + wanted && wefti_sched_sessions_give(sched))
        room = wefti_sched_window_room(sched, seq, seq->chunk + wanted);
    wanted = room - seq->chunk;
    struct weft_step_seq view = wefti_sched_seq_view(sched, seq, seq->chunk);
    uint32_t given = weft_step_tokens_within(&view, wanted, seq->ration + sched->logprob_room);
    bool is_whole = given == wefti_sched_seq_left(seq) - seq->chunk;
    if (sched->options.whole_tokens > 0 && !is_whole) return 0;
    uint64_t bytes = weft_step_logprob_bytes(&view, given);
    uint64_t own = bytes < seq->ration ? bytes : seq->ration;
    seq->ration -= own;
    sched->logprob_room -= bytes - own;
    seq->chunk += given;
    return given;
}

/* The shortest time per token that a stream of this step wishes for. Others pay for that, so it is at
 * least what the streams take alone and a quarter. */
static uint32_t wish_of_streams(const weft_sched *sched, const struct weft_sched_work *decode) {
    uint64_t wish_us = UINT32_MAX;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        uint64_t tpot_us = seq->req->tpot_us;
        if (seq->chunk > 0 && tpot_us > 0 && tpot_us < wish_us) wish_us = tpot_us;
    }
    uint32_t alone_us = weft_sched_cost_predict(&sched->cost, decode);
    uint64_t least_us = (uint64_t)alone_us + alone_us / 4;
    return wish_us < least_us ? (uint32_t)least_us : (uint32_t)wish_us;
}

static bool wants_share(const weft_sched *sched, const struct seq *seq) {
    return seq->chunk == 0 && !seq->put_off && !wefti_sched_seq_complete(sched, seq);
}

/* Prompts whose first token cannot be in time any more let the others pass from now on. */
static void note_late(weft_sched *sched) {
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct seq *seq = sched->running[i];
        struct request *req = seq->req;
        bool is_first = seq->n_output == 0 && req->n_running == 1;
        if (!is_first || !wants_share(sched, seq)) continue;
        if (!wefti_sched_becomes_late(sched, req, wefti_sched_seq_left(seq))) continue;
        req->is_late = true;
        wefti_sched_queue_rerank(sched, req);
    }
}

uint32_t wefti_sched_timely_tokens(const weft_sched *sched, const struct weft_sched_work *decode,
                                   uint32_t n, uint32_t n_before) {
    uint32_t target_us = sched->options.itl_target_us;
    bool is_probe =
        decode->n_tokens && target_us == WEFT_SCHED_ITL_AUTO && sched->n_plans % PROBE_PLANS == 0;
    uint32_t bound_us = is_probe ? 1 : weft_sched_cost_bound(&sched->cost, decode, n, target_us);
    bound_us = weft_min_u32(bound_us, wish_of_streams(sched, decode));
    return weft_sched_cost_prompt_tokens(&sched->cost, decode, n_before, bound_us);
}

/* Everybody with tokens to compute and no row yet, oldest first, shares the rest of the step: as
 * much as fits into its time. The oldest one's place stands for all. */
static uint32_t collect(weft_sched *sched, uint32_t *budget_out) {
    uint32_t n = 0, n_forced = 0; /* beside one for each stream: forced tokens, and guesses */
    bool others = false;          /* than those in the background want some */
    struct weft_sched_work decode = {0};
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        if (seq->chunk > 0) weft_sched_work_add(&decode, seq->n_planned, 1, 1);
        if (seq->chunk > 1) n_forced += seq->chunk - 1;
        n_forced += seq->n_spec;
        if (!wants_share(sched, seq)) continue;
        bool is_background = seq->req->is_background;
        others = others || (!is_background && wefti_sched_seq_left(seq) > 0);
        if (is_background && others)
            wefti_sched_put_off(sched, seq);
        else
            sched->candidates[n++] = seq;
    }
    *budget_out = sched->options.max_batched_tokens - decode.n_tokens - n_forced;
    sched->has_prompts = n > 0;
    if (n == 0) return 0;
    const struct seq *first = sched->candidates[0];
    uint32_t timely = wefti_sched_timely_tokens(sched, &decode, n, first->n_planned);
    if (sched->yielding.is_on && !others)
        timely = weft_min_u32(timely,
                              weft_sched_cost_prompt_tokens(&sched->cost, &decode, first->n_planned,
                                                            sched->yielding.bound_us));
    timely -= weft_min_u32(n_forced, timely - 1); /* at least one for prompts */
    *budget_out = weft_min_u32(*budget_out, timely);
    return n;
}

/* The oldest one of whoever was served least becomes the first. */
static void put_oldest_first(struct seq **seqs, uint32_t n) {
    uint32_t first = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (wefti_sched_served_less(seqs[i]->req, seqs[first]->req) < 0) first = i;
    }
    struct seq *seq = seqs[0];
    seqs[0] = seqs[first];
    seqs[first] = seq;
}

/* Texts that are computed whole, in their order: the first, and then as many as fit into a step of
 * whole_tokens; one that does not lets shorter ones by, and is the first sooner or later. Nobody waits for
 * a token meanwhile, so there is no bound of time. */
static void share_whole(weft_sched *sched) {
    uint32_t n = 0, n_given = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        n_given += seq->chunk; /* texts of one token have theirs */
        if (wants_share(sched, seq)) sched->candidates[n++] = seq;
    }
    sched->has_prompts = n > 0;
    wefti_sched_seq_heapify(sched->candidates, n, ranks_first);
    while (n) {
        struct seq *seq = wefti_sched_seq_heap_pop(sched->candidates, &n, ranks_first);
        uint32_t most =
            n_given > 0 ? sched->options.whole_tokens : sched->options.max_batched_tokens;
        if (n_given < most) n_given += give(sched, seq, most - n_given);
    }
}

void wefti_sched_share_out(weft_sched *sched) {
    uint32_t budget;
    note_late(sched);
    if (sched->options.whole_tokens > 0) {
        share_whole(sched);
        return;
    }
    uint32_t n = collect(sched, &budget);
    if (n == 0) return;
    WEFT_ASSERT(budget > 0); /* the running set is no larger than the token budget */
    bool is_fcfs = sched->options.policy == WEFT_SCHED_FCFS;
    wefti_sched_seq_before *before = is_fcfs ? shorter : ranks_first;
    if (is_fcfs) put_oldest_first(sched->candidates, n);
    struct seq *oldest = sched->candidates[0];
    struct seq **others = sched->candidates + is_fcfs;
    n -= is_fcfs;
    if (is_fcfs) budget -= give(sched, oldest, n ? budget - budget / 2 : budget);
    wefti_sched_seq_heapify(others, n, before);
    while (n && budget) {
        struct seq *seq = wefti_sched_seq_heap_pop(others, &n, before);
        bool is_next_user = is_fcfs && wefti_sched_served_less(oldest->req, seq->req) < 0;
        if (is_next_user) budget -= give(sched, oldest, budget);
        if (budget) budget -= give(sched, seq, budget);
    }
    if (is_fcfs) (void)give(sched, oldest, budget);
}
