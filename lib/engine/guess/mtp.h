/* engine/guess/mtp — guesses by the layer that a model has for them (multi-token prediction).
 *
 * Model    The layer takes the model's state of a position, after its final norm, and the token that
 *          follows, and says what comes after that. It has a KV cache of its own (beside.h), in which a
 *          position's entry is made of that position's state and the token after it. To guess on, it takes
 *          its own state in place of the model's; what it writes then is written over by what came of the
 *          model's. States that have not gone in yet are kept for each sequence: a few of them, so that a
 *          sequence that does not guess costs a pass of several rows now and then; a chunk of a prompt goes
 *          in at once.
 *          A guess is the layer's likeliest token, whatever the sequence samples by.
 * Contract Entries that are missing (of a block read back from a file, of a sequence that was released before
 *          its end) are zeros or another text's: that costs guesses, no more. Blocks that their sequence has
 *          given back are not written to.
 * Threads  The owner calls; passes run on all threads of the pool, and wefti_mtp_take on any of them. Only
 *          forget may be called beside that, by whoever has the block for itself.
 * Memory   All of it is sized at opening.
 * Source   DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2. */
#ifndef WEFT_ENGINE_MTP_H
#define WEFT_ENGINE_MTP_H

#include <stdint.h>

#include "base/step.h"
#include "engine/engine.h"
#include "guess/beside.h"
#include "kernels/kernels.h"
#include "runtime/pool.h"
#include "runtime/slots.h"

struct wefti_mtp;

/* Opens that layer of the target's model, and decides on its sizes.
 * *mtp_out is the caller's. Errors of weft_model_open_predictor; NOMEM. */
WEFT_MUST_CHECK weft_err wefti_mtp_new(const struct wefti_beside_host *host,
                                       struct wefti_mtp **mtp_out, struct weft_errmsg *why);
void wefti_mtp_free(struct wefti_mtp *mtp); /* accepts NULL */

/* What it runs with, to be loaded. */
struct wefti_beside *wefti_mtp_beside(struct wefti_mtp *mtp);
/* What it takes, with what is kept of states. */
WEFT_MUST_CHECK weft_err wefti_mtp_measure(const struct wefti_mtp *mtp,
                                           struct wefti_beside_needs *needs_out,
                                           struct weft_errmsg *why);
/* Makes the cache, of as many blocks as info has, and what a pass works in. */
WEFT_MUST_CHECK weft_err wefti_mtp_open(struct wefti_mtp *mtp, const struct weft_eng_info *info,
                                        struct weft_errmsg *why);

/* A plan: copies and restores; then starts. */
void wefti_mtp_move(struct wefti_mtp *mtp, const struct weft_step_plan *plan);
/* A full block was filled by others: it has zeros for entries. */
void wefti_mtp_forget(struct wefti_mtp *mtp, uint32_t block);
void wefti_mtp_start(struct wefti_mtp *mtp, uint32_t slot);

/* For lines whose sequences lack the state of nothing but their last token. */
WEFT_MUST_CHECK weft_err wefti_mtp_guess(struct wefti_mtp *mtp, struct wefti_slots *slots,
                                         const struct wefti_guess_line *lines, uint32_t n_lines,
                                         struct weft_errmsg *why);

/* The batch of a step: `row` is that of the slot's next token to be computed, and others of it follow. */
void wefti_mtp_note(struct wefti_mtp *mtp, const struct wefti_slots *slots, uint32_t slot,
                    uint32_t row);
/* The state of each row. */
void wefti_mtp_take(struct wefti_mtp *mtp, uint32_t row, const float *state);
/* After the step: states of tokens that were not to be mean nothing; those of sequences that ended go in, as
 * others may come to share their blocks. */
WEFT_MUST_CHECK weft_err wefti_mtp_settle(struct wefti_mtp *mtp, const struct wefti_slots *slots,
                                          struct weft_errmsg *why);

#endif
