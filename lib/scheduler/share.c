/* Sharing out what a step has left for prompts.
 *
 * With one prompt at work it gets all. With several, the oldest gets half, and the rest goes to
 * the others, fewest missing tokens first; what they do not need is the oldest's again. So the
 * oldest prompt is never starved, each in turn becomes the oldest, and a short question that comes
 * behind a 100k-token document is answered within a few steps and not after it. Plain first come,
 * first served for everything would make it wait for the whole document.
 *
 * Order is by age and never by phase: a chunk's size does not change what is computed (design 2.1).
 */
#include "scheduler/scheduler_internal.h"

#include "base/check.h"

static bool shorter(const struct seq *a, const struct seq *b) {
    uint32_t left_a = wefti_seq_left(a), left_b = wefti_seq_left(b);
    return left_a != left_b ? left_a < left_b : wefti_seq_older(a, b);
}

static void sift_down(struct seq **heap, uint32_t n, uint32_t pos) {
    struct seq *seq = heap[pos];
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= n) break;
        if (child + 1 < n && shorter(heap[child + 1], heap[child])) child++;
        if (!shorter(heap[child], seq)) break;
        heap[pos] = heap[child];
        pos = child;
    }
    heap[pos] = seq;
}

static struct seq *pop_shortest(struct seq **heap, uint32_t *n) {
    struct seq *shortest = heap[0];
    heap[0] = heap[--*n];
    if (*n) sift_down(heap, *n, 0);
    return shortest;
}

static uint32_t give(struct seq *seq, uint32_t n_tokens) {
    uint32_t wanted = wefti_seq_left(seq) - seq->chunk;
    uint32_t given = wanted < n_tokens ? wanted : n_tokens;
    seq->chunk += given;
    return given;
}

/* Everybody with tokens to compute and no row yet, oldest first; what is left of the step. */
static uint32_t collect(weft_sched *sched, uint32_t *budget_out) {
    uint32_t n = 0, n_decode = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        n_decode += seq->chunk;
        if (seq->chunk == 0 && !wefti_seq_complete(sched, seq)) sched->candidates[n++] = seq;
    }
    uint32_t room = sched->options.max_batched_tokens - n_decode;
    uint32_t timely = wefti_pace_prompt_tokens(&sched->pace, sched->options.step_target_us);
    *budget_out = room < timely ? room : timely;
    return n;
}

void wefti_share_out(weft_sched *sched) {
    uint32_t budget;
    uint32_t n = collect(sched, &budget);
    if (n == 0) return;
    WEFT_ASSERT(budget > 0); /* the running set is no larger than the token budget */
    struct seq *oldest = sched->candidates[0];
    struct seq **others = sched->candidates + 1;
    n--;
    budget -= give(oldest, n ? budget - budget / 2 : budget);
    for (uint32_t pos = n / 2; pos-- > 0;)
        sift_down(others, n, pos);
    while (n && budget)
        budget -= give(pop_shortest(others, &n), budget);
    (void)give(oldest, budget);
}
