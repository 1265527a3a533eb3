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

/* ---------------------------------------------------------------------------------- weights --- */

struct wefti_weights_matrix {
    enum weft_gemm_kind kind;
    uint32_t n, k, n_panels;
    struct weft_kern_segs segs;
    size_t offset, panel_bytes; /* in the arena */
};

struct wefti_weights_expert {
    struct wefti_weights_matrix gate, up, down; /* of a layer's experts all are alike */
};

/* A matrix of its own for each head, all alike and one behind the other. */
struct wefti_weights_heads {
    struct wefti_weights_matrix first;
    size_t head_bytes;
};

struct wefti_weights_layer {
    size_t attn_norm, ffn_norm;                                       /* offsets of f32 vectors */
    size_t bq, bk, bv, q_norm, k_norm, post_attn_norm, post_ffn_norm; /* the same; 0: none */
    struct wefti_weights_matrix q, k, v, o;
    struct wefti_weights_matrix gate, up, down; /* n is 0: only experts, of which none is shared */
    struct wefti_weights_matrix router;         /* for f32 */
    struct wefti_weights_expert *experts;       /* NULL: the layer has none */
    size_t score_bias, shared_gate;             /* offsets of f32 vectors; 0: none */
    /* Latent attention: q may come by way of q_a; k makes the cache's rows, and there is no v;
     * `up_k` takes a head's q to where it meets latents, `up_v` the latent a head attended to its
     * values. */
    struct wefti_weights_matrix q_a; /* n is 0: there is none */
    size_t q_a_norm, latent_norm;
    struct wefti_weights_heads up_k, up_v;
};

/* Everything the engine reads of a model, in one arena. The model file is closed after packing:
 * what happens to it later cannot reach a running worker. */
struct wefti_weights {
    uint8_t *base; /* mapped read-only once packed */
    size_t bytes;
    size_t map_bytes; /* of a packed file, which goes on behind the arena; else 0 */
    /* What a step of one token reads: no header, no rows to gather, no gaps, of experts a token's
     * share. */
    size_t step_bytes;
    bool inherited;
    uint64_t model_hash, layout_hash;
    uint32_t n_layers, n_vocab, n_hidden;
    struct wefti_weights_layer *layers;
    struct wefti_weights_expert *experts; /* of all layers, or NULL */
    size_t final_norm;
    struct wefti_weights_matrix head;
    bool tied;                    /* embedding rows are gathered from the head's panels */
    enum weft_kern_src embed_src; /* else they stand as in the file, embed_row_bytes apart */
    size_t embed_offset, embed_row_bytes;
};

WEFT_MUST_CHECK weft_err wefti_weights_open(struct wefti_weights *weights, const char *path,
                                            weft_model *model,
                                            const struct weft_eng_options *options,
                                            struct wefti_pool *pool, struct weft_errmsg *why);
void wefti_weights_close(struct wefti_weights *weights); /* accepts zeroed and closed ones */

static inline const float *wefti_weights_vector(const struct wefti_weights *weights,
                                                size_t offset) {
    return (const float *)(const void *)(weights->base + offset);
}

/* The embedding of `token` as f32; `raw`: scratch of 4 * n_hidden bytes. */
void wefti_weights_embed(const struct wefti_weights *weights, uint32_t token, uint8_t *raw,
                         float *out);

/* -------------------------------------------------------------------------------- calibration ---
 */

/* What matrices of a layer have as their input; of the head, whatever the layer. */
enum wefti_calib_input {
    WEFTI_CALIB_QKV,
    WEFTI_CALIB_O,
    WEFTI_CALIB_FFN,
    WEFTI_CALIB_DOWN,
    WEFTI_CALIB_HEAD,
    WEFTI_CALIB_ROUTER, /* not calibrated */
};
enum { WEFTI_CALIB_LAYER_INPUTS = WEFTI_CALIB_HEAD };
#define WEFTI_CALIB_IMPORTANCE_MAX                                                                 \
    1e30f /* also of what is infinite or NaN: a sum of them stays finite                           \
           */

WEFT_MUST_CHECK weft_err wefti_calib_new(uint32_t n_layers, uint32_t n_hidden, uint32_t q_dim,
                                         uint32_t n_ffn, weft_eng_calib **calib_out,
                                         struct weft_errmsg *why);
bool wefti_calib_fits(const weft_eng_calib *calib, const struct weft_model_params *p);

/* Rows of f32, all columns of that input, interleaved by `group` (1: they are not). One thread at a
 * time. */
void wefti_calib_add(weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input,
                     const uint8_t *rows, size_t row_bytes, uint32_t group, uint32_t n_rows);

/* How much each column matters, inputs at wefti_calib_offset; malloc'd. NULL: no memory. *hash_out
 * goes on with them. */
float *wefti_calib_importance(const weft_eng_calib *calib, uint64_t *hash_out);
size_t wefti_calib_offset(const weft_eng_calib *calib, uint32_t layer,
                          enum wefti_calib_input input);

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
