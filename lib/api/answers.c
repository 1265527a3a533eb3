#include "answers.h"

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

static void write_number(struct weft_writer *w, const char *key, uint64_t value) {
    weft_write_key(w, key);
    weft_write_uint(w, value);
}

void wefti_api_write_stats(const struct weft_api_state *api, const struct weft_api_moment *moment,
                           struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    const struct weft_api_metrics *m = &api->metrics;
    weft_write_map(w);
    weft_write_key(w, "serving");
    weft_write_bool(w, s->serving);
    weft_write_key(w, "advancing");
    weft_write_bool(w, s->advancing);
    write_number(w, "num_requests_running", s->n_running);
    write_number(w, "num_requests_waiting", s->n_waiting);
    write_number(w, "kv_blocks", s->n_blocks);
    write_number(w, "kv_blocks_free", s->n_blocks_free);
    write_number(w, "num_preemptions", m->carried.n_preemptions);
    write_number(w, "steps", m->carried.n_steps);
    write_number(w, "prompt_tokens", m->n_prompt_tokens);
    write_number(w, "generation_tokens", m->n_generation_tokens);
    write_number(w, "connections", m->n_open_connections);
    weft_write_key(w, "resident_bytes");
    weft_write_map(w);
    write_number(w, "router", moment->resident_bytes);
    write_number(w, "scheduler", s->sched_resident_bytes);
    write_number(w, "worker", s->worker_resident_bytes);
    weft_write_end(w);
    weft_write_end(w);
}
