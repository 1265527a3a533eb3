/* engine/forward/activations — rows normalised and converted to the forms that products want. */
#ifndef WEFT_ENGINE_ACTIVATIONS_H
#define WEFT_ENGINE_ACTIVATIONS_H

#include "forward/pass.h"
#include "weights/calibrate.h"

/* A source of activations: rows of f32, all of them or those listed, perhaps to be normalised. */
struct wefti_forward_source {
    const float *rows;
    size_t stride;
    const uint32_t *index;          /* NULL: row i is i */
    struct wefti_forward_norm norm; /* weight 0: as they are */
    bool apart;                     /* rows are not interleaved, however many they are */
};

/* What the feed-forward part of a layer reads. */
static inline struct wefti_forward_source
wefti_forward_ffn_source(const struct wefti_forward *f, const struct wefti_weights_layer *layer) {
    return (struct wefti_forward_source){
        .rows = f->parallel ? f->read : f->x,
        .stride = f->x_stride,
        .norm = {f->one_norm ? layer->attn_norm : layer->ffn_norm,
                 f->one_norm ? layer->attn_norm_bias : layer->ffn_norm_bias}};
}

/* Rows of activations in the forms a group of products wants. */
struct wefti_forward_acts {
    uint32_t group; /* rows are interleaved by so many; 1: they are not */
    const uint8_t *rows[WEFT_ACT_COUNT];
    size_t row_bytes[WEFT_ACT_COUNT];
};

/* Notes, at opening, which forms the weights ask for, and how wide their rows get. */
void wefti_forward_acts_note_forms(struct wefti_forward *f);

/* A kind that takes activations of a form. */
enum weft_gemm_kind wefti_forward_form_kind(enum weft_kern_act form);

/* The activations of `n_rows` rows for the products in `group`, ready for this thread when it
 * returns. Ends a phase unless each thread made its own. */
struct wefti_forward_acts wefti_forward_acts_make(const struct wefti_forward_thread *thread,
                                                  const struct wefti_forward_source *src,
                                                  uint32_t n_rows,
                                                  const struct wefti_weights_matrix *const *group,
                                                  uint32_t n_group);

/* Shows rows to the calibration, if one watches. */
void wefti_forward_acts_observe(const struct wefti_forward_thread *thread, uint32_t layer,
                                enum wefti_calib_input input, const struct wefti_forward_acts *acts,
                                uint32_t n_rows);

#endif
