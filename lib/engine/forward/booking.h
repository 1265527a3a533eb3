/* engine/forward/booking — calls, bytes and operations of a pass, for the profile. */
#ifndef WEFT_ENGINE_BOOKING_H
#define WEFT_ENGINE_BOOKING_H

#include <stdint.h>

#include "runtime/kv_cache.h"
#include "runtime/profile.h"
#include "weights/weights.h"

/* What a pass has to do, in rows. */
struct wefti_forward_costs {
    uint32_t n_rows, n_last_rows; /* after K and V of narrow_layer there may be fewer */
    uint32_t narrow_layer;
    uint32_t n_logit_rows, n_head_calls;
    uint32_t n_heads;
    uint64_t attention_ops, attention_bytes; /* of all layers */
    uint64_t index_ops, index_bytes;
    enum weft_kern_peak attention_peak; /* the arithmetic of attention */
    uint64_t state_bytes; /* of recurrent layers, which every sequence reads and writes once */
};

/* Adds a layer's attention, whose rows see so many positions, and whose tiles read so many. `n_heads` and
 * `attention_peak` are known. */
void wefti_forward_cost_attention(struct wefti_forward_costs *costs, const struct weft_kv_layer *kv,
                                  uint64_t n_seen, uint64_t n_read);

/* Adds an indexer's scores of so many positions, in one layer, each row's by itself. */
void wefti_forward_cost_index(struct wefti_forward_costs *costs, const struct weft_kv_layer *keys,
                              uint32_t n_heads, uint64_t n_scored);

/* Books all operators of a pass. */
void wefti_forward_book_pass(struct wefti_profile *profile, const struct wefti_weights *weights,
                             const struct wefti_forward_costs *costs);
/* During a pass, by its first thread: an expert computes so many rows. */
void wefti_forward_book_expert(struct wefti_profile *profile,
                               const struct wefti_weights_expert *expert, uint32_t n_rows);

#endif
