/* table — the router's list of adapters, for those that change it. */
#ifndef WEFTI_API_ADAPTERS_TABLE_H
#define WEFTI_API_ADAPTERS_TABLE_H

#include "api/adapters.h"

struct weft_api_adapter *wefti_api_adapters_find(const struct weft_api_adapters *a, uint64_t id);
/* Not one that leaves. */
struct weft_api_adapter *wefti_api_adapters_find_name(const struct weft_api_adapters *a,
                                                      const char *name);
/* NULL: no memory. */
struct weft_api_adapter *wefti_api_adapters_add(struct weft_api_adapters *a, const char *name,
                                                const char *path);
/* Nobody uses it any more: schedulers are told, and it is freed. */
void wefti_api_adapters_take_back(struct weft_api_state *api, struct weft_api_adapter *adapter);

/* Calls that come from now on see the table as it is now. */
void wefti_api_adapters_renew(struct weft_api_state *api);
void wefti_api_adapters_free_list(struct weft_api_adapter_list *list);

#endif
