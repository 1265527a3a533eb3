/* engine/forward/routing — which experts a token takes. */
#ifndef WEFT_ENGINE_ROUTING_H
#define WEFT_ENGINE_ROUTING_H

#include <stdint.h>

#include "model/model.h"

/* Chooses the experts of one row by the router's logits[n_experts]: chosen[n_used], in ascending
 * order, and the factors of their outputs. Among equals the lower id wins, and NaN never does; the
 * chosen ones always differ. `bias` may be NULL. */
void wefti_forward_route(const struct weft_model_moe *moe, const float *bias, const float *logits,
                         uint32_t *chosen, float *weights);

#endif
