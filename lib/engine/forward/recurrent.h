/* engine/forward/recurrent — the part of a layer that has a state of fixed size. */
#ifndef WEFT_ENGINE_FORWARD_RECURRENT_H
#define WEFT_ENGINE_FORWARD_RECURRENT_H

#include "forward/activations.h"
#include "forward/forward.h"
#include "forward/pass.h"

/* Sizes of rows that follow from the model, and the mixers of its layers. */
void wefti_forward_recurrent_set(struct wefti_forward *f, const struct weft_model_params *p);

/* What a rank's state of a layer is; zeroes where the layer has none. */
struct wefti_state_shape wefti_forward_state_shape(const struct wefti_weights *weights,
                                                   const struct weft_model_params *p,
                                                   uint32_t layer);

/* What the layer makes of the batch's rows, and where it is, for its last product: of this rank's heads.
 * Ends phases. False: the group of ranks is over. */
bool wefti_forward_recurrent(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                             const struct wefti_forward_batch *batch,
                             struct wefti_forward_source *made_out);

#endif
