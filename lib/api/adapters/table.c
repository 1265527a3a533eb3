/* Who is on the list, who is leaving it, and which calls use whom. */
#include "api/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "adapters/table.h"
#include "api/api.h"
#include "base/check.h"
#include "base/log.h"

static void adapter_free(struct weft_api_adapter *adapter) {
    if (!adapter) return;
    free(adapter->name);
    free(adapter->path);
    free(adapter);
}

struct weft_api_adapter *wefti_api_adapters_find(const struct weft_api_adapters *a, uint64_t id) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->all[i]->id == id) return a->all[i];
    }
    return NULL;
}

struct weft_api_adapter *wefti_api_adapters_find_name(const struct weft_api_adapters *a,
                                                      const char *name) {
    for (uint32_t i = 0; i < a->n; i++) {
        if (!a->all[i]->is_leaving && strcmp(a->all[i]->name, name) == 0) return a->all[i];
    }
    return NULL;
}

static uint32_t lowest_free_number(const struct weft_api_adapters *a) {
    bool is_taken[WEFT_LORAS_MAX] = {false};
    uint32_t number = 0;
    for (uint32_t i = 0; i < a->n; i++)
        is_taken[a->all[i]->number] = true;
    while (number < WEFT_LORAS_MAX && is_taken[number])
        number++;
    return number;
}

struct weft_api_adapter *wefti_api_adapters_add(struct weft_api_adapters *a, const char *name,
                                                const char *path) {
    struct weft_api_adapter *adapter = calloc(1, sizeof *adapter);
    if (!a->all) a->all = calloc(WEFT_LORAS_MAX, sizeof(struct weft_api_adapter *));
    if (adapter) {
        adapter->name = strdup(name);
        adapter->path = strdup(path);
    }
    if (!a->all || !adapter || !adapter->name || !adapter->path || a->n == WEFT_LORAS_MAX) {
        adapter_free(adapter);
        return NULL;
    }
    adapter->number = lowest_free_number(a);
    WEFT_ASSERT(adapter->number < WEFT_LORAS_MAX); /* fewer are there */
    a->all[a->n++] = adapter;
    return adapter;
}

static void drop(struct weft_api_adapters *a, struct weft_api_adapter *adapter) {
    uint32_t i = 0;
    while (a->all[i] != adapter)
        i++;
    WEFT_ASSERT(i < a->n);
    memmove(a->all + i, a->all + i + 1, (--a->n - i) * sizeof(struct weft_api_adapter *));
    adapter_free(adapter);
}

static bool is_offered(const struct weft_api_adapter *adapter) {
    return adapter->is_ready && !adapter->is_leaving;
}

/* Without memory the old copy stays: a name more or less until the next change. */
void wefti_api_adapters_renew(struct weft_api_state *api) {
    struct weft_api_adapters *a = &api->adapters;
    struct weft_api_adapter_list *list =
        calloc(1, sizeof *list + a->n * sizeof(struct weft_api_adapter_item));
    bool is_whole = list != NULL;
    for (uint32_t i = 0; i < a->n && is_whole; i++) {
        const struct weft_api_adapter *from = a->all[i];
        if (!is_offered(from)) continue;
        struct weft_api_adapter_item *item = &list->items[list->n++];
        *item = (struct weft_api_adapter_item){.name = strdup(from->name),
                                               .path = strdup(from->path),
                                               .number = from->number,
                                               .id = from->id,
                                               .digest = from->digest};
        is_whole = item->name && item->path;
    }
    if (!is_whole) {
        if (list) wefti_api_adapters_free_list(list);
        weft_warn("no memory for a new list of adapters");
        return;
    }
    list->n_holders = 1;
    wefti_api_adapters_let_go(a->list);
    a->list = list;
    api->limits.adapters = list;
}

void wefti_api_adapters_take_back(struct weft_api_state *api, struct weft_api_adapter *adapter) {
    struct weft_msg msg = {.type = WEFT_MSG_REMOVE_LORA};
    msg.remove_lora.id = adapter->id;
    for (uint32_t i = 0; i < api->upstream.n_schedulers; i++)
        wefti_api_upstream_tell(&api->upstream, i, &msg);
    if (adapter->is_first && !adapter->is_ready) api->limits.n_adapters_awaited--;
    drop(&api->adapters, adapter);
}

void wefti_api_adapters_fini(struct weft_api_state *api) {
    struct weft_api_adapters *a = &api->adapters;
    for (uint32_t i = 0; i < a->n; i++)
        adapter_free(a->all[i]);
    free(a->all);
    wefti_api_adapters_let_go(a->list);
    *a = (struct weft_api_adapters){0};
}

void wefti_api_adapters_forget_call(struct weft_api_state *api, const weft_api_call *call) {
    for (uint32_t i = 0; i < api->adapters.n; i++) {
        if (api->adapters.all[i]->waiting == call) api->adapters.all[i]->waiting = NULL;
    }
}

void wefti_api_adapters_use(struct weft_api_state *api, const struct weft_step_adapter *adapters,
                            uint32_t n, bool begins) {
    for (uint32_t i = 0; i < n; i++) {
        struct weft_api_adapter *adapter = wefti_api_adapters_find(&api->adapters, adapters[i].id);
        if (!adapter) continue; /* it failed meanwhile */
        WEFT_ASSERT(begins || adapter->n_calls > 0);
        adapter->n_calls += begins ? 1 : UINT32_MAX;
        if (adapter->is_leaving && adapter->n_calls == 0)
            wefti_api_adapters_take_back(api, adapter);
    }
}

bool wefti_api_adapters_have(const struct weft_api_state *api,
                             const struct weft_step_adapter *adapters, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!wefti_api_adapters_find(&api->adapters, adapters[i].id)) return false;
    }
    return true;
}
