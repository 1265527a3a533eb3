/* engine/forward/latent — the products around attention where keys and values are one latent. */
#ifndef WEFT_ENGINE_LATENT_H
#define WEFT_ENGINE_LATENT_H

#include "forward/forward.h"
#include "forward/pass.h"

/* Makes the queries and the rows of the cache from the residual stream. Ends phases. */
void wefti_forward_latent_in(const struct wefti_forward_thread *thread, uint32_t layer,
                             const struct wefti_forward_batch *batch);

/* heads = the values that rows attended to. Ends a phase. */
void wefti_forward_latent_out(const struct wefti_forward_thread *thread, uint32_t layer,
                              uint32_t n_rows);

/* Bytes that a thread needs for a head's activations. */
size_t wefti_forward_latent_bytes(const struct wefti_forward *f);

#endif
