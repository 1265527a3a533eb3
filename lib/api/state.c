#include "api/api.h"

#include "base/check.h"

static const char *why_not(const struct core *core, uint64_t now_ms, uint64_t age_ms_max) {
    const struct upstream *up = &core->up;
    if (core->draining) return "the server is shutting down";
    if (!up->has_snapshot) return "the server is starting";
    if (!up->is_up) return "the scheduler is restarting";
    if (now_ms > up->snapshot_at_ms + age_ms_max) return "the scheduler does not answer";
    if (up->snapshot.draining) return "the scheduler is shutting down";
    if (!up->snapshot.serving || !up->snapshot.has_model) return "the model is being loaded";
    return NULL;
}

const char *wefti_core_why_not(const struct core *core, uint64_t now_ms) {
    return why_not(core, now_ms, WEFT_SNAPSHOT_AGE_MS_MAX);
}

bool wefti_core_is_back_soon(const struct core *core, uint64_t now_ms) {
    const struct upstream *up = &core->up;
    if (core->draining || up->snapshot.draining || up->served_at_ms == 0) return false;
    return now_ms < up->served_at_ms + core->settings.restart_grace_ms;
}

const char *wefti_core_why_ill(const struct core *core, uint64_t now_ms) {
    const char *why = why_not(core, now_ms, WEFT_HEALTHY_AGE_MS_MAX);
    if (!why && !core->up.snapshot.advancing) why = "the worker makes no progress";
    return why;
}

uint64_t wefti_core_cost(uint64_t n) {
    return n > WEFT_SMALL_BYTES ? n : 0;
}

static bool hold(uint64_t *held, uint64_t max, uint64_t n) {
    if (n > max || *held > max - n) return false;
    *held += n;
    return true;
}

static void release(uint64_t *held, uint64_t n) {
    WEFT_ASSERT(*held >= n);
    *held -= n;
}

bool wefti_core_hold(struct core *core, uint64_t n) {
    return hold(&core->held_bytes, core->held_max, n);
}

void wefti_core_release(struct core *core, uint64_t n) {
    release(&core->held_bytes, n);
}

bool wefti_core_hold_output(struct core *core, uint64_t n) {
    return hold(&core->output_bytes, core->output_max, n);
}

void wefti_core_release_output(struct core *core, uint64_t n) {
    release(&core->output_bytes, n);
}
