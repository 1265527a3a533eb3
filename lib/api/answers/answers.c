#include "answers/answers.h"

#include "api/api.h"

void wefti_api_write_model(const struct weft_api_state *api, const char *name,
                           struct weft_writer *w) {
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
    weft_write_str(w, api->settings.model);
    weft_write_key(w, "parent");
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
    (void)moment;
    weft_write_map(w);
    weft_write_key(w, "object");
    weft_write_str(w, "list");
    weft_write_key(w, "data");
    weft_write_list(w);
    for (uint32_t i = 0; i < api->limits.n_model_names; i++)
        wefti_api_write_model(api, api->limits.model_names[i], w);
    weft_write_end(w);
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
