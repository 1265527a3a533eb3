/* engine/forward/experts — the feed-forward half of layers with experts, and which of them a token takes. */
#ifndef WEFT_ENGINE_EXPERTS_H
#define WEFT_ENGINE_EXPERTS_H

#include "forward/pass.h"
#include "model/model.h"

/* The feed-forward half of a layer with experts: x += their outputs and the shared
 * one's. Ends a phase. */
void wefti_forward_experts(const struct wefti_forward_thread *thread, uint32_t layer_idx,
                           uint32_t n_rows);

/* How many places the experts of `n_rows` rows take at most. */
size_t wefti_forward_places_max(const struct wefti_forward *f, size_t n_rows);

/* ---------------------------------------------------------------------------- routing.c --- */

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
