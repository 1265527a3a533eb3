/* Rationing what clients choose the size of: log-probabilities, the one such part of a result, and the
 * candidates of contrastive search, the one such part of what a step computes.
 *
 * Every running sequence whose next token brings some gets a ration for that token. Mostly all of
 * them fit, and the rest goes to longer chunks (share.c). Otherwise they take turns: the one whose
 * last turn, or start, is longest ago comes first, and those that find no room sit the plan out. No
 * token needs more than a whole step has, so the first in this order always gets its ration: nobody
 * waits for ever, decode rows and prompts alike. Candidates take turns likewise.
 *
 * Sitting out changes when something is computed and never what
 * (docs/architecture.md#batch-invariance). */
#include "scheduler_internal.h"

#include "base/check.h"

#define CANDIDATES_MAX WEFT_CONTRAST_K_MAX /* of a step, of those that run already */

static uint64_t bytes_of_next(const weft_sched *sched, const struct seq *seq) {
    if (wefti_sched_seq_left(seq) == 0 || wefti_sched_seq_complete(sched, seq)) return 0;
    struct weft_step_seq view = wefti_sched_seq_view(sched, seq, 0);
    return weft_step_logprob_bytes(&view, 1);
}

static bool comes_first(const struct seq *a, const struct seq *b) {
    if (a->req->is_background != b->req->is_background) return b->req->is_background;
    return a->turn < b->turn;
}

/* `n` candidates that do not fit all. */
static void put_some_off(weft_sched *sched, uint32_t n) {
    struct seq **heap = sched->candidates;
    wefti_sched_seq_heapify(heap, n, comes_first);
    while (n) {
        struct seq *seq = wefti_sched_seq_heap_pop(heap, &n, comes_first);
        seq->put_off = seq->ration > sched->logprob_room;
        if (seq->put_off) {
            seq->ration = 0;
            continue;
        }
        sched->logprob_room -= seq->ration;
        seq->turn = ++sched->n_turns;
    }
}

static bool has_candidates(const weft_sched *sched, const struct seq *seq) {
    return !seq->put_off && weft_sampling_is_contrastive(&seq->req->sampling) &&
           wefti_sched_seq_left(seq) > 0 && !wefti_sched_seq_complete(sched, seq);
}

/* Each one's candidates are rows in passes of their own, which read all weights. */
static void put_searches_off(weft_sched *sched) {
    uint32_t n = 0, n_rows = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        if (has_candidates(sched, sched->running[i])) sched->candidates[n++] = sched->running[i];
    }
    wefti_sched_seq_heapify(sched->candidates, n, comes_first);
    while (n) {
        struct seq *seq = wefti_sched_seq_heap_pop(sched->candidates, &n, comes_first);
        uint32_t k = seq->req->sampling.top_k;
        seq->put_off = n_rows > 0 && n_rows + k > CANDIDATES_MAX;
        if (seq->put_off) continue;
        n_rows += k;
        seq->turn = ++sched->n_turns;
    }
}

void wefti_sched_ration(weft_sched *sched, const struct seq *alone) {
    uint32_t n = 0;
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct seq *seq = sched->running[i];
        seq->put_off = alone && seq != alone;
        seq->ration = seq->put_off ? 0 : bytes_of_next(sched, seq);
        if (seq->ration) sched->candidates[n++] = seq;
        wanted += seq->ration;
    }
    sched->logprob_room = sched->options.step_logprob_bytes;
    if (wanted > sched->logprob_room)
        put_some_off(sched, n);
    else
        sched->logprob_room -= wanted;
    put_searches_off(sched);
}

void wefti_sched_put_off(weft_sched *sched, struct seq *seq) {
    sched->logprob_room += seq->ration;
    seq->ration = 0;
    seq->put_off = true;
}
