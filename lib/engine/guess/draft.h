/* engine/guess/draft — a small model that guesses what the large one will say.
 *
 * Model    The draft runs beside the target (beside.h). Of each of its blocks it is known how many
 *          leading tokens the draft has computed: none when it is granted to somebody anew, or read back
 *          from a file, as many as its source's when it is a copy. Nothing is computed ahead: a sequence
 *          that begins to guess catches up first, so many tokens a step, and who never guesses costs nothing.
 *          A guess is the draft's likeliest token, whatever the sequence samples by.
 * Contract The vocabularies are the same, token by token (checked at opening).
 * Threads  The owner calls; passes run on all threads of the pool. Only forget may be called beside that, by
 *          whoever has the block for itself.
 * Memory   All of it is sized at opening.
 * Source   Leviathan et al., ICML 2023; Chen et al., 2023. Here acceptance is by equality with the
 *          token that the target draws itself, so nothing about the draft's distribution matters. */
#ifndef WEFT_ENGINE_DRAFT_H
#define WEFT_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/step.h"
#include "engine/engine.h"
#include "guess/beside.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "runtime/pool.h"
#include "runtime/slots.h"

struct wefti_draft;

/* Opens the model at the options' draft_path for a target, and decides on its sizes. *draft_out is
 * the caller's. Errors of weft_model_open; INVAL: another vocabulary, or one that cannot be
 * compared; NOMEM. */
WEFT_MUST_CHECK weft_err wefti_draft_new(const struct wefti_beside_host *host,
                                         struct wefti_draft **draft_out, struct weft_errmsg *why);
void wefti_draft_free(struct wefti_draft *draft); /* accepts NULL */

/* What it runs with, to be measured and loaded. */
struct wefti_beside *wefti_draft_beside(struct wefti_draft *draft);

/* Makes the cache, of as many blocks as info has, and what a pass works in. */
WEFT_MUST_CHECK weft_err wefti_draft_open(struct wefti_draft *draft,
                                          const struct weft_eng_info *info,
                                          struct weft_errmsg *why);

/* A plan, in its order: copies and restores; then starts and, before the target's, grants. */
void wefti_draft_move(struct wefti_draft *draft, const struct weft_step_plan *plan);
/* A full block was filled by others: the draft has computed nothing of it. */
void wefti_draft_forget(struct wefti_draft *draft, uint32_t block);
void wefti_draft_start(struct wefti_draft *draft, uint32_t slot);
void wefti_draft_grant(struct wefti_draft *draft, const struct wefti_slot *slot,
                       const struct weft_step_grant *grant);

/* Returns the time that catching up took, in us. */
WEFT_MUST_CHECK weft_err wefti_draft_guess(struct wefti_draft *draft, struct wefti_slots *slots,
                                           const struct wefti_guess_line *lines, uint32_t n_lines,
                                           uint32_t *catch_up_us_out, struct weft_errmsg *why);
/* After the step: what the draft computed of tokens that were not to be means nothing. */
void wefti_draft_settle(struct wefti_draft *draft, const struct wefti_slots *slots);

#endif
