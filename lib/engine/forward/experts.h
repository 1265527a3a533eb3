/* engine/forward/experts — the feed-forward half of layers with experts. */
#ifndef WEFT_ENGINE_EXPERTS_H
#define WEFT_ENGINE_EXPERTS_H

#include "forward/pass.h"

/* The feed-forward half of a layer with experts: x += their outputs and the shared
 * one's. Ends a phase. */
void wefti_forward_experts(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                           uint32_t n_rows);

/* How many places the experts of `n_rows` rows take at most. */
size_t wefti_forward_places_max(const struct wefti_forward *f, size_t n_rows);

#endif
