/* ollama's endpoints that need no call: which models there are. */
#include <string.h>

#include "answers/answers.h"
#include "answers/rfc3339.h"
#include "api/api.h"

static void write_str(struct weft_writer *w, const char *key, const char *text) {
    weft_write_key(w, key);
    weft_write_str(w, text);
}

void wefti_api_write_ollama_details(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    const char *arch = s->has_model ? s->model.arch : "", *path = api->settings.model;
    size_t len = path ? strlen(path) : 0;
    bool is_gguf = len > 5 && strcmp(path + len - 5, ".gguf") == 0;
    weft_write_key(w, "details");
    weft_write_map(w);
    write_str(w, "parent_model", "");
    write_str(w, "format", is_gguf ? "gguf" : "safetensors");
    write_str(w, "family", arch);
    weft_write_key(w, "families");
    weft_write_list(w);
    weft_write_str(w, arch);
    weft_write_end(w);
    write_str(w, "parameter_size", "");
    write_str(w, "quantization_level", "");
    weft_write_end(w);
}

/* `is_running`: an entry of /api/ps. */
static void write_model(const struct weft_api_state *api, const char *name, bool is_running,
                        struct weft_writer *w) {
    const struct weft_msg_snapshot *s = &api->upstream.snapshot;
    char time[WEFTI_API_TIME_BYTES];
    weft_write_map(w);
    write_str(w, "name", name);
    write_str(w, "model", name);
    wefti_api_time(api->settings.started_s, time);
    write_str(w, "modified_at", time);
    weft_write_key(w, "size");
    weft_write_uint(w, s->has_model ? s->model.weight_bytes : 0);
    write_str(w, "digest", s->has_model ? s->model.fingerprint : "");
    wefti_api_write_ollama_details(api, w);
    if (is_running) {
        weft_write_key(w, "size_vram");
        weft_write_uint(w, 0);
        write_str(w, "expires_at", "9999-12-31T23:59:59Z"); /* it stays */
    }
    weft_write_end(w);
}

static void write_models(const struct weft_api_state *api, bool is_running, uint32_t n,
                         struct weft_writer *w) {
    weft_write_map(w);
    weft_write_key(w, "models");
    weft_write_list(w);
    for (uint32_t i = 0; i < n; i++)
        write_model(api, api->limits.model_names[i], is_running, w);
    weft_write_end(w);
    weft_write_end(w);
}

void wefti_api_write_ollama_tags(const struct weft_api_state *api, struct weft_writer *w) {
    write_models(api, false, api->limits.n_model_names, w);
}

void wefti_api_write_ollama_ps(const struct weft_api_state *api, struct weft_writer *w) {
    write_models(api, true, api->upstream.snapshot.has_model ? 1 : 0, w);
}
