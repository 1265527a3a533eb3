/* Copies of the list, for calls. */
#include "api/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "adapters/table.h"
#include "api/api.h"
#include "base/check.h"

void wefti_api_adapters_free_list(struct weft_api_adapter_list *list) {
    for (uint32_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
        free(list->items[i].path);
    }
    free(list);
}

const struct weft_api_adapter_list *wefti_api_adapters_hold(struct weft_api_state *api) {
    if (api->adapters.list) api->adapters.list->n_holders++;
    return api->adapters.list;
}

void wefti_api_adapters_let_go(const struct weft_api_adapter_list *held) {
    struct weft_api_adapter_list *list = (struct weft_api_adapter_list *)held; /* ours */
    if (!list) return;
    WEFT_ASSERT(list->n_holders > 0);
    if (--list->n_holders == 0) wefti_api_adapters_free_list(list);
}

const struct weft_api_adapter_item *wefti_api_adapter_find(const struct weft_api_adapter_list *list,
                                                           const char *name, size_t len) {
    for (uint32_t i = 0; list && i < list->n; i++) {
        const char *known = list->items[i].name;
        if (strlen(known) == len && memcmp(known, name, len) == 0) return &list->items[i];
    }
    return NULL;
}

const struct weft_api_adapter_item *
wefti_api_adapter_numbered(const struct weft_api_adapter_list *list, int64_t number) {
    for (uint32_t i = 0; list && i < list->n; i++) {
        if (list->items[i].number == number) return &list->items[i];
    }
    return NULL;
}
