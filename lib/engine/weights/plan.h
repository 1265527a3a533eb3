/* engine/weights/plan — the type of each of a model's tensors, and its place in the arena. */
#ifndef WEFT_ENGINE_WEIGHTS_PLAN_H
#define WEFT_ENGINE_WEIGHTS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weights/types.h"
#include "weights/weights.h"

enum { WEFTI_WEIGHTS_TASK_BYTES = 1 << 20 }; /* packed at a time by one thread */

/* The numbers are in the hash of a packed file's layout. */
enum wefti_weights_item_form {
    WEFTI_WEIGHTS_PANELS = 0, /* one matrix */
    WEFTI_WEIGHTS_VECTOR = 1, /* f32 */
    WEFTI_WEIGHTS_ROWS = 2,   /* as in the file, to gather rows from */
    WEFTI_WEIGHTS_HEADS = 3,  /* one matrix per head */
};

enum { WEFTI_WEIGHTS_PIECES = 3 };

struct wefti_weights_item { /* one tensor's way into the arena */
    const struct weft_tensor *src;
    enum wefti_weights_item_form form;
    enum weft_gemm_kind kind; /* WEFTI_WEIGHTS_PANELS, WEFTI_WEIGHTS_HEADS */
    uint32_t n, k;            /* of all of it */
    /* What the rank has of it: of HEADS the whole rows of some heads. */
    struct wefti_weights_range rows, columns;
    size_t offset, whole_offset; /* the latter where one rank has all: in a packed file */
    uint32_t n_tasks, rows_per_task;
    const float *importance; /* [k]; NULL: not calibrated */
    /* WEFTI_WEIGHTS_VECTOR: values are stored less 1; -exp of them is wanted. */
    bool plus_one, minus_exp;
    /* The same: the columns that the rank has, one range after the other; 0: all. */
    uint32_t n_pieces;
    struct wefti_weights_range pieces[WEFTI_WEIGHTS_PIECES];
    /* WEFTI_WEIGHTS_PANELS: further rows of the tensor of the item before it. */
    bool again;
    /* WEFTI_WEIGHTS_HEADS: a matrix for each part, of rows from row_begin + part * row_step on;
     * turned: these are its columns. */
    uint32_t row_begin, row_step;
    bool turned;
};

/* Rows and columns that the rank has. */
static inline uint32_t wefti_weights_item_n(const struct wefti_weights_item *item) {
    return item->rows.end - item->rows.begin;
}
static inline uint32_t wefti_weights_item_k(const struct wefti_weights_item *item) {
    return item->columns.end - item->columns.begin;
}
/* Elements of a row of a vector that the rank has. */
static inline uint32_t wefti_weights_item_own_k(const struct wefti_weights_item *item) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < item->n_pieces; i++)
        n += item->pieces[i].end - item->pieces[i].begin;
    return item->n_pieces > 0 ? n : item->k;
}
static inline size_t wefti_weights_item_panel_bytes(const struct wefti_weights_item *item) {
    return weft_kern_part_bytes(item->kind, item->k, wefti_weights_item_k(item));
}

struct wefti_weights_plan {
    const weft_model *model;
    const struct weft_eng_options *options;
    struct weft_eng_loading *loading; /* told about to options->on_loading; NULL: nobody is */
    struct wefti_weights_types types;
    struct wefti_weights_item *items;
    size_t n_items, cap_items;
    enum weft_dtype *stored; /* by tensor of the model: its form in a packed file */
    uint32_t layer, expert;  /* being placed */
    float *importance;       /* of all columns, by the calibration; NULL: there is none */
    uint64_t calib_hash;
    uint64_t *expert_tokens; /* by the profile, [n_layers][n_experts]; NULL: there is none */
    /* Scratch for as many threads as there may be, each by itself: */
    float *rows; /* one row of row_floats; NULL without a calibration */
    size_t row_floats, rows_bytes;
    uint8_t *joined; /* a panel's rows of weights that are in parts; NULL: none are */
    size_t joined_bytes;
    float *turn; /* a matrix of turn_floats; NULL: none is turned */
    size_t turn_floats, turn_bytes;
    uint8_t *cut; /* a panel of all columns, or rows; NULL: nothing is cut off */
    size_t cut_bytes;
    const uint8_t *packed; /* the file, where ranks take their shares from it; else NULL */
    size_t packed_bytes;
    const struct weft_tensor *uncut; /* of a packed file: one that cannot be divided */
    size_t used;                     /* bytes of the arena so far */
    size_t whole_used; /* the same if there were one rank: what places are in hashes */
    size_t step_bytes; /* see struct wefti_weights */
    uint64_t bytes_of_type[WEFT_DT_COUNT]; /* of the rank's weights, by what they are stored as */
    uint64_t hash;       /* over the layout, the stored types and the kernels that read them */
    uint64_t place_hash; /* over the layout and the stored types, for packed files */
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

#endif
