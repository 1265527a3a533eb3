/* Requests in the background: batches that nobody waits for. While nobody else runs they are like any other.
 *
 * Otherwise a step that computes somebody's prompt has nothing of theirs, and one of streams alone becomes
 * longer by an eighth at most, by estimate: as many rows as fit into that, in turns, then tokens of one of their
 * prompts. So streams run as if they were alone, and what a step leaves idle is used. Where not even one row fits,
 * one is taken every LEAST_PLANS plans: too few for the 99th percentile of anybody's gaps to notice, and enough
 * to come to an end.
 *
 * Their places and blocks are anybody's: who lacks one has it at once, and they wait with their tokens. They come
 * last in the queue, under every policy, for they are another kind of tenant (queue.c), and as the youngest of all
 * they are the first victims. What others have ready to share they share, but nobody else follows one of them.
 *
 * Sitting out changes when something is computed and never what
 * (docs/architecture.md#batch-invariance). */
#include "scheduler_internal.h"

#include "base/check.h"

#define PART 8u /* of a step of streams */
#define LEAST_PLANS 128u

static bool wants_row(const weft_sched *sched, const struct seq *seq) {
    return !seq->put_off && wefti_sched_seq_left(seq) > 0 && !wefti_sched_seq_complete(sched, seq);
}

/* What the streams compute. False: somebody has more than a token to compute, and gets all of the step. */
static bool add_streams(const weft_sched *sched, struct weft_sched_work *work,
                        uint32_t *first_out) {
    uint32_t i = 0;
    for (; i < sched->n_running && !sched->running[i]->req->is_background; i++) {
        const struct seq *seq = sched->running[i];
        if (!wants_row(sched, seq)) continue;
        if (wefti_sched_seq_left(seq) > 1 + WEFT_FORCED_MAX ||
            seq->n_planned < wefti_sched_seq_prompt(seq))
            return false;
        weft_sched_work_add(work, seq->n_planned, 1, 1);
    }
    *first_out = i;
    return true;
}

/* Beams go on together, and start anew on the way (beam/beams.c): none of them sits out. */
static bool sits_never(const struct seq *seq) {
    return seq->req->beams != NULL;
}

/* Its start is in this plan, before which a release would come. */
static bool starts_now(const struct seq *seq) {
    return seq->n_granted == 0;
}

static bool comes_first(const struct seq *a, const struct seq *b) {
    return a->turn < b->turn;
}

static bool fits(const weft_sched *sched, const struct weft_sched_work *work) {
    uint32_t us = weft_sched_cost_predict(&sched->cost, work);
    return us > 0 && us <= sched->yielding.bound_us && work->n_tokens <= sched->running_max;
}

/* Those in the background sit this plan out, but for those that fit beside `work`. */
static void choose(weft_sched *sched, uint32_t first, struct weft_sched_work work, bool takes_one) {
    struct seq **heap = sched->candidates;
    uint32_t n = 0, n_left_out = 0;
    for (uint32_t i = first; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        if (sits_never(seq))
            weft_sched_work_add(&work, seq->n_planned, 1, 1);
        else if (wants_row(sched, seq))
            heap[n++] = seq;
    }
    wefti_sched_seq_heapify(heap, n, comes_first);
    bool has_prompt = false;
    while (n) {
        struct seq *seq = wefti_sched_seq_heap_pop(heap, &n, comes_first);
        bool is_prompt = wefti_sched_seq_left(seq) > 1;
        struct weft_sched_work with = work;
        weft_sched_work_add(&with, seq->n_planned, 1, 1);
        if ((is_prompt && has_prompt) || (!takes_one && !fits(sched, &with))) {
            wefti_sched_put_off(sched, seq);
            n_left_out++;
            continue;
        }
        takes_one = false;
        seq->turn = ++sched->n_turns;
        has_prompt = has_prompt || is_prompt;
        work = with;
    }
    sched->yielding.may_start = n_left_out == 0 && !has_prompt && fits(sched, &work);
}

void wefti_sched_yield(weft_sched *sched) {
    struct weft_sched_work work = {0};
    sched->yielding = (struct yielding){.may_start = true};
    if (sched->n_running == 0 || sched->running[0]->req->is_background) return;
    sched->yielding = (struct yielding){.is_on = true};
    if (sched->n_background == 0) return;
    uint32_t first = 0;
    bool has_time = add_streams(sched, &work, &first);
    while (first < sched->n_running && !sched->running[first]->req->is_background)
        first++;
    uint32_t alone_us = weft_sched_cost_predict(&sched->cost, &work);
    sched->yielding.bound_us = has_time ? alone_us + alone_us / PART : 0;
    choose(sched, first, work, has_time && sched->n_plans % LEAST_PLANS == 0);
}

/* Without the worker's file: whoever starts may read that in this very plan. */
bool wefti_sched_make_way(weft_sched *sched) {
    if (sched->n_running == 0) return false;
    uint32_t i = sched->n_running - 1;
    while (i > 0 && sched->running[i]->req->is_background && starts_now(sched->running[i]))
        i--;
    struct seq *victim = sched->running[i];
    if (!victim->req->is_background || starts_now(victim)) return false;
    wefti_sched_put_off(sched, victim);
    wefti_sched_seq_preempt(sched, victim);
    sched->n_preemptions++;
    return true;
}
