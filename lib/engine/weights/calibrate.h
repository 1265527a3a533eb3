/* engine/weights/calibrate — how much each column of each matrix matters over a text. */
#ifndef WEFT_ENGINE_CALIBRATE_H
#define WEFT_ENGINE_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "model/model.h"

/* The inputs of a layer's matrices, and the head's. All experts' gate and up meet what the layer's do: few
 * rows meet each, and any may. */
enum wefti_calib_input {
    WEFTI_CALIB_QKV,
    WEFTI_CALIB_O,
    WEFTI_CALIB_FFN,
    WEFTI_CALIB_DOWN,
    WEFTI_CALIB_Q_RANK,      /* of latent attention: what the queries are made of */
    WEFTI_CALIB_HEAD,        /* the layer does not matter */
    WEFTI_CALIB_EXPERT_DOWN, /* each expert's own: wefti_calib_expert_offset */
    WEFTI_CALIB_ROUTER,      /* not calibrated */
    WEFTI_CALIB_LAYER_INPUT, /* the same: products of a layer's own embeddings */
};
enum { WEFTI_CALIB_LAYER_INPUTS = WEFTI_CALIB_HEAD };

/* Stands for larger, infinite and NaN values, too, so that their sum stays finite. */
#define WEFTI_CALIB_IMPORTANCE_MAX 1e30f

/* Columns of each input, in all layers. */
struct wefti_calib_sizes {
    uint32_t n_layers, n_hidden;
    uint32_t o_dim, q_rank,
        n_ffn; /* the most of a layer's; of its shared expert, where it has one */
    uint32_t n_experts, n_ffn_expert;
};
/* The sizes that a calibration of the model has. */
struct wefti_calib_sizes wefti_calib_sizes_of(const weft_model *model);

WEFT_MUST_CHECK weft_err wefti_calib_new(const struct wefti_calib_sizes *sizes,
                                         weft_eng_calib **calib_out, struct weft_errmsg *why);
bool wefti_calib_fits(const weft_eng_calib *calib, const weft_model *model);

/* Columns of an input, in the layer that has most. */
uint32_t wefti_calib_columns(const weft_eng_calib *calib, enum wefti_calib_input input);

/* Rows of f32, k columns: all of an input. */
struct wefti_calib_rows {
    const uint8_t *data;
    size_t row_bytes;
    uint32_t k;
    uint32_t group; /* rows are interleaved by so many; 1: they are not */
    uint32_t n_rows;
};
/* One thread at a time. */
void wefti_calib_add(weft_eng_calib *calib, uint32_t layer, enum wefti_calib_input input,
                     const struct wefti_calib_rows *rows);
/* The same of what the last matrix of an expert meets. */
void wefti_calib_add_expert(weft_eng_calib *calib, uint32_t layer, uint32_t expert,
                            const struct wefti_calib_rows *rows);

/* How much each column matters, inputs at wefti_calib_offset; malloc'd, the caller's. NULL: no
 * memory. *hash goes on with them. */
float *wefti_calib_importance(const weft_eng_calib *calib, uint64_t *hash);
size_t wefti_calib_offset(const weft_eng_calib *calib, uint32_t layer,
                          enum wefti_calib_input input);
size_t wefti_calib_expert_offset(const weft_eng_calib *calib, uint32_t layer, uint32_t expert);

#endif
