/* engine/guess/beside — a model that runs beside the target, to guess for it.
 *
 * Model    It has weights, a KV cache and a forward pass of its own, on the same threads. Its blocks
 *          mirror the target's: the same numbers in the same tables, all layers of one kind. So prefixes
 *          that sequences share, forks and copies hold for it as well.
 * Threads  The owner calls; passes run on all threads of the pool.
 * Memory   All of it is sized at opening. */
#ifndef WEFT_ENGINE_BESIDE_H
#define WEFT_ENGINE_BESIDE_H

#include <stdint.h>

#include "engine/engine.h"
#include "forward/forward.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "runtime/kv_cache.h"
#include "runtime/pool.h"
#include "weights/weights.h"

/* The target, and what it runs with; borrowed. */
struct wefti_beside_host {
    const char *path; /* the target's */
    const struct weft_eng_options *options;
    const struct weft_eng_info *info;
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
};

struct wefti_beside {
    struct weft_eng_options options; /* of its weights and cache */
    const struct weft_kern_table *kern;
    struct wefti_pool *pool;
    const char *path;
    weft_model *model; /* until it is loaded */
    struct wefti_weights_plan *plan;
    struct wefti_weights weights;
    struct wefti_kv_cache kv;
    struct wefti_forward *forward;
    uint32_t max_rows, max_model_len;
    uint64_t home;
};

/* Takes `model`, opened at `path` (borrowed), for a target. Errors of
 * wefti_weights_lay_out. In any case `beside` is to be closed. */
WEFT_MUST_CHECK weft_err wefti_beside_init(struct wefti_beside *beside, const char *path,
                                           weft_model *model, const struct wefti_beside_host *host,
                                           struct weft_errmsg *why);
void wefti_beside_close(struct wefti_beside *beside); /* accepts zeroed ones */

/* What it takes: of weights, of those that are not in memory, of a full step, for each block. */
struct wefti_beside_needs {
    uint64_t weight_bytes, to_come_bytes, scratch_bytes, block_bytes;
};
WEFT_MUST_CHECK weft_err wefti_beside_measure(const struct wefti_beside *beside,
                                              struct wefti_beside_needs *needs_out,
                                              struct weft_errmsg *why);

/* Makes the cache, of as many blocks as info has, and what a pass works in; then reads the weights. */
WEFT_MUST_CHECK weft_err wefti_beside_open(struct wefti_beside *beside,
                                           const struct weft_eng_info *info,
                                           struct weft_errmsg *why);
WEFT_MUST_CHECK weft_err wefti_beside_load(struct wefti_beside *beside, struct weft_errmsg *why);

/* A sequence that wants guesses: n_most of them; it gets slot->n_guesses, behind its known tokens. */
struct wefti_guess_line {
    uint32_t slot, n_most;
};

/* Copies a block in all layers. */
void wefti_beside_copy(const struct wefti_beside *beside, const struct weft_step_copy *copy);

#endif
