/* engine/weights/pack — tensors into the forms of the arena, part by part, on all threads. */
#ifndef WEFT_ENGINE_PACK_H
#define WEFT_ENGINE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/pool.h"
#include "weights/plan.h"

/* An item falls into parts of about a megabyte, each packed on its own, aligned to 64 bytes; they
 * stand in the arena one after the other. */
size_t wefti_weights_part_bytes_max(const struct wefti_weights_item *item);
size_t wefti_weights_part_offset(const struct wefti_weights_item *item, uint32_t part);
/* The part of its tensor that goes into an item. */
size_t wefti_weights_source_bytes(const struct wefti_weights_item *item);
/* Returns the bytes written to `to`. */
size_t wefti_weights_pack_part(const struct wefti_weights_plan *plan,
                               const struct wefti_weights_item *item, uint32_t part,
                               uint32_t thread_idx, uint8_t *to);

/* Calls put() for every part of every item, on all threads; returns the hash of the model,
 * and of its calibration where there is one. */
typedef void wefti_weights_put_fn(void *ctx, const struct wefti_weights_item *item, uint32_t part,
                                  uint32_t thread_idx);
uint64_t wefti_weights_pack_parts(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                  wefti_weights_put_fn *put, void *ctx);

/* The same, into the arena at `base`. */
uint64_t wefti_weights_pack_in_place(const struct wefti_weights_plan *plan, struct wefti_pool *pool,
                                     uint8_t *base);

/* Identifies the packed weights: a model's contents, or its identity, and the calibration. */
uint64_t wefti_weights_calibrated_hash(const struct wefti_weights_plan *plan, uint64_t hash);

#endif
