#include "answers/answers.h"

#include <string.h>

#include "api/api.h"

/* An adapter's parent is the model that it is for. */
void wefti_api_write_model(const struct weft_api_state *api, const char *name,
                           struct weft_writer *w) {
    const struct weft_api_adapter_item *adapter =
        wefti_api_adapter_find(api->limits.adapters, name, strlen(name));
    weft_write_map(w);
    weft_write_key(w, "id");
    weft_write_str(w, name);
    weft_write_key(w, "object");
    weft_write_str(w, "model");
    weft_write_key(w, "created");
    weft_write_int(w, api->settings.started_s);
    weft_write_key(w, "owned_by");
    weft_write_str(w, "weft");
    weft_write_key(w, "root");
    weft_write_str(w, adapter ? adapter->path : api->settings.model);
    weft_write_key(w, "parent");
    if (adapter)
        weft_write_str(w, api->limits.model_name);
    else
        weft_write_null(w);
    weft_write_key(w, "max_model_len");
    if (api->limits.max_model_len)
        weft_write_uint(w, api->limits.max_model_len);
    else
        weft_write_null(w);
    weft_write_end(w);
}

void wefti_api_write_models(const struct weft_api_state *api, const struct weft_api_moment *moment,
                            struct weft_writer *w) {
    const struct weft_api_adapter_list *adapters = api->limits.adapters;
    (void)moment;
    weft_write_map(w);
    weft_write_key(w, "object");
    weft_write_str(w, "list");
    weft_write_key(w, "data");
    weft_write_list(w);
    for (uint32_t i = 0; i < api->limits.n_model_names; i++)
        wefti_api_write_model(api, api->limits.model_names[i], w);
    for (uint32_t i = 0; adapters && i < adapters->n; i++)
        wefti_api_write_model(api, adapters->items[i].name, w);
    weft_write_end(w);
    weft_write_end(w);
}

/* As llama-server lists them: none is added unless a request says so. */
void wefti_api_write_lora_adapters(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_api_adapter_list *adapters = api->limits.adapters;
    weft_write_list(w);
    for (uint32_t i = 0; adapters && i < adapters->n; i++) {
        weft_write_map(w);
        weft_write_key(w, "id");
        weft_write_uint(w, adapters->items[i].number);
        weft_write_key(w, "name");
        weft_write_str(w, adapters->items[i].name);
        weft_write_key(w, "path");
        weft_write_str(w, adapters->items[i].path);
        weft_write_key(w, "scale");
        weft_write_uint(w, 0);
        weft_write_end(w);
    }
    weft_write_end(w);
}

void wefti_api_write_health(const struct weft_api_state *api, const struct weft_api_moment *moment,
                            struct weft_writer *w) {
    const char *why = weft_api_why_ill(api, moment->now_ms);
    weft_write_map(w);
    weft_write_key(w, "status");
    weft_write_str(w, why ? "unavailable" : "ok");
    if (why) {
        weft_write_key(w, "reason");
        weft_write_str(w, why);
    }
    weft_write_end(w);
}

void wefti_api_reset_prefix_cache(struct weft_api_state *api, struct weft_api_error *error) {
    if (weft_api_upstream_reset_cache(api) == WEFT_OK) return;
    weft_api_error_set(error, 503, NULL, "not_serving", "no scheduler is there to be told");
    error->retry_after_ms = WEFT_API_RETRY_MS;
}
