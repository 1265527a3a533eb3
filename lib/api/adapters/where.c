/* Which schedulers have an adapter: it is offered once all that serve have it, and its requests go to none
 * that lacks it. */
#include <stdio.h>

#include "adapters/table.h"
#include "api/api.h"
#include "base/check.h"
#include "base/log.h"
#include "cluster/placing.h"

_Static_assert(WEFT_API_SCHEDULERS_MAX <= 32, "a bit for each");

/* One that serves only later has no requests before it said that it has the adapter: nobody waits for it. */
static uint32_t those_awaited(const struct weft_api_upstream *upstream) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < upstream->n_schedulers; i++) {
        const struct weft_api_scheduler *s = &upstream->schedulers[i];
        bool serves = s->is_up && !s->is_stranger && s->has_snapshot && s->snapshot.serving;
        bits |= serves ? 1u << i : 0;
    }
    return bits;
}

bool wefti_api_adapter_is_complete(const struct weft_api_state *api,
                                   const struct weft_api_adapter *adapter) {
    return adapter->there != 0 && !(those_awaited(&api->upstream) & ~adapter->there);
}

uint32_t wefti_api_adapters_lacking(const struct weft_api_state *api,
                                    const struct weft_step_adapter *adapters, uint32_t n) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct weft_api_adapter *adapter =
            wefti_api_adapters_find(&api->adapters, adapters[i].id);
        if (adapter) bits |= ~adapter->there; /* else its scheduler says what is wrong */
    }
    return bits;
}

void wefti_api_adapter_unlink(struct weft_api_adapter *adapter, uint32_t scheduler) {
    adapter->there &= ~(1u << scheduler);
    if (adapter->there == 0 && !adapter->is_ready) adapter->digest = (struct weft_digest){0};
}

bool wefti_api_adapter_lose(struct weft_api_state *api, struct weft_api_adapter *adapter,
                            uint32_t scheduler, const char *text) {
    struct weft_msg msg = {.type = WEFT_MSG_REMOVE_LORA};
    adapter->there &= ~(1u << scheduler);
    if (!adapter->is_ready || adapter->there == 0) return false;
    weft_warn("adapter %s is not at the scheduler at %s: %s", adapter->name,
              api->upstream.schedulers[scheduler].link.name, text);
    msg.remove_lora.id = adapter->id; /* it may have another of that name */
    wefti_api_upstream_tell(&api->upstream, scheduler, &msg);
    wefti_api_place_elsewhere(api, scheduler, adapter->id);
    return true;
}
