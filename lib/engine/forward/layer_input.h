/* engine/forward/layer_input — embeddings that tokens have for each layer. */
#ifndef WEFT_ENGINE_LAYER_INPUT_H
#define WEFT_ENGINE_LAYER_INPUT_H

#include "forward/pass.h"

struct wefti_forward_batch;

/* All layers' embeddings of the batch's tokens, from what the first layer reads and a table. Ends phases. */
void wefti_forward_make_inputs(const struct wefti_forward_thread *thread,
                               const struct wefti_forward_batch *batch);

/* What follows on a layer's halves: its own embeddings, gated by the row, are added, and the sum is scaled. `index`
 * has the batch's rows that the layer goes on with; NULL: all of them. Ends phases. */
void wefti_forward_layer_input(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                               uint32_t n_rows, const uint32_t *index);

#endif
