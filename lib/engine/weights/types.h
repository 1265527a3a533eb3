/* engine/weights/types — how weights are stored, and which kernels read them. */
#ifndef WEFT_ENGINE_TYPES_H
#define WEFT_ENGINE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "weights/calibrate.h"

/* The options that decide, and findings that somebody should know of. */
struct wefti_weights_types {
    const weft_model *model;
    const struct weft_eng_options *options;
    bool
        bf16_of_blocks; /* as in the table that computes: kinds of blocks rounded to bf16 may be chosen */
    bool asked_kind_met; /* some matrix runs with the activations that were asked for */
    bool dtype_misfits;  /* the model is packed, and --dtype would have packed it otherwise */
    uint32_t n_kept;     /* weights that are quantised already and stay so, whatever --dtype says */
    uint32_t n_ungrouped; /* weights whose columns are not whole groups, and the first of them */
    const struct weft_tensor *first_ungrouped;
};

struct wefti_weights_type {
    enum weft_dtype stored;
    enum weft_gemm_kind kind;
};

/* INVAL: the quantisation scheme is not one for any type that is asked for. */
WEFT_MUST_CHECK weft_err wefti_weights_types_check_scheme(const struct weft_eng_options *options,
                                                          struct weft_errmsg *why);

/* The type of a matrix. Routers stay as the file has them and meet f32, so that they choose the
 * model's experts. */
struct wefti_weights_type wefti_weights_matrix_type(struct wefti_weights_types *types,
                                                    const struct weft_tensor *tensor,
                                                    enum wefti_calib_input input, uint32_t layer);

/* The type of matrices of heads that have the tensor's rows, k each, as columns. */
struct wefti_weights_type wefti_weights_turned_type(struct wefti_weights_types *types,
                                                    const struct weft_tensor *tensor, uint32_t k,
                                                    uint32_t layer);

/* What would make the weights fewer bits, as advice: "fewer bits (--dtype q8 or q4)"; NULL: no option does, as they
 * are quantised already, or packed. */
const char *wefti_weights_fewer_bits(const weft_model *model,
                                     const struct weft_eng_options *options);

/* After all decisions: warns of the findings. INVAL: the model cannot have what the
 * options ask for. */
WEFT_MUST_CHECK weft_err wefti_weights_types_check(const struct wefti_weights_types *types,
                                                   struct weft_errmsg *why);

#endif
