/* engine/weights/arena — packs the weights, or takes over those that another worker packed. */
#ifndef WEFT_ENGINE_ARENA_H
#define WEFT_ENGINE_ARENA_H

#include "runtime/pool.h"
#include "weights/plan.h"
#include "weights/weights.h"

/* Packs into memory of this process. */
WEFT_MUST_CHECK weft_err wefti_weights_arena_private(const struct wefti_weights_plan *plan,
                                                     struct wefti_pool *pool,
                                                     struct wefti_weights *weights,
                                                     struct weft_errmsg *why);

/* Maps the contents of the memfd `fd`, or packs into it and seals it. `path` is where the model was
 * opened. STATE: it holds something else. */
WEFT_MUST_CHECK weft_err wefti_weights_arena_shared(const struct wefti_weights_plan *plan,
                                                    const char *path, struct wefti_pool *pool,
                                                    struct wefti_weights *weights, int fd,
                                                    struct weft_errmsg *why);

#endif
