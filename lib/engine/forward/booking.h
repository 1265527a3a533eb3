/* engine/forward/booking — calls, bytes and operations of a pass, for the profile. */
#ifndef WEFT_ENGINE_BOOKING_H
#define WEFT_ENGINE_BOOKING_H

#include <stdint.h>

#include "runtime/kv_cache.h"
#include "runtime/profile.h"
#include "weights/weights.h"

/* What a pass has to do, in rows. */
struct wefti_forward_costs {
    uint32_t n_rows, n_last_rows; /* after K and V of the last layer there may be fewer */
    uint32_t n_logit_rows, n_head_calls;
    uint32_t n_heads;
    /* Positions seen by all rows, and those read by all tiles, summed over the layers. */
    uint64_t n_seen, n_read;
    enum weft_kern_peak attention_peak; /* the arithmetic of attention */
};

/* Books all operators of a pass. */
void wefti_forward_book_pass(struct wefti_profile *profile, const struct wefti_weights *weights,
                             const struct wefti_kv_cache *kv,
                             const struct wefti_forward_costs *costs);
/* During a pass, by its first thread: an expert computes so many rows. */
void wefti_forward_book_expert(struct wefti_profile *profile,
                               const struct wefti_weights_expert *expert, uint32_t n_rows);

#endif
