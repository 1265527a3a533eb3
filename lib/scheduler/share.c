/* Shares out the rest of a step among prompts.
 *
 * A single prompt gets all. With several, the oldest gets half, and the rest goes to the others,
 * fewest missing tokens first; the oldest also gets what they do not need. So the oldest prompt is
 * never starved, each in turn becomes the oldest, and a short question that comes after a
 * 100k-token document is answered within a few steps, before the document is through. Plain first
 * come, first served would make it wait for all of that.
 *
 * Order is by age and never by phase: a chunk's size does not change what is computed
 * (docs/architecture.md#batch-invariance). */
#include "scheduler_internal.h"

#include "base/check.h"
#include "base/minmax.h"

static bool shorter(const struct seq *a, const struct seq *b) {
    uint32_t left_a = wefti_sched_seq_left(a), left_b = wefti_sched_seq_left(b);
    return left_a != left_b ? left_a < left_b : wefti_sched_seq_older(a, b);
}

static void sift_down(struct seq **heap, uint32_t n, uint32_t pos, wefti_sched_seq_before *before) {
    struct seq *seq = heap[pos];
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= n) break;
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], seq)) break;
        heap[pos] = heap[child];
        pos = child;
    }
    heap[pos] = seq;
}

void wefti_sched_seq_heapify(struct seq **heap, uint32_t n, wefti_sched_seq_before *before) {
    for (uint32_t pos = n / 2; pos-- > 0;)
        sift_down(heap, n, pos, before);
}

struct seq *wefti_sched_seq_heap_pop(struct seq **heap, uint32_t *n,
                                     wefti_sched_seq_before *before) {
    struct seq *first = heap[0];
    heap[0] = heap[--*n];
    if (*n) sift_down(heap, *n, 0, before);
    return first;
}

/* As many of n_tokens as it wants and as have room for their log-probabilities: first in its own
 * ration, then in the unclaimed rest. */
static uint32_t give(weft_sched *sched, struct seq *seq, uint32_t n_tokens) {
    uint32_t wanted = wefti_sched_seq_left(seq) - seq->chunk;
    struct weft_step_seq view = wefti_sched_seq_view(sched, seq, seq->chunk);
    uint32_t given = weft_step_tokens_within(&view, wanted < n_tokens ? wanted : n_tokens,
                                             seq->ration + sched->logprob_room);
    uint64_t bytes = weft_step_logprob_bytes(&view, given);
    uint64_t own = bytes < seq->ration ? bytes : seq->ration;
    seq->ration -= own;
    sched->logprob_room -= bytes - own;
    seq->chunk += given;
    return given;
}

/* Everybody with tokens to compute and no row yet, oldest first, shares the rest of the step: as
 * much as fits into its time. The oldest one's place stands for all. */
static uint32_t collect(weft_sched *sched, uint32_t *budget_out) {
    uint32_t n = 0;
    struct weft_sched_work decode = {0};
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        if (seq->chunk > 0) weft_sched_work_add(&decode, seq->n_planned, seq->chunk, 1);
        if (seq->chunk > 0 || seq->put_off || wefti_sched_seq_complete(sched, seq)) continue;
        sched->candidates[n++] = seq;
    }
    *budget_out = sched->options.max_batched_tokens - decode.n_tokens;
    if (n == 0) return 0;
    uint32_t bound_us =
        weft_sched_cost_bound(&sched->cost, &decode, n, sched->options.itl_target_us);
    uint32_t timely = weft_sched_cost_prompt_tokens(&sched->cost, &decode,
                                                    sched->candidates[0]->n_planned, bound_us);
    *budget_out = weft_min_u32(*budget_out, timely);
    return n;
}

void wefti_sched_share_out(weft_sched *sched) {
    uint32_t budget;
    uint32_t n = collect(sched, &budget);
    if (n == 0) return;
    WEFT_ASSERT(budget > 0); /* the running set is no larger than the token budget */
    struct seq *oldest = sched->candidates[0];
    struct seq **others = sched->candidates + 1;
    n--;
    budget -= give(sched, oldest, n ? budget - budget / 2 : budget);
    wefti_sched_seq_heapify(others, n, shorter);
    while (n && budget)
        budget -= give(sched, wefti_sched_seq_heap_pop(others, &n, shorter), budget);
    (void)give(sched, oldest, budget);
}
