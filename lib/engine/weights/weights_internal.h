/* weights, private to the engine's weights*.c — what is to be packed, piece by piece.
 *
 *   weights_plan.c  what becomes of the tensors
 *   weights_pack.c  their way into the arena
 *   weights.c       the arena: private, or shared with other workers
 *   weights_file.c  the arena in a packed file
 */
#ifndef WEFT_ENGINE_WEIGHTS_INTERNAL_H
#define WEFT_ENGINE_WEIGHTS_INTERNAL_H

#include "engine_internal.h"

enum wefti_weights_item_form {
    WEFTI_WEIGHTS_PANELS,
    WEFTI_WEIGHTS_VECTOR,
    WEFTI_WEIGHTS_ROWS, /* rows to gather */
    WEFTI_WEIGHTS_HEADS,
};

struct wefti_weights_item { /* one tensor's way into the arena */
    const struct weft_tensor *src;
    enum wefti_weights_item_form form;
    enum weft_gemm_kind kind; /* WEFTI_WEIGHTS_PANELS */
    uint32_t n, k;
    size_t offset;
    uint32_t n_tasks, rows_per_task;
    const float *importance; /* [k]; NULL: not calibrated */
    bool plus_one;           /* WEFTI_WEIGHTS_VECTOR: stored less 1 */
    /* WEFTI_WEIGHTS_HEADS: a matrix for each part, of rows from row_begin + part * row_step on;
     * turned: these are its columns. */
    uint32_t row_begin, row_step;
    bool turned;
};

struct wefti_weights_plan {
    const weft_model *model;
    const struct weft_eng_options *options;
    struct wefti_weights_item *items;
    size_t n_items, cap_items;
    uint32_t *stored;  /* by tensor of the model: its form in a packed file */
    uint32_t layer;    /* being placed */
    float *importance; /* of the calibration; NULL: none */
    uint64_t calib_hash;
    float *rows; /* scratch: one row of row_floats per thread, of all there may be */
    size_t row_floats, rows_bytes;
    uint8_t *joined; /* the same for a panel's rows of weights that are in parts; or NULL */
    size_t joined_bytes;
    float *turn; /* the same: one matrix of turn_floats */
    size_t turn_floats, turn_bytes;
    size_t used;
    size_t step_bytes;
    uint64_t hash, place_hash;
    bool asked_kind_met; /* some matrix runs with the activations that were asked for */
    uint32_t n_kept;     /* weights that are quantised already and stay so, whatever --dtype says */
    uint32_t n_ungrouped; /* weights whose columns are not whole groups, and the first of them */
    const struct weft_tensor *first_ungrouped;
    bool dtype_misfits; /* the model is packed, and --dtype would have packed it otherwise */
};

static inline size_t wefti_weights_plan_tensor_idx(const struct wefti_weights_plan *plan,
                                                   const struct weft_tensor *tensor) {
    return (size_t)(tensor - weft_model_tensor(plan->model, 0));
}

/* Decides on types and places everything; `weights` then knows its layout. `plan` is to be finished
 * in any case. INVAL: the options do not fit the model. */
WEFT_MUST_CHECK weft_err wefti_weights_plan_make(struct wefti_weights_plan *plan,
                                                 const weft_model *model,
                                                 const struct weft_eng_options *options,
                                                 struct wefti_weights *weights,
                                                 struct weft_errmsg *why);
void wefti_weights_plan_fini(struct wefti_weights_plan *plan);

/* What packing reads a tensor of that type as. */
enum weft_kern_src wefti_weights_source_type(enum weft_dtype dtype);

/* What weights come of is a model's contents, or its identity, and the calibration. */
uint64_t wefti_weights_calibrated_hash(const struct wefti_weights_plan *plan, uint64_t hash);

enum { WEFTI_WEIGHTS_TASK_BYTES = 1 << 20 }; /* packed at a time by one thread */

/* An item falls into parts of about a megabyte, which are packed by themselves, at 64 bytes
 * alignment, and stand one behind the other in the arena. */
size_t wefti_weights_part_bytes_max(const struct wefti_weights_item *item);
size_t wefti_weights_part_offset(const struct wefti_weights_item *item, uint32_t part);
/* What of its tensor an item is made of. */
size_t wefti_weights_source_bytes(const struct wefti_weights_item *item);
/* Returns the bytes written to `to`. */
size_t wefti_weights_pack_part(const struct wefti_weights_plan *plan,
                               const struct wefti_weights_item *item, uint32_t part,
                               uint32_t thread_idx, uint8_t *to);

/* Calls put() for every part of every item, on all threads; returns the hash of the model,
 * and of its calibration where there is one. */
typedef void wefti_weights_put_fn(void *ctx, const struct wefti_weights_item *item, uint32_t part,
                                  uint32_t thread_idx);
uint64_t wefti_weights_pack_parts(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                  wefti_weights_put_fn *put, void *ctx);

/* The same, into the arena at `base`. */
uint64_t wefti_weights_pack_in_place(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                     uint8_t *base);

/* Maps the arena of a packed file. PROTO: it has another layout than its tensors ask for. */
WEFT_MUST_CHECK weft_err wefti_weights_map(const struct wefti_weights_plan *plan, const char *path,
                                           weft_model *model, struct wefti_weights *weights,
                                           struct weft_errmsg *why);

#endif
