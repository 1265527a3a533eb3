/* engine/guess — what may come next in the sequences of a step, before anything is computed.
 *
 * Model    A row that reaches its sequence's last known token may guess on: n_spec tokens at most, no
 *          more than the sequence can have and has blocks for. The guesses stand behind its known tokens
 *          until the step's samples take their places.
 * Contract What is guessed decides how much a step yields, never what.
 * Threads  The owner, before the forward pass. */
#ifndef WEFT_ENGINE_GUESS_H
#define WEFT_ENGINE_GUESS_H

#include <stdint.h>

#include "base/step.h"
#include "guess/draft.h"
#include "guess/mtp.h"
#include "guess/ngram.h"
#include "runtime/slots.h"

/* The most tokens that a row may guess. */
uint32_t wefti_guess_room(const struct wefti_slots *slots, const struct weft_step_row *row);

/* By what is guessed. */
struct wefti_guess_sources {
    struct wefti_ngram *ngram;
    /* For those of whom ngram finds nothing: one of these, or none. */
    struct wefti_draft *draft;
    struct wefti_mtp *mtp;
    struct wefti_guess_line *lines; /* [max_seqs] */
};

/* Guesses for all rows of a plan that is committed: n_guesses of their slots. Tells how long a draft
 * took to catch up. */
WEFT_MUST_CHECK weft_err wefti_guess_all(struct wefti_slots *slots,
                                         const struct wefti_guess_sources *sources,
                                         const struct weft_step_plan *plan,
                                         uint32_t *catch_up_us_out, struct weft_errmsg *why);

#endif
