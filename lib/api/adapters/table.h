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

/* Whether all schedulers that serve have it, and one does (where.c). */
bool wefti_api_adapter_is_complete(const struct weft_api_state *api,
                                   const struct weft_api_adapter *adapter);
/* See weft_api_adapters_ops. */
uint32_t wefti_api_adapters_lacking(const struct weft_api_state *api,
                                    const struct weft_step_adapter *adapters, uint32_t n);
/* The scheduler's session is over. */
void wefti_api_adapter_unlink(struct weft_api_adapter *adapter, uint32_t scheduler);
/* It does not have it, as it says. True: others have, and go on with its requests. */
bool wefti_api_adapter_lose(struct weft_api_state *api, struct weft_api_adapter *adapter,
                            uint32_t scheduler, const char *text);

/* Calls that come from now on see the table as it is now. */
void wefti_api_adapters_renew(struct weft_api_state *api);
void wefti_api_adapters_free_list(struct weft_api_adapter_list *list);

#endif
