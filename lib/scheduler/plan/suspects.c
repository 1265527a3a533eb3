/* Sequences over which workers are lost.
 *
 * A worker that dies takes an epoch with it and costs recomputation, nothing else. But if a request
 * makes it die, the next one dies of the same, and so on for ever, and everybody who runs beside it
 * starts over each time. So every sequence counts the epochs that ended while a plan that names it
 * was out, in a row: anything new it gets done (a token, a part of its prompt that was never
 * computed before) sets the count back. Recomputing what was lost is nothing new.
 *
 * Sequences that share a plan with the culprit are counted along. So from WEFT_SUSPECT_LOSSES on a
 * sequence is computed alone, all others pausing, until it got something new done: that clears it,
 * or it is alone in the next loss. At WEFT_SEQ_LOSSES_MAX its request is ended. Losses that come
 * from outside (somebody kills workers) seldom hit a sequence that often in a row; see
 * base/limits.h. */
#include "scheduler_internal.h"

#include "base/check.h"

bool wefti_sched_seq_is_suspect(const struct seq *seq) {
    return seq->n_losses >= WEFT_SUSPECT_LOSSES;
}

/* At most one runs: the next starts when it is cleared, ended or preempted. */
struct seq *wefti_sched_find_suspect(weft_sched *sched) {
    for (uint32_t i = 0; i < sched->n_running; i++) {
        if (wefti_sched_seq_is_suspect(sched->running[i])) return sched->running[i];
    }
    return wefti_sched_next_suspect(sched);
}

static void count_loss(const weft_sched *sched, struct seq *seq) {
    if (seq->lost_epoch == sched->epoch) return; /* two plans may name it */
    seq->lost_epoch = sched->epoch;
    seq->n_losses++;
}

static const struct plan_out *plan_at(const weft_sched *sched, uint64_t step) {
    return &sched->out[step % WEFT_SCHED_PLANS_MAX];
}

static void count_losses(const weft_sched *sched, uint64_t oldest_step) {
    for (uint64_t step = oldest_step; step < sched->step; step++) {
        const struct plan_out *plan = plan_at(sched, step);
        for (uint32_t i = 0; i < plan->n_rows; i++) {
            if (plan->rows[i].seq) count_loss(sched, plan->rows[i].seq);
        }
    }
    for (uint32_t i = 0; i < sched->n_running; i++) { /* started, but not given a row yet */
        if (sched->running[i]->start_step >= oldest_step) count_loss(sched, sched->running[i]);
    }
}

/* Without memory for the events it gets another chance. */
static bool give_up(weft_sched *sched, const struct seq *seq) {
    if (!seq || seq->n_losses < WEFT_SEQ_LOSSES_MAX) return false;
    bool ended = wefti_sched_request_end(sched, seq->req, WEFT_END_ERROR);
    sched->n_given_up += ended;
    return ended;
}

void wefti_sched_note_losses(weft_sched *sched) {
    uint64_t oldest_step = sched->step - sched->n_out;
    if (sched->n_out == 0) return;
    count_losses(sched, oldest_step);
    for (uint64_t step = oldest_step; step < sched->step; step++) {
        const struct plan_out *plan = plan_at(sched, step);
        for (uint32_t i = 0; i < plan->n_rows; i++) /* rows of one that ended are nobody's */
            (void)give_up(sched, plan->rows[i].seq);
    }
    for (uint32_t i = 0; i < sched->n_running;) /* ending one moves the others up */
        i = give_up(sched, sched->running[i]) ? 0 : i + 1;
}
