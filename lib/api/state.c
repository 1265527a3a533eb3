#include "api/api.h"

#include "base/check.h"

static const char *why_not(const struct weft_api_state *api, uint64_t now_ms, uint64_t age_ms_max) {
    const struct weft_api_upstream *upstream = &api->upstream;
    if (api->draining) return "the server is shutting down";
    if (!upstream->has_snapshot) return "the server is starting";
    if (!upstream->is_up) return "the scheduler is restarting";
    if (now_ms > upstream->snapshot_at_ms + age_ms_max) return "the scheduler does not answer";
    if (upstream->snapshot.draining) return "the scheduler is shutting down";
    if (!upstream->snapshot.serving || !upstream->snapshot.has_model)
        return "the model is being loaded";
    return NULL;
}

const char *weft_api_why_not(const struct weft_api_state *api, uint64_t now_ms) {
    return why_not(api, now_ms, WEFT_API_SNAPSHOT_AGE_MS_MAX);
}

bool weft_api_is_back_soon(const struct weft_api_state *api, uint64_t now_ms) {
    const struct weft_api_upstream *upstream = &api->upstream;
    if (api->draining || upstream->snapshot.draining || upstream->served_at_ms == 0) return false;
    return now_ms < upstream->served_at_ms + api->settings.restart_grace_ms;
}

const char *weft_api_why_ill(const struct weft_api_state *api, uint64_t now_ms) {
    const char *why = why_not(api, now_ms, WEFT_API_HEALTHY_AGE_MS_MAX);
    if (!why && !api->upstream.snapshot.advancing) why = "the worker makes no progress";
    return why;
}

uint64_t weft_api_cost(uint64_t n) {
    return n > WEFT_API_SMALL_BYTES ? n : 0;
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

bool weft_api_hold(struct weft_api_state *api, uint64_t n) {
    return hold(&api->held_bytes, api->held_max, n);
}

void weft_api_release(struct weft_api_state *api, uint64_t n) {
    release(&api->held_bytes, n);
}

bool weft_api_hold_output(struct weft_api_state *api, uint64_t n) {
    return hold(&api->output_bytes, api->output_max, n);
}

void weft_api_release_output(struct weft_api_state *api, uint64_t n) {
    release(&api->output_bytes, n);
}
