/* engine/forward — the forward pass over a flat batch.
 *
 * Model    All tokens of a batch go through the layers at once. Each reads the keys and values of
 *          its own sequence through its block tables, after all rows of the batch have written
 *          theirs.
 * Contract A row's logits depend on its sequence alone (docs/architecture.md, "Batch invariance").
 * Threads  One owner runs passes; inside, the threads of the pool share the work by output tiles.
 * Memory   All buffers are sized at opening; a pass takes nothing from the heap. */
#ifndef WEFT_ENGINE_FORWARD_H
#define WEFT_ENGINE_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "collective/collective.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "lora/adapters.h"
#include "model/model.h"
#include "recurrent/mixer.h"
#include "runtime/kv_cache.h"
#include "runtime/pool.h"
#include "runtime/profile.h"
#include "weights/weights.h"

/* Gets the logits of the batch's `i`-th logit row. They may be changed. */
typedef void wefti_forward_logits_fn(void *ctx, uint32_t i, float *logits, uint32_t thread_idx);
/* Gets hidden states after the final norm: those of the batch's `i`-th span, row after row, by one
 * thread. */
typedef void wefti_forward_hidden_fn(void *ctx, uint32_t i, const float *hidden,
                                     uint32_t thread_idx);

struct wefti_forward_span { /* of last_rows */
    uint32_t first, n;
};

struct wefti_forward_batch {
    uint32_t n_tokens;
    const uint32_t *tokens; /* [n_tokens] */
    /* [n_tokens] of a predictor: the state before each token, [n_hidden] after the final norm of what it
     * comes from. May be what on_hidden writes in the same pass. Of whole models nobody reads it. */
    const float *const *states;
    /* [n_tokens] by kind of blocks (the first is always there): rows of a sequence together,
     * ascending. */
    const struct weft_attn_row *rows[WEFT_KV_KINDS];
    const bool *is_long; /* [n_tokens] its sequence has a long prompt (LongRoPE) */
    /* [n_tokens] each row's adapters, or NULL; NULL: no row has any. */
    const struct wefti_lora_set *const *adapters;
    const bool
        *is_second; /* [n_tokens] it belongs to the second of two texts; NULL: there are none */
    /* [n_tokens] its keys and values are in blocks of FULL already, which others may read: they are made, but
     * not written there; NULL: no row's are. */
    const bool *is_written;
    uint32_t n_last_rows;
    const uint32_t *last_rows; /* rows of whose output anything is wanted, ascending */
    uint32_t n_logit_rows;
    const uint32_t *logit_rows; /* those that need logits, as indices into last_rows, ascending */
    /* [n_logit_rows] its logits are given after those of the row before it, by the same thread or after
     * a barrier; NULL: no row's are. */
    const bool *is_chained;
    wefti_forward_logits_fn *on_logits;
    bool in_order; /* on_logits is called by thread 0, row after row; else by any, all at once */
    uint32_t n_spans;
    const struct wefti_forward_span *spans; /* those whose hidden states are wanted */
    /* Where there are recurrent layers: the sequences, whose rows are all of the batch's. */
    uint32_t n_seqs;
    const struct wefti_mixer_seq *seqs;
    wefti_forward_hidden_fn *on_hidden;
    void *ctx; /* of both functions */
    uint32_t n_copies;
    const struct weft_step_copy *copies;
};

struct wefti_forward;

/* Borrowed for as long as the forward pass lives, but for the model. */
struct wefti_forward_config {
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
    const struct wefti_weights *weights;
    const struct wefti_kv_cache *kv;
    const struct wefti_states *states; /* of recurrent layers; NULL: there are none */
    struct wefti_profile *profile;     /* passes are noted there; NULL: they are not */
    const weft_model *model;           /* borrowed for the call alone */
    uint32_t max_batched_tokens;
    uint32_t max_model_len; /* of a sequence */
    weft_coll *coll; /* of the ranks that the weights are divided among; NULL: they are not */
    uint64_t home;   /* nodes whose memory the buffers prefer; 0: no choice */
    uint32_t lora_rank_max; /* of adapters; 0: there are none */
    bool exact;             /* attention, too, is computed in f32 throughout */
};

/* *forward_out is the caller's. NOMEM; with `coll` also errors of weft_coll_reserve. */
WEFT_MUST_CHECK weft_err wefti_forward_new(const struct wefti_forward_config *config,
                                           struct wefti_forward **forward_out,
                                           struct weft_errmsg *why);
void wefti_forward_free(struct wefti_forward *forward); /* accepts NULL */

/* Where its buffers are. */
const void *wefti_forward_memory(const struct wefti_forward *forward, size_t *bytes_out);

/* The memory that its buffers take, once a full batch has used them. `is_most`: with all sums of spans that long
 * sequences may have, of which a step mostly uses little, and what adapters add. The cache need not be open. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_forward_measure(const struct wefti_forward_config *config,
                                               bool is_most, size_t *bytes_out,
                                               struct weft_errmsg *why);

/* From here on the rows that matrices meet, which must be f32, are added to `calib`; NULL ends
 * that. */
void wefti_forward_observe(struct wefti_forward *forward, weft_eng_calib *calib);

/* From here on `fn` is told, on the first thread, which experts rows take; NULL ends that. */
void wefti_forward_watch_routes(struct wefti_forward *forward, weft_eng_routes_fn *fn, void *ctx);

/* Rows that each expert computed so far, [n_layers][n_experts]; NULL: there are none. */
const uint64_t *wefti_forward_expert_tokens(const struct wefti_forward *forward);

/* 1..max_batched_tokens tokens (or none, for the copies alone). Where the model is divided, all
 * ranks run the same batch, and on_logits is called on the first alone. Errors (of weft_coll_meet):
 * only there; what the pass wrote means nothing then, and no other can be run. */
WEFT_MUST_CHECK weft_err wefti_forward_run(struct wefti_forward *forward,
                                           const struct wefti_forward_batch *batch,
                                           struct weft_errmsg *why);

/* Time in meetings with other ranks, since its making. */
uint64_t wefti_forward_meeting_ns(const struct wefti_forward *forward);

/* Where the first rank's on_logits puts tokens that the others read when the pass has run, one per
 * logit row; NULL: the model is not divided. */
uint32_t *wefti_forward_shared_tokens(const struct wefti_forward *forward);

#endif
