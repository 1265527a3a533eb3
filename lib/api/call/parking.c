#include "call/parking.h"

#include <stdlib.h>

#include "api/api.h"
#include "base/check.h"
#include "base/minmax.h"
#include "call/call_internal.h"

struct weft_api_parked_tenant {
    LIST_ENTRY(weft_api_parked_tenant) entry;
    uint64_t id;
    uint32_t weight;
    uint32_t n_calls, n_prompts;
};

static uint32_t weight_of(const weft_api_call *call) {
    return call->asker.weight ? call->asker.weight : 1;
}

/* There are at most as many as API keys, before and after a reload. */
static struct weft_api_parked_tenant *find_tenant(const struct weft_api_state *api, uint64_t id) {
    struct weft_api_parked_tenant *tenant;
    LIST_FOREACH(tenant, &api->parked_tenants, entry) {
        if (tenant->id == id) return tenant;
    }
    return NULL;
}

/* Whether the call's prompts may be added to the `n_own` that its tenant has there. */
static bool has_place(const weft_api_call *call, uint32_t n_own, bool *is_share_out) {
    const struct weft_api_state *api = call->api;
    uint64_t max = api->settings.max_queue, n = call->params.n_prompts;
    uint64_t weight = weight_of(call), others = 0;
    *is_share_out = false;
    if (api->n_parked_prompts + n <= max) return true;
    const struct weft_api_parked_tenant *tenant;
    LIST_FOREACH(tenant, &api->parked_tenants, entry) {
        if (tenant->id != call->asker.tenant) others += tenant->weight;
    }
    if (others == 0) return false;
    uint64_t part = max * weight / (others + weight);
    *is_share_out = true;
    return n_own + n <= (part ? part : 1);
}

weft_err wefti_api_park(weft_api_call *call, bool *is_share_out) {
    struct weft_api_state *api = call->api;
    WEFT_ASSERT(!call->parked_tenant && call->n_jobs == 0);
    struct weft_api_parked_tenant *tenant = find_tenant(api, call->asker.tenant);
    if (!has_place(call, tenant ? tenant->n_prompts : 0, is_share_out)) return WEFT_E_FULL;
    if (!tenant) {
        tenant = calloc(1, sizeof *tenant);
        if (!tenant) return WEFT_E_NOMEM;
        tenant->id = call->asker.tenant;
        LIST_INSERT_HEAD(&api->parked_tenants, tenant, entry);
    }
    tenant->weight = weight_of(call);
    tenant->n_calls++;
    tenant->n_prompts += call->params.n_prompts;
    api->n_parked_prompts += call->params.n_prompts;
    call->parked_tenant = tenant;
    TAILQ_INSERT_TAIL(&api->parked, call, parked_entry);
    return WEFT_OK;
}

void wefti_api_unpark(weft_api_call *call) {
    struct weft_api_state *api = call->api;
    struct weft_api_parked_tenant *tenant = call->parked_tenant;
    uint32_t n = call->params.n_prompts;
    WEFT_ASSERT(tenant && tenant->n_calls > 0);
    WEFT_ASSERT(tenant->n_prompts >= n && api->n_parked_prompts >= n);
    TAILQ_REMOVE(&api->parked, call, parked_entry);
    call->parked_tenant = NULL;
    api->n_parked_prompts -= n;
    tenant->n_prompts -= n;
    if (--tenant->n_calls > 0) return;
    WEFT_ASSERT(tenant->n_prompts == 0);
    LIST_REMOVE(tenant, entry);
    free(tenant);
}

/* ------------------------------------------------------------------------------ the background --- */

/* Twice as many prompts as all workers compute at once, as far as schedulers take so many. */
static uint64_t background_max(const struct weft_api_state *api) {
    const struct weft_msg_snapshot *snapshot = &api->upstream.snapshot;
    const struct weft_model_info *model = &snapshot->model;
    uint64_t n_of_one = 2 * weft_min_u32(model->max_seqs, model->max_batched_tokens);
    uint64_t n_of_all = n_of_one * weft_max_u32(snapshot->n_workers_serving, 1);
    return weft_max_u64(n_of_one, weft_min_u64(n_of_all, api->limits.max_prompts));
}

static bool has_room(const struct weft_api_state *api, const weft_api_call *call) {
    uint64_t n_open = api->n_background_jobs;
    return n_open == 0 || n_open + call->params.n_prompts <= background_max(api);
}

bool wefti_api_must_line_up(const weft_api_call *call) {
    const struct weft_api_state *api = call->api;
    if (!call->asker.is_background) return false;
    return !TAILQ_EMPTY(&api->background) || !has_room(api, call);
}

void wefti_api_line_up(weft_api_call *call) {
    WEFT_ASSERT(call->asker.is_background && !call->is_in_line && call->n_jobs == 0);
    call->is_in_line = true;
    TAILQ_INSERT_TAIL(&call->api->background, call, parked_entry);
}

void wefti_api_leave_line(weft_api_call *call) {
    WEFT_ASSERT(call->is_in_line && !call->parked_tenant);
    call->is_in_line = false;
    TAILQ_REMOVE(&call->api->background, call, parked_entry);
}

weft_api_call *wefti_api_next_in_line(struct weft_api_state *api) {
    weft_api_call *call = TAILQ_FIRST(&api->background);
    if (!call || !has_room(api, call)) return NULL;
    wefti_api_leave_line(call);
    return call;
}
