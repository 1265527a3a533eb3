/* engine/forward/routing — which experts a token takes. */
#ifndef WEFT_ENGINE_ROUTING_H
#define WEFT_ENGINE_ROUTING_H

#include <stdint.h>

#include "model/model.h"

/* How a layer chooses. */
struct wefti_forward_router {
    const struct weft_model_moe *moe;
    const float *bias;    /* [n_experts] of scores, for the choice alone; NULL: none */
    const float *factors; /* [n_experts] of weights; NULL: 1 */
    float score_scale;    /* of logits */
};

/* Chooses the experts of one row by the router's logits[n_experts]: chosen[n_used], in ascending
 * order, and the factors of their outputs. Among equals the lower id wins, and NaN never does; the
 * chosen ones always differ. */
void wefti_forward_route(const struct wefti_forward_router *router, const float *logits,
                         uint32_t *chosen, float *weights);

#endif
