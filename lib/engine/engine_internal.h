/* engine, private — what its files share.
 *
 *   options.c       defaults and names
 *   memory.c        mappings, carved into pieces
 *   pool.c          compute threads, barrier, tile counter
 *   weights.c       the arena of packed weights (weights_internal.h lists its other files)
 *   calibrate.c     what a text says about matrices
 *   plan.c          checks a plan, changes nothing
 *   slots.c         sequences: start, grant, append
 *   forward.c       the pass over a flat batch (forward_internal.h lists its other files)
 *   routing.c       which experts a token takes
 *   sampler.c       logits to token, log-probabilities
 *   profile.c       who was busy with what, and when
 *   engine.c        opening, and one step end to end
 */
#ifndef WEFT_ENGINE_INTERNAL_H
#define WEFT_ENGINE_INTERNAL_H

#include "engine/engine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/minmax.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "runtime/kv_cache.h"
#include "runtime/memory.h"
#include "runtime/options.h"
#include "runtime/plan_check.h"
#include "runtime/pool.h"
#include "runtime/profile.h"
#include "runtime/slots.h"
#include "sampler/sampler.h"
#include "weights/calibrate.h"
#include "weights/weights.h"

/* ---------------------------------------------------------------------------------- forward --- */

/* Gets the logits of the batch's `i`-th logit row. They may be changed. */
typedef void wefti_forward_logits_fn(void *ctx, uint32_t i, float *logits, uint32_t thread_idx);

struct wefti_forward_batch {
    uint32_t n_tokens;
    const uint32_t *tokens;           /* [n_tokens] */
    const struct weft_attn_row *rows; /* [n_tokens]; rows of a sequence together, ascending */
    const bool *is_long;              /* [n_tokens] of a sequence with a long prompt (LongRoPE) */
    uint32_t n_logit_rows;
    const uint32_t *logit_rows; /* indices of rows that need logits, ascending */
    wefti_forward_logits_fn *on_logits;
    void *on_logits_ctx;
    bool in_order; /* on_logits is called by thread 0, row after row; else by any, all at once */
    uint32_t n_copies;
    const struct weft_step_copy *copies;
};

struct wefti_forward;

/* -------------------------------------------------------------------------------- routing --- */

/* Chooses the experts of one row by what the router made of it, logits[n_experts]: chosen[n_used],
 * in ascending order, and what their outputs are multiplied by. Of equal ones the lower id wins,
 * and NaN never does, so that the chosen ones are different in any case. `bias` may be NULL. */
void wefti_forward_route(const struct weft_model_moe *moe, const float *bias, const float *logits,
                         uint32_t *chosen, float *weights);

/* Of experts 0..n-1 those of group `group` of the 8 that sums are made in (design 2.1) end here. */
static inline uint32_t wefti_forward_expert_group_end(uint32_t n, uint32_t group) {
    return (uint32_t)((uint64_t)(group + 1) * n / 8);
}

WEFT_MUST_CHECK weft_err wefti_forward_new(
    const struct weft_kern_table *kern, struct wefti_pool *pool,
    const struct wefti_weights *weights, const struct wefti_kv_cache *kv, const weft_model *model,
    uint32_t max_batched_tokens, struct wefti_forward **forward_out, struct weft_errmsg *why);
void wefti_forward_free(struct wefti_forward *forward); /* accepts NULL */

/* From now on its passes are noted there; borrowed. */
void wefti_forward_set_profile(struct wefti_forward *forward, struct wefti_profile *profile);
/* From now on the rows that matrices meet, which must be f32, are added to `calib`; NULL: no more.
 */
void wefti_forward_observe(struct wefti_forward *forward, weft_eng_calib *calib);

/* From now on `fn` is told, on the first thread; NULL: no more. */
void wefti_forward_watch_routes(struct wefti_forward *forward, weft_eng_routes_fn *fn, void *ctx);

/* Rows that each expert computed so far, [n_layers][n_experts]; NULL: there are none. */
const uint64_t *wefti_forward_expert_tokens(const struct wefti_forward *forward);

/* 1..max_batched_tokens tokens (or none, for the copies alone). Takes nothing from the heap. */
void wefti_forward_run(struct wefti_forward *forward, const struct wefti_forward_batch *batch);

#endif
