/* engine/weights/recurrent_share — what of a recurrent layer a rank has.
 *
 * Ranks divide heads (of short convolutions channels) as segments of the last product's columns have
 * them, so the sums over K are one rank's. A rank makes what its heads read: their own channels, and
 * the groups' keys, or B and C, which other ranks may make as well. Where heads take turns with the
 * groups, a rank makes all groups. */
#ifndef WEFT_ENGINE_RECURRENT_SHARE_H
#define WEFT_ENGINE_RECURRENT_SHARE_H

#include "model/model.h"
#include "weights/plan.h"
#include "weights/weights.h"

/* Columns of the last product that no segment parts. */
uint32_t wefti_weights_recurrent_unit(const struct weft_model_params *p);

/* `segs`: of all of the last product's columns. */
struct wefti_weights_recurrent wefti_weights_recurrent_share(const struct weft_model_params *p,
                                                             const struct weft_kern_segs *segs,
                                                             uint32_t rank, uint32_t n_ranks);

/* Rows of a tensor, in the order in which they stand in a projected row; src NULL: nothing. */
struct wefti_weights_rows_in {
    const struct weft_tensor *src;
    struct wefti_weights_range rows;
};
/* `is_all`: one rank has everything, each tensor in one. */
void wefti_weights_recurrent_rows(const struct weft_model_params *p,
                                  const struct weft_model_layer *from,
                                  const struct wefti_weights_recurrent *share, bool is_all,
                                  struct wefti_weights_rows_in parts[WEFT_MODEL_RECURRENT_PARTS]);

/* The channels of the convolution. Returns how many ranges they are. */
uint32_t wefti_weights_recurrent_channels(const struct weft_model_params *p,
                                          const struct wefti_weights_recurrent *share,
                                          struct wefti_weights_range ranges[WEFTI_WEIGHTS_PIECES]);

#endif
