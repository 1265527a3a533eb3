/* core — what all requests of one router share. No sockets and no event loop in here: everything
 * below this header runs in a test with a link of its own making.
 */
#ifndef WEFT_ROUTER_CORE_H
#define WEFT_ROUTER_CORE_H

#include <stdbool.h>

#include "cmd/common/config.h"
#include "cmd/router/metrics.h"
#include "cmd/router/params.h"
#include "cmd/router/upstream.h"
#include "text/text.h"

struct core {
    const struct weft_config *config;
    weft_tokenizer *tok;
    weft_chat *chat; /* NULL: the model has no template */
    struct api_limits limits;
    struct metrics metrics;
    struct upstream up;
    bool draining;
    /* Bytes of request bodies held by live calls, against `held_max`: a call keeps what it made of
     * its body (ids, at most a few times as big) until it ends, so this bounds them all. */
    uint64_t held_bytes, held_max;
};

/* A snapshot older than this says nothing any more: four of them are due in that time. */
#define WEFT_SNAPSHOT_AGE_MS_MAX 1000

/* NULL when a generation can be taken in now; else why not, for people. */
const char *wefti_core_why_not(const struct core *core, uint64_t now_ms);

/* The same for /health, which also wants steps to advance. */
const char *wefti_core_why_ill(const struct core *core, uint64_t now_ms);

/* Takes `n` bytes of the budget for request bodies; false: it is used up. */
bool wefti_core_hold(struct core *core, uint64_t n);
void wefti_core_release(struct core *core, uint64_t n);

#endif
