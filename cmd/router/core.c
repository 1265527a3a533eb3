#include "cmd/router/core.h"

#include "base/check.h"

const char *wefti_core_why_not(const struct core *core, uint64_t now_ms) {
    const struct upstream *up = &core->up;
    if (core->draining) return "the server is shutting down";
    if (!up->has_snapshot) return "the server is starting";
    if (!up->is_up) return "the scheduler is restarting";
    if (now_ms > up->snapshot_at_ms + WEFT_SNAPSHOT_AGE_MS_MAX)
        return "the scheduler does not answer";
    if (up->snapshot.draining) return "the scheduler is shutting down";
    if (!up->snapshot.serving || !up->snapshot.has_model) return "the model is being loaded";
    return NULL;
}

const char *wefti_core_why_ill(const struct core *core, uint64_t now_ms) {
    const char *why = wefti_core_why_not(core, now_ms);
    if (!why && !core->up.snapshot.advancing) why = "the worker makes no progress";
    return why;
}

uint64_t wefti_core_cost(uint64_t n) {
    return n > WEFT_SMALL_BYTES ? n : 0;
}

bool wefti_core_hold(struct core *core, uint64_t n) {
    if (n > core->held_max || core->held_bytes > core->held_max - n) return false;
    core->held_bytes += n;
    return true;
}

void wefti_core_release(struct core *core, uint64_t n) {
    WEFT_ASSERT(core->held_bytes >= n);
    core->held_bytes -= n;
}
